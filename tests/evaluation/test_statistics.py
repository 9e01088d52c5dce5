"""IQM, bootstrap intervals, probability of improvement: against scipy, by hand, and the coverage of intervals."""

import numpy as np
import pytest
from scipy import stats

from thespis.envs.return_bounds import return_bounds
from thespis.evaluation.comparison import compare_groups
from thespis.evaluation.rollout import RolloutResult
from thespis.evaluation.score import summarize_returns
from thespis.evaluation.statistics import (
    MIN_SEEDS,
    bootstrap_interval,
    iqm,
    probability_of_improvement,
    student_t_quantile,
)
from thespis.evidence.measures import success_rate


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 10, 23])
def test_iqm_is_the_trimmed_mean(n):
    scores = np.random.default_rng(n).normal(size=n)
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25))
    table = np.random.default_rng(n).normal(size=(n, 3))
    assert iqm(table) == pytest.approx(stats.trim_mean(table, 0.25, axis=None))


def test_iqm_by_hand():
    assert iqm([100, 1, 2, 3, 4, 5, 6, -100]) == 3.5
    assert iqm([0, 0, 3]) == 1


@pytest.mark.parametrize("freedom", [2.0, 2.83, 4.0, 9.5, 40.0])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.995])
def test_quantile_of_student(freedom, probability):
    assert student_t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-6)


def test_interval_is_reproducible_and_moves_with_the_scores():
    scores = np.random.default_rng(0).normal(size=8)
    low, high = bootstrap_interval(scores)
    assert bootstrap_interval(scores) == (low, high)
    assert low < iqm(scores) < high
    assert bootstrap_interval(3 * scores + 5) == pytest.approx((3 * low + 5, 3 * high + 5))
    assert bootstrap_interval(scores[::-1]) == pytest.approx((low, high), abs=0.05)
    narrow = bootstrap_interval(scores, confidence_level=0.8)
    assert low < narrow[0] < narrow[1] < high


def test_interval_stays_within_the_scores_from_six_seeds_on():
    low, high = bootstrap_interval([500, 500, 500, 500, 480, 470])
    assert 470 <= low < high <= 500


def test_too_few_seeds_have_no_interval():
    assert MIN_SEEDS == 3
    assert bootstrap_interval([1.0, 2.0]) is None
    assert bootstrap_interval([[1.0] * 50, [2.0] * 50]) is None, "tasks do not stand in for seeds"
    assert bootstrap_interval([1.0, 2.0, 3.0]) is not None
    assert probability_of_improvement([1, 2], [3, 4, 5]).interval is None


def test_three_seeds_have_the_interval_of_student():
    scores = np.array([1.0, 2.0, 4.0])
    expected = stats.t.interval(0.95, 2, scores.mean(), scores.std(ddof=1) / np.sqrt(3))
    assert bootstrap_interval(scores) == pytest.approx(expected, abs=0.1)


def test_equal_scores_have_an_interval_of_no_width():
    assert bootstrap_interval([500.0] * 5) == (500, 500)
    assert bootstrap_interval([500.0] * 10) == (500, 500)


def test_tasks_are_strata():
    """If all seeds agree within each task, the interval has no width, however different the tasks are."""
    assert bootstrap_interval(np.tile([0.0, 10.0, 50.0, 1000.0], (6, 1))) == pytest.approx((30, 30))


@pytest.mark.parametrize("scores", [[], [[]], [1.0, np.nan, 2.0], [1.0, np.inf, 3.0], np.zeros((2, 2, 2))])
def test_invalid_scores_are_refused(scores):
    with pytest.raises(ValueError, match="scores"):
        iqm(scores)
    with pytest.raises(ValueError, match="scores"):
        bootstrap_interval(scores)


def test_probability_of_improvement_by_hand():
    result = probability_of_improvement([1, 2, 3], [0, 2, 5])
    assert result.probability == pytest.approx((1 + 1.5 + 2) / 9)
    tasks = probability_of_improvement([[1, 0], [2, 0], [3, 0]], [[0, 1], [2, 1], [5, 1]])
    assert tasks.probability == pytest.approx((4.5 / 9 + 0) / 2)
    with pytest.raises(ValueError, match="different numbers of tasks"):
        probability_of_improvement(np.zeros((3, 2)), np.zeros((3, 1)))


