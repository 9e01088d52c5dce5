"""Feedbacks by name; each is imported only on request."""

from __future__ import annotations

from thespis.core.parts import FEEDBACK, PartRegistry

FEEDBACKS = {
    "airl": "thespis.feedback.adversarial:AIRL",
    "attempt-progress": "thespis.papers.score.attempt_progress:AttemptProgress",
    "counts": "thespis.feedback.count_bonus:CountBonus",
    "dpo-reward": "thespis.feedback.dpo_reward:DPOReward",
    "dac": "thespis.feedback.adversarial:dac",
    "environment": "thespis.feedback.environment:EnvironmentReward",
    "frozen": "thespis.feedback.frozen:FrozenFeedback",
    "gail": "thespis.feedback.adversarial:GAIL",
    "implicit-reward": "thespis.feedback.implicit_reward:ImplicitProcessReward",
    "preferences": "thespis.feedback.preference_reward:PreferenceReward",
    "process-reward": "thespis.feedback.process_reward:ProcessReward",
    "progress-attribution": "thespis.feedback.progress_attribution:ProgressAttribution",
    "response-discriminator": "thespis.feedback.response_discriminator:ResponseDiscriminator",
    "response-length": "thespis.feedback.response_length:ResponseLength",
    "rnd": "thespis.feedback.rnd:RandomNetworkDistillation",
    "scripted-spans": "thespis.feedback.token_feedback:ScriptedSpans",
    "span-critic": "thespis.feedback.span_critic:SpanCritic",
    "sqil": "thespis.feedback.sqil:SQIL",
    "win-rate": "thespis.feedback.win_rate:WinRate",
}
"""The feedbacks of Thespis."""

REGISTRY = PartRegistry(FEEDBACK, FEEDBACKS, "thespis list feedback")
"""The feedbacks above, and those of installed distributions (entry points ``feedback.NAME`` of ``thespis.parts``)."""
