"""A second model that says of each utterance what it is worth: rewards by turn, learnt from what conversations earn.

It begins as the actor's own decoder, with a linear head that says 0, and reads a conversation up to the last id of an
utterance, so that what the world answers is not in its word. Each batch is scored by it as it was, then taught to it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.language import Talking, features_of
from thespis.learners.conversations import Conversations
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.talker import Mind, minded
from thespis.learners.transcripts import Told
from thespis.nets.decoder import Decoder


class Estimated(eqx.Module):
    """What an estimator has learnt, and how many batches it has seen."""

    estimator: Mind
    opt: PyTree
    batches: Int[Array, ""]


class Attribution(eqx.Module):
    r"""Stepwise progress attribution (Wang et al. 2025, SPA): every turn is paid its share :math:`c_t` of the outcome.

    .. math:: \min \left(\sum_t c_t - R\right)^2, \qquad r_t = c_t + [t = T] \left(R - \sum_{t'} c_{t'}\right)

    Rewards are the world's own for the first ``warmup`` batches. Differs: the estimator learns while the actor does, on
    what the actor plays; what shares leave of the outcome is paid at the end, so that returns are the world's, as
    without it actors learnt to earn shares and no outcome; their pay for commands that the world could carry out is not
    here, as not every world tells.
    """

    learning_rate: Number = 1e-3
    """Step size of the estimator."""
    steps: int = eqx.field(static=True, default=2)
    """Its gradient steps on each batch."""
    warmup: int = eqx.field(static=True, default=20)
    """Batches that teach it before it is believed."""

    @property
    def stepper(self) -> Adam:
        """What steps it."""
        return Adam(self.learning_rate, 1.0)

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> Estimated:
        """The actor's decoder, and a head that says 0."""
        estimator = minded(jax.tree.map(jnp.copy, model), model.shape.width)
        return Estimated(estimator, self.stepper.init(estimator), jnp.zeros((), "int32"))

    def __call__(
        self, kept: Estimated, played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[Estimated, Conversations, dict[str, Array]]:
        """Outcomes where they were earned."""

        def loss(estimator: Mind) -> tuple[Array, Array]:
            share = shares(estimator, played)
            lost = jnp.square(share.sum(axis=0) - played.returns).mean()
            return lost, lost

        def step(carry: Any, _: Any) -> Any:
            estimator, opt, lost, _ = gradient_step(self.stepper, loss, *carry)
            return (estimator, opt), lost

        share = shares(kept.estimator, played)
        paid = share + jnp.where(played.last, played.returns - share.sum(axis=0), 0.0)
        paid = jnp.where(kept.batches < self.warmup, played.reward, paid)
        (estimator, opt), lost = jax.lax.scan(step, (kept.estimator, kept.opt), None, self.steps)
        kept = Estimated(estimator, opt, kept.batches + 1)
        return kept, dataclasses.replace(played, reward=paid), {"attribution_loss": lost.mean()}


def shares(estimator: Mind, talks: Told) -> Float[Array, "time row"]:
    """Its number behind the last id of each utterance; 0 where nothing was said."""
    seen = features_of(estimator.model, talks.transcript, talks.starts[:-1], talks.said.shape[-1] + 1)
    behind = talks.real.sum(axis=-1, keepdims=True)
    return jnp.where(talks.alive, jnp.take_along_axis(estimator.value(seen), behind, axis=-1)[..., 0], 0.0)
