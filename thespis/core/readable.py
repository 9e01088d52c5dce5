"""Policies that tell their probabilities, for those who judge them exactly."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import PyTree

from thespis.core.records import View

Policy = TypeVar("Policy", contravariant=True)
Memory = TypeVar("Memory", contravariant=True)


class Redundant:
    """What memory is that only saves time: a fresh one does as well, since what is seen says it all."""


@runtime_checkable
class Readable(Protocol[Policy, Memory]):
    """A method for one discrete choice, or one of listed utterances, whose policy can be read, not only played."""

    def probabilities(self, policy: Policy, memory: Memory, view: View) -> PyTree:
        """Of every choice in each row that ``act`` would draw from: floats with the axes of ``view.legal``.

        They are those of the policy's mode: a greedy one chooses with certainty. Raises ``UserError`` where actions are
        no single discrete choice.
        """
        ...
