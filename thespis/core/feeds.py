"""Feeds: the data that one update consumes. Loops look at a method's feed, never at its name."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Rollouts:
    """On-policy rollouts: ``num_steps`` steps of every environment, then ``num_updates`` updates on them."""

    num_steps: int
    """Steps of every environment between two learning phases."""
    num_updates: int = 1
    """Updates on each rollout."""
    policy_lag: int = 0
    """Learning phases by which the acting policy lags behind in the host loop."""
    num_envs: int = 8
    """Environments per seed, unless the run sets another number."""

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return self.num_steps


@dataclasses.dataclass(frozen=True)
class Episodes:
    """Whole episodes: one of every environment, all started together, then ``num_updates`` updates on them.

    Environments come in groups of ``group_size`` with the same parameters and the same initial state, in adjacent rows
    of the batch. Steps after an episode's end are masked until the longest episode is over.
    """

    max_steps: int = 0
    """Largest number of steps of an episode; 0: the environment's time limit."""
    group_size: int = 1
    """Episodes per initial state."""
    num_updates: int = 1
    """Updates on each set of episodes."""
    policy_lag: int = 0
    """Sets of episodes by which the acting policy lags behind in the host loop."""
    num_envs: int = 64
    """Environments per seed, unless the run sets another number: a multiple of ``group_size``."""

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return self.max_steps


@dataclasses.dataclass(frozen=True)
class Replay:
    """Replay buffer: windows sampled uniformly from the last ``buffer_size`` transitions.

    After ``learning_starts`` transitions, every ``update_interval`` steps of all environments are followed by
    ``num_updates`` updates, each on ``batch_size`` windows of ``sequence_length`` consecutive steps (cut at an
    episode's end).
    """

    buffer_size: int = 1_000_000
    """Transitions stored per seed; never more than the run has steps."""
    batch_size: int = 256
    """Windows per update."""
    learning_starts: int = 1_000
    """Transitions collected per seed before the first update."""
    update_interval: int = 1
    """Steps of all environments between two learning phases."""
    num_updates: int = 1
    """Updates in each learning phase."""
    sequence_length: int = 1
    """Steps per window: more than one gives n-step targets."""
    policy_lag: int = 1
    """Learning phases by which the acting policy lags behind in the host loop."""
    num_envs: int = 1
    """Environments per seed, unless the run sets another number."""
    frame_stack: int = 0
    """Number of stacked frames along an observation's first axis, oldest first, if each step adds one: every frame is
    then stored once. With episodes shorter than 32 steps some of the oldest transitions are not stored. 0: observations
    are stored whole, as those of datasets always are."""

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return self.update_interval


@dataclasses.dataclass(frozen=True)
class LoggedTransitions:
    """Windows sampled uniformly from a fixed dataset of transitions."""

    batch_size: int = 256
    """Windows per update."""
    sequence_length: int = 1
    """Steps per window."""


@dataclasses.dataclass(frozen=True)
class LoggedEpisodes:
    """Whole episodes sampled uniformly from a fixed dataset, masked after their ends."""

    max_steps: int = 0
    """Largest number of steps of an episode; 0: that of the dataset's longest."""
    batch_size: int = 32
    """Episodes per update."""
    max_tokens: int = 0
    """Chats of a file with more tokens are cut or left out (``docs/language-data.md``); 0: no limit."""

    @property
    def num_episodes(self) -> int:
        """Number of episodes that make up one batch."""
        return self.batch_size


@dataclasses.dataclass(frozen=True)
class PreferencePairs:
    """Preference pairs: two episodes with the same initial state, or stored as a pair, and different returns.

    Rows ``2 k`` and ``2 k + 1`` are the better and the worse episode. Sampling is uniform over all episodes that have a
    partner, then over that episode's partners.
    """

    max_steps: int = 0
    """Largest number of steps of an episode; 0: that of the dataset's longest."""
    batch_size: int = 32
    """Pairs per update."""
    max_tokens: int = 0
    """Chats of a file with more tokens are cut or left out (``docs/language-data.md``); 0: no limit."""

    @property
    def num_episodes(self) -> int:
        """Episodes per batch: two per pair."""
        return 2 * self.batch_size


Feed = Rollouts | Episodes | Replay | LoggedTransitions | LoggedEpisodes | PreferencePairs
