"""Contracts of data: what one update consumes (:class:`Feed`), and where it is kept until then (:class:`Store`).

A feed is a frozen dataclass of settings, a static field of its method. Loops ask it for a store or a sampler and look
at the properties below, never at its class. A feed from outside the package derives from :class:`Feed`, and its store
from :class:`Store`: both give every member a default that suits the simplest case.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Batch, EnvSpec, EpisodeStats, Report, Transition


@runtime_checkable
class StoredSteps(Protocol):
    """All steps that a store holds, as one list: an ``equinox.Module``."""

    @property
    def size(self) -> Int[Array, ""]:
        """Number of steps, at least 1; the same for all seeds that train together."""
        ...

    def take(self, indices: Int[Array, " n"]) -> Transition:
        """The steps with these numbers, each from 0 to :attr:`size` exclusive; leaves ``[n, ...]``."""
        ...


class Store(abc.ABC):
    """Where fresh experience is kept between acting and learning: pure functions of its state, for one seed.

    The state is a tree of arrays, part of the learner's state: donated, checkpointed and resumed with it.
    """

    feed: Any
    """The feed that this store serves."""
    group_size: int = 0
    """Number of adjacent environments with the same initial state, reset in every block; 0: no groups or resets."""

    def for_env(self, spec: EnvSpec) -> Store:
        """The store for this environment; by default unchanged. Raises ``UserError`` if they do not fit."""
        return self

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update. Raises ``UserError`` for settings that do not fit."""
        return 0

    def init(self, example: Transition, num_envs: int) -> PyTree:
        """An empty store for transitions shaped as ``example``; by default nothing is stored."""
        return ()

    def add(self, state: PyTree, steps: Transition, num_written: Int[Array, ""]) -> PyTree:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks; by default unchanged."""
        return state

    def add_with_key(
        self, state: PyTree, steps: Transition, num_written: Int[Array, ""], key: Key[Array, ""]
    ) -> PyTree:
        """What loops call: :meth:`add` with a key, for a store that keeps a random part of what it gets."""
        return self.add(state, steps, num_written)

    @abc.abstractmethod
    def sample(
        self,
        state: PyTree,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Int[Array, ""],
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The batch for the next update; ``rollout`` was just collected and ``memory`` is the actor's before it.

        ``data`` is what the feed's :meth:`Feed.load_data` returned.
        """

    def stored_steps(self, state: PyTree, num_written: Int[Array, ""]) -> StoredSteps:
        """All steps that are stored, for methods that learn from more than a batch; without copying them.

        Raises:
            UserError: if the store keeps no steps; by default.
        """
        raise UserError(
            f"this method learns from all stored steps, which {type(self.feed).__name__} does not keep: use Replay"
        )

    def revisable(self, state: PyTree) -> PyTree:
        """The part of the state that :meth:`revise` changes, such as priorities; by default nothing."""
        return ()

    def with_revised(self, state: PyTree, part: PyTree) -> PyTree:
        """The state with another revisable part."""
        return state

    def revise(self, part: PyTree, batch: Batch, report: Report) -> PyTree:
        """The revisable part after an update on ``batch``, which reported ``report``."""
        return part

    def filter_stats(self, stats: EpisodeStats) -> EpisodeStats:
        """The episode statistics that count; by default all."""
        return stats

    def env_axes(self, state: PyTree) -> PyTree:
        """The axis of each leaf of the state that indexes environments; -1: none. By default the second: [row, env]."""
        return jax.tree.map(lambda _: 1, state)

    def check(self, state: PyTree) -> None:  # noqa: B027 (optional)
        """Check the stored experience of any number of seeds. Raises ``UserError`` if it is not as promised."""

    def check_growth(self, steps: int) -> None:  # noqa: B027 (optional)
        """Check that a run can go on to ``steps`` transitions per seed with this store. Raises ``UserError`` if not."""


