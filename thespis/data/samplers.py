"""Samplers of fixed datasets: windows, whole episodes, or preference pairs."""

from __future__ import annotations

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Transition
from thespis.data import ring_buffer
from thespis.data.stored_steps import BufferSteps

SampledSteps = tuple[Transition, Bool[Array, "time row"]]


WeightedSteps = tuple[Transition, Bool[Array, "time row"], float]
"""A batch of a whole pass over a dataset, and the weight of its metrics in the mean over the pass."""


class WindowSampler(eqx.Module):
    """Samples windows of ``sequence_length`` steps, uniformly over their starts."""

    buffer: ring_buffer.RingBuffer
    batch_size: int = eqx.field(static=True)
    sequence_length: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""]) -> SampledSteps:
        """``[length, batch]`` steps, and a mask of those in the episode that the window starts in."""
        return self.buffer.sample(
            jnp.asarray(self.buffer.num_rows, "int32"), key, self.batch_size, self.sequence_length
        )

    def stored_steps(self) -> BufferSteps:
        """All steps of the dataset."""
        return BufferSteps(self.buffer, jnp.asarray(self.buffer.num_rows, "int32"))

    def full_pass(self) -> Iterator[WeightedSteps]:
        """Every step once: windows one after another, from the first step of each episode on; the last may be short."""
        last = self.buffer.num_rows - 1
        firsts = np.flatnonzero(np.concatenate([[True], np.asarray(self.buffer.steps.done)[:-1, 0]]))
        ends = np.append(firsts[1:], last + 1)
        episodes = zip(firsts, ends, strict=True)
        starts = np.concatenate([np.arange(first, end, self.sequence_length) for first, end in episodes])
        for chunk in _chunks(starts, self.batch_size):
            rows = chunk + np.arange(self.sequence_length)[:, None]
            exists, rows = rows <= last, np.minimum(rows, last)
            steps = jax.tree.map(lambda x, rows=rows: np.asarray(x)[rows, 0], self.buffer.steps)
            ended_before = np.cumsum(steps.done, axis=0) - steps.done
            yield steps, (ended_before == 0) & exists, float(len(chunk))


class EpisodeTable(eqx.Module):
    """All steps ``[step]``, episode after episode, and the index of each episode's first step."""

    steps: Transition
    episode_starts: Int[Array, " episode"]
    max_steps: int = eqx.field(static=True)

    def gather(self, episodes: Int[Array, " row"]) -> SampledSteps:
        """Episodes ``[time, row]``, masked after their ends."""
        indices = self.episode_starts[episodes] + jnp.arange(self.max_steps)[:, None]
        indices = jnp.minimum(indices, self.steps.reward.shape[0] - 1)
        steps = jax.tree.map(lambda x: x[indices], self.steps)
        return steps, ring_buffer.first_episode_mask(steps.done)


class EpisodeSampler(eqx.Module):
    """Samples whole episodes uniformly."""

    table: EpisodeTable
    batch_size: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""]) -> SampledSteps:
        """``[time, batch]`` steps and their mask."""
        return self.table.gather(jax.random.randint(key, (self.batch_size,), 0, self.table.episode_starts.shape[0]))

    def full_pass(self) -> Iterator[WeightedSteps]:
        """Every episode once, in order. A batch weighs as many as it has steps, or tokens of responses."""
        for chunk in _chunks(np.arange(len(self.table.episode_starts)), self.batch_size):
            steps, mask = _gather(self.table, jnp.asarray(chunk))
            is_tokens = isinstance(steps.action, jax.Array) and steps.action.ndim == 3
            counted = np.asarray(mask)[..., None] & (np.asarray(steps.action) >= 0) if is_tokens else np.asarray(mask)
            yield steps, mask, float(counted.sum())


class PairSampler(eqx.Module):
    """Samples pairs of episodes of one group with different returns.

    Episodes are sorted by group, then by return: an episode's possible partners are those from ``group_start`` to
    ``group_end``, except for the ``num_ties`` ones from ``tie_start`` on, which have the same return.
    """

    table: EpisodeTable
    sort_order: Int[Array, " sorted"]
    """Episodes in sorted order; all other arrays refer to this order."""
    candidates: Int[Array, " candidates"]
    """Positions of the episodes that have partners."""
    group_start: Int[Array, " sorted"]
    group_end: Int[Array, " sorted"]
    tie_start: Int[Array, " sorted"]
    num_ties: Int[Array, " sorted"]
    batch_size: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""]) -> SampledSteps:
        """``[time, 2 * batch]`` steps: the better and the worse episode of each pair in adjacent rows."""
        one_key, other_key = jax.random.split(key)
        first = self.candidates[jax.random.randint(one_key, (self.batch_size,), 0, self.candidates.shape[0])]
        low, level, same = self.group_start[first], self.tie_start[first], self.num_ties[first]
        other = low + jax.random.randint(other_key, (self.batch_size,), 0, self.group_end[first] - low - same)
        other = jnp.where(other < level, other, other + same)
        pair = jnp.stack([jnp.maximum(first, other), jnp.minimum(first, other)], axis=1)  # sorted by return
        return self.table.gather(self.sort_order[pair.reshape(-1)])

    def full_pass(self) -> Iterator[WeightedSteps]:
        """Every episode that is better than another of its group, with the worst of them."""
        better = np.asarray(self.candidates)
        worst = np.asarray(self.group_start)[better]
        is_better = np.asarray(self.tie_start)[better] > worst
        pairs = np.stack([better, worst], axis=1)[is_better]
        for chunk in _chunks(pairs, self.batch_size):
            yield *_gather(self.table, self.sort_order[chunk.reshape(-1)]), float(len(chunk))


