"""PPO for language models: a critic values the conversation before each id, and generalised advantages are clipped.

Source: Schulman et al., 2017; as Ziegler et al., 2019, have it for language: a penalty on KL to the model that it began
as. ``credit=TurnCritic`` values turns in place of ids. Differs: the penalty is a loss and not a part of the reward, and
the critic is a linear head on the actor's own features.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Episodes
from thespis.core.records import Citation
from thespis.learners.credit import Credit, TokenCritic
from thespis.learners.speaking import Speaking
from thespis.learners.utterances import Clipped, Divisor, Held, Objective, OverTokens, Reference


class LanguagePPO(Speaking):
    """PPO with a critic for conversations of any number of turns."""

    credit: Credit = TokenCritic()
    """How ids are credited: TokenCritic or TurnCritic, Whole or ToGo (with a baseline)."""
    objective: Objective = Clipped()
    """What ids become: Clipped or Gradient."""
    divisor: Divisor = OverTokens()
    """What is averaged: OverTokens, OverAnswers or OverBudget."""
    reference: Reference = Held(0.01)
    """What holds the policy to the model that it began as: Unheld, Held or HeldByK3."""
    standardised: bool = eqx.field(static=True, default=True)
    """Whether advantages are scaled to mean 0 and deviation 1 over the batch."""
    epochs: int = eqx.field(static=True, default=2)
    """Passes over each set of conversations."""
    feed: Episodes = eqx.field(static=True, default=Episodes(envs=64))
    """Conversations: group (of equal beginnings), envs, turns (0: the world's)."""

    name: ClassVar[str] = "ppo-lm"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Proximal Policy Optimization Algorithms", "Schulman et al.", 2017, "arXiv:1707.06347"),
        Citation("Fine-Tuning Language Models from Human Preferences", "Ziegler et al.", 2019, "arXiv:1909.08593"),
    )
    details: ClassVar[tuple[str, ...]] = ("advantages standardised over the batch", "critic and actor share features")
