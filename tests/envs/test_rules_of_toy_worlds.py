"""A few steps by hand in each small world of few papers: what they pay, and whether they end the episode.

Everything else about these worlds is tried among the tests of papers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.compiled.accumulated import Accumulated
from thespis.envs.compiled.climbing import Climbing
from thespis.envs.compiled.coverage import Coverage
from thespis.envs.compiled.delayed_chain import DelayedChain
from thespis.envs.compiled.economy import Economy
from thespis.envs.compiled.flights import published
from thespis.envs.compiled.goal_grid import GoalGrid, Searching
from thespis.envs.compiled.harvest import GROUP as REAPERS
from thespis.envs.compiled.harvest import Harvest, Row
from thespis.envs.compiled.held import Held
from thespis.envs.compiled.lasting import Lasting
from thespis.envs.compiled.levers import Levers, Setting
from thespis.envs.compiled.multi_goal import MultiGoal, Point
from thespis.envs.compiled.pair_trading import PairTrading, Position
from thespis.envs.compiled.quadrotor import reward
from thespis.envs.compiled.resources import PAY, RADII, Ground, Resources
from thespis.envs.compiled.risky_path import RiskyPath
from thespis.envs.compiled.rivals import Match, Rivals
from thespis.envs.compiled.rotorcraft import Motion
from thespis.envs.compiled.slow_walk import SlowWalk, Walking
from thespis.envs.compiled.swarms import Flock, Swarm
from thespis.envs.compiled.t_maze import EAST, NORTH, SOUTH, TMaze, Walker
from thespis.envs.compiled.two_rooms import GROUP as WALKERS
from thespis.envs.compiled.two_rooms import Rooms, TwoRooms
from thespis.envs.compiled.warehouse import Drive, Warehouse


class Played(NamedTuple):
    """``actions`` from ``state`` (``None``: a reset), what each is paid, and how the last of them ends the episode."""

    world: Any
    state: Any
    actions: Any
    paid: list[float]
    ends: str = ""


def number(x: Any) -> Any:
    return jnp.asarray(np.asarray(x, "int32"))


def reals(*x: Any) -> Any:
    return jnp.asarray(np.asarray(x, "float32"))


def choices(*x: Any) -> Any:
    return np.array(x, "int32")


ZERO = number(0)
WALK = SlowWalk(places=4, stay=0.0, grip=1.0, lure=0.2, limit=3)
HEAP = np.asarray(jax.jit(lambda: Coverage(side=3).weights)())
EIGHT = np.array(Economy().skills)

CASES = {
    "climbing, the best choice dared": Played(
        Climbing(), number(2), {"agent": choices([0, 0, 1])}, [11.0], "terminated"
    ),
    "climbing, dared alone": Played(Climbing(), ZERO, {"agent": choices([0, 0, 1])}, [-30.0], "terminated"),
    "coverage": Played(
        Coverage(side=3, horizon=2), None, choices(2, 1), [float(HEAP[:2, 2].sum()), 0.0], "terminated"
    ),
    "delayed chain": Played(DelayedChain((1, 3), (1.0, 1.5)), None, choices(1, 0, 0), [0.0, 0.0, 1.5], "terminated"),
    "economy without taxes": Played(
        Economy(),
        None,
        {"planner": np.zeros((2, 1, 3), "int32"), "worker": np.full((2, 8), 10, "int32")},
        [0.0, float((1 / EIGHT) @ (EIGHT - 1 / 3) / (1 / EIGHT).sum())],
        "terminated",
    ),
    "goal grid": Played(GoalGrid(side=4), Searching(number([3, 2]), ZERO), choices(4, 3), [1.0, 0.0]),
    "harvest": Played(
        Harvest(agents=2, cells=3, variants=1, limit=2),
        Row(number([0, 2]), number([0, 0]), ZERO),
        {REAPERS: choices([3, 4], [3, 3])},
        [1.0, 0.0],
        "truncated",
    ),
    "held": Played(Held(WALK, 2), Walking(number(1), ZERO), choices(1, 1), [1.0, 1.0], "truncated"),
    "lasting": Played(Lasting(WALK, 4), None, choices(0, 0, 0, 0), [0.0, 0.2, 0.2, 0.2], "truncated"),
    "levers": Played(Levers(noise=0.0), Setting(ZERO, ZERO), None, [1.0]),
    "multi goal": Played(
        MultiGoal(goal_reward=1.0, effort=1.0, distance=0.1),
        Point(reals(4.0, 0.0), ZERO),
        np.array([[0.0, -1.0], [1.0, 1.0]], "float32"),
        [-1.2, -1.0],
        "terminated",
    ),
    "pair trading with nothing": Played(
        PairTrading(),
        Position(jnp.float32(0.8), jnp.float32(0.0), ZERO, PairTrading().spec.params),
        np.zeros((5, 1), "float32"),
        [0.0] * 5,
        "terminated",
    ),
    "resources": Played(
        Resources(limit=1),
        Ground(reals(*[[-1.0, 0.0]] * 6), reals(*[[-1.0, 0.0]], *[[1.0, 1.0]] * (len(RADII) - 1)), number(2), ZERO),
        {"agent": np.zeros((1, 6), "int32")},
        [PAY * RADII[0] / 2],
        "truncated",
    ),
    "risky path where it is safe": Played(
        RiskyPath(risks=(0.0, 0.0, 0.0), length=2), None, choices(2, 0, 1, 2), [-1.0] * 4, "terminated"
    ),
    "risky path where it is not": Played(
        Accumulated(RiskyPath(risks=(1.0, 1.0, 1.0), length=2), unit=10.0), None, choices(2, 2), [-7.0] * 2,
        "terminated",
    ),
    "rivals": Played(
        Rivals(rounds=3, slip=0.0), Match(number(3), number(3), ZERO, number(1)), choices(2, 1, 0), [1.0, 0.0, -1.0],
        "truncated",
    ),
    "slow walk": Played(WALK, Walking(number(1), ZERO), choices(1, 1, 0), [0.0, 1.0, 0.0], "truncated"),
    "swarm in order": Played(
        Swarm(noise=0.0, count=4, limit=1),
        Flock(reals(*[[0.5, 0.5]] * 4), reals(*[1.0] * 4), reals(*[0.0] * 4), ZERO),
        {"agent": np.zeros((1, 4, 1), "float32")},
        [1.0],
        "truncated",
    ),
    "t-maze, told": Played(
        TMaze(2, limit=9), Walker(ZERO, ZERO, jnp.asarray(True)), choices(EAST, EAST, NORTH), [0.0, 0.0, 4.0],
        "terminated",
    ),
    "t-maze, mistaken": Played(
        TMaze(2, limit=9), Walker(ZERO, ZERO, jnp.asarray(False)), choices(SOUTH, EAST, EAST, NORTH),
        [-0.1, 0.0, 0.0, -0.1], "terminated",
    ),
    "two rooms": Played(
        TwoRooms(), Rooms(number([[1, 4], [1, 3]]), ZERO), {WALKERS: choices([0, 0], [0, 2])}, [0.0, 1.0], "terminated"
    ),
    "warehouse": Played(
        Warehouse(), Drive(reals(1.5, 6.5), jnp.float32(0.0), reals(0.0, 0.9), number(3)),
        np.array([[-1.0, 0.0]], "float32"), [1.0], "terminated",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_few_steps(name):
    world, state, actions, paid, ends = CASES[name]

    @jax.jit
    def played(actions):
        def step(state, action):
            state, answer = world.step(state, action, jax.random.key(0))
            return state, (answer.reward, answer.terminated, answer.truncated)

        start = world.reset(world.spec.params, jax.random.key(0))[0] if state is None else state
        wanted = world.right(start.cue)[None] if actions is None else actions
        return jax.lax.scan(step, start, wanted)[1]

    rewards, terminated, truncated = map(np.asarray, played(actions))
    np.testing.assert_allclose(rewards, paid, rtol=1e-5, atol=1e-5)
    last = len(paid) - 1
    assert np.flatnonzero(terminated).tolist() == [last] * (ends == "terminated")
    assert np.flatnonzero(truncated).tolist() == [last] * (ends == "truncated")


def test_a_quadrotor_at_rest_is_paid_most():
    flight = published()

    @jax.jit
    def paid(aside, push):
        zero, still = jnp.zeros(3), jnp.full(4, 2 * flight.airframe.hover() - 1)
        motion = Motion(zero.at[0].set(aside), jnp.zeros(4).at[0].set(1.0), zero, zero, jnp.zeros(4))
        return reward(motion, still + push, flight)

    assert float(paid(0.0, 0.0)) == 2.0
    assert float(paid(0.1, 0.0)) == pytest.approx(2 - 0.5 * 5 * 0.01)
    assert float(paid(0.0, 0.5)) == pytest.approx(2 - 0.5 * 0.01)
