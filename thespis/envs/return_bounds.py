"""Bounds of the return of an episode, for environments where they are known: statistics do not leave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from thespis.core.errors import UserError

_PENDULUM_COST = 3.141592653589793**2 + 0.1 * 8.0**2 + 0.001 * 2.0**2  # of a step, at most

_CONTROL = {
    "CartPole-v0": (0.0, 200.0),
    "CartPole-v1": (0.0, 500.0),
    "MountainCar-v0": (-200.0, 0.0),
    "Acrobot-v1": (-500.0, 0.0),
    "Pendulum-v1": (-200 * _PENDULUM_COST, 0.0),
}
_ZERO_ONE, _WIN_LOSS = (0.0, 1.0), (-1.0, 1.0)

RETURN_BOUNDS: dict[str, tuple[float, float]] = {
    **{f"{library}:{name}": bounds for library in ("gymnasium", "gymnax") for name, bounds in _CONTROL.items()},
    "gymnasium:FrozenLake-v1": _ZERO_ONE,
    "gymnasium:Blackjack-v1": (-1.0, 1.5),
    "gymnax:Catch-bsuite": _WIN_LOSS,
    **{f"pgx:{game}": _WIN_LOSS for game in ("tic_tac_toe", "connect_four", "hex", "othello", "chess")},
    "pgx:kuhn_poker": (-2.0, 2.0),
}
"""Lowest and highest possible return by full name of the environment, with its default parameters."""


@runtime_checkable
class HasReturnBounds(Protocol):
    """Interface of an environment that knows the lowest and highest return of an episode."""

    return_bounds: Any


def return_bounds(env: str | None, declared: Sequence[float] | None = None) -> tuple[float, float] | None:
    """Bounds of the return in an environment by full name; ``None`` if they are not known.

    ``declared``: those that the environment itself declares, which have priority.
    """
    if declared is not None:
        return float(declared[0]), float(declared[1])
    return RETURN_BOUNDS.get(env or "")


def declared_bounds(env: Any, name: str) -> tuple[float, float] | None:
    """The attribute ``return_bounds`` of an environment, or of the one that it wraps; ``None`` without one.

    Raises :class:`UserError` unless it is two numbers in order.
    """
    holder = next((e for e in (env, getattr(env, "unwrapped", None)) if isinstance(e, HasReturnBounds)), None)
    if holder is None or holder.return_bounds is None:
        return None
    try:
        low, high = (float(bound) for bound in holder.return_bounds)
        if low < high:
            return low, high
    except (TypeError, ValueError):
        pass
    raise UserError(f"{name}: return_bounds is {holder.return_bounds!r}: it must be (lowest return, highest return)")
