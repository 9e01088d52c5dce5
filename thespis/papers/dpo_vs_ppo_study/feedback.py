"""Reward model of labelled pairs of the initial model's responses: what PPO maximizes, and DPO does without."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.feedback.fitted_reward import ComparisonReward
from thespis.runtime.keys import indexed_keys


class OutcomeReward(ComparisonReward):
    """Outcome reward, for text: learned from which of two responses earns more in a noisy environment, then frozen."""

    name: ClassVar[str] = "outcome-reward"

    def label(self, task: Any, state: PyTree, texts: Int[Array, "2 token"], key: Key[Array, ""]) -> Float[Array, " 2"]:
        """1 for the response that earns more, 0 for the other; 0.5 for both where they earn the same."""
        rewards = jax.vmap(lambda text, k: task.step(state, text, k)[1].reward)(texts, indexed_keys(key, 2))
        share = 0.5 + 0.5 * jnp.sign(rewards[0] - rewards[1])
        return jnp.stack([share, 1.0 - share]).astype("float32")
