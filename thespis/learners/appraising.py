"""Critics that read conversations of a dataset and say what they are worth, beside the model that learns from them.

Values stand before each id and behind the last turn, ``[turns, row, utterance]``; where a critic speaks of turns or of
whole conversations, all ids of one are told the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from thespis.actors.language import features_of
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.merits import Merits
from thespis.learners.talker import Mind, minded
from thespis.learners.transcripts import Told, onwards
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import mean

Values = Float[Array, "turns row utterance"]
Learnt = tuple[PyTree, Any, dict[str, Float[Array, ""]]]
"""The critic and its optimiser, its values, which are ``()`` if there are none, and metrics."""


class Silent(eqx.Module):
    """No critic."""

    first: ClassVar[int] = 0
    """Updates in which the critic learns alone; behind them it learns no more. 0: it always learns."""
    soft: ClassVar[bool] = False
    """Whether it looks at what the model says differently from the reference."""

    def begun(self, model: Decoder) -> PyTree:
        """Nothing is kept."""
        return ()

    def values(self, critic: PyTree, reference: PyTree, told: Told) -> None:
        """Nothing is said."""

    def learn(self, critic: PyTree, reference: PyTree, told: Told, ratio: Any, index: Int[Array, ""]) -> Learnt:
        """Nothing is learnt."""
        return (), (), {}


class Onlooker(eqx.Module):
    """A linear head on the reference: what a conversation will return, before its first utterance (Baheti et al. 2023).

    Differs: there the head is attention with a small net.
    """

    first: int = eqx.field(static=True, default=300)
    """Updates in which the critic learns alone; behind them it learns no more."""
    learning_rate: Number = 1e-2
    """Of the head."""
    soft: ClassVar[bool] = False

    def begun(self, model: Decoder) -> PyTree:
        """A head that says 0, and its optimiser."""
        head = jnp.zeros(model.shape.width), jnp.zeros(())
        return head, Adam(self.learning_rate, 1.0).init(head)

    def values(self, critic: PyTree, reference: PyTree, told: Told) -> Values:
        """The same for all of a conversation."""
        features = features_of(reference, told.transcript, told.starts[:1], 1)
        value = Mind(reference, *critic[0]).value(jax.lax.stop_gradient(features))
        return jnp.broadcast_to(value, (*told.starts.shape, told.said.shape[-1]))

    def learn(self, critic: PyTree, reference: PyTree, told: Told, ratio: Any, index: Int[Array, ""]) -> Learnt:
        """Towards returns, by their squared error."""

        def lost(head: PyTree) -> tuple[Array, Values]:
            values = self.values((head, ()), reference, told)
            return jnp.mean(jnp.square(values[0, :, 0] - told.returns)), values

        return _learnt(self, critic, lost, index)


class Success(eqx.Module):
    """A decoder of its own with a linear head: the logit of success, before each turn (Liu et al. 2024, DAPO).

    Where rewards are more than one at the end, success is the share of ``most`` that is earned from there on.
    """

    most: Number = 1.0
    """What can be earned, above 0."""
    first: int = eqx.field(static=True, default=300)
    """Updates in which the critic learns alone; behind them it learns no more."""
    learning_rate: Number = 1e-3
    """Of the critic."""
    soft: ClassVar[bool] = False

    def begun(self, model: Decoder) -> PyTree:
        """A copy of the model, and an optimiser."""
        return _begun(model, self.learning_rate)

    def values(self, critic: PyTree, reference: PyTree, told: Told) -> Values:
        """What is to be expected, the same for all ids of a turn; behind a conversation there is nothing."""
        return _by_turn(self.most * jax.nn.sigmoid(_said(critic[0], told)), told)

    def learn(self, critic: PyTree, reference: PyTree, told: Told, ratio: Any, index: Int[Array, ""]) -> Learnt:
        """By cross-entropy with how the conversations ended: rewards to go, as shares in [0, 1]."""

        def lost(mind: Mind) -> tuple[Array, Values]:
            logit = _said(mind, told)
            ended = jnp.clip(told.to_go / self.most, 0.0, 1.0)
            entropy = -ended * jax.nn.log_sigmoid(logit[:-1, :, 0]) - (1 - ended) * jax.nn.log_sigmoid(
                -logit[:-1, :, 0]
            )
            return mean(entropy, told.alive), self.values((mind, ()), reference, told)

        return _learnt(self, critic, lost, index)


class SoftReturn(eqx.Module):
    """A decoder of its own with a linear head: rewards to go less the divergence to come (Wang et al. 2024, OREO)."""

    beta: Number = 0.03
    """Weight of the divergence from the reference, above 0."""
    turns: bool = eqx.field(static=True, default=False)
    """Whether a step is a turn, in place of an id."""
    learning_rate: Number = 3e-4
    """Of the critic."""
    first: ClassVar[int] = 0
    soft: ClassVar[bool] = True

    def begun(self, model: Decoder) -> PyTree:
        """A copy of the model, and an optimiser."""
        return _begun(model, self.learning_rate)

    def values(self, critic: PyTree, reference: PyTree, told: Told) -> Values:
        """Before each id, or each turn."""
        values = _said(critic[0], told)
        return _by_turn(values, told) if self.turns else values

    def asked(self, told: Told) -> Bool[Array, "time row utterance"]:
        """Where steps begin."""
        return told.real & (jnp.arange(told.real.shape[-1]) == 0) if self.turns else told.real

    def learn(self, critic: PyTree, reference: PyTree, told: Told, ratio: Any, index: Int[Array, ""]) -> Learnt:
        """Towards what was earned, less what the model by now says differently from there on."""
        target = told.to_go[..., None] - self.beta * onwards(ratio, told.real)

        def lost(mind: Mind) -> tuple[Array, Values]:
            values = self.values((mind, ()), reference, told)
            return mean(jnp.square(values[:-1] - target), self.asked(told)), values

        return _learnt(self, critic, lost, index)


Appraiser = Silent | Onlooker | Success | SoftReturn | Merits


def _begun(model: Decoder, rate: Number) -> PyTree:
    mind = minded(jax.tree.map(jnp.copy, model), model.shape.width)
    return mind, Adam(rate, 1.0).init(mind)


def _said(mind: Mind, told: Told) -> Values:
    return mind.value(features_of(mind.model, told.transcript, told.starts, told.said.shape[-1]))


def _by_turn(values: Values, told: Told) -> Values:
    """That of a turn's first id for all of them; 0 behind the conversation's end."""
    there = jnp.concatenate([told.alive, jnp.zeros_like(told.alive[:1])])
    return jnp.broadcast_to(jnp.where(there, values[..., 0], 0.0)[..., None], values.shape)


def _learnt(
    part: Onlooker | Success | SoftReturn,
    critic: PyTree,
    lost: Callable[[PyTree], tuple[Array, Values]],
    index: Int[Array, ""],
) -> Learnt:
    """One step, as long as the critic learns; values are those before it."""

    def both(judge: PyTree) -> tuple[Array, tuple[Array, Values]]:
        loss, values = lost(judge)
        return loss, (loss, values)

    judge, opt, (loss, values), _ = gradient_step(Adam(part.learning_rate, 1.0), both, *critic)
    if part.first:
        judge, opt = jax.tree.map(lambda new, old: jnp.where(index < part.first, new, old), (judge, opt), critic)
    return (judge, opt), jax.lax.stop_gradient(values), {"critic_loss": loss}
