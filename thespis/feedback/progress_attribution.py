"""Learned turn rewards: a second language model attributes the outcome of a dialogue to its turns.

Each batch is scored with the model as it is, which is then trained on that batch.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Citation, EnvSpec, Metrics
from thespis.feedback.text_model import TurnScorer, turn_scores
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import LMWithValueHead
from thespis.learners.optim.optimizers import gradient_step


class ProgressAttributionState(eqx.Module):
    """State of progress attribution: the estimator, its optimizer state, and the number of batches so far."""

    estimator: LMWithValueHead
    opt_state: PyTree
    num_batches: Int[Array, ""]


class ProgressAttribution(TurnScorer):
    r"""Progress attribution: the reward of a turn is its learned share :math:`c_t` of the outcome (SPA), for text.

    Wang et al. 2025:

    .. math:: \min \left(\sum_t c_t - R\right)^2, \qquad r_t = c_t + [t = T] \left(R - \sum_{t'} c_{t'}\right)

    Rewards are the environment's own for the first ``num_warmup_batches``. Differs: the estimator learns while the
    policy does, on the dialogues that the policy samples; the part of the outcome that the shares leave is added at the
    last turn, so that returns are the environment's, as without it policies learned to earn shares and no outcome;
    their reward for commands that the environment could execute is left out, as not every environment reports that.
    """

    num_gradient_steps: int = eqx.field(static=True, default=2)
    """Gradient steps of the estimator on each batch."""
    num_warmup_batches: int = eqx.field(static=True, default=20)
    """Batches that train the estimator before its rewards are used."""

    name: ClassVar[str] = "progress-attribution"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Stepwise Progress Attribution", "Wang et al.", 2025, "arXiv:2505.20732"),
    )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> ProgressAttributionState:
        """The initial model with a value head of zeros: no turn has a share."""
        estimator = self.initial_scorer(spec, key)
        return ProgressAttributionState(estimator, self.optimizer.init(estimator), jnp.zeros((), "int32"))

    def score_turns(
        self, state: ProgressAttributionState, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """Attributed rewards; the environment's own while the estimator warms up."""
        share = turn_scores(state.estimator, dialogues)
        reward = share + jnp.where(dialogues.is_last_turn, dialogues.returns - share.sum(axis=0), 0.0)
        return jnp.where(state.num_batches < self.num_warmup_batches, dialogues.reward, reward)

    def learn(
        self,
        state: ProgressAttributionState,
        dialogues: Dialogues,
        own_dialogues: Dialogues | None,
        key: Key[Array, ""],
    ) -> tuple[ProgressAttributionState, Metrics]:
        """Train the estimator on the batch: shares sum to the outcome."""

        def loss(estimator: LMWithValueHead) -> tuple[Array, Array]:
            share = turn_scores(estimator, dialogues)
            losses = jnp.square(share.sum(axis=0) - dialogues.returns).mean()
            return losses, losses

        def step(carry: Any, _: Any) -> Any:
            estimator, opt_state, loss_value, _ = gradient_step(self.optimizer, loss, *carry)
            return (estimator, opt_state), loss_value

        carry = state.estimator, state.opt_state
        (estimator, opt_state), losses = jax.lax.scan(step, carry, None, self.num_gradient_steps)
        return ProgressAttributionState(estimator, opt_state, state.num_batches + 1), {
            "attribution_loss": losses.mean()
        }
