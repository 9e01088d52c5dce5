r"""Implicit process reward: the log-ratio of two language models, one of which learns from outcomes of dialogues alone.

.. math:: r_t = \beta \log \frac{\pi_\phi(a_t | s_t)}{\pi_{ref}(a_t | s_t)}, \qquad
          \min - R \log \sigma\left(\sum_t r_t\right) - (1 - R) \log\left(1 - \sigma\left(\sum_t r_t\right)\right)

A model that tells successes from failures by the log-ratio of whole dialogues has a reward for every part of them.

Source: Cui et al. 2025 (PRIME), after Yuan et al. 2024. Differs: a turn has one reward, the sum over its tokens; it
learns from a batch after it has scored it, where theirs learns before; prompts of which all or no responses succeed
are not left out. Their policy learns from the sum of these rewards and the outcome
(:class:`~thespis.feedback.combined.AddedFeedback`), each with a baseline of its own.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Citation, EnvSpec, Metrics, Number
from thespis.feedback.text_model import TextModelFeedback
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.decoder import Decoder


class ImplicitRewardState(eqx.Module):
    """State of the implicit reward: the model that learns, its optimizer state, and the reference that stays."""

    model: Decoder
    opt_state: PyTree
    reference: Decoder


class ImplicitProcessReward(TextModelFeedback):
    """Implicit process reward: ``beta`` times a log-ratio that predicts the outcome (PRIME), for text.

    It replaces the environment's reward, which it learns from.
    """

    beta: Number = 0.05
    """Weight of the log-ratio, above 0."""
    learning_rate: Number = 3e-4
    """Step size of the model."""
    num_gradient_steps: int = eqx.field(static=True, default=1)
    """Gradient steps of the model on each batch."""
    max_return: Number = 1.0
    """Largest possible return, above 0: the outcome is the return as a share of it."""

    name: ClassVar[str] = "implicit-reward"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Process Reinforcement through Implicit Rewards", "Cui et al.", 2025, "arXiv:2502.01456"),
    )

    @property
    def optimizer(self) -> Adam:
        """Optimizer of the model: Adam with gradients clipped to norm 1."""
        return Adam(self.learning_rate, 1.0)

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> ImplicitRewardState:
        """The initial model twice, by which all rewards are 0."""
        model = self.initial_model(spec, key)
        return ImplicitRewardState(model, self.optimizer.init(model), jax.tree.map(jnp.copy, model))

    def score_turns(
        self, state: ImplicitRewardState, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """The weighted log-ratio of each response."""
        return self.turn_rewards(state.model, state.reference, dialogues)

    def learn(
        self, state: ImplicitRewardState, dialogues: Dialogues, own_dialogues: Dialogues | None, key: Key[Array, ""]
    ) -> tuple[ImplicitRewardState, Metrics]:
        """Gradient steps on the cross-entropy of outcomes."""

        def step(carry: Any, _: Any) -> Any:
            model, opt_state, metrics, _ = gradient_step(
                self.optimizer, lambda model: self.outcome_loss(model, state.reference, dialogues), *carry
            )
            return (model, opt_state), metrics

        carry = state.model, state.opt_state
        (model, opt_state), metrics = jax.lax.scan(step, carry, None, self.num_gradient_steps)
        return ImplicitRewardState(model, opt_state, state.reference), jax.tree.map(jnp.mean, metrics)

    def turn_rewards(self, model: Decoder, reference: Decoder, dialogues: Dialogues) -> Float[Array, "time row"]:
        """Reward of each response, summed over its tokens; 0 where there is none."""
        log_probs, ref_log_probs = (
            dialogues.response_log_probs(decoder, TemperatureSampler())[0] for decoder in (model, reference)
        )
        log_ratio = jnp.where(dialogues.response_mask, log_probs - jax.lax.stop_gradient(ref_log_probs), 0.0)
        return self.beta * log_ratio.sum(axis=-1)

    def outcome_loss(
        self, model: Decoder, reference: Decoder, dialogues: Dialogues
    ) -> tuple[Float[Array, ""], Metrics]:
        """Cross-entropy of the outcomes of dialogues, with the sums of their rewards as logits; and metrics."""
        logits = self.turn_rewards(model, reference, dialogues).sum(axis=0)
        outcome = jnp.clip(dialogues.returns / self.max_return, 0.0, 1.0)
        losses = -outcome * jax.nn.log_sigmoid(logits) - (1.0 - outcome) * jax.nn.log_sigmoid(-logits)
        accuracy = jnp.mean((logits > 0) == (outcome > 0.5), dtype="float32")
        return losses.mean(), {"implicit_loss": losses.mean(), "outcome_accuracy": accuracy}