class ReplaySampler(abc.ABC):
    """Chooses the windows of a replay buffer that are sampled: a frozen dataclass whose functions are pure.

    A window is a whole number, ``row * num_envs + env`` of its first step. The state is a tree of arrays.
    """

    @abc.abstractmethod
    def init(self, num_windows: int) -> PyTree:
        """The state for an empty buffer with room for that many windows."""

    @abc.abstractmethod
    def add(self, state: PyTree, windows: Int[Array, " n"], is_complete: Bool[Array, " n"]) -> PyTree:
        """The state after a write: ``windows`` are new if complete; others begin with steps that nothing follows yet.

        No window occurs twice.
        """

    @abc.abstractmethod
    def forget(self, state: PyTree, windows: Int[Array, " n"], is_gone: Bool[Array, " n"]) -> PyTree:
        """The state without the windows that are gone: they cannot be read any more. No window occurs twice."""

    @abc.abstractmethod
    def draw(self, state: PyTree, batch_size: int, key: Key[Array, ""]) -> Int[Array, " row"]:
        """Sample windows, with replacement."""

    @abc.abstractmethod
    def weights(
        self, state: PyTree, indices: Int[Array, " row"], num_windows: Int[Array, ""], update_index: Int[Array, ""]
    ) -> Float[Array, " row"]:
        """Weights of sampled windows in the loss; ``num_windows`` can be sampled at present."""

    @abc.abstractmethod
    def revise(self, state: PyTree, indices: Int[Array, " row"], priorities: Float[Array, " row"]) -> PyTree:
        """The state after an update on sampled windows, which reported their priorities."""


class DatasetPass(Protocol):
    """A dataset that can be read once from beginning to end."""

    def full_pass(self) -> Iterator[tuple[Transition, Bool[Array, "time row"], float]]:
        """All data once, in batches with a mask of the steps that count and their weight in a mean over the data."""
        ...


@runtime_checkable
class DatasetSampler(DatasetPass, Protocol):
    """Samples batches of a dataset: an ``equinox.Module`` whose leaves are the data."""

    def sample(self, key: Key[Array, ""]) -> tuple[Transition, Bool[Array, "time row"]]:
        """``[time, row]`` steps, and a mask of those that count."""
        ...


@runtime_checkable
class HasStoredSteps(Protocol):
    """A dataset sampler that also gives all steps of the dataset."""

    def stored_steps(self) -> StoredSteps:
        """All steps of the dataset as one list, without copying them."""
        ...


@runtime_checkable
class BranchedSampler(DatasetPass, Protocol):
    """Samples every batch from one of several parts of a dataset, whose batches have different shapes."""

    @property
    def samplers(self) -> tuple[DatasetSampler, ...]:
        """The sampler of each part."""
        ...

    def draw_bucket(self, update_index: Int[Array, ""]) -> Int[Array, ""]:
        """The part of an update, the same for all training seeds: the update is then a branch of the program."""
        ...