def test_probability_of_improvement_is_that_of_mann_and_whitney():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 7), rng.integers(2, 11, 12)
    count = stats.mannwhitneyu(a, b).statistic
    assert probability_of_improvement(a, b).probability == pytest.approx(count / (7 * 12))


def test_interval_of_improvement_mirrors_and_does_not_collapse():
    a, b = [5, 6, 7, 8, 9], [1, 2, 3, 4, 4.5]
    (low, high), (other_low, other_high) = (
        probability_of_improvement(a, b).interval,
        probability_of_improvement(b, a).interval,
    )
    assert (low, high) == pytest.approx((1 - other_high, 1 - other_low), abs=1e-3)
    assert 0.5 < low < 0.9 and high == 1
    same = probability_of_improvement([500.0] * 5, [500.0] * 5)
    assert same.probability == 0.5 and same.interval[0] < 0.3 < 0.7 < same.interval[1]


DRAW = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "skewed to the right": lambda rng, shape: rng.gamma(4, size=shape),  # skewness 1
    "skewed to the left": lambda rng, shape: -rng.gamma(4, size=shape),
}


def truth(draw, tasks):
    """The interquartile mean of a large population, of tasks with equal weight."""
    rng = np.random.default_rng(99)
    return stats.trim_mean(np.ravel(draw(rng, (500_000, len(tasks))) + tasks), 0.25)


def coverage(draw, n, tasks, trials, seed=0):
    rng, value = np.random.default_rng(seed), truth(draw, tasks)
    limits = [bootstrap_interval(draw(rng, (n, len(tasks))) + tasks, num_resamples=1000) for _ in range(trials)]
    return np.mean([low <= value <= high for low, high in limits])


def test_coverage_quick():
    assert 0.93 <= coverage(DRAW["normal"], 10, np.zeros(1), 1000) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("n", [3, 4, 5, 6, 8, 10, 20])
def test_coverage_of_one_task(name, n):
    assert 0.93 <= coverage(DRAW[name], n, np.zeros(1), 4000) <= 0.97 + 0.005  # a standard error is 0.0035


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("n", [3, 5, 10, 20])
def test_coverage_of_four_tasks(name, n):
    assert 0.93 <= coverage(DRAW[name], n, np.linspace(-1.5, 1.5, 4), 3000) <= 0.97 + 0.005


def improvement_coverage(truth, n, m, trials, spread=1.0):
    rng = np.random.default_rng(0)
    shift = stats.norm.ppf(truth) * np.hypot(spread, 1)
    hits = 0
    for _ in range(trials):
        a, b = rng.normal(shift, spread, n), rng.normal(size=m)
        low, high = probability_of_improvement(a, b).interval
        hits += low <= truth <= high
    return hits / trials


@pytest.mark.parametrize("n", [3, 4, 5, 10])
def test_equal_groups_are_rarely_distinguished(n):
    assert improvement_coverage(0.5, n, n, 500) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("value", [0.5, 0.7, 0.85, 0.95])
@pytest.mark.parametrize(("n", "m", "spread"), [(5, 5, 1), (10, 10, 1), (20, 20, 1), (10, 10, 3), (5, 10, 3)])
def test_coverage_of_improvement(value, n, m, spread):
    assert 0.93 <= improvement_coverage(value, n, m, 2000, spread) <= 0.985


def test_intervals_stay_within_known_bounds():
    scores = [500.0, 500.0, 480.0]
    assert bootstrap_interval(scores)[1] > 500
    low, high = bootstrap_interval(scores, bounds=(0.0, 500.0))
    assert high == 500 and low == bootstrap_interval(scores)[0]
    (group, _) = compare_groups({"a": scores, "b": [1.0, 2.0, 9.0]}, return_bounds("gymnax:CartPole-v1")).groups
    assert group.interval == (low, high)
    result = RolloutResult(np.array(scores)[:, None], np.ones((3, 1), int), [])
    assert summarize_returns(result, return_bounds("gymnasium:CartPole-v1"))["interval"] == (low, high)
    assert summarize_returns(result, return_bounds("my:CartPole"))["interval"][1] > 500
    assert bootstrap_interval(scores, bounds=(0.0, 490.0)) == bootstrap_interval(scores)  # wrong bounds
    assert success_rate(1.0).bounds == (0.0, 1.0)
