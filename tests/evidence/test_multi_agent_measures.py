"""Measures of the benches of opponents, taxation and swarms, on runs whose scores are written out by hand."""

from unittest.mock import Mock

import numpy as np
import pytest

from thespis.evaluation.run import Run
from thespis.evidence.benches.other_agents import OPPONENTS_ENV, lost_share
from thespis.evidence.benches.swarms import HISTOGRAM_ENV, missing_order
from thespis.evidence.benches.taxation import FEDERAL_ENV, SAEZ_ENV, SAEZ_RATES, lost_welfare
from thespis.papers.ai_economist.envs import Economy


def finished(env, **scores):
    """A finished run with these scores, ``[seed, episode]``, by mode."""
    final = {mode: {"scores": values} for mode, values in scores.items()}
    return Mock(spec=Run, config={"env": env, "seeds": [0, 1]}, final_scores=final)


def test_lost_share_of_one_who_knows_the_opponent():
    run = finished(OPPONENTS_ENV, sampled=[[16.0, 16.0], [9.0, 7.0]], random=[[1.0, -1.0], [2.0, -2.0]])
    np.testing.assert_allclose(lost_share().compute(run), [0.0, 0.5])  # knowing it wins 0.8 of 20 rounds


@pytest.mark.parametrize("env", [FEDERAL_ENV, SAEZ_ENV])
def test_lost_welfare(env):
    best = Economy().optimal_welfare(np.asarray(SAEZ_RATES.fixed_rates))
    run = finished(env, greedy=[[best, best], [best / 2, best]])
    np.testing.assert_allclose(lost_welfare().compute(run), [0.0, 0.25], atol=1e-6)


def test_missing_order_of_25_steps():
    run = finished(HISTOGRAM_ENV, greedy=[[25.0, 25.0], [5.0, 20.0]])
    np.testing.assert_allclose(missing_order().compute(run), [0.0, 0.5])
