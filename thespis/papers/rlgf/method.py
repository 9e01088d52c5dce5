"""PPO that begins with imitation of a guide, and PPO that learns the first part of responses which a guide completes.

Source: Chang et al., 2023, and the authors' code, where every method begins with the supervised model.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.records import Batch, Citation, Report
from thespis.learners.language.lm_policy_gradient import LMPolicyGradientState
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.papers.rlaif_vs_strong_teacher_sft.method import TeacherFineTuning

_SOURCE = Citation("Learning to Generate Better Than Your LLM", "Chang et al.", 2023, "arXiv:2306.11816")


class GuideTaughtPPO(TeacherFineTuning, LanguagePPO):
    """PPO for language models that begins with fine-tuning on a guide's responses, which are others for every seed."""

    name: ClassVar[str] = "guide-taught-ppo"
    citations: ClassVar[tuple[Citation, ...]] = (*LanguagePPO.citations, _SOURCE)


class GuideRollOutPPO(LanguagePPO):
    """AggreVaTeD for language models: policy gradient of tokens whose advantages are by what a guide makes of them.

    For :class:`~thespis.papers.rlgf.envs.GuideRollOuts`, which replies with the part of a response that it kept. The
    tokens after that part are not learned. Responses without a reply are learned as by PPO.
    """

    name: ClassVar[str] = "guide-rollout-ppo"
    citations: ClassVar[tuple[Citation, ...]] = (*LanguagePPO.citations, _SOURCE)

    def update(
        self, state: LMPolicyGradientState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[LMPolicyGradientState, Report]:
        """Epochs of minibatch steps over the kept parts."""
        steps, stop = batch.steps, jnp.asarray(state.dialogue_spec.stop_tokens)
        before, after = ((view.observation >= 0).sum(axis=-1) for view in (steps.view, steps.next_view))
        num_tokens = (steps.action >= 0).sum(axis=-1)
        has_end = jnp.isin(steps.action, stop).any(axis=-1)
        num_kept = after - before - num_tokens - ~has_end
        is_learned = (jnp.arange(steps.action.shape[-1]) < num_kept[..., None]) | (num_kept == 0)[..., None]
        steps = dataclasses.replace(steps, action=jnp.where(is_learned, steps.action, -1))
        return super().update(state, dataclasses.replace(batch, steps=steps), key)
