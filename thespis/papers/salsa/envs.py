"""Demonstrations for fine-tuning: of a teacher's texts some are the best, and the others random."""

from __future__ import annotations

from thespis.envs.text.task import TextEnv
from thespis.papers.rluf.envs import ReactedWriting

TEACHER = TextEnv(ReactedWriting(demonstrator_noise=0.7))
"""Writing whose demonstrator gives the best text in 30% of the cases."""
TEACHER_ENV = f"{__name__}:TEACHER"
