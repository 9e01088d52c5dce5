"""Critic that is fine-tuned on a panel's lessons, and then trained on preferences between its own critiques."""

from __future__ import annotations

from typing import ClassVar

import jax
from jaxtyping import Array, Key

from thespis.core.records import Citation
from thespis.envs.registry import make_compiled
from thespis.envs.text.critique import CRITIC
from thespis.methods.language.online_dpo import OnlineDPO
from thespis.papers.embodied_planner_r1.method import ExpertFineTuning
from thespis.runtime.keys import fold
from thespis.training.demonstrations import sample_demonstrations


class CritiqueDPO(ExpertFineTuning, OnlineDPO):
    """Online DPO of a critic that begins with supervised fine-tuning on critiques, which are others for every seed.

    ``expert_env`` is a conversation of a solver and a critic whose demonstrator gives the critiques.
    """

    name: ClassVar[str] = "critique-dpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        *OnlineDPO.citations,
        Citation(
            "Training Language Models to Critique With Multi-agent Feedback", "Lan et al.", 2024, "arXiv:2410.15287"
        ),
    )

    def expert_dialogues(self, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        """Transcripts, start positions of responses and responses of the expert in the critic's seat."""
        seed = jax.random.randint(fold(key, "lessons"), (), 0, 2**31 - 1)
        env = make_compiled(self.expert_env)
        return sample_demonstrations(env, self.num_demonstrations, seed, CRITIC)[:3]
