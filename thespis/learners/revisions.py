"""What one learns from among conversations of its own: those that went well, and those that went wrong, put right.

Both parts leave rewards of 1 where something is to be learnt, so that ``credit=Whole(Alone())`` makes likelihood of the
policy gradient; what is not to be learnt counts as said by another.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.language import Talking
from thespis.learners.conversations import Conversations
from thespis.learners.gradient import Number
from thespis.nets.decoder import Decoder


class Chosen(eqx.Module):
    """Conversations that returned enough are learnt, others left out: rejection sampling."""

    good: Number = 0.5
    """The least return of a conversation that is learnt."""

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> tuple[()]:
        """Nothing is kept."""
        return ()

    def __call__(
        self, kept: tuple[()], played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], Conversations, dict[str, Array]]:
        """What went well."""
        good = played.returns >= self.good
        return kept, _learnt(played, good), {"chosen": good.mean(dtype="float32")}


class Revisions(eqx.Module):
    """Conversations that went well are learnt, and those that went wrong are revised (Yuan et al. 2025, Agent-R).

    Of a group some have returned ``good``. Another one, that returned less by more than ``gap``, goes to its first
    error: the utterance that parts it from that one of them with which it shares most, so that nobody who said it went
    well. Behind the world's answer to it nothing is said, ``<end>`` alone, the world says again what it said before the
    two parted, and the good one's way is gone. What comes before the ``<end>`` is not learnt. All of that is what a
    world says in which an utterance can be taken back (``TakeBack`` in ``envs/text``); there alone should this be used.

    Differs from the paper: many conversations from each beginning stand for Monte Carlo tree search, and their common
    beginnings for its nodes; what is an error is told by what became of others, as an actor that was made here cannot
    be asked to judge its steps; every batch is an iteration, and ``good`` does not rise; general data are not mixed in.
    Differs from their code, where a fixed "ok" answers the change of mind and the world need not take anything back:
    what is said here is what such a world says.
    """

    good: Number = 0.5
    """The least return of a conversation that is learnt: their alpha."""
    gap: Number = 0.2
    """How much more the good one of two has returned: their beta."""

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> Int[Array, ""]:
        """The id that ends an utterance."""
        return jnp.asarray(talking.stop[0], "int32")

    def __call__(
        self, kept: Int[Array, ""], played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Conversations, dict[str, Array]]:
        """Good ones as they are; bad ones revised by the nearest good one of their group, where that can be done."""
        good, rows = played.returns >= self.good, jnp.arange(len(played.returns))
        among = jnp.arange(group) + rows[:, None] // group * group
        shared = jnp.where(good[among], _shared(played.said, among), -1)
        nearest = shared == shared.max(axis=1, keepdims=True)
        lot = jax.random.categorical(key, jnp.where(nearest, 0.0, -jnp.inf), axis=1)
        guide = jnp.take_along_axis(among, lot[:, None], axis=1)[:, 0]
        better = played.rows(guide)
        put_right, fits = revised(played, better, kept)
        revise = ~good & good[guide] & (better.returns - played.returns > self.gap) & fits
        learnt = _learnt(put_right.where(revise, played), good | revise)
        share = {"chosen": good.mean(dtype="float32"), "revised": revise.mean(dtype="float32")}
        return kept, learnt, share


def revised(bad: Conversations, good: Conversations, stop: Int[Array, ""]) -> tuple[Conversations, Bool[Array, " row"]]:
    """Every row of ``bad``, taken back where it parts from that of ``good``, and gone on with; whether it can be.

    It cannot where the two part by what the world says or by taking back, where the bad one has ended with its error,
    and where there is no room. Turns up to the error are not one's own.
    """
    turns, rows = bad.alive.shape
    at = jnp.argmax((bad.said != good.said).any(axis=-1), axis=0)  # 0 where nothing differs

    def take(x: Array, turn: Array) -> Array:
        return x[jnp.clip(turn, 0, len(x) - 1), jnp.arange(rows)]

    parted, spoilt = take(bad.starts, at), take(bad.starts, at + 1)
    heard = take(bad.starts, at - 1) + take((bad.said >= 0).sum(axis=-1), at - 1)
    heard = jnp.where(at == 0, 0, heard)
    cut = jnp.take_along_axis(bad.transcript, heard[:, None], axis=1)[:, 0] == stop  # an utterance the world has ended
    heard += cut & (at > 0)
    again = spoilt + 1 + parted - heard
    transcript = _spliced(bad.transcript, good.transcript, stop, (spoilt, heard, again, parted))

    turn = jnp.arange(turns + 1)[:, None]
    own, pause = turn > at + 1, turn == at + 1
    source = jnp.clip(turn - 2, 0, turns), jnp.arange(rows)
    starts = jnp.where(own, good.starts[source] - parted + again, jnp.where(pause, spoilt, bad.starts))
    own, pause, source = own[:-1], pause[:-1], (source[0][:-1], source[1])
    nothing = jnp.where(jnp.arange(bad.said.shape[-1]) == 0, stop, -1)
    said = jnp.where(own[..., None], good.said[source], jnp.where(pause[..., None], nothing, bad.said))
    log_probs = jnp.where(own[..., None], good.log_probs[source], jnp.where(pause[..., None], 0.0, bad.log_probs))
    reward = jnp.where(own, good.reward[source], 0.0)

    same = _same(bad.transcript, good.transcript, parted) & (parted == take(good.starts, at))
    goes_on = take(good.alive, at) & take(bad.alive, at + 1) & (at + 1 < turns)
    goes_on &= (take(good.said, at)[:, 0] != stop) & (take(bad.said, at)[:, 0] != stop)  # nothing is left to take back
    room = (good.alive.sum(axis=0) + 2 <= turns) & (starts[-1] <= bad.transcript.shape[1])
    whole = Conversations(transcript, starts, said, pause | own & good.alive[source], reward, good.cut, log_probs)
    return whole, same & goes_on & room & (bad.said != good.said).any(axis=(0, 2))


def _spliced(
    bad: Int[Array, "row length"], good: Int[Array, "row length"], stop: Int[Array, ""], places: tuple[Array, ...]
) -> Int[Array, "row length"]:
    """``bad`` up to ``spoilt``, a stop, what ``bad`` has from ``heard`` on, and from ``again`` on ``good`` from
    ``parted`` on.
    """
    spoilt, heard, again, parted = (x[:, None] for x in places)
    place = jnp.arange(bad.shape[1])

    def at(text: Array, where: Array) -> Array:
        found = jnp.take_along_axis(text, jnp.clip(where, 0, text.shape[1] - 1), axis=1)
        return jnp.where(where < text.shape[1], found, -1)

    said_again, onwards = at(bad, heard + place - spoilt - 1), at(good, parted + place - again)
    tail = jnp.where(place == spoilt, stop, jnp.where(place < again, said_again, onwards))
    return jnp.where(place < spoilt, bad, tail)


def _shared(said: Int[Array, "time row utterance"], others: Int[Array, "row other"]) -> Int[Array, "row other"]:
    """Turns before the first in which a row and another one said different things."""
    apart = (said[:, :, None] != said[:, others]).any(axis=-1)
    return (jnp.cumsum(apart, axis=0) == 0).sum(axis=0)


def _same(
    one: Int[Array, "row length"], two: Int[Array, "row length"], up_to: Int[Array, " row"]
) -> Bool[Array, " row"]:
    return ((one == two) | (jnp.arange(one.shape[1]) >= up_to[:, None])).all(axis=1)


def _learnt(talks: Conversations, chosen: Bool[Array, " row"]) -> Conversations:
    """A reward of 1 at the last of one's own turns in rows that are ``chosen``; in others nothing is one's own."""
    alive = talks.alive & chosen
    talks = dataclasses.replace(talks, alive=alive)
    reward: Float[Array, "time row"] = talks.last.astype("float32")
    return dataclasses.replace(talks, reward=reward)
