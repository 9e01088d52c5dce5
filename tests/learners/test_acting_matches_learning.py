"""Acting against learning: the same normalizer statistics, policy ratios that start at 1, and the entropy bonus."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from small_envs import VECTOR, Walk

from thespis.core.contracts import Mode
from thespis.core.laws.assertions import assert_same_bits
from thespis.core.laws.random_samples import first_episode_mask, random_transitions, random_view, randomize_padding
from thespis.core.records import Batch, EnvSpec
from thespis.core.spaces import Discrete
from thespis.data.feeds import Replay, Rollouts
from thespis.learners.optim.normalizers import RunningMeanStd
from thespis.methods.online.a2c import A2C
from thespis.methods.online.dsac import DSAC
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC

KEY, TIME, ROWS = synthetic_batches.quick_key(0), 6, 4
SPEC = EnvSpec("choices", VECTOR, Discrete(3))


def policy_rollout(method, state, seed=0):
    """A rollout on random views, with the actions and extras of the method's own policy."""
    steps = random_transitions(SPEC, np.random.default_rng(seed), TIME, ROWS)
    policy = method.policy(state, Mode.EXPLORE)

    def act(view, key):
        action, _, extras = method.act(policy, method.init_memory(policy, ROWS), view, key)
        return action, extras

    action, extras = jax.vmap(act)(steps.view, jax.random.split(KEY, TIME))
    steps = dataclasses.replace(steps, action=action, extras=extras)
    return Batch(steps, jnp.ones((TIME, ROWS), bool), method.init_memory(policy, ROWS), jnp.zeros((), "int32"))


def sharpen_policy(state):
    """The state with a policy far from uniform."""
    return eqx.tree_at(lambda s: s.network.policy_head.out.weight, state, replace_fn=lambda w: 100 * w)


def set_normalizer(method, state):
    """The state with a normalizer whose statistics are far from mean 0 and standard deviation 1."""
    observations = 5.0 + 3.0 * random_transitions(SPEC, np.random.default_rng(9), TIME, ROWS).view.observation
    normalizer_state = method.obs_normalizer.update(
        method.obs_normalizer.init(VECTOR), observations, jnp.ones((TIME, ROWS), bool)
    )
    where = (lambda s: s.obs_normalizer_state) if isinstance(method, SAC) else (lambda s: s.normalizer_states[0])
    return eqx.tree_at(where, state, normalizer_state)


def test_greedy_actions_use_the_training_normalizer():
    method, spec = SAC(hidden_sizes=(5,), obs_normalizer=RunningMeanStd(), feed=Replay(batch_size=4)), Walk().spec
    view = random_view(spec, np.random.default_rng(0), (8,))

    @jax.jit
    def greedy_actions(key, view):
        state = set_normalizer(method, method.init(spec, key))
        actions = method.act(method.policy(state, Mode.EXPLOIT), (), view, key)[0]
        unnormalized = jax.vmap(lambda v: state.actor(v).mode())(view)
        return (
            actions,
            jax.vmap(lambda v: state.actor(method.normalize_view(state.obs_normalizer_state, v)).mode())(view),
            unnormalized,
        )

    actions, expected, unnormalized = jax.tree.map(np.asarray, greedy_actions(KEY, view))
    np.testing.assert_allclose(actions, expected, atol=1e-6)
    assert np.abs(actions - unnormalized).max() > 1e-3


@pytest.mark.parametrize("kind", [SAC, DSAC])
def test_padding_does_not_change_the_normalizer(kind):
    """Nor any other part of the state, for windows of two steps cut after the first step."""
    method, spec, rng = (
        kind(hidden_sizes=(4, 4), obs_normalizer=RunningMeanStd()),
        Walk().spec,
        np.random.default_rng(0),
    )
    steps = random_transitions(spec, rng, 2, 6)
    truncated = np.array(steps.truncated)
    truncated[0, :3] = True
    steps = dataclasses.replace(steps, truncated=jax.device_put(truncated))
    mask, index = jax.device_put((first_episode_mask(np.asarray(steps.terminated) | truncated), np.int32(0)))
    state, update = synthetic_batches.init_state(method, spec), jax.jit(method.update)
    padded = randomize_padding(spec, steps, mask, rng)
    new_state, padded_state = (update(state, Batch(x, mask, (), index), KEY)[0] for x in (steps, padded))
    assert_same_bits(new_state, padded_state, "padding")
    assert np.abs(np.asarray(new_state.obs_normalizer_state[0].mean)).max() > 0 and not np.asarray(mask).all()


def test_ratios_start_at_one_while_the_normalizer_is_updated():
    """In the first epoch every ratio compares the policy with itself, although the normalizer is updated first."""
    method = PPO(
        hidden_sizes=(5,),
        obs_normalizer=RunningMeanStd(),
        learning_rate=0.0,
        num_epochs=2,
        minibatch_size=8,
        feed=Rollouts(TIME, num_envs=ROWS),
    )

    @jax.jit
    def update(key):
        state = set_normalizer(method, sharpen_policy(method.init(SPEC, key)))
        return state, *method.update(state, policy_rollout(method, state), key)

    state, new, report = jax.tree.map(np.asarray, update(KEY))
    assert abs(float(report.metrics["kl"])) < 1e-6 and float(report.metrics["clipped"]) == 0
    assert float(report.metrics["gradient"]) > 1e-4
    assert np.abs(new.normalizer_states[0][0].mean - state.normalizer_states[0][0].mean).max() > 0.1


@pytest.mark.parametrize(("kind", "rate"), [(A2C, 0.3), (PPO, 3e-3)])
def test_entropy_bonus_increases_entropy(kind, rate):
    """One update with the bonus leaves a policy far from uniform with more entropy than one update without it."""

    @jax.jit
    def entropies(weight, key):
        method = kind(hidden_sizes=(5,), ent_coef=weight, learning_rate=rate, feed=Rollouts(TIME, num_envs=ROWS))
        state = sharpen_policy(method.init(SPEC, key))
        batch = policy_rollout(method, state)
        new = method.update(state, batch, key)[0]
        steps = batch.steps
        policies = [s.network.distributions(batch.memory, steps.view, steps.is_first) for s in (state, new)]
        return [jax.vmap(jax.vmap(lambda p: p.entropy()))(p).mean() for p in policies]

    entropy = [[float(e) for e in entropies(np.float32(weight), KEY)] for weight in (0.0, 3.0)]
    before, after = zip(*entropy, strict=True)
    assert before[0] == before[1] < 0.95 * np.log(3)
    assert after[1] > after[0] + 1e-3 and after[1] > before[1]
