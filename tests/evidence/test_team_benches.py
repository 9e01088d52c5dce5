"""Benches of teams: shares of the way to the best joint policy, and measures of roles and subgoals."""

from types import SimpleNamespace

import numpy as np
import pytest

from thespis.evaluation.run import Run
from thespis.evidence.benches.team_actions import BENCH
from thespis.evidence.runner import TrialRuns
from thespis.methods.multi_agent.qmix import QMIX
from thespis.papers.gmah.method import GMAH
from thespis.papers.gmah.paper import subgoals_reached
from thespis.papers.rode.method import RODE
from thespis.papers.rode.paper import role_agreement

ENV = BENCH.envs[0]


class FixedRuns(TrialRuns):
    """Runs whose scores are known."""

    def scores(self, arm, measure):
        return np.array([[13.0], [0.0], [12.0], [0.0]])


def test_headroom_is_the_mean_share_of_the_way_to_the_best_return():
    runs = FixedRuns(BENCH.controls)
    runs.runs = {("QMIX", ENV): [SimpleNamespace(final_scores={"random": {"scores": [[0.0, 2.0]]}})]}
    assert BENCH.headroom.anchors(runs) == {ENV: (1.0, 13.0)}
    assert BENCH.headroom.shares(runs)[ENV] == pytest.approx((6.25 - 1) / 12)


class FixedRun(Run):
    """A run of two seeds whose metrics are known."""

    def __init__(self, method):
        self.method, self.config = method, {"seeds": [3, 4]}

    def metrics(self):
        return {"seed": np.array([3, 4, 3, 4]), "reached": np.array([0.0, 0.5, 0.2, 0.5])}


def test_a_method_without_subgoals_reaches_none():
    np.testing.assert_allclose(subgoals_reached().compute(FixedRun(GMAH())), [0.1, 0.5])
    np.testing.assert_array_equal(subgoals_reached().compute(FixedRun(QMIX())), [0.0, 0.0])


def test_agreement_of_roles_is_the_rand_index_of_tools():
    """Against a loop over pairs; the first seed has roles for kinds, the second one role, others random ones."""
    kinds, rng = np.repeat([0, 1], 32), np.random.default_rng(0)
    roles = np.concatenate([[kinds + 1], np.ones((1, 64), int), rng.integers(0, 3, (2, 64))])
    masks = np.concatenate([np.zeros((4, 3, 3), bool), roles[:, None] == np.arange(3)[:, None]], axis=2)
    state = SimpleNamespace(assignments={"pickers": SimpleNamespace(role_masks=masks)})
    config = {"env": ENV, "seeds": [0, 1]}
    run = SimpleNamespace(method=RODE(), config=config, states=SimpleNamespace(high_level_actions_state=state))
    expected = [
        np.mean([(r[i] == r[j]) == (kinds[i] == kinds[j]) for i in range(64) for j in range(64) if i != j])
        for r in roles
    ]
    np.testing.assert_allclose(role_agreement().compute(run), expected)
    assert expected[0] == 1.0 and 0.45 < expected[1] < 0.55
    without_roles = SimpleNamespace(method=QMIX(), config=config)
    np.testing.assert_allclose(role_agreement().compute(without_roles), [expected[1]] * 2)
