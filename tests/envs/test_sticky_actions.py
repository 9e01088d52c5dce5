"""Sticky actions: how often they repeat, against the binomial distribution, and what they leave as it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import TREE_ACTION, Walk

from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.laws.components import check_environment
from thespis.core.spaces import Discrete
from thespis.envs.compiled.sticky_actions import StickyActions
from thespis.envs.registry import make_compiled
from thespis.runtime.keys import fold

NUM_ENVS, NUM_STEPS = 200, 101
WALK = Walk(Discrete(4), limit=1_000, risk=0.0)


def executed_actions(env, choose, num_envs=NUM_ENVS, num_steps=NUM_STEPS):
    """The executed actions ``[step, env]``; ``choose(executed last, step)`` is the agent."""

    def step(state, t):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(1), t), num_envs)
        state, _ = jax.vmap(env.step)(state, choose(state.last_action, t), keys)
        return state, state.last_action

    keys = jax.random.split(jax.random.key(0), num_envs)
    state, _ = jax.vmap(lambda key: env.reset(env.spec.params, key))(keys)
    return np.asarray(jax.jit(lambda s: jax.lax.scan(step, s, jnp.arange(num_steps)))(state)[1])


@pytest.mark.long
@pytest.mark.parametrize("probability", [0.0, 0.25, 0.6])
def test_repetitions_are_independent_with_their_probability(probability):
    env = StickyActions(WALK, probability)
    executed = executed_actions(env, lambda last, t: (last + 1) % 4)  # the agent itself never repeats
    assert (executed[0] == 1).all()  # the first action is never replaced, even by the zero in the state
    sticks = executed[1:] == executed[:-1]
    assert np.isin((executed[1:] - executed[:-1]) % 4, [0, 1]).all()

    def check_binomial(events, p):
        assert abs(events.sum() - events.size * p) <= 4 * (events.size * p * (1 - p)) ** 0.5

    check_binomial(sticks, probability)
    check_binomial(sticks[::2] & sticks[1::2], probability**2)  # neither steps
    check_binomial(sticks[:, ::2] & sticks[:, 1::2], probability**2)  # nor environments share their draws
    counts = sticks.sum(axis=0)  # one binomial number for each environment
    variance = (NUM_STEPS - 1) * probability * (1 - probability)
    assert counts.var() == pytest.approx(variance, rel=0.45)


def test_what_is_repeated_is_the_executed_action():
    """An agent that plays its step's number: what is executed is the number of the last step that did not stick."""
    executed = executed_actions(StickyActions(WALK, 0.5), lambda last, t: jnp.full_like(last, t))
    steps = np.arange(NUM_STEPS)[:, None]
    expected = np.maximum.accumulate(np.where(executed == steps, steps, 0))
    np.testing.assert_array_equal(executed, expected)
    assert (steps - executed).max() >= 3  # repetitions follow each other


@pytest.mark.long
@pytest.mark.parametrize("name", ["gymnax:CartPole-v1", "gymnax:Acrobot-v1"])
@pytest.mark.parametrize("probability", [0.0, 0.25])
def test_the_environment_itself_is_unchanged(name, probability):
    """The plain environment with the executed actions passes through the same states, bit by bit."""
    plain = make_compiled(name)
    sticky = StickyActions(plain, probability)
    assert sticky.spec is plain.spec
    key = jax.random.key(3)
    (state, first), (plain_state, plain_first) = (env.reset(env.spec.params, key) for env in (sticky, plain))
    assert_same_bits(to_numpy(first), to_numpy(plain_first), "reset")
    rng = np.random.default_rng(0)
    step, plain_step = jax.jit(sticky.step), jax.jit(plain.step)
    num_sticks = 0
    for t in range(40):
        action = jnp.asarray(rng.integers(2), "int32")
        state, result = step(state, action, fold(key, "test", t))
        num_sticks += int(state.last_action != action)
        plain_state, expected = plain_step(plain_state, state.last_action, fold(fold(key, "test", t), "step"))
        assert_same_bits(to_numpy((state.env_state, result)), to_numpy((plain_state, expected)), f"step {t}")
    assert (num_sticks > 0) == (probability > 0)


@pytest.mark.long
def test_contract():
    check_environment(StickyActions(make_compiled("gymnax:Acrobot-v1")), num_steps=20)
    check_environment(StickyActions(Walk(TREE_ACTION)), num_steps=20)


def test_wrong_arguments_are_refused():
    for probability in (-0.1, 1.0):
        with pytest.raises(UserError, match="at least 0 and below 1"):
            StickyActions(WALK, probability)
    with pytest.raises(UserError, match="always legal"):
        StickyActions(Walk(Discrete(4), legal=True))
