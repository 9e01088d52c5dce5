"""What on-policy learning asks of a network, whoever acts by it: one agent, or a team as one."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, PyTree

from thespis.actors.distributions import Distribution
from thespis.core.records import View


@runtime_checkable
class Network(Protocol):
    """An actor that tells its distributions, and a critic."""

    def begin(self, n: int) -> Any:
        """Memories of actor and critic for ``n`` fresh episodes."""
        ...

    def choose(self, memory: Any, view: View) -> tuple[Distribution, Any]:
        """The distribution over actions for one view, and the memories after it."""
        ...

    def distributions(self, memory: Any, views: View, first: Bool[Array, "time row"]) -> Distribution:
        """The distributions of a whole rollout, leaves ``[time, row, ...]``."""
        ...

    def values(self, memory: Any, seen: PyTree, first: Bool[Array, "time row"]) -> tuple[Float[Array, "time row"], Any]:
        """State values of a whole rollout of what the critic sees, and its memory after each step."""
        ...

    def next_values(self, memories: Any, seen: PyTree) -> Float[Array, "time row"]:
        """Values of what the critic truly sees next, each with the memory that leads to it."""
        ...