class Feed(abc.ABC):
    """The data that one update consumes: fresh rollouts, a replay buffer, or a dataset.

    A feed that can be collected for has :meth:`make_store`, one that can read a dataset :meth:`make_sampler`.
    """

    collects: ClassVar[bool] = False
    """Whether a loop collects experience for it; else there is only a dataset."""
    reads_datasets: ClassVar[bool] = False
    """Whether a dataset can take the place of collected experience."""
    crosses_episodes: ClassVar[bool] = False
    """Whether rows of a batch go on across the ends of episodes, with the actor's memory before their first step."""
    whole_episodes: ClassVar[bool] = False
    """Whether every row of a batch is one whole episode, masked after its end."""
    is_fresh: ClassVar[bool] = False
    """Whether a batch is all that was collected since the last learning phase, which is then dropped (on-policy data);
    else a sample of what is stored."""
    has_pairs: ClassVar[bool] = False
    """Whether adjacent rows of a batch are pairs, the preferred one first."""
    burn_in: int = 0
    """Steps at the beginning of rows that cross episodes which only warm up memory."""
    stored_memory: bool = False
    """Whether rows that cross episodes come with the memory that the actor had before their first step, which it stores
    with every step; else ``()``."""
    num_updates: int
    """Updates in each learning phase."""
    policy_lag: int
    """Learning phases by which the acting policy lags behind in the host loop."""
    num_envs: int
    """Environments per seed, unless the run sets another number."""

    @property
    @abc.abstractmethod
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch; of whole episodes, the largest number of steps (0: not known yet)."""

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return 1

    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed.

        Raises:
            UserError: if there is none, as the feed reads datasets alone.
        """
        raise UserError(
            f"a method fed by {type(self).__name__} learns from a dataset: use --data DIR, not an environment"
        )

    def make_sampler(self, steps: Transition, group_size: int = 0) -> DatasetSampler | BranchedSampler:
        """The sampler of the dataset ``steps[time]``.

        ``group_size``: number of adjacent episodes in a group; 0: episodes with equal first observations form a group.

        Raises:
            UserError: for a dataset that does not fit, or if the feed needs fresh experience.
        """
        raise UserError(f"a method fed by {type(self).__name__} learns from fresh experience and not from a dataset")

    def load_data(self, read: Callable[[str], tuple[Transition, int]]) -> PyTree:
        """The datasets that the feed samples from beside what is collected: a tree of samplers; by default none.

        ``read`` returns the steps ``[time]`` of a dataset by its name, as for ``--data``, and its group size.
        """
        return ()

    def with_collect_steps(self, collect_steps: int) -> Feed:
        """The feed for blocks of that many steps, beside another feed that sets them.

        Raises:
            UserError: if it cannot; by default unless the number is its own.
        """
        if self.collects and collect_steps != self.collect_steps:
            raise UserError(
                f"{type(self).__name__} learns after {self.collect_steps} steps of every environment, and the feed "
                f"beside it after {collect_steps}: give both the same number"
            )
        return self

    def for_run(self, num_envs: int) -> Feed:
        """The feed of a run with ``num_envs`` environments per seed; by default unchanged."""
        return self

    def for_time_limit(self, time_limit: int | None) -> Feed:
        """The feed for an environment with this time limit of episodes; by default unchanged."""
        return self


class RolloutFeed(Feed):
    """A feed whose batch is the rollout that was just collected: ``collect_steps`` steps of every environment.

    All steps are real, and ``batch.memory`` is the actor's before the first of them.
    """

    collects: ClassVar[bool] = True
    crosses_episodes: ClassVar[bool] = True
    is_fresh: ClassVar[bool] = True


class WindowFeed(Feed):
    """A feed whose batches are windows of consecutive steps of one environment, masked after an episode's end."""


class SequenceFeed(Feed):
    """A feed for recurrent methods whose batches are sequences of one environment that go on across episodes' ends.

    All their steps are real: nothing is masked, and memory is reset where ``is_first`` says so.
    """

    crosses_episodes: ClassVar[bool] = True


def describe_batches(feed: Feed | type[Feed]) -> str:
    """What a feed's batches are, in words, by its properties."""
    if feed.has_pairs:
        return "pairs of episodes, the preferred one first"
    if feed.is_fresh:
        return f"the {'rollout that was' if feed.crosses_episodes else 'whole episodes that were'} just collected"
    if feed.crosses_episodes:
        return "stored sequences that go on across the ends of episodes, for recurrent methods"
    return "stored windows or episodes, masked after their ends"


def require_batches_of(owner: str, feed: Feed, wanted: Feed | type[Feed]) -> None:
    """Require that a feed's batches are of the kind that ``owner`` learns from: those of ``wanted``, by its properties.

    Raises:
        UserError: if they are not.
    """
    if describe_batches(feed) != describe_batches(wanted):
        raise UserError(
            f"{owner} learns from {describe_batches(wanted)}; {type(feed).__name__} gives {describe_batches(feed)}"
        )
