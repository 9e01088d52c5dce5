"""Verdicts over looks: clear cases, and in simulation few false decisions and enough power."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_scores import draw_scores

from thespis.evaluation.paired import min_pairs
from thespis.evidence.claims import CONTRADICTED, SHOWN
from thespis.evidence.paired_verdict import (
    DEFAULT_LOOKS,
    LEVEL,
    SHORT_LOOKS,
    UNDECIDED,
    judge_pairs,
    plan_looks,
)


def test_looks_share_the_error_rate():
    for looks in (DEFAULT_LOOKS, SHORT_LOOKS, plan_looks((6,)), plan_looks((7, 12))):
        assert sum(look.error_rate for look in looks) == pytest.approx(0.05)
    assert min_pairs(0.05) == 6 and plan_looks((6,))[0].num_pairs == 6
    for counts in ((5,), (20, 10), (), (6, 12)):
        with pytest.raises(ValueError, match="pairs"):
            plan_looks(counts)


def test_verdicts_of_clear_cases():
    noise = np.random.default_rng(8).normal(size=(40, 2))
    shared = np.random.default_rng(9).normal(size=(40, 2)) * 5  # the same for both arms of a pair
    better, worse = noise + 1.5, noise - 1.5
    for a, b, verdict in ((better, worse, SHOWN), (worse, better, CONTRADICTED)):
        result = judge_pairs(a + shared, b + shared)
        assert result.verdict == verdict and result.num_pairs == 20 and len(result.estimates) == 2
    near = judge_pairs(shared + 0.01 * noise, shared)
    assert near.verdict == LEVEL and near.pairs_to_decide is None
    other = np.random.default_rng(10).normal(size=(40, 2))
    between = judge_pairs(noise[:, :1], other[:, :1])
    assert between.verdict == UNDECIDED and between.num_pairs == 40 and between.pairs_to_decide > 40
    assert judge_pairs(noise[:, :1], other[:, :1], margins=[1.0]).verdict == LEVEL
    assert judge_pairs(noise[:19], other[:19]) is None


def test_one_environment_with_large_numbers_does_not_decide_for_the_others():
    """Differences are combined in units of each environment's own spread."""
    rng = np.random.default_rng(11)
    a, b = rng.normal(size=(2, 40, 3))
    a[:, 1:] += 1.5
    b[:, 0], a[:, 0] = b[:, 0] * 1e4, a[:, 0] * 1e4
    assert judge_pairs(a, b).verdict == SHOWN


def simulate(kind: str, effect: float, looks, num_trials: int, num_envs: int = 1) -> list:
    """Verdicts on simulated trials with starts shared by a pair; ``effect`` in deviations of the differences."""
    rng, pairs = np.random.default_rng(12), looks[-1].num_pairs
    verdicts = []
    for _ in range(num_trials):
        a, b = draw_scores(kind, rng, (2, pairs, num_envs))
        shared = 2 * draw_scores(kind, rng, (pairs, num_envs))
        verdicts.append(judge_pairs(a + shared + effect * np.sqrt(2), b + shared, looks).verdict)
    return verdicts


@pytest.mark.long
@pytest.mark.parametrize(
    "looks", [pytest.param(SHORT_LOOKS, id="10-20"), pytest.param(DEFAULT_LOOKS, id="20-40", marks=pytest.mark.slow)]
)
def test_an_effect_of_four_fifths_of_a_deviation_is_shown(looks):
    verdicts = simulate("normal", 0.8, looks, 100)
    assert np.mean([verdict == SHOWN for verdict in verdicts]) >= 0.8 and CONTRADICTED not in verdicts


@pytest.mark.long
def test_an_arm_against_itself_is_level_or_undecided():
    """In at least 95% of trials, over all looks; here with room for chance: 3 standard errors of 100 trials."""
    verdicts = simulate("skewed", 0.0, SHORT_LOOKS, 100)
    assert np.mean([verdict in (SHOWN, CONTRADICTED) for verdict in verdicts]) <= 0.05 + 0.066


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("kind", ["normal", "skewed", "two kinds"])
def test_false_decisions_over_many_trials(kind, num_envs):
    verdicts = simulate(kind, 0.0, DEFAULT_LOOKS, 1_000, num_envs)
    assert np.mean([verdict in (SHOWN, CONTRADICTED) for verdict in verdicts]) <= 0.05 + 0.015
