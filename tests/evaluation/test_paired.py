"""Paired statistics: against enumeration and scipy, and by the coverage of intervals in simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from simulated_scores import draw_scores

from thespis.evaluation import paired


@pytest.mark.parametrize("n", [4, 7, 10])
def test_p_values_are_those_of_all_sign_patterns_and_of_scipy(n):
    differences = np.random.default_rng(n).normal(0.5, 1, n).round(1)  # rounded: some sums are equal
    patterns = np.array(list(itertools.product([1, -1], repeat=n))) @ differences
    above, below = ((side * patterns >= side * differences.sum() - 1e-9).mean() for side in (1, -1))
    assert paired.sign_flip_p_value(differences) == pytest.approx(min(1, 2 * min(above, below)))
    by_scipy = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert paired.sign_flip_p_value(differences) == pytest.approx(by_scipy.pvalue)


@pytest.mark.parametrize("error_rate", [0.05, 0.0125])
def test_an_interval_holds_what_the_test_does_not_reject(error_rate):
    """Just inside of each end the shifted differences are not rejected, and just outside they are."""
    differences = np.random.default_rng(5).normal(1, 2, 11)
    low, high = paired.mean_interval(differences, error_rate)
    for end, side in ((low, 1), (high, -1)):
        assert paired.sign_flip_p_value(differences - end - side * 1e-6) > error_rate
        assert paired.sign_flip_p_value(differences - end + side * 1e-6) <= error_rate


def test_random_patterns_agree_with_all_patterns(monkeypatch):
    differences = np.random.default_rng(6).normal(0.4, 1, 16)
    exact = paired.sign_flip_p_value(differences), *paired.mean_interval(differences, 0.05)
    monkeypatch.setattr(paired, "_MAX_EXHAUSTIVE_PAIRS", 15)
    drawn = paired.sign_flip_p_value(differences), *paired.mean_interval(differences, 0.05)
    assert drawn == pytest.approx(exact, abs=0.01)


def test_an_effect_size_is_a_mean_difference_in_deviations_of_seeds():
    a, b = np.random.default_rng(7).normal([[2.0], [0.0]], size=(2, 12))
    estimate = paired.paired_estimate(a, b)
    deviation = np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    assert estimate.effect == pytest.approx((a - b).mean() / deviation) and estimate.num_pairs == 12
    assert estimate.effect_interval == pytest.approx(np.array(estimate.interval) / deviation)
    assert estimate.interval[0] < estimate.mean < estimate.interval[1]
    flat = paired.paired_estimate(np.ones(8), np.zeros(8))
    assert (flat.mean, flat.effect, flat.effect_interval) == (1.0, None, None)


def test_bad_scores_are_refused():
    for a, b in ((np.ones(8), np.ones(9)), (np.ones((8, 2)), np.ones((8, 2))), (np.full(8, np.nan), np.ones(8))):
        with pytest.raises(ValueError, match="paired scores are finite"):
            paired.paired_estimate(a, b)
    with pytest.raises(ValueError, match="5 pairs give no interval"):
        paired.paired_estimate(np.ones(5), np.zeros(5))


def test_pairs_to_show_an_effect():
    """Against the power of the t-test, which the sign-flip test nearly has: 0.8 with that many pairs."""
    for effect in (0.5, 0.8, 1.2):
        n = paired.pairs_to_show(effect, 1.0)

        def power(n, effect=effect):
            critical = stats.t.ppf(0.975, n - 1)
            return 1 - stats.nct.cdf(critical, n - 1, effect * np.sqrt(n))

        assert power(n) >= 0.795 and power(n - 2) < 0.8
    assert paired.pairs_to_show(0.0, 1.0) is None and paired.pairs_to_show(1.0, 0.0) == 6
    assert paired.pairs_to_show(1e-9, 1.0) is None


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 10, 20, 40])
@pytest.mark.parametrize("kind", ["normal", "skewed", "two kinds"])
def test_intervals_cover_the_true_difference(kind, n):
    """95% intervals: between 93 and 97% of 1,000 trials, up to chance of one point."""
    rng = np.random.default_rng(13)
    hits = 0
    for _ in range(1_000):
        a, b = draw_scores(kind, rng, (2, n))
        low, high = paired.mean_interval(a - b, 0.05)
        hits += low <= 0.0 <= high
    assert 0.92 <= hits / 1_000 <= 0.98
