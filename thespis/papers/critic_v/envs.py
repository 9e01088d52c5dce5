"""Criticized sums in which the critic earns the reward of a rule for its critique, whatever is made of it."""

from __future__ import annotations

from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.critique import CritiqueConversation
from thespis.evidence.benches.trained_critics import TASK

RANKED_SUMS = ConversationEnv(
    CritiqueConversation(TASK, first_answer="demonstrator", judgment_reward=1.0, refinement_reward=0.0)
)
"""The critic earns 1 for a critique that agrees with the errors of the first answer, and nothing for the second one."""
RANKED_SUMS_ENV = f"{__name__}:RANKED_SUMS"
