"""Coordination game: rewards, transitions and the optimal return against enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.papers.bayesian_joint_policy.envs import CoordinationGame, CoordinationState


def reward_of(bits, tolerance):
    """The reward as the paper defines it, by counting."""
    zeros, ones = bits.count(0), bits.count(1)
    if abs(zeros - ones) <= tolerance:
        return 1.0 if zeros < ones else 0.0
    return 3.0 if zeros > ones else 2.0


def test_contract():
    check_environment(CoordinationGame())


@pytest.mark.parametrize(("num_agents", "tolerance"), [(2, 1), (3, 1), (5, 2)])
def test_rewards_and_transitions(num_agents, tolerance):
    env = CoordinationGame(num_agents, tolerance, flip_prob=0.0)
    joint_actions = list(itertools.product(range(2), repeat=num_agents))
    state = CoordinationState(jnp.zeros(num_agents, "int32"), jnp.zeros((), "int32"))
    step = jax.jit(jax.vmap(lambda action: env.step(state, {"agent": action}, jax.random.key(0))))
    after, timestep = step(jnp.asarray(joint_actions, "int32"))
    np.testing.assert_array_equal(after.bits, joint_actions)
    np.testing.assert_array_equal(timestep.observation["agent"][:, -1], joint_actions)
    np.testing.assert_array_equal(timestep.reward, [reward_of(bits, tolerance) for bits in joint_actions])


@pytest.mark.parametrize(("num_agents", "tolerance"), [(2, 1), (3, 1), (5, 2)])
def test_the_optimal_return_is_that_of_the_best_joint_action(num_agents, tolerance):
    env = CoordinationGame(num_agents, tolerance, flip_prob=0.2, time_limit=7)

    def expected_reward(action):
        """Over all outcomes of the flips."""
        outcomes = itertools.product(range(2), repeat=num_agents)
        probs = {
            bits: np.prod([0.8 if a == b else 0.2 for a, b in zip(action, bits, strict=True)]) for bits in outcomes
        }
        return sum(prob * reward_of(bits, tolerance) for bits, prob in probs.items())

    best = max(map(expected_reward, itertools.product(range(2), repeat=num_agents)))
    assert env.optimal_return() == pytest.approx(7 * best, rel=1e-6)


def test_bits_flip_as_often_as_declared():
    env = CoordinationGame()
    state = CoordinationState(jnp.zeros(3, "int32"), jnp.zeros((), "int32"))
    action = {"agent": jnp.array([0, 1, 0], "int32")}
    keys = jax.random.split(jax.random.key(1), 20_000)
    after, timestep = jax.jit(jax.vmap(lambda key: env.step(state, action, key)))(keys)
    np.testing.assert_allclose(np.mean(after.bits, axis=0), [0.1, 0.9, 0.1], atol=0.01)
    rewards = [reward_of(bits, 1) for bits in np.asarray(after.bits).tolist()]
    np.testing.assert_array_equal(timestep.reward, rewards)
