"""Paired statistics: against enumeration and scipy, exact under no effect, powerful with one, right in coverage."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from thespis.evidence import paired
from thespis.evidence.paired import CONTRADICTED, DEFAULT_LOOKS, LEVEL, SHORT_LOOKS, SHOWN, UNDECIDED, judge_pairs


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


def test_looks_share_the_error_rate():
    for looks in (DEFAULT_LOOKS, SHORT_LOOKS, paired.plan_looks((6,)), paired.plan_looks((7, 12))):
        assert sum(look.error_rate for look in looks) == pytest.approx(0.05)
    assert paired.min_pairs(0.05) == 6 and paired.plan_looks((6,))[0].num_pairs == 6
    for counts in ((5,), (20, 10), (), (6, 12)):
        with pytest.raises(ValueError, match="pairs"):
            paired.plan_looks(counts)


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


def draw(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores of seeds with a variance of 1: normal, skewed, or of two kinds as where some seeds fail."""
    match kind:
        case "skewed":
            return rng.gamma(4, 0.5, shape)
        case "two kinds":
            return np.where(rng.random(shape) < 0.3, -1.5, 0.6) + 0.3 * rng.normal(size=shape)
    return rng.normal(size=shape)


def simulate(kind: str, effect: float, looks, num_trials: int, num_envs: int = 1) -> list:
    """Verdicts on simulated trials with starts shared by a pair; ``effect`` in deviations of the differences."""
    rng, pairs = np.random.default_rng(12), looks[-1].num_pairs
    verdicts = []
    for _ in range(num_trials):
        a, b = draw(kind, rng, (2, pairs, num_envs))
        shared = 2 * draw(kind, rng, (pairs, num_envs))
        verdicts.append(judge_pairs(a + shared + effect * np.sqrt(2), b + shared, looks).verdict)
    return verdicts


@pytest.mark.parametrize("looks", [pytest.param(SHORT_LOOKS, id="10-20"), pytest.param(DEFAULT_LOOKS, id="20-40")])
def test_an_effect_of_four_fifths_of_a_deviation_is_shown(looks):
    verdicts = simulate("normal", 0.8, looks, 100)
    assert np.mean([verdict == SHOWN for verdict in verdicts]) >= 0.8 and CONTRADICTED not in verdicts


@pytest.mark.parametrize("kind", ["normal", "skewed", "two kinds"])
def test_an_arm_against_itself_is_level_or_undecided(kind):
    """In at least 95% of trials, over all looks; here with room for chance: 3 standard errors of 150 trials."""
    verdicts = simulate(kind, 0.0, SHORT_LOOKS, 150)
    assert np.mean([verdict in (SHOWN, CONTRADICTED) for verdict in verdicts]) <= 0.05 + 0.054


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("kind", ["normal", "skewed", "two kinds"])
def test_false_decisions_over_many_trials(kind, num_envs):
    verdicts = simulate(kind, 0.0, DEFAULT_LOOKS, 1_000, num_envs)
    assert np.mean([verdict in (SHOWN, CONTRADICTED) for verdict in verdicts]) <= 0.05 + 0.015


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 10, 20, 40])
@pytest.mark.parametrize("kind", ["normal", "skewed", "two kinds"])
def test_intervals_cover_the_true_difference(kind, n):
    """95% intervals: between 93 and 97% of 1,000 trials, up to chance of one point."""
    rng = np.random.default_rng(13)
    hits = 0
    for _ in range(1_000):
        a, b = draw(kind, rng, (2, n))
        low, high = paired.mean_interval(a - b, 0.05)
        hits += low <= 0.0 <= high
    assert 0.92 <= hits / 1_000 <= 0.98
