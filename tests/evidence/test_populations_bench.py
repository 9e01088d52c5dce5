"""The bench of populations: what its measures count, against loops."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.laws.components import check_environment
from thespis.core.spaces import AgentGroup
from thespis.evaluation.run import Run
from thespis.evidence.benches.populations import (
    BASELINE,
    BENCH,
    EVALUATION_POPULATIONS,
    TRAINING_ENV,
    TRAINING_GAME,
    crowd_shares,
    evaluation_return,
    largest_crowd,
    resource_game,
    untrained_evaluation_return,
)
from thespis.evidence.runner import TrialRuns
from thespis.learners.multi_agent.independent_learners import GroupStates

RADII = (0.19, 0.18, 0.17, 0.16)


@pytest.mark.long
def test_the_games_obey_the_contract():
    check_environment(TRAINING_GAME)
    assert TRAINING_GAME.max_agents < min(EVALUATION_POPULATIONS)


def test_the_best_return_falls_as_places_fill_up():
    """Seven of ten steps are paid; the fifth and sixth agent go to the third place, the last two to the fourth."""
    pay = [7 * 4 * radius for radius in RADII for _ in range(2)]
    for population in (2, 4, 6, 8):
        assert resource_game(population).optimal_return() == pytest.approx(np.mean(pay[:population]))


def test_crowds_are_counted_at_the_places():
    relative = np.random.default_rng(0).uniform(-0.3, 0.3, (2, 5, 6, 8))
    shares = []
    for seed in relative:
        largest = []
        for agents in seed:
            counts = [sum(np.hypot(*a[2 * k : 2 * k + 2]) <= r for a in agents) for k, r in enumerate(RADII)]
            largest.append(max(counts) / len(agents))
        shares.append(np.mean(largest))
    np.testing.assert_allclose(crowd_shares(relative), shares)


class Walker:
    """A method whose agents all walk to the first place and stay."""

    def policy(self, state, mode):
        assert mode is Mode.SAMPLE
        return state

    def init_memory(self, policy, n):
        return jnp.zeros(n, "int32")

    def init(self, spec, key):
        return GroupStates({"agent": jnp.zeros(())}, spec.groups)

    def act(self, policy, memory, view, key):
        (count,) = [group.num_agents for group in policy.groups]
        action = jnp.broadcast_to(jnp.where(memory < 4, 1, 0)[:, None], (len(memory), count))
        return {"agent": action.astype("int32")}, memory + 1, ()


class WalkerRun(Run):
    """A run of two seeds of walkers, in the training games."""

    def __init__(self):
        walker: Any = Walker()
        self.method, self.config = walker, {"seeds": [1_000, 1_001], "env": TRAINING_ENV}

    @property
    def states(self):
        return GroupStates({"agent": jnp.zeros(2)}, (AgentGroup("agent", TRAINING_GAME.max_agents),))


@pytest.mark.long
def test_measures_play_the_evaluation_games():
    run = WalkerRun()
    expected = np.mean([7 * 4 * RADII[0] * 2 / population for population in EVALUATION_POPULATIONS])
    np.testing.assert_allclose(evaluation_return().compute(run), [expected] * 2, rtol=1e-5)
    np.testing.assert_allclose(untrained_evaluation_return().compute(run), [expected] * 2, rtol=1e-5)
    np.testing.assert_allclose(largest_crowd().compute(run), [1.0, 1.0])


class FixedRuns(TrialRuns):
    """Runs whose scores are known."""

    def scores(self, arm, measure):
        return np.full((3, 1), 0.5)


def test_random_play_and_the_best_joint_policies_are_the_anchors():
    runs = FixedRuns(BENCH.controls)
    best = np.mean([resource_game(population).optimal_return() for population in EVALUATION_POPULATIONS])
    assert BENCH.headroom.anchors(runs) == {TRAINING_ENV: (0.5, pytest.approx(best))}
    assert BASELINE in [arm.method for arm in BENCH.arms]
