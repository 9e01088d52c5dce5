r"""A critic of whole utterances that learns off-policy, and pays each one what it was better than expected.

.. math::

    Q(s, a) \to r + \gamma \bar V(s'), \qquad V(s) \to \bar Q(s, a \sim \pi), \qquad A = \min_k Q_k - \min_k V_k

:math:`Q` learns from a replay of conversations, whoever held them; :math:`V` at what was just said. Targets are those
of a slowly moving copy; each of two pairs of heads has its own.

Source: Zhou et al. 2024 (ArCHer), section 3 and its code. Differs: :math:`V` learns where the actor has just spoken, in
place of drawing anew at replayed places; heads are linear, on a decoder that begins as the actor's; the actor learns
from what it has just said, not from replayed places.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.language import Talking, features_of
from thespis.core.errors import UserError
from thespis.core.keys import fold
from thespis.learners.conversations import Conversations
from thespis.learners.gradient import Adam, Number, gradient_step, polyak
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import mean

_APART = 0.01


class Judge(eqx.Module):
    """A decoder with two pairs of heads, for utterances and for what stands before them."""

    model: Decoder
    said: Float[Array, "twin features"]
    before: Float[Array, "twin features"]
    bias: Float[Array, "kind twin"]

    def __call__(self, talks: Conversations) -> tuple[Float[Array, "twin time row"], Float[Array, "twin places row"]]:
        """Q behind the last id of each utterance, V before each and behind the conversation."""
        seen = features_of(self.model, talks.transcript, talks.starts, talks.said.shape[-1] + 1)
        seen /= self.said.shape[-1] ** 0.5
        count = talks.real.sum(axis=-1)[..., None, None]
        behind = jnp.take_along_axis(seen[:-1], count, axis=2)[:, :, 0]
        q, v = jnp.einsum("trf,kf->ktr", behind, self.said), jnp.einsum("trf,kf->ktr", seen[:, :, 0], self.before)
        return q + self.bias[0, :, None, None], v + self.bias[1, :, None, None]


class Judged(eqx.Module):
    """What the critic has learnt, its slow copy, and the conversations that it learns from."""

    judge: Judge
    target: Judge
    opt: PyTree
    replay: Conversations
    batches: Int[Array, ""]


class UtteranceCritic(eqx.Module):
    """Every turn is paid ``Q - V`` in place of what the world pays.

    ``credit=ToGo(Alone(), 0.0)`` tells it to the turn's ids alone.
    """

    slots: int = eqx.field(static=True, default=1024)
    """Conversations that are kept: the latest."""
    steps: int = eqx.field(static=True, default=20)
    """Gradient steps of the critic on each batch."""
    batch: int = eqx.field(static=True, default=32)
    """Conversations a step, of the replay and of what was just played each."""
    learning_rate: Number = 1e-3
    """Of the critic."""
    discount: Number = 0.95
    """By turn, in [0, 1]."""
    pull: Number = 0.1
    """How far the slow copy moves towards the critic with each step, in (0, 1]."""
    warmup: int = eqx.field(static=True, default=10)
    """Batches that teach the critic before it is believed: till then nothing is paid."""

    @property
    def stepper(self) -> Adam:
        """What steps the critic."""
        return Adam(self.learning_rate, 1.0)

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> Judged:
        """The actor's decoder twice, heads that say about 0, and no conversation."""
        width = model.shape.width
        said, before = _APART * jax.random.normal(fold(key, "heads"), (2, 2, width))  # alike they would stay so
        judge = Judge(jax.tree.map(jnp.copy, model), said, before, jnp.zeros((2, 2)))
        target, opt = jax.tree.map(jnp.copy, judge), self.stepper.init(judge)
        return Judged(judge, target, opt, Conversations.none(self.slots, talking, turns), jnp.zeros((), "int32"))

    def __call__(
        self, kept: Judged, played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[Judged, Conversations, dict[str, Array]]:
        """Conversations paid by the critic as it has learnt them. Raises ``UserError`` for too few ``slots``."""
        rows = played.alive.shape[1]
        if rows > self.slots:
            raise UserError(f"experience.slots={self.slots} holds less than the {rows} conversations of one batch")
        place = (kept.batches * rows + jnp.arange(rows)) % self.slots
        replay = kept.replay.written(place, played)
        filled = jnp.minimum((kept.batches + 1) * rows, self.slots)

        def step(carry: Any, tick: Array) -> Any:
            judge, target, opt = carry
            old_key, new_key = jax.random.split(fold(key, "rows", tick))
            old = replay.rows(jax.random.randint(old_key, (self.batch,), 0, filled))
            new = played.rows(jax.random.randint(new_key, (self.batch,), 0, rows))
            judge, opt, lost, _ = gradient_step(
                self.stepper, lambda judge: self.lost(judge, target, old, new), judge, opt
            )
            return (judge, polyak(target, judge, self.pull), opt), lost

        carry = kept.judge, kept.target, kept.opt
        (judge, target, opt), lost = jax.lax.scan(step, carry, jnp.arange(self.steps))
        q, v = judge(played)
        advantage = jnp.where(kept.batches < self.warmup, 0.0, q.min(axis=0) - v[:, :-1].min(axis=0))
        metrics = {"critic_loss": lost.mean(), "critic_value": mean(v[0, :-1], played.alive)}
        paid = dataclasses.replace(played, reward=jnp.where(played.alive, advantage, 0.0))
        return Judged(judge, target, opt, replay, kept.batches + 1), paid, metrics

    def lost(
        self, judge: Judge, target: Judge, old: Conversations, new: Conversations
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Squared errors of both heads: for what was said in ``old`` conversations, and before ``new`` utterances."""
        q, expected = judge(old)[0], jax.lax.stop_gradient(self.targets(target(old)[1], old))
        v, found = judge(new)[1][:, :-1], jax.lax.stop_gradient(target(new)[0])
        off = mean(jnp.square(q - expected).sum(axis=0), old.alive) + mean(jnp.square(v - found).sum(axis=0), new.alive)
        return off, off

    def targets(self, value: Float[Array, "twin places row"], talks: Conversations) -> Float[Array, "twin time row"]:
        """What a turn earned and, discounted, what one's next turn is worth; behind the last one only if it was cut."""
        time = len(talks.alive)
        place = jnp.where(talks.alive, jnp.arange(time)[:, None], time)
        later = jnp.pad(jax.lax.cummin(place, axis=0, reverse=True)[1:], ((0, 1), (0, 0)), constant_values=time)
        after = jnp.take_along_axis(value, later[None], axis=1)
        goes_on = ~talks.last | talks.cut
        return talks.reward + self.discount * jnp.where(goes_on, after, 0.0)
