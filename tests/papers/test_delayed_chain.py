"""Delayed chain: rewards and values of every first action, against sums by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.evidence.benches.learned_discount import CHAIN, FIXED_DISCOUNT, SETTINGS
from thespis.papers.outer_value_function_meta_gradient.envs import LONG_DELAYED_CHAIN, DelayedChain


@pytest.mark.parametrize("env", [DelayedChain(), DelayedChain((2, 5), (1.0, -0.5)), LONG_DELAYED_CHAIN])
@pytest.mark.parametrize("later_action", [0, 1])
def test_reward_arrives_once_after_the_delay(env, later_action):
    """Whatever the later actions; values are discounted sums of the remaining rewards."""
    num_actions, discount = len(env.delays), 0.9

    @jax.jit
    def play(first):
        def step(state, action):
            state, timestep = env.step(state, action, jax.random.key(0))
            return state, timestep

        actions = jnp.full(env.episode_length, later_action).at[0].set(first)
        init_state, first_step = env.reset((), jax.random.key(0))
        return first_step, jax.lax.scan(step, init_state, actions)[1]

    observations = []
    for choice in range(num_actions):
        first_step, steps = play(choice)
        expected = np.zeros(env.episode_length)
        expected[env.delays[choice] - 1] = env.rewards[choice]
        np.testing.assert_allclose(steps.reward, expected)
        np.testing.assert_array_equal(steps.terminated, np.arange(env.episode_length) == env.episode_length - 1)
        for time in range(env.episode_length + 1):
            remaining = sum(discount**k * reward for k, reward in enumerate(expected[time:]))
            assert env.value(choice, time, discount) == pytest.approx(remaining)
        observations += [np.asarray(first_step.observation)[None], np.asarray(steps.observation)]
    indices = np.concatenate(observations).argmax(1)
    assert len(set(indices)) == 1 + num_actions * env.episode_length  # observations of all states differ
    assert all((row == 1).sum() == 1 for row in np.concatenate(observations))


def test_best_action_depends_on_the_discount():
    env = DelayedChain()
    best = {g: max(range(3), key=lambda i, g=g: env.value(i, 0, g)) for g in (0.9, 0.95, 0.98, 0.99, 1.0)}
    assert best == {0.9: 0, 0.95: 0, 0.98: 0, 0.99: 2, 1.0: 2}


def test_bench_chain_hides_its_best_choice_from_the_critic_of_the_learned_discount():
    """The late reward is worth most without a discount, and less than the others by lambda returns of biased values."""
    start, gae_lambda = FIXED_DISCOUNT.discount, SETTINGS["outer_gae_lambda"]
    values = {g: [CHAIN.value(i, 0, g) for i in range(len(CHAIN.delays))] for g in (start, 0.98, 0.983, 1.0)}
    assert [int(np.argmax(values[g])) for g in (start, 0.98, 0.983, 1.0)] == [1, 1, 4, 4]
    target = 0.0
    for time in reversed(range(CHAIN.episode_length)):  # undiscounted lambda return of the last choice
        reward = CHAIN.rewards[-1] if time + 1 == CHAIN.delays[-1] else 0.0
        target = reward + (1 - gae_lambda) * CHAIN.value(4, time + 1, start) + gae_lambda * target
    assert CHAIN.value(4, 0, start) < target < CHAIN.value(1, 0, start)
    halfway = (0.85 - np.mean(CHAIN.rewards)) / (1.0 - np.mean(CHAIN.rewards))
    assert halfway == pytest.approx(0.48, abs=0.01)


def test_contract():
    check_environment(DelayedChain((1, 3), (1.0, 1.1)))
