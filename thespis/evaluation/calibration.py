"""Calibration of a critic: predicted values against realised discounted returns.

The realised return of step t is ``G_t = sum_k discount**k r_(t+k)``, known exactly where the episode went
on to terminate. Where a time limit truncated it, the unobserved rest has weight ``discount**remaining``, so only
steps far enough from the truncation count as known. A mean bias ``E[V - G] > 0`` that exceeds its own uncertainty is
over-estimation, the failure that double critics are meant to prevent (van Hasselt, 2010; Fujimoto et al.,
2018).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Array, Bool, Float, Int

MAX_TAIL_WEIGHT = 0.01
"""A step before a truncation counts as known if ``discount**remaining`` is below this."""

MIN_BIAS_PER_STD = 0.1
"""A bias is notable if it exceeds this share of the spread of the realised returns ..."""

MIN_BIAS_PER_MEAN = 0.01
"""... and this share of their mean size, which matters where all realised returns are nearly equal."""

MIN_EPISODES = 5
"""Below this many episodes the bias gets no interval."""

_NUM_RESAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Comparison of predicted values with realised returns.

    ``bias`` is the mean of predicted minus realised and ``interval`` its 95% bootstrap interval (``None``:
    too few episodes). ``slope`` is that of the least-squares line of realised on predicted: 1 is ideal, below
    1 the predictions are too extreme; NaN if all predictions are equal. ``correlation`` is Pearson's, NaN if
    either side is constant. ``num_steps`` is the number of pairs. ``is_overestimating``: the interval lies above 0
    and the bias is notable. ``sentence``: the verdict in words.
    """

    bias: float
    interval: tuple[float, float] | None
    slope: float
    correlation: float
    num_steps: int
    is_overestimating: bool
    sentence: str


@dataclasses.dataclass(frozen=True)
class MissingCalibration:
    """The reason why there is no calibration, in ``sentence``."""

    sentence: str


def realized_returns(
    reward: Float[Array | np.ndarray, " time"],
    terminated: Bool[Array | np.ndarray, " time"],
    truncated: Bool[Array | np.ndarray, " time"],
    discount: float,
) -> Float[np.ndarray, " time"]:
    """Realised discounted return of each step; NaN where it is not known.

    The steps may be those of several consecutive episodes. Steps of a terminated episode are all known; of an
    episode that was truncated, or has not ended yet, only those with ``discount**remaining`` below
    :data:`MAX_TAIL_WEIGHT`, where ``remaining`` counts the rewards from the step to the truncation.
    """
    reward, terminated, truncated = (np.asarray(x) for x in (reward, terminated, truncated))
    returns = np.empty(len(reward), np.float64)
    tail, remaining, truncated_end = 0.0, 0, True  # the last episode may still be running
    for t in reversed(range(len(reward))):
        if terminated[t] or truncated[t]:
            tail, remaining, truncated_end = 0.0, 0, not terminated[t]
        tail = float(reward[t]) + discount * tail
        remaining += 1
        is_known = not truncated_end or discount**remaining < MAX_TAIL_WEIGHT
        returns[t] = tail if is_known else np.nan
    return returns


def calibrate(
    predicted: Float[np.ndarray, " step"],
    realized: Float[np.ndarray, " step"],
    episode: Int[np.ndarray, " step"] | None = None,
) -> Calibration | MissingCalibration:
    """Compare predictions with realised returns, leaving out pairs with a value that is not finite.

    ``episode`` names the episode (or training seed) of each step. Steps of one episode share their future, so
    the bootstrap resamples whole episodes; without it steps are resampled one by one, and the interval is too
    narrow where episodes are long.
    """
    finite = np.isfinite(predicted) & np.isfinite(realized)
    if not len(predicted):
        return MissingCalibration("The critic was not compared with realised returns: there are no predictions.")
    if not finite.any():
        return MissingCalibration(
            "The critic was not compared with realised returns: every episode was cut before what followed "
            f"its steps was known (discount**remaining below {MAX_TAIL_WEIGHT:g})."
        )
    value, outcome = predicted[finite].astype(np.float64), realized[finite].astype(np.float64)
    error = value - outcome
    bias = float(error.mean())
    interval = _bootstrap_mean(error, np.arange(len(error)) if episode is None else episode[finite])
    notable = float(max(MIN_BIAS_PER_STD * outcome.std(), MIN_BIAS_PER_MEAN * np.abs(outcome).mean()))
    slope, correlation = _fit_line(value, outcome)
    return Calibration(
        bias=bias,
        interval=interval,
        slope=slope,
        correlation=correlation,
        num_steps=len(error),
        is_overestimating=interval is not None and interval[0] > 0 and bias > notable,
        sentence=_bias_sentence(bias, interval, notable),
    )


def _bootstrap_mean(error: np.ndarray, group: np.ndarray) -> tuple[float, float] | None:
    """95% percentile bootstrap interval of the mean error, resampling whole groups with a fixed random seed."""
    _, member = np.unique(group, return_inverse=True)
    totals, sizes = np.bincount(member, weights=error), np.bincount(member)
    if len(totals) < MIN_EPISODES:
        return None
    rng = np.random.default_rng(0)
    means = np.empty(_NUM_RESAMPLES)
    for i in range(_NUM_RESAMPLES):
        sample = rng.integers(len(totals), size=len(totals))
        means[i] = totals[sample].sum() / sizes[sample].sum()
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _fit_line(predicted: np.ndarray, realized: np.ndarray) -> tuple[float, float]:
    """Slope of realised on predicted, and their correlation."""
    centred, target = predicted - predicted.mean(), realized - realized.mean()
    variance, spread = np.mean(centred**2), np.mean(target**2)
    covariance = np.mean(centred * target)
    slope = covariance / variance if variance > 0 else np.nan
    correlation = covariance / np.sqrt(variance * spread) if variance > 0 and spread > 0 else np.nan
    return float(slope), float(correlation)


def _bias_sentence(bias: float, interval: tuple[float, float] | None, threshold: float) -> str:
    if interval is None:
        return f"Too few episodes to judge the critic's bias (mean bias {_format_signed(bias)}, no interval)."
    low, high = interval
    numbers = f"mean bias {_format_signed(bias)}, 95% interval {_format_signed(low)} to {_format_signed(high)}"
    if low > 0 and bias > threshold:
        return f"The critic over-estimates: predicted values exceed realised returns ({numbers})."
    if high < 0 and -bias > threshold:
        return f"The critic under-estimates: realised returns exceed predicted values ({numbers})."
    if low <= 0 <= high:
        return f"The critic shows no significant bias ({numbers})."
    return f"The critic's bias is small compared with the spread of returns ({numbers})."


def _format_signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")
