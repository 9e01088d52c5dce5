"""What is played is what was learnt: scales are those of learning, ratios begin at 1, entropy is a bonus."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from worlds import VECTOR, Walk

from thespis.core.contracts import Mode
from thespis.core.feeds import Replay, Rollouts
from thespis.core.laws import same_bits
from thespis.core.records import Batch, EnvSpec
from thespis.core.samples import random_steps, random_view, until_end, with_other_padding
from thespis.core.spaces import Discrete
from thespis.learners.normalisers import RunningScale
from thespis.methods.online.a2c import A2C
from thespis.methods.online.dsac import DSAC
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC

KEY, TIME, ROWS = made_up.quick_key(0), 6, 4
SPEC = EnvSpec("choices", VECTOR, Discrete(3))


def played(method, state, seed=0):
    """A rollout on made-up views, with what the method's own actor did there."""
    steps = random_steps(SPEC, np.random.default_rng(seed), TIME, ROWS)
    policy = method.policy(state, Mode.EXPLORE)

    def tick(view, key):
        action, _, extras = method.act(policy, method.begin(policy, ROWS), view, key)
        return action, extras

    action, extras = jax.vmap(tick)(steps.view, jax.random.split(KEY, TIME))
    steps = dataclasses.replace(steps, action=action, extras=extras)
    return Batch(steps, jnp.ones((TIME, ROWS), bool), method.begin(policy, ROWS), jnp.zeros((), "int32"))


def decided(state):
    """The state with a policy that is far from uniform."""
    return eqx.tree_at(lambda s: s.network.head.out.weight, state, replace_fn=lambda w: 100 * w)


def scaled(method, state):
    """The state with a scale that has seen something far from mean 0 and deviation 1."""
    seen = 5.0 + 3.0 * random_steps(SPEC, np.random.default_rng(9), TIME, ROWS).view.observation
    scale = method.observations.update(method.observations.init(VECTOR), seen, jnp.ones((TIME, ROWS), bool))
    where = (lambda s: s.scale) if isinstance(method, SAC) else (lambda s: s.scales[0])
    return eqx.tree_at(where, state, scale)


def test_greedy_play_sees_what_learning_saw():
    method, spec = SAC(hidden=(5,), observations=RunningScale(), feed=Replay(batch=4)), Walk().spec
    view = random_view(spec, np.random.default_rng(0), (8,))

    @jax.jit
    def told(key, view):
        state = scaled(method, method.init(spec, key))
        found = method.act(method.policy(state, Mode.EXPLOIT), (), view, key)[0]
        plain = jax.vmap(lambda v: state.actor(v).mode())(view)
        return found, jax.vmap(lambda v: state.actor(method.scaled(state.scale, v)).mode())(view), plain

    found, wanted, plain = jax.tree.map(np.asarray, told(KEY, view))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert np.abs(found - plain).max() > 1e-3


@pytest.mark.parametrize("kind", [SAC, DSAC])
def test_what_lies_behind_an_end_moves_no_scale(kind):
    """Nor anything else, where windows of two steps are cut after the first one."""
    method, spec, rng = kind(hidden=(4, 4), observations=RunningScale()), Walk().spec, np.random.default_rng(0)
    steps = random_steps(spec, rng, 2, 6)
    truncated = np.array(steps.truncated)
    truncated[0, :3] = True
    steps = dataclasses.replace(steps, truncated=jax.device_put(truncated))
    mask, index = jax.device_put((until_end(np.asarray(steps.terminated) | truncated), np.int32(0)))
    state, update = made_up.begun(method, spec), jax.jit(method.update)
    padded = with_other_padding(spec, steps, mask, rng)
    one, other = (update(state, Batch(x, mask, (), index), KEY)[0] for x in (steps, padded))
    same_bits(one, other, "padding")
    assert np.abs(np.asarray(one.scale[0].mean)).max() > 0 and not np.asarray(mask).all()


def test_ratios_begin_at_one_though_the_scale_learns():
    """In the first pass over a rollout every ratio is that of the actor to itself, whatever the scale learns of it."""
    method = PPO(
        hidden=(5,),
        observations=RunningScale(),
        learning_rate=0.0,
        epochs=2,
        minibatch=8,
        feed=Rollouts(TIME, envs=ROWS),
    )

    @jax.jit
    def told(key):
        state = scaled(method, decided(method.init(SPEC, key)))
        return state, *method.update(state, played(method, state), key)

    state, new, report = jax.tree.map(np.asarray, told(KEY))
    assert abs(float(report.metrics["kl"])) < 1e-6 and float(report.metrics["clipped"]) == 0
    assert float(report.metrics["gradient"]) > 1e-4
    assert np.abs(new.scales[0][0].mean - state.scales[0][0].mean).max() > 0.1


@pytest.mark.parametrize(("kind", "rate"), [(A2C, 0.3), (PPO, 3e-3)])
def test_a_bonus_for_entropy_makes_more_of_it(kind, rate):
    """One step with a weight and one without: with it the policy, far from uniform, is left with more entropy."""

    @jax.jit
    def entropies(weight, key):
        method = kind(hidden=(5,), entropy_weight=weight, learning_rate=rate, feed=Rollouts(TIME, envs=ROWS))
        state = decided(method.init(SPEC, key))
        batch = played(method, state)
        new = method.update(state, batch, key)[0]
        steps = batch.steps
        policies = [s.network.distributions(batch.memory, steps.view, steps.first) for s in (state, new)]
        return [jax.vmap(jax.vmap(lambda p: p.entropy()))(p).mean() for p in policies]

    entropy = [[float(e) for e in entropies(np.float32(weight), KEY)] for weight in (0.0, 3.0)]
    before, after = zip(*entropy, strict=True)
    assert before[0] == before[1] < 0.95 * np.log(3)
    assert after[1] > after[0] + 1e-3 and after[1] > before[1]
