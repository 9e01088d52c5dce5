"""Reward for progress between attempts: each one earns its reward and a bonus for the gain over the one before."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Citation, EnvSpec, Metrics, Number
from thespis.feedback.text_feedback import TextFeedback
from thespis.learners.language.dialogues import Dialogues


class AttemptProgress(TextFeedback):
    """Progress reward: each attempt earns its reward plus ``bonus_coef`` times the gain over the one before (SCoRe).

    For the first ``num_stage1_updates`` batches only the last attempt is rewarded, by its own reward (Kumar et al.
    2024: stages I and II).
    """

    num_stage1_updates: int = eqx.field(static=True, default=100)
    """Batches of the first stage."""
    bonus_coef: Number = 10.0
    """Weight of the progress bonus: their alpha."""

    name: ClassVar[str] = "attempt-progress"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Training Language Models to Self-Correct via RL", "Kumar et al.", 2024, "arXiv:2409.12917"),
    )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> Int[Array, ""]:
        """Number of batches so far: 0."""
        return jnp.zeros((), "int32")

    def score_turns(self, state: Int[Array, ""], dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row"]:
        """Shaped rewards of the attempts."""
        earned = jnp.where(dialogues.alive, dialogues.reward, 0.0)
        previous = jnp.pad(earned[:-1], ((1, 0), (0, 0)))
        is_retry = jnp.arange(len(earned))[:, None] > 0
        shaped = earned + jnp.where(is_retry, self.bonus_coef * (earned - previous), 0.0)
        return jnp.where(state < self.num_stage1_updates, jnp.where(dialogues.is_last_turn, earned, 0.0), shaped)

    def learn(
        self, state: Int[Array, ""], dialogues: Dialogues, own_dialogues: Dialogues | None, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Metrics]:
        """Count the batch."""
        earned = jnp.where(dialogues.alive, dialogues.reward, 0.0)
        return state + 1, {"progress": (earned[-1] - earned[0]).mean()}
