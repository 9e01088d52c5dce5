"""Harvest: every step against a reference implementation, and the optimal return against dynamic programming."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.envs.compiled.harvest import GROUP, Harvest, HarvestState

SMALL = Harvest(num_cells=5, num_tool_variants=2, time_limit=6)


def reference_step(env, positions, actions):
    """Reference step, on lists: next positions of all agents and the shared reward."""
    kinds = ["stay", "left", "right"] + ["sickle"] * env.num_tool_variants + ["ladder"] * env.num_tool_variants
    names = [kinds[a] for a in actions]
    next_positions = []
    for position, name in zip(positions, names, strict=True):
        position += {"left": -1, "right": 1}.get(name, 0)
        next_positions.append(min(max(position, 0), env.num_cells - 1))
    low = sum(p == 0 and d == "sickle" for p, d in zip(positions, names, strict=True))
    high = sum(p == env.num_cells - 1 and d == "ladder" for p, d in zip(positions, names, strict=True))
    return tuple(next_positions), min(low, high)


@pytest.mark.parametrize("agents", [2, 3])
def test_every_step_matches_the_reference(agents):
    env = Harvest(num_agents=agents, num_cells=3, num_tool_variants=1)
    cases = itertools.product(
        itertools.product(range(3), repeat=agents), itertools.product(range(env.num_actions), repeat=agents)
    )
    positions, actions = (np.array(x, "int32") for x in zip(*cases, strict=True))

    def step_from(position, action):
        state = HarvestState(position, jnp.zeros(agents, "int32"), jnp.zeros((), "int32"))
        return env.step(state, {GROUP: action}, jax.random.key(0))

    after, step = jax.jit(jax.vmap(step_from))(positions, actions)
    expected = [reference_step(env, p, a) for p, a in zip(positions.tolist(), actions.tolist(), strict=True)]
    np.testing.assert_array_equal(after.positions, [w[0] for w in expected])
    np.testing.assert_array_equal(step.reward, [w[1] for w in expected])
    obs = np.asarray(step.observation[GROUP]).reshape(len(positions), agents, agents, -1)
    np.testing.assert_array_equal(obs[:, 1, 0, :3].argmax(-1), after.positions[:, 1])  # the agent itself comes first
    np.testing.assert_array_equal(obs[:, 1, -1, :3].argmax(-1), after.positions[:, 0])
    np.testing.assert_array_equal(obs[:, 0, 0, 3:].argmax(-1), after.tools[:, 0])


@pytest.mark.parametrize(
    "env", [SMALL, Harvest(num_agents=4, num_cells=3, num_tool_variants=1, time_limit=3)], ids=["two", "four"]
)
def test_optimal_return(env):
    actions = (0, 1, 2, 3, 3 + env.num_tool_variants)

    @functools.cache
    def best_return(positions, steps_left):
        if not steps_left:
            return 0
        outcomes = (reference_step(env, positions, a) for a in itertools.product(actions, repeat=env.num_agents))
        return max(reward + best_return(after, steps_left - 1) for after, reward in outcomes)

    assert best_return((env.num_cells // 2,) * env.num_agents, env.time_limit) == env.optimal_return()


def test_contract():
    check_environment(SMALL)