@eqx.filter_jit
def _gather(table: EpisodeTable, episodes: Int[Array, " row"]) -> SampledSteps:
    return table.gather(episodes)


def _chunks(indices: np.ndarray, size: int) -> list[np.ndarray]:
    return [indices[i : i + size] for i in range(0, len(indices), size)]


def make_window_sampler(steps: Transition, batch_size: int, sequence_length: int = 1) -> WindowSampler:
    """The sampler of windows of the dataset ``steps[time]``. Raises ``UserError`` if there is less than one window."""
    if len(steps.reward) < sequence_length:
        raise UserError(f"the dataset has {len(steps.reward)} steps, fewer than one window of {sequence_length}")
    ring = ring_buffer.RingBuffer(jax.tree.map(lambda x: jnp.asarray(x)[:, None], steps))
    return WindowSampler(ring, batch_size, sequence_length)


def make_episode_table(steps: Transition, max_steps: int = 0) -> EpisodeTable:
    """The episodes of the dataset ``steps[time]``, of at most ``max_steps`` steps (0: those of the longest).

    Raises:
        UserError: if an episode is longer.
    """
    starts = np.flatnonzero(np.asarray(steps.is_first))
    lengths = np.diff(np.append(starts, len(steps.reward)))
    max_steps = max_steps or int(lengths.max())
    if max_steps < lengths.max():
        raise UserError(f"the longest episode of the dataset has {lengths.max()} steps: feed.max_steps={lengths.max()}")
    return EpisodeTable(jax.tree.map(jnp.asarray, steps), jnp.asarray(starts, "int32"), max_steps)


def make_pair_sampler(table: EpisodeTable, batch_size: int, group_size: int = 0) -> PairSampler:
    """The sampler of pairs of episodes of a group.

    ``group_size``: number of adjacent episodes in a group; 0: episodes with equal first observations form a group.

    Raises:
        UserError: if there are no pairs.
    """
    rewards, starts = np.asarray(table.steps.reward, "float64"), np.asarray(table.episode_starts)
    return _make_pair_sampler(table, np.add.reduceat(rewards, starts), group_size, batch_size)


def _make_pair_sampler(whole: EpisodeTable, returns: np.ndarray, together: int, batch: int) -> PairSampler:
    groups = np.arange(len(returns)) // together if together else _group_by_start(whole)
    sort_order = np.lexsort((returns, groups))
    group, level = groups[sort_order], returns[sort_order]

    def run_bounds(new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of the run that each position belongs to."""
        begins = np.flatnonzero(np.append(True, new))
        ends, which = np.append(begins[1:], len(sort_order)), np.cumsum(np.append(True, new)) - 1
        return begins[which], ends[which]

    other = group[1:] != group[:-1]
    low, high = run_bounds(other)
    begin, end = run_bounds(other | (level[1:] != level[:-1]))
    candidates = np.flatnonzero(high - low > end - begin)
    if not len(candidates):
        raise UserError(
            "no two episodes of the dataset have the same initial state and different returns: collect several from "
            "each initial state, or give pairs (docs/language-data.md)"
        )

    def to_indices(x: np.ndarray) -> Int[Array, " n"]:
        return jnp.asarray(x, "int32")

    return PairSampler(
        whole,
        to_indices(sort_order),
        to_indices(candidates),
        to_indices(low),
        to_indices(high),
        to_indices(begin),
        to_indices(end - begin),
        batch,
    )


def _group_by_start(whole: EpisodeTable) -> np.ndarray:
    """A group number for each episode, the same for equal initial states."""

    def to_bytes(leaves: PyTree) -> np.ndarray:
        flat = [np.ascontiguousarray(x).reshape(len(x), -1).view("uint8") for x in jax.tree.leaves(leaves)]
        return np.concatenate(flat, axis=1)

    initial = whole.steps.view.observation, whole.steps.privileged  # privileged parts may differ behind equal text
    first = jax.tree.map(lambda x: np.asarray(x[whole.episode_starts]), initial)
    return np.unique(to_bytes(first), axis=0, return_inverse=True)[1].reshape(-1)
