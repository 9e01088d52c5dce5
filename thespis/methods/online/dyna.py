"""Dyna: deep Q-learning from real steps and from single steps in a learned model, from stored observations.

The simplest of model-based methods: between real steps, the same Q-learning update is applied to what the model
predicts for actions of the current policy. So each stored observation is learned from many times, also with actions
that were not taken there.

Source: Sutton, 1991. Differs: Q-network and model are neural networks, as in MBPO (:mod:`thespis.methods.online.mbpo`),
in place of tables; real and imagined steps are in the same batches; imagined actions are those of the exploring policy,
not uniformly random ones that have been taken in a state before.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.data.feeds import Replay
from thespis.learners.model_based.model_based_learner import BaseModelBased, ModelBasedLearner
from thespis.methods.online.dqn import DQN


class Dyna(BaseModelBased):
    """Dyna: deep Q-network on single imagined steps in a learned ensemble of dynamics models; one discrete action."""

    method: DQN = DQN(feed=Replay(batch_size=128, learning_starts=500, num_updates=5))
    """DQN, which acts and learns; its feed keeps the real steps."""
    model_based: ModelBasedLearner = ModelBasedLearner(num_rollouts=10_000, real_ratio=0.2)
    """Model and imagination: ModelBasedLearner."""

    name: ClassVar[str] = "dyna"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Dyna, an Integrated Architecture for Learning, Planning, and Reacting", "Sutton", 1991, "SIGART 2(4)"
        ),
        *DQN.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *DQN.details,
        "the model is that of MBPO: an ensemble of Gaussian networks, fitted to all stored steps",
        "imagined steps begin at stored observations, with actions of the exploring policy",
    )
