"""Bounds of the return of an episode, for environments where they are known: statistics do not leave them."""

from __future__ import annotations

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


def return_bounds(env: str | None) -> tuple[float, float] | None:
    """Bounds of the return in an environment by full name; ``None`` if they are not known."""
    return RETURN_BOUNDS.get(env or "")
