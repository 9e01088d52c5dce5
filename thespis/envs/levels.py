"""Levels: the interface through which a curriculum makes, edits and compares the levels of an environment.

A level is the parameters of one episode: a pytree like ``spec.params``. Unsupervised environment design draws levels at
random (domain randomisation), replays those that are worth learning from (PLR; Jiang et al. 2021, arXiv:2010.03934,
arXiv:2110.02439) and edits them (ACCEL; Parker-Holder et al. 2022, arXiv:2203.01302).
"""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Bool, Int, Key, Shaped

Level = TypeVar("Level")


@runtime_checkable
class Levels(Protocol[Level]):
    """Generator, editor and encoder of levels: pure functions of one level, to be vmapped."""

    def sample(self, key: Key[Array, ""]) -> Level:
        """A level at random. It need not be solvable."""
        ...

    def mutate(self, level: Level, key: Key[Array, ""], num_edits: int | Int[Array, ""]) -> Level:
        """The level after ``num_edits`` random edits."""
        ...

    def solvable(self, level: Level) -> Bool[Array, ""]:
        """Whether any policy can succeed in the level."""
        ...

    def encode(self, level: Level) -> Shaped[Array, " size"]:
        """A vector of fixed length: equal for equal levels, and different for different ones."""
        ...
