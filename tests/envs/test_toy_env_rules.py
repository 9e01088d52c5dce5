"""Small environments of papers: rewards and ends of a few steps against values computed by hand.

Everything else about these environments is tested in ``tests/papers``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.compiled.harvest import GROUP as HARVEST_GROUP
from thespis.envs.compiled.harvest import Harvest, HarvestState
from thespis.envs.compiled.multi_goal import MultiGoal, MultiGoalState
from thespis.envs.compiled.time_limit import TimeLimit
from thespis.papers.ai_economist.envs import Economy
from thespis.papers.bayesian_joint_policy.envs import ClimbingGame, CoordinationGame
from thespis.papers.clam.envs import RockPaperScissors, RockPaperScissorsState
from thespis.papers.convex_scoring_risk_sensitive_ac.envs import (
    PairTrading,
    PairTradingState,
    ReturnObservation,
    RiskyPath,
)
from thespis.papers.dec_pomfc.envs import Swarm, SwarmState
from thespis.papers.gmah.envs import GROUP as TWO_ROOMS_GROUP
from thespis.papers.gmah.envs import TwoRooms, TwoRoomsState
from thespis.papers.learning_to_fly.envs import default_params, hover_reward
from thespis.papers.learning_to_fly.rotorcraft import RigidBodyState
from thespis.papers.mac.envs import GoalGrid, GoalGridState, SlowWalk, SlowWalkState
from thespis.papers.mra.envs import PLACE_RADII, REWARD_SCALE, ResourceOccupation, ResourceOccupationState
from thespis.papers.outer_value_function_meta_gradient.envs import DelayedChain
from thespis.papers.revalued.envs import Levers, LeversState
from thespis.papers.rnd_ppo_for_agv.envs import Warehouse, WarehouseState
from thespis.papers.rtrl_actor_critic.envs import EAST, NORTH, SOUTH, TMaze, TMazeState
from thespis.papers.srl.envs import ActionRepeat
from thespis.papers.subpo.envs import Coverage


class Case(NamedTuple):
    """``actions`` from ``state`` (``None``: a reset), the reward of each, and how the last one ends the episode."""

    env: Any
    state: Any
    actions: Any
    rewards: list[float]
    ending: str = ""


def integer(x: Any) -> Any:
    return jnp.asarray(np.asarray(x, "int32"))


def floats(*x: Any) -> Any:
    return jnp.asarray(np.asarray(x, "float32"))


def integers(*x: Any) -> Any:
    return np.array(x, "int32")


ZERO = integer(0)
WALK = SlowWalk(num_positions=4, stay_prob=0.0, control_strength=1.0, small_reward=0.2, time_limit=3)
CELL_WEIGHTS = np.asarray(jax.jit(lambda: Coverage(grid_size=3).weights)())
SKILLS = np.array(Economy().skills)

CASES = {
    "climbing, the best joint action": Case(
        ClimbingGame(), integer(2), {"agent": integers([0, 0, 1])}, [11.0], "terminated"
    ),
    "climbing, miscoordination": Case(ClimbingGame(), ZERO, {"agent": integers([0, 0, 1])}, [-30.0], "terminated"),
    "coordination": Case(
        CoordinationGame(flip_prob=0.0, time_limit=2),
        None,
        {"agent": integers([0, 0, 0], [1, 1, 0])},
        [3.0, 1.0],
        "truncated",
    ),
    "coverage": Case(
        Coverage(grid_size=3, horizon=2), None, integers(2, 1), [float(CELL_WEIGHTS[:2, 2].sum()), 0.0], "terminated"
    ),
    "delayed chain": Case(DelayedChain((1, 3), (1.0, 1.5)), None, integers(1, 0, 0), [0.0, 0.0, 1.5], "terminated"),
    "economy without taxes": Case(
        Economy(),
        None,
        {"planner": np.zeros((2, 1, 3), "int32"), "worker": np.full((2, 8), 10, "int32")},
        [0.0, float((1 / SKILLS) @ (SKILLS - 1 / 3) / (1 / SKILLS).sum())],
        "terminated",
    ),
    "goal grid": Case(GoalGrid(grid_size=4), GoalGridState(integer([3, 2]), ZERO), integers(4, 3), [1.0, 0.0]),
    "harvest": Case(
        Harvest(num_agents=2, num_cells=3, num_tool_variants=1, time_limit=2),
        HarvestState(integer([0, 2]), integer([0, 0]), ZERO),
        {HARVEST_GROUP: integers([3, 4], [3, 3])},
        [1.0, 0.0],
        "truncated",
    ),
    "action repeat": Case(
        ActionRepeat(WALK, 2), SlowWalkState(integer(1), ZERO), integers(1, 1), [1.0, 1.0], "truncated"
    ),
    "time limit": Case(TimeLimit(WALK, 4), None, integers(0, 0, 0, 0), [0.0, 0.2, 0.2, 0.2], "truncated"),
    "levers": Case(Levers(noise_std=0.0), LeversState(ZERO, ZERO), None, [1.0]),
    "multi goal": Case(
        MultiGoal(goal_reward=1.0, action_cost=1.0, distance_cost=0.1),
        MultiGoalState(floats(4.0, 0.0), ZERO),
        np.array([[0.0, -1.0], [1.0, 1.0]], "float32"),
        [-1.2, -1.0],
        "terminated",
    ),
    "pair trading without orders": Case(
        PairTrading(),
        PairTradingState(jnp.float32(0.8), jnp.float32(0.0), ZERO, PairTrading().spec.params),
        np.zeros((5, 1), "float32"),
        [0.0] * 5,
        "terminated",
    ),
    "resource occupation": Case(
        ResourceOccupation(time_limit=1),
        ResourceOccupationState(
            floats(*[[-1.0, 0.0]] * 6), floats(*[[-1.0, 0.0]], *[[1.0, 1.0]] * (len(PLACE_RADII) - 1)), integer(2), ZERO
        ),
        {"agent": np.zeros((1, 6), "int32")},
        [REWARD_SCALE * PLACE_RADII[0] / 2],
        "truncated",
    ),
    "risky path without failures": Case(
        RiskyPath(failure_probs=(0.0, 0.0, 0.0), path_length=2), None, integers(2, 0, 1, 2), [-1.0] * 4, "terminated"
    ),
    "risky path with failures": Case(
        ReturnObservation(RiskyPath(failure_probs=(1.0, 1.0, 1.0), path_length=2), scale=10.0),
        None,
        integers(2, 2),
        [-7.0] * 2,
        "terminated",
    ),
    "rock paper scissors": Case(
        RockPaperScissors(num_rounds=3, slip_prob=0.0),
        RockPaperScissorsState(integer(3), integer(3), ZERO, integer(1)),
        integers(2, 1, 0),
        [1.0, 0.0, -1.0],
        "truncated",
    ),
    "slow walk": Case(WALK, SlowWalkState(integer(1), ZERO), integers(1, 1, 0), [0.0, 1.0, 0.0], "truncated"),
    "aligned swarm": Case(
        Swarm(noise_std=0.0, num_agents=4, time_limit=1),
        SwarmState(floats(*[[0.5, 0.5]] * 4), floats(*[1.0] * 4), floats(*[0.0] * 4), ZERO),
        {"agent": np.zeros((1, 4, 1), "float32")},
        [1.0],
        "truncated",
    ),
    "t-maze, right turn": Case(
        TMaze(2, time_limit=9),
        TMazeState(ZERO, ZERO, jnp.asarray(True)),
        integers(EAST, EAST, NORTH),
        [0.0, 0.0, 4.0],
        "terminated",
    ),
    "t-maze, wrong turn": Case(
        TMaze(2, time_limit=9),
        TMazeState(ZERO, ZERO, jnp.asarray(False)),
        integers(SOUTH, EAST, EAST, NORTH),
        [-0.1, 0.0, 0.0, -0.1],
        "terminated",
    ),
    "two rooms": Case(
        TwoRooms(),
        TwoRoomsState(integer([[1, 4], [1, 3]]), ZERO),
        {TWO_ROOMS_GROUP: integers([0, 0], [0, 2])},
        [0.0, 1.0],
        "terminated",
    ),
    "warehouse": Case(
        Warehouse(),
        WarehouseState(floats(1.5, 6.5), jnp.float32(0.0), floats(0.0, 0.9), integer(3), integer(0)),
        np.array([[-1.0, 0.0]], "float32"),
        [1.0],
        "terminated",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rewards_and_end_of_a_few_steps(name):
    env, state, actions, expected, ending = CASES[name]

    @jax.jit
    def rollout(actions):
        def step(state, action):
            state, timestep = env.step(state, action, jax.random.key(0))
            return state, (timestep.reward, timestep.terminated, timestep.truncated)

        start = env.reset(env.spec.params, jax.random.key(0))[0] if state is None else state
        actions_or_targets = env.target_positions(start.cue)[None] if actions is None else actions
        return jax.lax.scan(step, start, actions_or_targets)[1]

    rewards, terminated, truncated = map(np.asarray, rollout(actions))
    np.testing.assert_allclose(rewards, expected, rtol=1e-5, atol=1e-5)
    last = len(expected) - 1
    assert np.flatnonzero(terminated).tolist() == [last] * (ending == "terminated")
    assert np.flatnonzero(truncated).tolist() == [last] * (ending == "truncated")


def test_quadrotor_reward_is_highest_at_rest():
    params = default_params()

    @jax.jit
    def reward(offset, extra_thrust):
        zero, hover_action = jnp.zeros(3), jnp.full(4, 2 * params.airframe.hover_speed() - 1)
        state = RigidBodyState(zero.at[0].set(offset), jnp.zeros(4).at[0].set(1.0), zero, zero, jnp.zeros(4))
        return hover_reward(state, hover_action + extra_thrust, params)

    assert float(reward(0.0, 0.0)) == 2.0
    assert float(reward(0.1, 0.0)) == pytest.approx(2 - 0.5 * 5 * 0.01)
    assert float(reward(0.0, 0.5)) == pytest.approx(2 - 0.5 * 0.01)
