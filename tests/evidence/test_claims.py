"""Claims on made-up scores with known truth: verdicts, and how rarely chance alone decides."""

import numpy as np
import pytest

from thespis.evidence.claims import (
    CONTRADICTED,
    NOT_SHOWN,
    SHOWN,
    AtLeast,
    Better,
    Different,
    Finding,
    NoWorse,
    Same,
    Steadier,
    overall,
)
from thespis.evidence.measures import Measure, final_return, overestimation
from thespis.evidence.paper import ERROR

RETURN = final_return()


class Scores:
    """Scores by arm, ``[seed, env]``, whatever is measured."""

    def __init__(self, **arms):
        self.arms = {name: np.asarray(scores, np.float64) for name, scores in arms.items()}

    def scores(self, arm: str, measure: Measure):
        return self.arms[arm]


def column(*scores):
    return np.array(scores, np.float64)[:, None]


def test_better_is_shown_contradicted_or_neither():
    high, low = column(7, 8, 9, 10, 11, 12), column(1, 2, 3, 4, 5, 6)
    claim = Better("a", "b", RETURN)
    assert claim.sentence == "a has a larger final greedy return than b"
    assert claim.judge(Scores(a=high, b=low), 0.95).verdict == SHOWN
    assert claim.judge(Scores(a=low, b=high), 0.95).verdict == CONTRADICTED
    assert claim.judge(Scores(a=low, b=low + 0.5), 0.95).verdict == NOT_SHOWN
    few = claim.judge(Scores(a=high[:2], b=low[:2]), 0.95)
    assert few.verdict == NOT_SHOWN and few.interval is None


def test_where_less_is_better_the_lower_arm_wins():
    claim = Better("a", "b", overestimation())
    scores = Scores(a=column(1, 2, 3, 4, 5, 6), b=column(7, 8, 9, 10, 11, 12))
    assert "smaller" in claim.sentence and claim.judge(scores, 0.95).verdict == SHOWN


def test_steadier_looks_at_spread_alone():
    rng = np.random.default_rng(0)
    narrow, wide = 100 + rng.normal(size=(20, 1)), 20 * rng.normal(size=(20, 1))
    claim = Steadier("a", "b", RETURN)
    assert claim.judge(Scores(a=narrow, b=wide), 0.95).verdict == SHOWN
    assert claim.judge(Scores(a=wide, b=narrow), 0.95).verdict == CONTRADICTED
    assert claim.judge(Scores(a=narrow, b=narrow - 70), 0.95).verdict == NOT_SHOWN


def test_no_worse_allows_for_its_margin_in_the_measures_own_direction():
    high, low = column(7, 8, 9, 10, 11, 12), column(1, 2, 3, 4, 5, 6)
    scores = Scores(a=low, b=high)
    assert NoWorse("a", "b", RETURN, 20.0).judge(scores, 0.95).verdict == SHOWN
    assert NoWorse("a", "b", RETURN, 6.0).judge(scores, 0.95).verdict == NOT_SHOWN
    assert NoWorse("a", "b", RETURN, 0.0).judge(scores, 0.95).verdict == CONTRADICTED
    less = overestimation()
    assert NoWorse("b", "a", less, 20.0).judge(scores, 0.95).verdict == SHOWN
    assert NoWorse("b", "a", less, 0.0).judge(scores, 0.95).verdict == CONTRADICTED
    assert "no more than 20 below" in NoWorse("a", "b", RETURN, 20.0).sentence
    assert "no more than 20 above" in NoWorse("a", "b", less, 20.0).sentence


def test_at_least_looks_at_the_worst_environment():
    good, poor = np.array([0.9, 0.95, 1.0, 0.92, 0.97]), np.array([0.4, 0.9, 0.1, 0.95, 0.2])
    claim = AtLeast("a", RETURN, 0.8)
    assert claim.judge(Scores(a=np.stack([good, good], 1)), 0.95).verdict == SHOWN
    assert claim.judge(Scores(a=np.stack([good, poor], 1)), 0.95).verdict == NOT_SHOWN
    found = claim.judge(Scores(a=np.stack([good, good - 0.5], 1)), 0.95)
    assert found.verdict == CONTRADICTED and found.estimate == pytest.approx(0.447, abs=0.001)
    assert found.interval is not None and found.interval[1] < 0.8
    few = claim.judge(Scores(a=np.stack([good, good], 1)[:2]), 0.95)
    assert few.verdict == NOT_SHOWN and few.interval is None


def test_same_and_different_hold_for_every_seed():
    one = np.zeros((3, 1, 4))
    other = one.copy()
    other[2, 0, 1] = 0.01
    near, far = Scores(a=one, b=one + 1e-8), Scores(a=one, b=other)
    assert Same("a", "b", 1e-6).judge(near, 0.95).verdict == SHOWN
    assert Same("a", "b", 1e-6).judge(far, 0.95) == Finding(Same("a", "b", 1e-6).sentence, CONTRADICTED, 0.01, None)
    assert Different("a", "b", 1e-3).judge(far, 0.95).verdict == CONTRADICTED  # two seeds are equal
    assert Different("a", "b", 1e-3).judge(Scores(a=one, b=one + 1), 0.95).verdict == SHOWN
    with pytest.raises(ValueError, match="different numbers of parameters"):
        Same("a", "b", 0.0).judge(Scores(a=one, b=one[:, :, :2]), 0.95)


def test_a_paper_is_shown_only_if_all_is():
    def found(*verdicts):
        return overall([Finding("", verdict, 0.5, None) for verdict in verdicts])

    assert found(SHOWN, SHOWN) == SHOWN
    assert found(SHOWN, NOT_SHOWN) == NOT_SHOWN
    assert found(SHOWN, NOT_SHOWN, CONTRADICTED) == CONTRADICTED


DRAWS = {
    "normal": lambda rng, n: (rng.normal(size=n), rng.normal(size=n)),
    "skewed": lambda rng, n: (rng.gamma(2, size=n), rng.gamma(2, size=n)),
    "unequal spreads": lambda rng, n: (4 * rng.normal(size=n), rng.normal(size=n)),
    "ties": lambda rng, n: (rng.integers(0, 3, n), rng.integers(0, 3, n)),
}


def decided(claim, draw, batch, looks, trials):
    """How often the sequential rule decides, one way or the other."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(trials):
        left, right = draw(rng, batch * looks)
        for look in range(1, looks + 1):
            scores = Scores(a=left[: look * batch, None], b=right[: look * batch, None])
            if claim.judge(scores, 1 - ERROR / looks).verdict != NOT_SHOWN:
                count += 1
                break
    return count / trials


def test_chance_seldom_decides_quickly():
    assert decided(Better("a", "b", RETURN), DRAWS["normal"], 5, 2, 300) <= ERROR + 0.025


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(("batch", "looks"), [(5, 1), (5, 2), (5, 4), (10, 2), (3, 3)])
def test_chance_decides_in_at_most_one_trial_of_twenty(name, batch, looks):
    assert decided(Better("a", "b", RETURN), DRAWS[name], batch, looks, 2000) <= ERROR + 0.01  # two standard errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "skewed"])
@pytest.mark.parametrize(("batch", "looks"), [(5, 2), (10, 2)])
def test_equal_spreads_are_seldom_told_apart(name, batch, looks):
    assert decided(Steadier("a", "b", RETURN), DRAWS[name], batch, looks, 2000) <= ERROR + 0.01
