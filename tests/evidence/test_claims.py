"""Claims on synthetic scores with known truth: verdicts, and the error rate of the sequential rule under chance."""

import numpy as np
import pytest

from thespis.evidence.claims import (
    CONTRADICTED,
    NOT_SHOWN,
    SHOWN,
    DifferentParameters,
    EqualParameters,
    Finding,
    LowerVariance,
    MinimumScore,
    NonInferiority,
    Superiority,
    overall_verdict,
)
from thespis.evidence.measures import Measure, final_return, overestimation
from thespis.evidence.paper import ERROR_RATE

RETURN = final_return()


class Scores:
    """Scores by arm, ``[seed, env]``, the same for every measure."""

    def __init__(self, **arms):
        self.arms = {name: np.asarray(scores, np.float64) for name, scores in arms.items()}

    def scores(self, arm: str, measure: Measure):
        return self.arms[arm]


def column(*scores):
    return np.array(scores, np.float64)[:, None]


def test_superiority_is_shown_contradicted_or_neither():
    high, low = column(7, 8, 9, 10, 11, 12), column(1, 2, 3, 4, 5, 6)
    claim = Superiority("a", "b", RETURN)
    assert claim.sentence == "a has a larger final greedy return than b"
    assert claim.evaluate(Scores(a=high, b=low), 0.95).verdict == SHOWN
    assert claim.evaluate(Scores(a=low, b=high), 0.95).verdict == CONTRADICTED
    assert claim.evaluate(Scores(a=low, b=low + 0.5), 0.95).verdict == NOT_SHOWN
    few = claim.evaluate(Scores(a=high[:2], b=low[:2]), 0.95)
    assert few.verdict == NOT_SHOWN and few.interval is None


def test_lower_scores_win_if_the_measure_says_so():
    claim = Superiority("a", "b", overestimation())
    scores = Scores(a=column(1, 2, 3, 4, 5, 6), b=column(7, 8, 9, 10, 11, 12))
    assert "smaller" in claim.sentence and claim.evaluate(scores, 0.95).verdict == SHOWN


def test_lower_variance_compares_spreads_only():
    rng = np.random.default_rng(0)
    narrow, wide = 100 + rng.normal(size=(20, 1)), 20 * rng.normal(size=(20, 1))
    claim = LowerVariance("a", "b", RETURN)
    assert claim.evaluate(Scores(a=narrow, b=wide), 0.95).verdict == SHOWN
    assert claim.evaluate(Scores(a=wide, b=narrow), 0.95).verdict == CONTRADICTED
    assert claim.evaluate(Scores(a=narrow, b=narrow - 70), 0.95).verdict == NOT_SHOWN


def test_non_inferiority_applies_its_margin_in_the_direction_of_the_measure():
    high, low = column(7, 8, 9, 10, 11, 12), column(1, 2, 3, 4, 5, 6)
    scores = Scores(a=low, b=high)
    assert NonInferiority("a", "b", RETURN, 20.0).evaluate(scores, 0.95).verdict == SHOWN
    assert NonInferiority("a", "b", RETURN, 6.0).evaluate(scores, 0.95).verdict == NOT_SHOWN
    assert NonInferiority("a", "b", RETURN, 0.0).evaluate(scores, 0.95).verdict == CONTRADICTED
    less = overestimation()
    assert NonInferiority("b", "a", less, 20.0).evaluate(scores, 0.95).verdict == SHOWN
    assert NonInferiority("b", "a", less, 0.0).evaluate(scores, 0.95).verdict == CONTRADICTED
    assert "no more than 20 below" in NonInferiority("a", "b", RETURN, 20.0).sentence
    assert "no more than 20 above" in NonInferiority("a", "b", less, 20.0).sentence


