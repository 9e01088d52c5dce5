"""Evolution strategies: ranks against SciPy, mirrored sampling, and the maximum of a known function."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from small_envs import Walk

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.core.spaces import Box
from thespis.data.feeds import Rollouts
from thespis.objectives.statistics import centered_ranks
from thespis.papers.adversarial_cheap_talk.method import ES
from thespis.runtime.keys import seed_key

SPEC = dataclasses.replace(Walk().spec, action_space=Box((3,)))


def test_centered_ranks_match_scipy_with_ties():
    x = np.array([3.0, -1.0, 3.0, 7.0, 0.5, 3.0])
    expected = (scipy.stats.rankdata(x) - (len(x) + 1) / 2) / len(x)
    np.testing.assert_allclose(centered_ranks(jnp.asarray(x)), expected, atol=1e-6)


def test_samples_are_mirrored_around_the_mean():
    method = ES(noise_std=0.5, feed=Rollouts(1, num_envs=6))
    state = method.init(SPEC, seed_key(0))
    view = View(jnp.zeros((6, 3)))
    actions, _, extras = method.act(method.policy(state, Mode.EXPLORE), (), view, seed_key(1))
    np.testing.assert_allclose(actions[0::2] + actions[1::2], 2 * jnp.broadcast_to(state.mean, (3, 3)), atol=1e-6)
    np.testing.assert_allclose(actions - state.mean, 0.5 * extras["noise"], atol=1e-6)
    assert (method.act(method.policy(state, Mode.EXPLOIT), (), view, seed_key(1))[0] == state.mean).all()
    many_actions = method.act(method.policy(state, Mode.EXPLORE), (), View(jnp.zeros((4_000, 3))), seed_key(2))[0]
    np.testing.assert_allclose(np.std(many_actions, axis=0), 0.5, rtol=0.05)


def test_mean_reaches_the_maximum():
    """Of ``1 - |A (x - best)|``; the method uses only the order of the values."""
    from thespis.core.records import Batch, Transition

    method = ES(learning_rate=0.05, noise_std=0.2, feed=Rollouts(1, num_envs=32))
    best = jnp.array([0.7, -1.2, 0.3])

    @jax.jit
    def generation(state, key):
        action, _, extras = method.act(method.policy(state, Mode.EXPLORE), (), View(jnp.zeros((32, 3))), key)
        reward = 1.0 - jnp.linalg.norm((action - best) * jnp.array([1.0, 3.0, 0.5]), axis=1)
        true, view = jnp.ones((1, 32), bool), View(jnp.zeros((1, 32, 3)))
        noise = {"noise": extras["noise"][None]}
        steps = Transition(view, action[None], reward[None], true, ~true, view, true, noise)
        return method.update(state, Batch(steps, true, (), jnp.int32(0)), key)[0]

    state = method.init(SPEC, seed_key(3))
    assert jnp.linalg.norm(state.mean - best) > 0.5
    for tick in range(150):
        state = generation(state, jax.random.fold_in(seed_key(4), tick))
    np.testing.assert_allclose(state.mean, best, atol=0.15)
