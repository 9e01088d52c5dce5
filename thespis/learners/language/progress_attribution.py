"""Learned turn rewards: a second model attributes the outcome of a dialogue to its turns.

The model starts as the policy's own decoder with a zero linear head. It reads a dialogue up to the last token of a
response, so it does not see the environment's reply. Each batch is scored with the model as it is, which is then
trained on that batch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, response_features
from thespis.core.records import Number
from thespis.learners.language.dialogues import Dialogues, SampledDialogues
from thespis.learners.language.lm_agent import LMWithValueHead, add_value_head
from thespis.learners.language.rollout_transforms import RolloutTransform
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.decoder import Decoder


class ProgressAttributionState(eqx.Module):
    """State of progress attribution: the estimator, its optimizer state, and the number of batches so far."""

    estimator: LMWithValueHead
    opt_state: PyTree
    num_batches: Int[Array, ""]


class ProgressAttribution(RolloutTransform):
    r"""Stepwise progress attribution (Wang et al. 2025, SPA): a turn's reward is its share :math:`c_t` of the outcome.

    .. math:: \min \left(\sum_t c_t - R\right)^2, \qquad r_t = c_t + [t = T] \left(R - \sum_{t'} c_{t'}\right)

    Rewards are the environment's own for the first ``num_warmup_batches``. Differs: the estimator learns while the
    policy does, on the dialogues that the policy samples; the part of the outcome that the shares leave is added at the
    last turn, so that returns are the environment's, as without it policies learned to earn shares and no outcome;
    their reward for commands that the environment could execute is left out, as not every environment reports that.
    """

    learning_rate: Number = 1e-3
    """Step size of the estimator."""
    num_gradient_steps: int = eqx.field(static=True, default=2)
    """Gradient steps of the estimator on each batch."""
    num_warmup_batches: int = eqx.field(static=True, default=20)
    """Batches that train the estimator before its rewards are used."""

    @property
    def optimizer(self) -> Adam:
        """Optimizer of the estimator: Adam with gradients clipped to norm 1."""
        return Adam(self.learning_rate, 1.0)

    def init(
        self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]
    ) -> ProgressAttributionState:
        """The policy's decoder with a value head of zeros."""
        estimator = add_value_head(jax.tree.map(jnp.copy, model), model.config.hidden_size)
        return ProgressAttributionState(estimator, self.optimizer.init(estimator), jnp.zeros((), "int32"))

    def __call__(
        self, state: ProgressAttributionState, dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[ProgressAttributionState, SampledDialogues, dict[str, Array]]:
        """Replace rewards by attributed ones, then train the estimator on the batch."""

        def loss(estimator: LMWithValueHead) -> tuple[Array, Array]:
            share = turn_scores(estimator, dialogues)
            losses = jnp.square(share.sum(axis=0) - dialogues.returns).mean()
            return losses, losses

        def step(carry: Any, _: Any) -> Any:
            estimator, opt_state, loss_value, _ = gradient_step(self.optimizer, loss, *carry)
            return (estimator, opt_state), loss_value

        share = turn_scores(state.estimator, dialogues)
        reward = share + jnp.where(dialogues.is_last_turn, dialogues.returns - share.sum(axis=0), 0.0)
        reward = jnp.where(state.num_batches < self.num_warmup_batches, dialogues.reward, reward)
        (estimator, opt_state), losses = jax.lax.scan(
            step, (state.estimator, state.opt_state), None, self.num_gradient_steps
        )
        state = ProgressAttributionState(estimator, opt_state, state.num_batches + 1)
        return state, dataclasses.replace(dialogues, reward=reward), {"attribution_loss": losses.mean()}


def turn_scores(model: LMWithValueHead, dialogues: Dialogues) -> Float[Array, "time row"]:
    """Score of each response: the model's value at its last token; 0 where there is no response."""
    features = response_features(
        model.model, dialogues.transcript, dialogues.response_starts[:-1], dialogues.responses.shape[-1] + 1
    )
    num_tokens = dialogues.response_mask.sum(axis=-1, keepdims=True)
    return jnp.where(dialogues.alive, jnp.take_along_axis(model.value(features), num_tokens, axis=-1)[..., 0], 0.0)
