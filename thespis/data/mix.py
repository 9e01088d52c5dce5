"""Mixed feed: batches whose rows come from several sources, such as demonstrations and the learner's own replay.

Every batch has the same number of rows from each source, in the order of the sources; ``batch.source("demos")`` are
those of one. A method that does not ask for a source learns from all rows alike, as SAC with half of each batch from
demonstrations does in RLPD (Ball et al., 2023).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import DatasetSampler, Feed, Store, WindowFeed, require_batches_of
from thespis.core.records import Batch, EnvSpec, EpisodeStats, Report, Transition
from thespis.runtime.keys import fold


@dataclasses.dataclass(frozen=True)
class Source:
    """One source of a mixed feed: its name, its feed, and its share of a batch's rows."""

    name: str
    feed: Feed
    share: float


@dataclasses.dataclass(frozen=True)
class Mix(WindowFeed):
    """A feed whose batches have rows from several sources.

    The first source that collects experience sets when the method learns; others that collect follow it. Made from
    dicts by :func:`mix`.
    """

    collects: ClassVar[bool] = True

    sources: tuple[Source, ...] = ()
    """The sources; their batch sizes are replaced by their shares of ``batch_size``."""
    batch_size: int = 256
    """Windows per update, of all sources together."""

    def __post_init__(self) -> None:
        """Check the shares. Raises ``UserError`` if they do not add up, or give no whole number of rows."""
        names = [source.name for source in self.sources]
        total = sum(source.share for source in self.sources)
        if len(set(names)) < len(names) or not any(source.feed.collects for source in self.sources):
            raise UserError("a mix needs sources of different names, one of which collects experience (Replay)")
        if abs(total - 1.0) > 1e-6 or not all(source.share > 0 for source in self.sources):
            raise UserError(f"the shares of a mix are positive and add up to 1, not to {total:g}")
        for source in self.sources:
            require_batches_of("a mix", source.feed, WindowFeed)
            rows = source.share * self.batch_size
            if abs(rows - round(rows)) > 1e-6:
                raise UserError(
                    f"a share of {source.share:g} for {source.name} of a batch of {self.batch_size} is no whole number "
                    "of rows: change the share or feed.batch_size"
                )

    @property
    def leader(self) -> Feed:
        """The source that sets when the method learns: the first that collects."""
        return next(source.feed for source in self.sources if source.feed.collects)

    @property
    def members(self) -> dict[str, Any]:
        """The feed of each source, with its number of rows."""
        return {
            source.name: _with_rows(
                source.feed.with_collect_steps(self.collect_steps), round(source.share * self.batch_size)
            )
            for source in self.sources
        }

    @property
    def num_updates(self) -> int:
        """Updates in each learning phase."""
        return self.leader.num_updates

    @property
    def policy_lag(self) -> int:
        """Learning phases by which the acting policy lags behind in the host loop."""
        return self.leader.policy_lag

    @property
    def num_envs(self) -> int:
        """Environments per seed, unless the run sets another number."""
        return self.leader.num_envs

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch."""
        return self.leader.batch_shape[0], self.batch_size

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return self.leader.collect_steps

    def make_store(self, total_steps: int) -> Store:
        """The store of all sources. Raises ``UserError`` if their windows differ in length."""
        lengths = {name: feed.batch_shape[0] for name, feed in self.members.items()}
        if len(set(lengths.values())) > 1:
            raise UserError(f"the sources of a mix have windows of different lengths: {lengths}; set sequence_length")
        return MixStore(self, {name: feed.make_store(total_steps) for name, feed in self.members.items()})

    def make_sampler(self, steps: Transition, group_size: int = 0) -> DatasetSampler:
        """A dataset alone is no mix. Raises ``UserError``."""
        raise UserError("a mixed feed needs an environment beside its datasets: use another feed with --data")

    def load_data(self, read: Callable[[str], tuple[Transition, int]]) -> PyTree:
        """The samplers of all sources, by name."""
        return {name: feed.load_data(read) for name, feed in self.members.items()}


@dataclasses.dataclass(frozen=True)
class MixStore(Store):
    """The stores of all sources of a mixed feed; the state is a dict of theirs."""

    feed: Mix
    stores: Mapping[str, Store]

    def for_env(self, spec: EnvSpec) -> MixStore:
        """The store for that environment, for every source."""
        return dataclasses.replace(self, stores={name: store.for_env(spec) for name, store in self.stores.items()})

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update, enough for every source."""
        return max(store.num_warmup_blocks(num_envs) for store in self.stores.values())

    def init(self, example: Transition, num_envs: int) -> PyTree:
        """Empty stores."""
        return {name: store.init(example, num_envs) for name, store in self.stores.items()}

    def add(self, state: PyTree, steps: Transition, num_written: Int[Array, ""]) -> PyTree:
        """Every source's store with ``steps[time, env]`` added."""
        return {name: store.add(state[name], steps, num_written) for name, store in self.stores.items()}

    def add_with_key(
        self, state: PyTree, steps: Transition, num_written: Int[Array, ""], key: Key[Array, ""]
    ) -> PyTree:
        """Every source's store with ``steps[time, env]`` added, each with a key of its own."""
        return {
            name: store.add_with_key(state[name], steps, num_written, fold(key, name))
            for name, store in self.stores.items()
        }

    def sample(
        self,
        state: PyTree,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The rows of all sources. A source without a sampler has weights of 1, beside one that has."""
        keys = jax.random.split(key, len(self.stores))
        batches = {
            name: store.sample(state[name], rollout, memory, num_written, update_index, keys[i], data[name])
            for i, (name, store) in enumerate(self.stores.items())
        }
        return _join(batches, update_index)

    def revisable(self, state: PyTree) -> PyTree:
        """The revisable parts of all sources, by name."""
        return {name: store.revisable(state[name]) for name, store in self.stores.items()}

    def with_revised(self, state: PyTree, part: PyTree) -> PyTree:
        """The stores with other revisable parts."""
        return {name: store.with_revised(state[name], part[name]) for name, store in self.stores.items()}

    def revise(self, part: PyTree, batch: Batch, report: Report) -> PyTree:
        """Every source's revisable part after an update: each sees its own rows and their priorities."""
        revised, start = {}, 0
        for name, count in batch.sources:
            priorities = None if report.priorities is None else report.priorities[start : start + count]
            own = batch.select_rows(start, start + count)
            revised[name] = self.stores[name].revise(part[name], own, Report(report.metrics, priorities))
            start += count
        return revised

    def filter_stats(self, stats: EpisodeStats) -> EpisodeStats:
        """The episode statistics that count for the source that sets when the method learns."""
        leader = next(source.name for source in self.feed.sources if source.feed.collects)
        return self.stores[leader].filter_stats(stats)

    def env_axes(self, state: PyTree) -> PyTree:
        """The axes of environments of all sources."""
        return {name: store.env_axes(state[name]) for name, store in self.stores.items()}

    def check(self, state: PyTree) -> None:
        """Check the stored experience of every source."""
        for name, store in self.stores.items():
            store.check(state[name])

    def check_growth(self, steps: int) -> None:
        """Check that every source can go on to ``steps`` transitions."""
        for store in self.stores.values():
            store.check_growth(steps)


def _with_rows(feed: Any, batch_size: int) -> Any:
    """The feed with another batch size."""
    return dataclasses.replace(feed, batch_size=batch_size)


def _label(batches: dict[str, Batch]) -> dict[str, Batch]:
    """The batches, all with what a curriculum says of each step if one has it: a dataset's have no level, and count."""
    labels: dict[str, Any] = {"learns": True, "level": -1}

    def has(batch: Batch, name: str) -> bool:
        return getattr(batch.steps, name) is not None

    def label(batch: Batch) -> Batch:
        missing = {
            name: jnp.full(batch.mask.shape, value)
            for name, value in labels.items()
            if not has(batch, name) and any(has(other, name) for other in batches.values())
        }
        return dataclasses.replace(batch, steps=dataclasses.replace(batch.steps, **missing)) if missing else batch

    return {name: label(batch) for name, batch in batches.items()}


def _join(batches: dict[str, Batch], update_index: Array) -> Batch:
    """One batch of all rows. Raises ``UserError`` if the sources' steps have different parts."""
    batches = _label(batches)
    first, *others = batches.values()
    structure = jax.tree.structure(first.steps)
    for name, other in batches.items():
        if jax.tree.structure(other.steps) != structure:
            raise UserError(
                f"the steps of {name} have other parts than those of {next(iter(batches))}: a dataset with the same "
                "observations and actions is wanted, and a method that stores nothing of its own with its actions"
            )
    steps, mask = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *((b.steps, b.mask) for b in (first, *others)))
    weights = indices = None
    if any(batch.weights is not None for batch in batches.values()):
        rows = [batch.mask.shape[1] for batch in batches.values()]
        weights = jnp.concatenate(
            [jnp.ones(n) if b.weights is None else b.weights for b, n in zip(batches.values(), rows, strict=True)]
        )
        indices = jnp.concatenate(
            [
                jnp.full(n, -1, "int32") if b.indices is None else b.indices
                for b, n in zip(batches.values(), rows, strict=True)
            ]
        )
    sources = tuple((name, batch.mask.shape[1]) for name, batch in batches.items())
    return Batch(steps, mask, (), update_index, weights, indices, sources)


def mix(feeds: Mapping[str, Feed], shares: Mapping[str, float], batch_size: int = 256) -> Mix:
    """A mixed feed of several feeds by name, with each one's share of a batch."""
    if set(feeds) != set(shares):
        raise UserError(f"a mix of {', '.join(feeds)} needs a share for each of them, not for {', '.join(shares)}")
    return Mix(tuple(Source(name, feed, shares[name]) for name, feed in feeds.items()), batch_size)
