"""Goals that a world tells, and what it would have shown had it told another."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Bool, PyTree


@runtime_checkable
class Goals(Protocol):
    """How an episode is told again with another goal: pure functions of what was seen, hashable.

    They are for worlds in which the same deeds lead to the same places whatever the goal is, nothing but the goal pays,
    and an episode is over where it is reached.
    """

    @property
    def reward(self) -> float:
        """What reaching the goal earns."""
        ...

    def achieved(self, observation: PyTree) -> PyTree:
        """What the newest step has reached, as a goal."""
        ...

    def retold(self, observation: PyTree, goal: PyTree) -> tuple[PyTree, Bool[Array, ""]]:
        """What would have been seen with that goal, up to where it is reached, and whether it is by then."""
        ...
