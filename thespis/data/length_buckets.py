"""Batches of dialogues of similar length, so that one long dialogue does not pad all the others.

Episodes are sorted into buckets by their number of tokens (powers of two). An update draws a bucket, with probability
proportional to its number of episodes (or episodes with a partner), then a batch within it: every episode has the same
probability as without buckets. A bucket with fewer episodes than a batch gives a smaller batch, whose mean has the same
expectation.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thespis.core.records import Transition, View
from thespis.data.samplers import (
    EpisodeSampler,
    PairSampler,
    WeightedSteps,
    make_episode_table,
    make_pair_sampler,
)
from thespis.runtime.keys import fold, seed_key

MIN_LONGEST = 256
"""Datasets whose longest dialogue has fewer tokens have no buckets."""
MIN_WASTE = 2.0
"""Nor have those in which padding to the longest makes up less than this multiple of their tokens."""
_MIN_WIDTH = 64  # tokens of the narrowest bucket


class BucketSampler(eqx.Module):
    """One sampler for each bucket of lengths."""

    samplers: tuple[EpisodeSampler | PairSampler, ...]
    log_shares: Float[Array, " bucket"]
    """Logarithms of the probabilities of buckets."""

    def draw_bucket(self, update_index: Int[Array, ""]) -> Int[Array, ""]:
        """The bucket of an update, the same for all training seeds: the update is then a branch of the program."""
        return jax.random.categorical(fold(seed_key(0), "bucket", update_index), self.log_shares)

    def full_pass(self) -> Iterator[WeightedSteps]:
        """A whole pass over every bucket."""
        return itertools.chain.from_iterable(sampler.full_pass() for sampler in self.samplers)


def make_bucketed_episodes(
    steps: Transition, max_steps: int, batch_size: int, group_size: int = 0
) -> EpisodeSampler | BucketSampler:
    """The sampler of episodes ``steps[time]``: with buckets for dialogues of very different lengths, else as usual.

    Raises:
        UserError: if an episode is longer than ``max_steps`` (0: no limit).
    """

    def make(steps: Transition, batch_size: int) -> EpisodeSampler:
        return EpisodeSampler(make_episode_table(steps, max_steps), batch_size)

    return _in_buckets(make, steps, batch_size, group_size)


def make_bucketed_pairs(
    steps: Transition, max_steps: int, batch_size: int, group_size: int = 0
) -> PairSampler | BucketSampler:
    """The sampler of pairs of episodes, with buckets as in :func:`make_bucketed_episodes`.

    There are no buckets unless groups are known (``group_size``): partners are found among all episodes.

    Raises:
        UserError: if an episode is longer than ``max_steps`` (0: no limit), or there are no pairs.
    """

    def make(steps: Transition, batch_size: int) -> PairSampler:
        return make_pair_sampler(make_episode_table(steps, max_steps), batch_size, group_size)

    return _in_buckets(make, steps, batch_size, group_size) if group_size else make(steps, batch_size)


def _in_buckets(make: Callable[..., Any], steps: Transition, batch_size: int, group_size: int) -> Any:
    if not _is_dialogues(steps):
        return make(steps, batch_size)
    starts = np.flatnonzero(np.asarray(steps.is_first))
    ends = np.append(starts[1:], len(steps.reward)) - 1
    lengths = (np.asarray(steps.next_view.observation)[ends] >= 0).sum(axis=1)
    if lengths.max() < MIN_LONGEST or lengths.max() * len(lengths) < MIN_WASTE * lengths.sum():
        return make(steps, batch_size)
    size = group_size or 1
    longest = np.repeat(lengths.reshape(-1, size).max(axis=1), size)
    bucket = np.maximum(np.ceil(np.log2(longest)), np.log2(_MIN_WIDTH)).astype(int)
    samplers, counts = [], []
    for name in np.unique(bucket):
        rows = (bucket == name)[np.cumsum(steps.is_first) - 1]
        part = _narrow(jax.tree.map(lambda x, rows=rows: np.asarray(x)[rows], steps))
        num_groups = int((bucket == name).sum()) // size
        samplers.append(make(part, min(batch_size, num_groups)))
        counts.append(num_groups)
    return BucketSampler(tuple(samplers), jnp.log(jnp.asarray(counts, "float32") / sum(counts)))


def _is_dialogues(steps: Transition) -> bool:
    """Whether observations and actions are tokens, of one agent and without privileged parts."""
    observation, action = steps.view.observation, steps.action
    if isinstance(observation, dict) or isinstance(action, dict) or steps.privileged is not None:
        return False
    return all(np.ndim(x) == 2 and np.issubdtype(np.asarray(x).dtype, np.integer) for x in (observation, action))


def _narrow(steps: Transition) -> Transition:
    """The steps without columns that are padding in all of them."""

    def cut(tokens: np.ndarray) -> np.ndarray:
        return tokens[:, : max(int((tokens >= 0).sum(axis=1).max()), 1)]

    width = cut(steps.next_view.observation).shape[1]
    views = (View(view.observation[:, :width], view.action_mask) for view in (steps.view, steps.next_view))
    view, next_view = views
    return dataclasses.replace(steps, view=view, next_view=next_view, action=cut(steps.action))
