"""A critic that is a language model: how much it says an utterance differently from a reference is the turn's merit."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from thespis.language.sampling import Sampling
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.transcripts import Told
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import dpo


class Merits(eqx.Module):
    r"""Advantages of turns, learnt from which of two conversations returned more (Zhou et al. 2025, SWEET-RL).

    .. math:: A(o_t, a_t, c) = \frac{1}{L} \sum_l \log \frac{\pi_\theta(a_t^l | o_t, c)}{\pi_{ref}(a_t^l | o_t, c)},
              \qquad -\log \sigma\left(\beta \sum_t A_t^+ - \beta \sum_t A_t^-\right)

    :math:`c` is what the world tells critics alone. Differs: their code divides the sum over all ids of a conversation
    by their number, the paper each turn's by its own, as here; their reference reads no :math:`c` when turns are
    compared, which changes no order but by what the reference makes of it.
    """

    beta: Number = 0.1
    """Weight of the log-ratio, above 0."""
    first: int = eqx.field(static=True, default=300)
    """Updates in which the critic learns alone; behind them it learns no more."""
    learning_rate: Number = 3e-4
    """Of the critic."""
    soft: ClassVar[bool] = False

    @property
    def stepper(self) -> Adam:
        """What steps the critic."""
        return Adam(self.learning_rate, 1.0)

    def begun(self, model: Decoder) -> tuple[Decoder, PyTree]:
        """A copy of the model, which finds no merit in anything, and its optimiser."""
        judge = jax.tree.map(jnp.copy, model)
        return judge, self.stepper.init(judge)

    def values(self, critic: PyTree, reference: PyTree, told: Told) -> None:
        """Nothing is said of states: merits are of what was done in them."""

    def learn(
        self, critic: PyTree, reference: PyTree, told: Told, ratio: Any, index: Int[Array, ""]
    ) -> tuple[PyTree, Decoder, dict[str, Float[Array, ""]]]:
        """One step, as long as the critic learns; every second conversation is the better one of a pair."""

        def lost(judge: Decoder) -> tuple[Array, dict[str, Array]]:
            score = self.merit(judge, reference, told).sum(axis=0)
            better, worse = score[0::2], score[1::2]
            loss = dpo(better, worse, self.beta).mean()
            return loss, {"critic_loss": loss, "critic_accuracy": jnp.mean(better > worse, dtype="float32")}

        judge, opt, metrics, _ = gradient_step(self.stepper, lost, *critic)
        critic = jax.tree.map(lambda new, old: jnp.where(index < self.first, new, old), (judge, opt), critic)
        return critic, critic[0], metrics

    def merit(self, judge: Decoder, reference: Decoder, told: Told) -> Float[Array, "time row"]:
        """Of each turn: the mean over its ids; 0 where nothing was said."""
        logs = [told.log_probs_by(model, Sampling())[0] for model in (judge, reference)]
        ratio = jnp.where(told.real, logs[0] - jax.lax.stop_gradient(logs[1]), 0.0)
        return ratio.sum(axis=-1) / jnp.maximum(told.real.sum(axis=-1), 1)
