"""Measures of writers under principles: the true reward, how often principles are not met, and adverbs."""

from __future__ import annotations

from thespis.evidence.measures import Measure
from thespis.evidence.text_aspects import mean_aspect, untrained_aspect
from thespis.papers.salmon.envs import PrincipledWriting


def true_reward(task: PrincipledWriting | None = None) -> Measure:
    """Mean true reward of sampled texts, under the principles of a task, by default those of the run."""
    return mean_aspect("reward", "true reward" if task is None else f"true reward of {task.pace} texts", task)


def untrained_reward() -> Measure:
    """The true reward before reinforcement learning."""
    return untrained_aspect("reward", "true reward before training")


def unmet_principles() -> Measure:
    """Share of the principles that sampled texts do not meet; lower is better."""
    return mean_aspect("unmet", "share of principles not met", larger_is_better=False)


def adverbs() -> Measure:
    """Share of the sentences with an adverb, the planted reward hack; lower is better."""
    return mean_aspect("adverbs", "share of sentences with an adverb", larger_is_better=False)
