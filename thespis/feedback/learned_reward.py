"""Reward of a dialogue by a trained reward model (``thespis train rm``), given to its last response."""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Citation, EnvSpec, Number
from thespis.feedback.text_model import TextModelFeedback
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import All, LMWithValueHead, TrainableParams
from thespis.learners.language.reward_ensemble import ensemble_scores, init_ensemble


class LearnedReward(TextModelFeedback):
    """Learned reward: what a trained reward model gives to whole dialogues, for text. Use it as ``frozen:RUN``."""

    trainable: TrainableParams = All()
    """Parameters that were trained, as in the reward model: All, or LoRA."""
    num_members: int = eqx.field(static=True, default=1)
    """Reward models in the ensemble, as it was trained."""
    aggregation: Literal["mean", "min"] = eqx.field(static=True, default="mean")
    """Reward of an ensemble: the mean of its members, or the least of them."""
    uncertainty_penalty: Number = 0.0
    """Weight of the ensemble's variance, which is subtracted from the reward."""

    name: ClassVar[str] = "learned-reward"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Fine-Tuning Language Models from Human Preferences", "Ziegler et al.", 2019, "arXiv:1909.08593"),
        Citation("Reward Model Ensembles Help Mitigate Overoptimization", "Coste et al.", 2024, "arXiv:2310.02743"),
    )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> LMWithValueHead:
        """Untrained reward models ``[member, ...]``."""
        return init_ensemble(self.initial_model(spec, key), self.trainable, self.num_members, key)

    def score_turns(
        self, state: LMWithValueHead, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """The reward of each dialogue at its last response; 0 at all others."""
        scores = ensemble_scores(state, dialogues)
        reward = jnp.mean(scores, axis=0) if self.aggregation == "mean" else jnp.min(scores, axis=0)
        reward -= self.uncertainty_penalty * jnp.var(scores, axis=0)
        return jax.lax.stop_gradient(jnp.where(dialogues.is_last_turn, reward, 0.0))
