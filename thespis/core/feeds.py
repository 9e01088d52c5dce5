"""What one update eats. Loops read a method's feed and never its name."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Rollouts:
    """``length`` fresh steps of every environment, then ``updates`` updates on them."""

    length: int
    """Ticks of every environment between two phases of learning."""
    updates: int = 1
    """Updates on each rollout."""
    lag: int = 0
    """Phases of learning by which the acting policy is behind in the host loop."""
    envs: int = 8
    """Environments per seed, unless the run says otherwise."""

    @property
    def ticks(self) -> int:
        """Environment ticks between two phases of learning."""
        return self.length


@dataclasses.dataclass(frozen=True)
class Episodes:
    """One whole episode of every environment, all begun together, then ``updates`` updates on them.

    Environments come in groups of ``group`` that begin alike: the same parameters and the same first state, behind each
    other in the batch. What follows an episode's end until the slowest is over is masked.
    """

    turns: int = 0
    """Steps that an episode may have; 0: as many as the world allows."""
    group: int = 1
    """Episodes of each beginning."""
    updates: int = 1
    """Updates on each set of episodes."""
    lag: int = 0
    """Sets of episodes by which the acting policy is behind in the host loop."""
    envs: int = 64
    """Environments per seed, unless the run says otherwise: a multiple of ``group``."""

    @property
    def ticks(self) -> int:
        """Environment ticks between two phases of learning."""
        return self.turns


@dataclasses.dataclass(frozen=True)
class Replay:
    """Windows drawn uniformly from the last ``capacity`` transitions.

    After ``warmup`` transitions, every ``every`` ticks of all environments are followed by ``updates``
    updates, each on ``batch`` windows of ``length`` consecutive steps (cut at an episode's end).
    """

    capacity: int = 1_000_000
    """Transitions kept per seed; never more than the run has steps."""
    batch: int = 256
    """Windows per update."""
    warmup: int = 1_000
    """Transitions collected per seed before the first update."""
    every: int = 1
    """Ticks of all environments between two phases of learning."""
    updates: int = 1
    """Updates in each phase."""
    length: int = 1
    """Steps per window: more than one gives n-step targets."""
    lag: int = 1
    """Phases of learning by which the acting policy is behind in the host loop."""
    envs: int = 1
    """Environments per seed, unless the run says otherwise."""
    frames: int = 0
    """Observations are stacks of so many frames along their first axis, oldest first, and each step adds one: every
    frame is kept once. With episodes of less than 32 steps some of the oldest transitions are not held. 0: observations
    are kept whole, as those of datasets always are."""

    @property
    def ticks(self) -> int:
        """Environment ticks between two phases of learning."""
        return self.every


@dataclasses.dataclass(frozen=True)
class Logged:
    """Windows drawn uniformly from a dataset that does not grow."""

    batch: int = 256
    """Windows per update."""
    length: int = 1
    """Steps per window."""


@dataclasses.dataclass(frozen=True)
class LoggedEpisodes:
    """Whole episodes drawn uniformly from a dataset that does not grow, masked behind their ends."""

    turns: int = 0
    """Steps that an episode may have; 0: as many as the dataset's longest has."""
    batch: int = 32
    """Episodes per update."""

    @property
    def rows(self) -> int:
        """Episodes side by side."""
        return self.batch


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Two whole episodes of a dataset that began alike, or lie there as a pair, and did not return the same.

    Rows ``2 k`` and ``2 k + 1`` are the better and the worse. Drawn uniformly is one of all episodes that have such
    rivals, then one of its rivals.
    """

    turns: int = 0
    """Steps that an episode may have; 0: as many as the dataset's longest has."""
    batch: int = 32
    """Pairs per update."""

    @property
    def rows(self) -> int:
        """Episodes side by side."""
        return 2 * self.batch


Feed = Rollouts | Episodes | Replay | Logged | LoggedEpisodes | Pairs
