"""Climbing game: rewards of all joint actions against the payoff matrix."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.laws.components import check_environment
from thespis.papers.bayesian_joint_policy.envs import PAYOFF_MATRIX, ClimbingGame


def test_contract():
    check_environment(ClimbingGame())


def test_two_agents_play_the_matrix_and_the_third_has_no_effect():
    env, cases = ClimbingGame(), list(itertools.product(range(3), range(3), range(3), range(3)))
    excluded, *choices = np.array(cases, "int32").T
    actions = {"agent": jnp.stack([jnp.asarray(x) for x in choices], axis=1)}
    _, timestep = jax.jit(jax.vmap(env.step, in_axes=(0, 0, None)))(jnp.asarray(excluded), actions, jax.random.key(0))
    expected = [
        PAYOFF_MATRIX[a][b]
        for excluded_agent, *joint_action in cases
        for a, b in [[x for i, x in enumerate(joint_action) if i != excluded_agent]]
    ]
    np.testing.assert_array_equal(timestep.reward, expected)
    assert max(expected) == 11.0 and bool(timestep.terminated.all())
    np.testing.assert_array_equal(timestep.observation["agent"][:, 2], np.eye(3)[excluded])
