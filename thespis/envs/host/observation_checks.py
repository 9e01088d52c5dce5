"""Checks of the first observations of a host environment against its declared space, for warnings to the user."""

from __future__ import annotations

from typing import Any

import numpy as np

NUM_CHECKED_STEPS = 100
"""Steps of an environment whose observations are checked; later ones cost nothing."""


class ObservationChecks:
    """Checks the first observations of environments named ``name``; each kind of fault is reported once.

    Observations are raw ones, of one environment or with leading axes of several. Gymnasium's own environments are not
    checked: a user cannot change them. ``env`` is one of the environments.
    """

    def __init__(self, env: Any, space: Any, name: str):
        self._space, self._name = space, name
        module = type(getattr(env, "unwrapped", env)).__module__
        self._num_left = 0 if module.startswith("gymnasium.envs.") else NUM_CHECKED_STEPS
        self._found: dict[str, str] = {}
        self._reported: set[str] = set()

    @property
    def active(self) -> bool:
        """Whether observations are still checked."""
        return self._num_left > 0

    def count_step(self) -> None:
        """Count a step of all environments."""
        self._num_left -= 1

    def check(self, observation: Any) -> None:
        """Note the faults of an observation."""
        for kind, text in _faults(self._space, observation, "observation"):
            self._found.setdefault(kind, text)

    def pop_warnings(self) -> list[str]:
        """New faults, one line each."""
        new = [kind for kind in sorted(self._found) if kind not in self._reported]
        self._reported |= set(new)
        return [f"{self._name}: {self._found[kind]}" for kind in new]


def _faults(space: Any, value: Any, label: str) -> list[tuple[str, str]]:
    """Faults of a value of a ``gymnasium`` space, as pairs of kind and text."""
    import gymnasium.spaces as g

    match space:
        case g.Dict():
            parts = [(space[name], value[name], f"{label}[{name!r}]") for name in space.spaces]
        case g.Tuple():
            parts = [(part, value[i], f"{label}[{i}]") for i, part in enumerate(space.spaces)]
        case g.Box():
            return _box_faults(space, np.asarray(value), label)
        case _:
            return []
    return [fault for part in parts for fault in _faults(*part)]


def _box_faults(space: Any, value: np.ndarray, label: str) -> list[tuple[str, str]]:
    faults = []
    if value.dtype == np.float64:
        declared = "as its space declares" if space.dtype == np.float64 else f"its space declares {space.dtype}"
        faults.append(("dtype", f"{label} is float64 ({declared}) and stored as float32: use float32 for both"))
    outside = (value.astype(space.dtype) < space.low) | (value.astype(space.dtype) > space.high)
    if outside.any():
        index = tuple(int(i) for i in np.argwhere(outside)[0])
        own = index[value.ndim - len(space.shape) :]  # without the axis of environments
        low, high, place = space.low[own], space.high[own], "".join(f"[{i}]" for i in own)
        text = f"{label}{place} = {value[index]:g} is outside its declared bounds [{low:g}, {high:g}]"
        faults.append(("bounds", f"{text}: widen the space, or clip the observation"))
    return faults
