r"""A process reward model: how likely a conversation is to succeed once an utterance was said, from how others ended.

.. math:: \hat Q(s, a) = \frac{1}{|G(s, a)|} \sum_{\tau \in G(s, a)} \sum_{k \ge t} \gamma^{k - t} r_k, \qquad
          \min - \hat Q \log \sigma(q(s, a)) - (1 - \hat Q) \log(1 - \sigma(q(s, a)))

:math:`G(s, a)` are all remembered conversations in which :math:`a` was said in :math:`s`.

Source: Choudhury 2025 (AgentPRM) and its code. Differs: what is said is paid beyond the mean of what the
batch said in the same place, where theirs is compared with one other utterance from :math:`s` (online DPO), so who is
alone there is paid nothing; the model goes on learning from the latest conversations, while the actor does, where
theirs takes turns in a few long iterations; utterances are scored within conversations of their own; at first the world
pays. A pair counts as often as it was said, where theirs counts once: among few states the rare ones would drown the
others. Their code counts turns of the discount from the beginning, and counts failures as -1 before it discounts; here
it is from the utterance on, and failures are 0.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.language import Talking
from thespis.core.errors import UserError
from thespis.core.keys import fold
from thespis.learners.conversations import Conversations
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.process import shares
from thespis.learners.talker import Mind, minded
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import mean


class Appraised(eqx.Module):
    """What the model has learnt, and the conversations that it learns from."""

    judge: Mind
    opt: PyTree
    replay: Conversations
    batches: Int[Array, ""]


class ProcessReward(eqx.Module):
    """Every turn is paid how much more success its utterance promises than others in its place, and not by the world.

    ``credit=ToGo(Alone(), 0.0)`` tells it to the turn's ids alone; what holds the actor back is ``reference``. Larger
    groups have more to compare. Not for ``standardised`` advantages, nor for many small steps on a batch: where all
    say the same there is nothing to be told, and noise would be scaled up.
    """

    slots: int = eqx.field(static=True, default=512)
    """Conversations that are kept: the latest."""
    steps: int = eqx.field(static=True, default=10)
    """Gradient steps of the model on each batch."""
    batch: int = eqx.field(static=True, default=64)
    """Conversations a step."""
    learning_rate: Number = 1e-3
    """Of the model."""
    discount: Number = 0.95
    """By turn, in [0, 1]."""
    most: Number = 1.0
    """What can be earned, above 0: success is the share of it."""
    warmup: int = eqx.field(static=True, default=10)
    """Batches that teach the model before it is believed: till then the world pays."""

    @property
    def stepper(self) -> Adam:
        """What steps the model."""
        return Adam(self.learning_rate, 1.0)

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> Appraised:
        """The actor's decoder with a head that says a half, and no conversation."""
        judge = minded(jax.tree.map(jnp.copy, model), model.shape.width)
        replay = Conversations.none(self.slots, talking, turns)
        return Appraised(judge, self.stepper.init(judge), replay, jnp.zeros((), "int32"))

    def __call__(
        self, kept: Appraised, played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[Appraised, Conversations, dict[str, Array]]:
        """Conversations paid by the model as it was, which then learns from them too.

        Raises ``UserError`` for too few ``slots``.
        """
        rows = played.alive.shape[1]
        if rows > self.slots:
            raise UserError(f"experience.slots={self.slots} holds less than the {rows} conversations of one batch")
        promised = jax.nn.sigmoid(shares(kept.judge, played))
        gain = self.most * (promised - meant(played, played.starts[:-1], promised))
        gain = jnp.where(kept.batches >= self.warmup, gain, played.reward)
        place = (kept.batches * rows + jnp.arange(rows)) % self.slots
        replay = kept.replay.written(place, played)
        goals, filled = self.goals(replay), jnp.minimum((kept.batches + 1) * rows, self.slots)

        def step(carry: Any, tick: Array) -> Any:
            at = jax.random.randint(fold(key, "rows", tick), (self.batch,), 0, filled)
            some, wanted = replay.rows(at), goals[..., at]
            judge, opt, lost, _ = gradient_step(self.stepper, lambda judge: missed(judge, some, wanted), *carry)
            return (judge, opt), lost

        (judge, opt), lost = jax.lax.scan(step, (kept.judge, kept.opt), jnp.arange(self.steps))
        metrics = {"process_loss": lost.mean(), "expected": mean(promised, played.alive)}
        paid = dataclasses.replace(played, reward=jnp.where(played.alive, gain, 0.0))
        return Appraised(judge, opt, replay, kept.batches + 1), paid, metrics

    def goals(self, talks: Conversations) -> Float[Array, "time row"]:
        """What is to be foretold of each utterance: the mean of all conversations in which it was said there."""
        earned = jnp.where(talks.alive, talks.reward / self.most, 0.0)

        def back(later: Array, turn: tuple[Array, Array]) -> tuple[Array, Array]:
            alive, now = turn
            later = jnp.where(alive, now + self.discount * later, later)
            return later, later

        _, share = jax.lax.scan(back, jnp.zeros(earned.shape[1]), (talks.alive, earned), reverse=True)
        return meant(talks, talks.starts[:-1] + talks.real.sum(axis=-1), jnp.clip(share, 0.0, 1.0))


def missed(
    judge: Mind, talks: Conversations, goals: Float[Array, "time row"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Binary cross-entropy with shares of success."""
    logit = shares(judge, talks)
    entropy = -goals * jax.nn.log_sigmoid(logit) - (1.0 - goals) * jax.nn.log_sigmoid(-logit)
    lost = mean(entropy, talks.alive)
    return lost, lost


def meant(talks: Conversations, ends: Int[Array, "time row"], x: Float[Array, "time row"]) -> Float[Array, "time row"]:
    """The mean of ``x`` over all conversations that are the same up to ``ends``; 0 where none is alive."""
    alike = jax.vmap(_alike, in_axes=(None, 0, 0))(_parting(talks.transcript), ends, talks.alive)
    return jnp.einsum("tij,tj->ti", alike.astype("float32"), x) / jnp.maximum(alike.sum(axis=-1), 1)


def _parting(transcript: Int[Array, "row length"]) -> Int[Array, "row row"]:
    """How many first ids each two conversations share."""
    apart = transcript[:, None] != transcript[None]
    return jnp.where(apart.any(axis=-1), jnp.argmax(apart, axis=-1), transcript.shape[1])


def _alike(
    parting: Int[Array, "row row"], end: Int[Array, " row"], alive: Bool[Array, " row"]
) -> Bool[Array, "row row"]:
    """Whether two conversations are the same up to ``end``."""
    return (end[:, None] == end) & (parting >= end) & alive[:, None] & alive
