"""Evolution strategies: ranks by hand, draws that mirror each other, and a hill that is climbed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from worlds import Walk

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.keys import key_of
from thespis.core.records import View
from thespis.core.spaces import Box
from thespis.methods.online.es import ES
from thespis.objectives.normalise import centred_ranks

SPEC = dataclasses.replace(Walk().spec, action=Box((3,)))


def test_ranks_are_those_of_scipy_and_equal_ones_share_theirs():
    x = np.array([3.0, -1.0, 3.0, 7.0, 0.5, 3.0])
    expected = (scipy.stats.rankdata(x) - (len(x) + 1) / 2) / len(x)
    np.testing.assert_allclose(centred_ranks(jnp.asarray(x)), expected, atol=1e-6)


def test_draws_mirror_each_other_around_the_mean():
    method = ES(deviation=0.5, feed=Rollouts(1, envs=6))
    state = method.init(SPEC, key_of(0))
    view = View(jnp.zeros((6, 3)))
    drawn, _, extras = method.act(method.policy(state, Mode.EXPLORE), (), view, key_of(1))
    np.testing.assert_allclose(drawn[0::2] + drawn[1::2], 2 * jnp.broadcast_to(state.mean, (3, 3)), atol=1e-6)
    np.testing.assert_allclose(drawn - state.mean, 0.5 * extras["noise"], atol=1e-6)
    assert (method.act(method.policy(state, Mode.EXPLOIT), (), view, key_of(1))[0] == state.mean).all()
    wide = method.act(method.policy(state, Mode.EXPLORE), (), View(jnp.zeros((4_000, 3))), key_of(2))[0]
    np.testing.assert_allclose(np.std(wide, axis=0), 0.5, rtol=0.05)


def test_the_mean_climbs_a_hill_of_many_sides():
    """``1 - |A (x - best)|``, only the order of which is seen."""
    from thespis.core.records import Batch, Transition

    method = ES(learning_rate=0.05, deviation=0.2, feed=Rollouts(1, envs=32))
    best = jnp.array([0.7, -1.2, 0.3])

    @jax.jit
    def generation(state, key):
        action, _, extras = method.act(method.policy(state, Mode.EXPLORE), (), View(jnp.zeros((32, 3))), key)
        earned = 1.0 - jnp.linalg.norm((action - best) * jnp.array([1.0, 3.0, 0.5]), axis=1)
        yes, view = jnp.ones((1, 32), bool), View(jnp.zeros((1, 32, 3)))
        noise = {"noise": extras["noise"][None]}
        steps = Transition(view, action[None], earned[None], yes, ~yes, view, yes, noise)
        return method.update(state, Batch(steps, yes, (), jnp.int32(0)), key)[0]

    state = method.init(SPEC, key_of(3))
    assert jnp.linalg.norm(state.mean - best) > 0.5
    for tick in range(150):
        state = generation(state, jax.random.fold_in(key_of(4), tick))
    np.testing.assert_allclose(state.mean, best, atol=0.15)
