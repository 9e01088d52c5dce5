"""Does the critic promise what then comes? Predicted values against realised discounted returns.

The realised return of step t is ``G_t = sum_k discount**k r_(t+k)``, known exactly where the episode went
on to terminate. Where a time limit cut it, what was not seen weighs ``discount**remaining``, so only steps
far enough from the cut count as known. A mean bias ``E[V - G] > 0`` that exceeds its own uncertainty is
over-estimation, the failure that double critics are there to prevent (van Hasselt, 2010; Fujimoto et al.,
2018).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Array, Bool, Float, Int

NEGLIGIBLE = 0.01
"""A step before a cut counts as known if ``discount**remaining`` is below this."""

NOTABLE = 0.1
"""A bias is notable if it exceeds this share of the spread of the realised returns ..."""

NOTABLE_OF_SIZE = 0.01
"""... and this share of their mean size, which matters where all realised returns are nearly equal."""

FEWEST = 5
"""Below this many episodes the bias gets no interval."""

_RESAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How predicted values compare with what came.

    ``bias`` is the mean of predicted minus realised and ``interval`` its 95% bootstrap interval (``None``:
    too few episodes). ``slope`` is that of the least-squares line of realised on predicted: 1 is ideal, below
    1 the predictions are too extreme; NaN if all predictions are equal. ``correlation`` is Pearson's, NaN if
    either side is constant. ``steps`` is the number of pairs. ``overestimates``: the interval lies above 0
    and the bias is notable.
    """

    bias: float
    interval: tuple[float, float] | None
    slope: float
    correlation: float
    steps: int
    overestimates: bool
    sentence: str


@dataclasses.dataclass(frozen=True)
class Unmeasured:
    """Why there is no calibration, in ``sentence``."""

    sentence: str


def realised_returns(
    reward: Float[Array | np.ndarray, " time"],
    terminated: Bool[Array | np.ndarray, " time"],
    truncated: Bool[Array | np.ndarray, " time"],
    discount: float,
) -> Float[np.ndarray, " time"]:
    """Discounted return realised from each step on; NaN where it is not known.

    The steps may hold several episodes end to end. Steps of a terminated episode are all known; of an
    episode that was truncated, or had not ended yet, only those with ``discount**remaining`` below
    :data:`NEGLIGIBLE`, where ``remaining`` counts the rewards seen from the step to the cut.
    """
    reward, terminated, truncated = (np.asarray(x) for x in (reward, terminated, truncated))
    realised = np.empty(len(reward), np.float64)
    following, remaining, cut = 0.0, 0, True  # the last episode may still be running
    for t in reversed(range(len(reward))):
        if terminated[t] or truncated[t]:
            following, remaining, cut = 0.0, 0, not terminated[t]
        following = float(reward[t]) + discount * following
        remaining += 1
        known = not cut or discount**remaining < NEGLIGIBLE
        realised[t] = following if known else np.nan
    return realised


def calibrate(
    predicted: Float[np.ndarray, " step"],
    realised: Float[np.ndarray, " step"],
    episode: Int[np.ndarray, " step"] | None = None,
) -> Calibration | Unmeasured:
    """Compare predictions with realised returns; pairs of which either is not finite are left out.

    ``episode`` names the episode (or training seed) of each step. Steps of one episode share their future, so
    the bootstrap resamples whole episodes; without it steps are resampled one by one, and the interval is too
    narrow where episodes are long.
    """
    known = np.isfinite(predicted) & np.isfinite(realised)
    if not len(predicted):
        return Unmeasured("The critic was not compared with realised returns: there are no predictions.")
    if not known.any():
        return Unmeasured(
            "The critic was not compared with realised returns: every episode was cut before what followed "
            f"its steps was known (discount**remaining below {NEGLIGIBLE:g})."
        )
    value, outcome = predicted[known].astype(np.float64), realised[known].astype(np.float64)
    error = value - outcome
    bias = float(error.mean())
    interval = _bootstrap_mean(error, np.arange(len(error)) if episode is None else episode[known])
    notable = float(max(NOTABLE * outcome.std(), NOTABLE_OF_SIZE * np.abs(outcome).mean()))
    slope, correlation = _line(value, outcome)
    return Calibration(
        bias=bias,
        interval=interval,
        slope=slope,
        correlation=correlation,
        steps=len(error),
        overestimates=interval is not None and interval[0] > 0 and bias > notable,
        sentence=_sentence(bias, interval, notable),
    )


def _bootstrap_mean(error: np.ndarray, group: np.ndarray) -> tuple[float, float] | None:
    """95% percentile interval of the mean error, whole groups resampled; the same every time."""
    _, member = np.unique(group, return_inverse=True)
    totals, sizes = np.bincount(member, weights=error), np.bincount(member)
    if len(totals) < FEWEST:
        return None
    rng = np.random.default_rng(0)
    means = np.empty(_RESAMPLES)
    for i in range(_RESAMPLES):
        drawn = rng.integers(len(totals), size=len(totals))
        means[i] = totals[drawn].sum() / sizes[drawn].sum()
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _line(value: np.ndarray, outcome: np.ndarray) -> tuple[float, float]:
    """Slope of realised on predicted, and their correlation."""
    centred, target = value - value.mean(), outcome - outcome.mean()
    variance, spread = np.mean(centred**2), np.mean(target**2)
    covariance = np.mean(centred * target)
    slope = covariance / variance if variance > 0 else np.nan
    correlation = covariance / np.sqrt(variance * spread) if variance > 0 and spread > 0 else np.nan
    return float(slope), float(correlation)


def _sentence(bias: float, interval: tuple[float, float] | None, notable: float) -> str:
    if interval is None:
        return f"Too few episodes to judge the critic's bias (mean bias {_signed(bias)}, no interval)."
    low, high = interval
    numbers = f"mean bias {_signed(bias)}, 95% interval {_signed(low)} to {_signed(high)}"
    if low > 0 and bias > notable:
        return f"The critic over-estimates: it promises more than comes ({numbers})."
    if high < 0 and -bias > notable:
        return f"The critic under-estimates: more comes than it promises ({numbers})."
    if low <= 0 <= high:
        return f"No bias of the critic can be told from chance ({numbers})."
    return f"The critic's bias is small beside the spread of returns ({numbers})."


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")
