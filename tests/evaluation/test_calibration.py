"""Critic calibration: realised returns against their definition, and bias and flags of known predictions."""

import numpy as np
import pytest

from thespis.evaluation.calibration import Calibration, MissingCalibration, calibrate, realized_returns


def flags(*steps, length):
    marks = np.zeros(length, bool)
    marks[list(steps)] = True
    return marks


def test_returns_of_terminated_episodes_are_known_in_every_step():
    reward = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    realised = realized_returns(reward, flags(2, 4, length=5), flags(length=5), 0.5)
    np.testing.assert_allclose(realised, [1 + 0.5 * 2 + 0.25 * 4, 2 + 0.5 * 4, 4, 8 + 0.5 * 16, 16])


def test_returns_of_truncated_episodes_are_known_far_from_the_truncation_only():
    length, discount = 20, 0.5
    reward = np.ones(length)
    realised = realized_returns(reward, flags(length=length), flags(length - 1, length=length), discount)
    remaining = length - np.arange(length)
    known = discount**remaining < 0.01
    assert (np.isfinite(realised) == known).all() and known.sum() == 14
    np.testing.assert_allclose(realised[known], (1 - discount ** remaining[known]) / (1 - discount))


def test_rewards_do_not_cross_episode_ends_and_unfinished_episodes_are_unknown():
    reward = np.array([1.0, 1.0, 100.0, 100.0])
    realised = realized_returns(reward, flags(1, length=4), flags(length=4), 0.9)
    np.testing.assert_allclose(realised, [1.9, 1.0, np.nan, np.nan])


def test_termination_takes_precedence_over_truncation():
    realised = realized_returns(np.ones(2), flags(1, length=2), flags(1, length=2), 0.9)
    np.testing.assert_allclose(realised, [1.9, 1.0])


def test_returns_match_their_definition():
    rng = np.random.default_rng(3)
    reward, terminated, truncated = rng.normal(size=60), rng.random(60) < 0.1, rng.random(60) < 0.1
    realised = realized_returns(reward, terminated, truncated, 0.8)
    for t in range(60):
        ends = [u for u in range(t, 60) if terminated[u] or truncated[u]]
        last = ends[0] if ends else 59
        total = sum(0.8 ** (u - t) * reward[u] for u in range(t, last + 1))
        known = (ends and terminated[last]) or 0.8 ** (last - t + 1) < 0.01
        assert (abs(realised[t] - total) < 1e-12) if known else np.isnan(realised[t])


def test_an_unbiased_critic_is_not_flagged():
    rng = np.random.default_rng(0)
    value = rng.normal(10, 4, 500)
    result = calibrate(value, value + rng.normal(0, 1, 500))
    assert isinstance(result, Calibration) and not result.is_overestimating
    assert abs(result.bias) < 0.2 and abs(result.slope - 1) < 0.05 and result.correlation > 0.95
    assert result.interval and result.interval[0] < result.bias < result.interval[1]


def test_over_estimation_is_flagged():
    rng = np.random.default_rng(0)
    realised = rng.normal(-50, 10, 400)
    result = calibrate(realised + 6 + rng.normal(0, 2, 400), realised)
    assert isinstance(result, Calibration) and result.is_overestimating
    assert result.bias == pytest.approx(6, abs=0.3) and "over-estimates" in result.sentence


def test_under_estimation_and_small_errors_are_not_flagged():
    rng = np.random.default_rng(0)
    realised = rng.normal(0, 10, 4000)
    low, trifle = calibrate(realised - 6, realised), calibrate(realised + 0.1, realised)
    assert isinstance(low, Calibration) and not low.is_overestimating and "under-estimates" in low.sentence
    assert isinstance(trifle, Calibration) and not trifle.is_overestimating and "small" in trifle.sentence


def test_resampling_whole_episodes_widens_the_interval():
    rng = np.random.default_rng(1)
    episode = np.repeat(np.arange(8), 100)
    predicted = rng.normal(0, 1, 8)[episode] + rng.normal(0, 0.1, 800)
    steps = calibrate(predicted, np.zeros(800))
    episodes = calibrate(predicted, np.zeros(800), episode)
    assert isinstance(steps, Calibration) and isinstance(episodes, Calibration)
    assert steps.interval and episodes.interval
    assert np.ptp(episodes.interval) > 3 * np.ptp(steps.interval)


def test_too_few_episodes_give_no_interval_and_no_flag():
    result = calibrate(np.full(40, 9.0), np.zeros(40), np.repeat(np.arange(4), 10))
    assert isinstance(result, Calibration) and result.interval is None and not result.is_overestimating
    assert "Too few episodes" in result.sentence


def test_constant_predictions_have_no_slope_but_a_bias():
    result = calibrate(np.full(9, 1.5), np.ones(9))
    assert isinstance(result, Calibration) and np.isnan(result.slope) and np.isnan(result.correlation)
    assert result.bias == 0.5 and result.is_overestimating


def test_unknown_steps_are_left_out_and_no_known_step_is_explained():
    result = calibrate(np.array([1.0, 5.0, np.nan]), np.array([1.0, np.nan, 2.0]))
    assert isinstance(result, Calibration) and result.num_steps == 1 and result.bias == 0
    nothing = calibrate(np.ones(2), np.full(2, np.nan))
    assert isinstance(nothing, MissingCalibration) and "cut before" in nothing.sentence
    assert isinstance(calibrate(np.empty(0), np.empty(0)), MissingCalibration)


def test_calibration_is_reproducible():
    predicted, realised = np.random.default_rng(5).normal(size=(2, 300))
    assert calibrate(predicted, realised) == calibrate(predicted, realised)
