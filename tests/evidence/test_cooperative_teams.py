"""Bench of cooperative teams: the measure of its symptom, and what its games leave to miss."""

from unittest.mock import Mock

import numpy as np
import pytest

from thespis.evaluation.run import Run
from thespis.evidence.benches.cooperative_teams import BENCH, CLIMBING_ENV, COORDINATION_ENV, missed_share


@pytest.mark.parametrize(("env", "best"), [(CLIMBING_ENV, 11.0), (COORDINATION_ENV, 55.4)])
def test_the_missed_share_is_1_at_random_play_and_0_at_the_optimum(env, best):
    low = -3.0
    scores = np.array([[low, low], [best, best], [low, best]])
    final = {"greedy": {"scores": scores}, "random": {"scores": np.full((3, 2), low)}}
    run = Mock(spec=Run, final_scores=final, config={"env": env, "seeds": [0, 1, 2]})
    np.testing.assert_allclose(missed_share().compute(run), [1.0, 0.0, 0.5], atol=1e-6)


def test_the_symptom_is_asked_of_every_game():
    assert BENCH.envs == (CLIMBING_ENV, COORDINATION_ENV) and not BENCH.symptoms[0].envs
