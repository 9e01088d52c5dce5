"""An actor whose action is an utterance: a decoder reads what is new of a conversation and says what comes next.

The observation is the whole conversation as ids, so the memory (keys and values of what was read) only saves time. It
is a ring of blocks, one a turn: what is new of every row's conversation is written to the same places, and a row that
begins anew forgets by positions of -1.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.readable import Redundant
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Text
from thespis.language.generation import Speaker
from thespis.language.sampling import Sampling
from thespis.language.steering import Steering, Unsteered
from thespis.nets.decoder import Cache, Decoder
from thespis.nets.listing import Listing


@dataclasses.dataclass(frozen=True)
class Talking:
    """The sizes of conversations: ids in all, ids that a turn adds to hear and to say, turns, and what ends one.

    ``choices``: the utterances that mean something, where they are listed; ``roles``: seats that one actor speaks from.
    """

    length: int
    news: int
    utterance: int
    turns: int
    stop: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...] = ()
    roles: int = 1

    @classmethod
    def of(cls, spec: EnvSpec) -> Talking:
        """Those of a world. Raises ``UserError`` for one that is not talked to."""
        seen, said = spec.observation, spec.action
        if not isinstance(seen, Text) or not isinstance(said, Text) or spec.time_limit is None:
            raise UserError(
                f"{spec.name} is no conversation: language models act where observation and action are text and turns "
                "are limited (thespis list envs text)"
            )
        if seen.vocabulary != said.vocabulary:
            raise UserError(f"{spec.name} hears other words than it says")
        news = seen.news or seen.length
        return cls(seen.length, news, said.length, spec.time_limit, said.vocabulary.stop, said.choices)

    @property
    def block(self) -> int:
        """Places of a turn: what is new with the last id of one's own utterance, and all of the next but its last."""
        return self.news + self.utterance


class Heard(eqx.Module, Redundant):
    """What was read of each row's conversation: keys and values as a :class:`Cache` has them, and how many ids.

    ``stamp`` counts the turns of all rows together; a fresh row has 0, and the largest is right.
    """

    keys: tuple[Float[Array, "row kv size slot"], ...]
    values: tuple[Float[Array, "row kv slot size"], ...]
    positions: Int[Array, "row slot"]
    read: Int[Array, " row"]
    stamp: Int[Array, " row"]


class Voice(eqx.Module):
    """What the actor carries."""

    model: Decoder
    sampling: Sampling
    talking: Talking = eqx.field(static=True)
    mode: Mode = eqx.field(static=True)
    steering: Steering = Unsteered()

    def begin(self, n: int) -> Heard:
        """Nothing was read yet."""
        empty = self.model.empty(n, self.talking.turns * self.talking.block)
        zero = jnp.zeros(n, "int32")
        return Heard(empty.keys, empty.values, empty.positions, zero, zero)

    def act(
        self, memory: Heard, view: View, key: Key[Array, ""]
    ) -> tuple[Int[Array, "row utterance"], Heard, Float[Array, "row utterance"]]:
        """Utterances, what was read, log-probabilities of each id as sampled; who waits neither hears nor speaks."""
        talking, text = self.talking, view.observation
        count, turn = (text >= 0).sum(axis=1), memory.stamp.max()
        heeds = jnp.ones(count.shape, bool) if view.alive is None else view.alive
        at = memory.read[:, None] + jnp.arange(talking.news + 1)
        positions = jnp.where((at < count[:, None]) & heeds[:, None], at, -1)
        fresh = jnp.maximum(jnp.take_along_axis(text, jnp.minimum(at, talking.length - 1), axis=1), 0)
        place = (turn % talking.turns) * talking.block
        forgotten = jnp.full((text.shape[0], talking.block), -1, memory.positions.dtype)
        held = jax.lax.dynamic_update_slice_in_dim(memory.positions, forgotten, place, axis=1)
        cache = Cache(memory.keys, memory.values, held, place)
        sampling = Sampling(temperature=0.0) if self.mode is Mode.EXPLOIT else self.sampling
        speak = Speaker(self.model, sampling, talking.utterance, talking.stop, steering=self.steering)
        said, cache = speak(cache, fresh, positions, key)
        read = jnp.where(heeds, count + said.counts - 1, memory.read).astype("int32")
        stamp = jnp.full_like(memory.stamp, turn + 1)
        return said.tokens, Heard(cache.keys, cache.values, cache.positions, read, stamp), said.log_probs

    def probabilities(self, view: View) -> Float[Array, "row choice"]:
        """Of the listed utterances among those that are legal, all ids of each counted; greedy ones are certain."""
        listing = Listing(self.model, self.talking.choices)
        logs = jax.vmap(lambda text: listing.log_probs(text, self.sampling.log_probs))(view.observation)
        if view.legal is not None:
            logs = jnp.where(view.legal, logs, -jnp.inf)
        if self.mode is Mode.EXPLOIT:
            return jax.nn.one_hot(jnp.argmax(logs, axis=1), logs.shape[1])
        return jax.nn.softmax(logs, axis=1)


def say(
    model: Decoder, sampling: Sampling, talking: Talking, transcript: Int[Array, "row length"], key: Key[Array, ""]
) -> Int[Array, "row utterance"]:
    """Utterances in answer to whole conversations, read from their beginning."""
    rows, length = transcript.shape
    positions = jnp.where(transcript >= 0, jnp.arange(length), -1)
    cache = model.empty(rows, length + talking.utterance)
    speak = Speaker(model, sampling, talking.utterance, talking.stop)
    return speak(cache, jnp.maximum(transcript, 0), positions, key)[0].tokens


def features_of(
    model: Decoder, transcript: Int[Array, "row length"], starts: Int[Array, "time row"], width: int
) -> Float[Array, "time row width features"]:
    """What the decoder makes of whole conversations, at the places from which the ids of utterances are foretold."""
    positions = jnp.where(transcript >= 0, jnp.arange(transcript.shape[1]), -1)
    features = model(jnp.maximum(transcript, 0), positions)
    places = jnp.clip(starts[..., None] + jnp.arange(width) - 1, 0, transcript.shape[1] - 1)
    return jax.vmap(lambda each, at: each[at], in_axes=(0, 1), out_axes=1)(features, places)


def log_probs_of(
    model: Decoder, sampling: Sampling, features: Float[Array, "*axes features"], tokens: Int[Array, "*axes"]
) -> tuple[Float[Array, "*axes"], Float[Array, "*axes"]]:
    """Log-probabilities of ids, as a sampler has them, and the entropies of what they were drawn from."""
    logs = sampling.log_probs(model.logits(features))
    chosen = jnp.take_along_axis(logs, jnp.maximum(tokens, 0)[..., None], axis=-1)[..., 0]
    # A product of vectors: XLA on CPUs takes forty times as long for the sum of a product over many words.
    return chosen, -jnp.einsum("...v,...v->...", jnp.exp(logs), logs)
