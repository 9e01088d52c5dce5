"""Two stages in one run: supervised fine-tuning on a teacher's texts, then DPO on a critic's comparisons.

The pairs are sampled by the fine-tuned model, which is the reference too, before the second stage begins; each pair is
compared once, and then learned from many times. The critic is the environment's reward.

Source: Sharma et al., 2024, and the authors' code.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.records import Batch, Report
from thespis.envs.registry import make_compiled
from thespis.learners.language.lm_offline import LMOfflineState
from thespis.methods.language.online_dpo import ReferenceSampledDPO
from thespis.papers.embodied_planner_r1.method import ExpertFineTuning
from thespis.runtime.keys import fold
from thespis.training.demonstrations import sample_demonstrations


class TeacherFineTuning(ExpertFineTuning):
    """Base of methods whose initial model is fine-tuned on a teacher's dialogues, which are others for every seed."""

    def expert_dialogues(self, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        """Transcripts, start positions of responses and responses of the teacher."""
        seed = jax.random.randint(fold(key, "teacher"), (), 0, 2**31 - 1)
        return sample_demonstrations(make_compiled(self.expert_env), self.num_demonstrations, seed)[:3]


class TaughtDPO(TeacherFineTuning, ReferenceSampledDPO):
    """DPO on pairs of responses of the fine-tuned model; all of them are sampled and compared at once."""

    minibatch_size: int = eqx.field(static=True, default=32)
    """Pairs per update, drawn from all pairs."""

    def update(self, state: LMOfflineState, batch: Batch, key: Key[Array, ""]) -> tuple[LMOfflineState, Report]:
        """One step on a minibatch of pairs."""
        num_pairs = batch.mask.shape[1] // 2
        pairs = jax.random.randint(fold(key, "pairs"), (min(self.minibatch_size, num_pairs),), 0, num_pairs)
        rows = (2 * pairs[:, None] + jnp.arange(2)).ravel()
        steps = jax.tree.map(lambda x: x[:, rows], batch.steps)
        return super().update(state, dataclasses.replace(batch, steps=steps, mask=batch.mask[:, rows]), key)
