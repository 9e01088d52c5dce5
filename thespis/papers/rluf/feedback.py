r"""P[Love], a reward of texts that is learned from users' binary reactions.

Users react to texts of the initial model, or do not, and a reward model learns the probability of a reaction by
cross-entropy. It is one of several rewards, which are added with weights
(:class:`~thespis.feedback.combined.AddedFeedback`).

Source: Han et al., 2025.

Differs: rewards are standardized, so that weights are comparable, and there is none of safety.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.records import Citation
from thespis.feedback.fitted_reward import FittedReward
from thespis.objectives.preferences import bradley_terry_loss
from thespis.papers.rluf.envs import REACTIONS_ENV
from thespis.runtime.keys import indexed_keys


class LoveReward(FittedReward):
    """P[Love], for text: the probability that a user loves a text, learned from binary reactions, standardized."""

    labelling_env: str = eqx.field(static=True, default=REACTIONS_ENV)
    """Environment whose prompts are answered, and whose users react to texts."""

    name: ClassVar[str] = "love"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Reinforcement Learning from User Feedback", "Han et al.", 2025, "arXiv:2505.14946"),
    )

    def label(self, task: Any, state: PyTree, texts: Int[Array, "2 token"], key: Key[Array, ""]) -> Float[Array, " 2"]:
        """1 for each text that its user loves."""
        return jax.vmap(lambda text, k: task.react(state, text, k))(texts, indexed_keys(key, 2)).astype("float32")

    def loss(self, scores: Float[Array, "prompt 2"], labels: Float[Array, "prompt 2"]) -> Float[Array, ""]:
        """The cross-entropy of the reactions."""
        return bradley_terry_loss(scores, labels).mean()

    def reward(self, scores: Float[Array, "*texts"]) -> Float[Array, "*texts"]:
        """The probability of love."""
        return jax.nn.sigmoid(scores)