def test_minimum_score_uses_the_worst_environment():
    good, poor = np.array([0.9, 0.95, 1.0, 0.92, 0.97]), np.array([0.4, 0.9, 0.1, 0.95, 0.2])
    claim = MinimumScore("a", RETURN, 0.8)
    assert claim.evaluate(Scores(a=np.stack([good, good], 1)), 0.95).verdict == SHOWN
    assert claim.evaluate(Scores(a=np.stack([good, poor], 1)), 0.95).verdict == NOT_SHOWN
    finding = claim.evaluate(Scores(a=np.stack([good, good - 0.5], 1)), 0.95)
    assert finding.verdict == CONTRADICTED and finding.estimate == pytest.approx(0.447, abs=0.001)
    assert finding.interval is not None and finding.interval[1] < 0.8
    few = claim.evaluate(Scores(a=np.stack([good, good], 1)[:2]), 0.95)
    assert few.verdict == NOT_SHOWN and few.interval is None


def test_equal_and_different_parameters_hold_for_every_seed():
    first = np.zeros((3, 1, 4))
    second = first.copy()
    second[2, 0, 1] = 0.01
    close, different = Scores(a=first, b=first + 1e-8), Scores(a=first, b=second)
    assert EqualParameters("a", "b", 1e-6).evaluate(close, 0.95).verdict == SHOWN
    assert EqualParameters("a", "b", 1e-6).evaluate(different, 0.95) == Finding(
        EqualParameters("a", "b", 1e-6).sentence, CONTRADICTED, 0.01, None
    )
    assert DifferentParameters("a", "b", 1e-3).evaluate(different, 0.95).verdict == CONTRADICTED  # two seeds are equal
    assert DifferentParameters("a", "b", 1e-3).evaluate(Scores(a=first, b=first + 1), 0.95).verdict == SHOWN
    with pytest.raises(ValueError, match="different numbers of parameters"):
        EqualParameters("a", "b", 0.0).evaluate(Scores(a=first, b=first[:, :, :2]), 0.95)


def test_a_verdict_is_shown_only_if_all_findings_are():
    def verdict_of(*verdicts):
        return overall_verdict([Finding("", verdict, 0.5, None) for verdict in verdicts])

    assert verdict_of(SHOWN, SHOWN) == SHOWN
    assert verdict_of(SHOWN, NOT_SHOWN) == NOT_SHOWN
    assert verdict_of(SHOWN, NOT_SHOWN, CONTRADICTED) == CONTRADICTED


DRAWS = {
    "normal": lambda rng, n: (rng.normal(size=n), rng.normal(size=n)),
    "skewed": lambda rng, n: (rng.gamma(2, size=n), rng.gamma(2, size=n)),
    "unequal spreads": lambda rng, n: (4 * rng.normal(size=n), rng.normal(size=n)),
    "ties": lambda rng, n: (rng.integers(0, 3, n), rng.integers(0, 3, n)),
}


def decision_rate(claim, draw, batch, looks, trials):
    """The share of trials in which the sequential rule decides, in either direction."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(trials):
        left, right = draw(rng, batch * looks)
        for look in range(1, looks + 1):
            scores = Scores(a=left[: look * batch, None], b=right[: look * batch, None])
            if claim.evaluate(scores, 1 - ERROR_RATE / looks).verdict != NOT_SHOWN:
                count += 1
                break
    return count / trials


def test_chance_decides_rarely():
    assert decision_rate(Superiority("a", "b", RETURN), DRAWS["normal"], 5, 2, 300) <= ERROR_RATE + 0.025


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(("batch", "looks"), [(5, 1), (5, 2), (5, 4), (10, 2), (3, 3)])
def test_chance_decides_in_at_most_one_trial_of_twenty(name, batch, looks):
    assert (
        decision_rate(Superiority("a", "b", RETURN), DRAWS[name], batch, looks, 2000) <= ERROR_RATE + 0.01
    )  # two standard errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "skewed"])
@pytest.mark.parametrize(("batch", "looks"), [(5, 2), (10, 2)])
def test_equal_spreads_are_rarely_distinguished(name, batch, looks):
    assert decision_rate(LowerVariance("a", "b", RETURN), DRAWS[name], batch, looks, 2000) <= ERROR_RATE + 0.01
