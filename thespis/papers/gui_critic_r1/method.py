"""A critic that learns from annotations by supervision alone, as many as reinforcement learning sees."""

from __future__ import annotations

from typing import ClassVar

from thespis.methods.language.grpo import GRPO
from thespis.papers.rlaif_vs_strong_teacher_sft.method import TeacherFineTuning


class AnnotatedCritic(TeacherFineTuning, GRPO):
    """Supervised fine-tuning on annotated critiques, which are others for every seed, before GRPO."""

    name: ClassVar[str] = "annotated-critic"
