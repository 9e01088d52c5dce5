"""PPO that begins with imitation of an expert's dialogues, as StepAgent does before its agent is rewarded."""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.papers.embodied_planner_r1.method import ExpertFineTuning


class FineTunedPPO(ExpertFineTuning, LanguagePPO):
    """PPO for language models that begins with supervised fine-tuning on dialogues of an expert."""

    name: ClassVar[str] = "fine-tuned-ppo"
    citations: ClassVar[tuple[Citation, ...]] = (
        *LanguagePPO.citations,
        Citation("From Novice to Expert (StepAgent)", "Deng et al.", 2024, "arXiv:2411.03817"),
    )
