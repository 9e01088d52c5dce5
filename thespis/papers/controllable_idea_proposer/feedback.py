"""Rewards of ideas: a reward model for each dimension, and their sum with the weights that a control word asks for.

Source: Li et al., 2024.

Differs: the reward models are fitted to comparisons of the initial model's texts, where the authors' learn scores of
reviews. Weights are read from the prompt, where the authors steer hidden states by trained controllers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import Batch, Citation, Rewards
from thespis.envs.registry import make_compiled
from thespis.feedback.combined import AddedFeedback
from thespis.feedback.fitted_reward import ComparisonReward
from thespis.papers.controllable_idea_proposer.envs import (
    DIMENSIONS,
    EFFECTIVENESS_ENV,
    FEASIBILITY_ENV,
    IDEAS_ENV,
    NOVELTY_ENV,
    emphasis_weights,
)


class NoveltyReward(ComparisonReward):
    """Reward model of novelty, fitted to comparisons by a judge of novelty alone."""

    name: ClassVar[str] = "novelty"


class FeasibilityReward(ComparisonReward):
    """Reward model of feasibility, fitted to comparisons by a judge of feasibility alone."""

    name: ClassVar[str] = "feasibility"


class EffectivenessReward(ComparisonReward):
    """Reward model of effectiveness, fitted to comparisons by a judge of effectiveness alone."""

    name: ClassVar[str] = "effectiveness"


_FIT: dict[str, Any] = {
    "num_prompts": 1_024,
    "num_reward_steps": 300,
    "reward_batch_size": 16,
    "reward_learning_rate": 2e-3,
}
DIMENSION_REWARDS = (
    NoveltyReward(labelling_env=NOVELTY_ENV, **_FIT),
    FeasibilityReward(labelling_env=FEASIBILITY_ENV, **_FIT),
    EffectivenessReward(labelling_env=EFFECTIVENESS_ENV, **_FIT),
)
"""Reward models of all dimensions, each fitted to 1,024 comparisons."""


class EmphasizedReward(AddedFeedback):
    """Emphasized reward, for ideas: the rewards of all dimensions, weighted as the prompt's control word asks."""

    parts: tuple[Any, ...] = DIMENSION_REWARDS
    weights: tuple[float, ...] = (1.0, 1.0, 1.0)
    """Factors of the weights that the control word asks for."""

    name: ClassVar[str] = "emphasized"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Learning to Generate Research Idea with Dynamic Control", "Li et al.", 2024, "arXiv:2412.14626"),
    )

    def score(self, state: tuple[PyTree, ...], batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The sum with the weights of each row's control word, and every dimension as a channel."""
        channels = {part.name: part.score(own, batch, key).total for part, own in zip(self.parts, state, strict=True)}
        weights = self.row_weights(batch) * jnp.asarray(self.weights, "float32")
        total = jnp.einsum("rd,dtr->tr", weights, jnp.stack(list(channels.values())))
        return Rewards(total, dict(batch.steps.channels or {}) | channels)

    def row_weights(self, batch: Batch) -> Float[Array, "row dimension"]:
        """Weights of the dimensions, by the control word in the first observation of each row."""
        env: Any = make_compiled(IDEAS_ENV)
        tokens = jnp.asarray([env.task.task_spec.encode_word(word) for word in DIMENSIONS])
        is_control = (batch.steps.view.observation[0][..., None] == tokens).any(axis=1)
        return is_control @ jnp.asarray(emphasis_weights(), "float32")
