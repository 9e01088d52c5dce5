"""What a dataset that does not grow is drawn as: windows, whole episodes, or pairs of them. One small class a feed."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import Logged, LoggedEpisodes, Pairs, Replay
from thespis.core.records import Transition
from thespis.data import replay

Drawn = tuple[Transition, Bool[Array, "time row"]]


class Windows(eqx.Module):
    """Windows of ``length`` steps, drawn uniformly over their starts."""

    ring: replay.Ring
    batch: int = eqx.field(static=True)
    length: int = eqx.field(static=True)

    def draw(self, key: Key[Array, ""]) -> Drawn:
        """``[length, batch]`` steps, and which belong to the episode that a window begins in."""
        return self.ring.sample(jnp.asarray(self.ring.rows, "int32"), key, self.batch, self.length)


class Whole(eqx.Module):
    """All steps ``[step]``, episode after episode, and where each begins."""

    steps: Transition
    starts: Int[Array, " episode"]
    turns: int = eqx.field(static=True)

    def taken(self, episodes: Int[Array, " row"]) -> Drawn:
        """Episodes ``[turns, row]``, masked behind their ends."""
        places = self.starts[episodes] + jnp.arange(self.turns)[:, None]
        places = jnp.minimum(places, self.steps.reward.shape[0] - 1)
        steps = jax.tree.map(lambda x: x[places], self.steps)
        return steps, replay.until_end(steps.ended)


class EachAlone(eqx.Module):
    """Whole episodes, drawn uniformly."""

    episodes: Whole
    batch: int = eqx.field(static=True)

    def draw(self, key: Key[Array, ""]) -> Drawn:
        """``[turns, batch]`` steps."""
        return self.episodes.taken(jax.random.randint(key, (self.batch,), 0, self.episodes.starts.shape[0]))


class Rivals(eqx.Module):
    """Pairs of episodes that belong together and did not return the same.

    Episodes are kept in the order of what they belong to, then of their returns: an episode's rivals are those from
    ``low`` to ``high``, but for the ones from ``level`` on, ``same`` of them, which returned what it did itself.
    """

    episodes: Whole
    order: Int[Array, " sorted"]
    """Episodes in that order; all else is in it too."""
    rivalled: Int[Array, " rivalled"]
    """Places of those that have rivals."""
    low: Int[Array, " sorted"]
    high: Int[Array, " sorted"]
    level: Int[Array, " sorted"]
    same: Int[Array, " sorted"]
    batch: int = eqx.field(static=True)

    def draw(self, key: Key[Array, ""]) -> Drawn:
        """``[turns, 2 * batch]`` steps: the better and the worse of each pair behind each other."""
        one_key, other_key = jax.random.split(key)
        one = self.rivalled[jax.random.randint(one_key, (self.batch,), 0, self.rivalled.shape[0])]
        low, level, same = self.low[one], self.level[one], self.same[one]
        other = low + jax.random.randint(other_key, (self.batch,), 0, self.high[one] - low - same)
        other = jnp.where(other < level, other, other + same)
        pair = jnp.stack([jnp.maximum(one, other), jnp.minimum(one, other)], axis=1)  # sorted by return
        return self.episodes.taken(self.order[pair.reshape(-1)])


Source = Windows | EachAlone | Rivals


def source_for(feed: Any, steps: Transition, together: int = 0) -> Source:
    """What a feed draws from ``steps[time]``.

    ``together``: how many episodes behind each other belong together; 0: those whose first observations are equal.

    Raises:
        UserError: if there is less than one window, an episode is longer than the feed says, or no pair is to be had.
    """
    if isinstance(feed, Logged | Replay):
        if len(steps.reward) < feed.length:
            raise UserError(f"the dataset has {len(steps.reward)} steps, fewer than one window of {feed.length}")
        ring = replay.Ring(jax.tree.map(lambda x: jnp.asarray(x)[:, None], steps))
        return Windows(ring, feed.batch, feed.length)
    starts = np.flatnonzero(np.asarray(steps.first))
    lengths = np.diff(np.append(starts, len(steps.reward)))
    turns = feed.turns or int(lengths.max())
    if turns < lengths.max():
        raise UserError(f"the longest episode of the dataset has {lengths.max()} steps: feed.turns={lengths.max()}")
    whole = Whole(jax.tree.map(jnp.asarray, steps), jnp.asarray(starts, "int32"), turns)
    if isinstance(feed, LoggedEpisodes):
        return EachAlone(whole, feed.batch)
    assert isinstance(feed, Pairs)
    return _rivals(whole, np.add.reduceat(np.asarray(steps.reward, "float64"), starts), together, feed.batch)


def _rivals(whole: Whole, returns: np.ndarray, together: int, batch: int) -> Rivals:
    alike = np.arange(len(returns)) // together if together else _alike(whole)
    order = np.lexsort((returns, alike))
    group, level = alike[order], returns[order]

    def runs(new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the run of each place begins and ends."""
        begins = np.flatnonzero(np.append(True, new))
        ends, which = np.append(begins[1:], len(order)), np.cumsum(np.append(True, new)) - 1
        return begins[which], ends[which]

    other = group[1:] != group[:-1]
    low, high = runs(other)
    begin, end = runs(other | (level[1:] != level[:-1]))
    rivalled = np.flatnonzero(high - low > end - begin)
    if not len(rivalled):
        raise UserError(
            "no two episodes of the dataset begin alike and return different rewards: collect several from each "
            "beginning, or give pairs (docs/language-data.md)"
        )

    def ids(x: np.ndarray) -> Int[Array, " n"]:
        return jnp.asarray(x, "int32")

    return Rivals(whole, ids(order), ids(rivalled), ids(low), ids(high), ids(begin), ids(end - begin), batch)


def _alike(whole: Whole) -> np.ndarray:
    """A number for each episode, the same for those that begin alike."""

    def told(leaves: PyTree) -> np.ndarray:
        flat = [np.ascontiguousarray(x).reshape(len(x), -1).view("uint8") for x in jax.tree.leaves(leaves)]
        return np.concatenate(flat, axis=1)

    begun = whole.steps.view.observation, whole.steps.privileged  # what is hidden may differ behind the same words
    first = jax.tree.map(lambda x: np.asarray(x[whole.starts]), begun)
    return np.unique(told(first), axis=0, return_inverse=True)[1].reshape(-1)
