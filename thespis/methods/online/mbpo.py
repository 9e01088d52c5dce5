"""Model-based policy optimization (MBPO): SAC on short rollouts in a learned model, branched from real states.

Every ``model_based.model_interval`` learning phases an ensemble of Gaussian networks is fitted to all real steps. Then
SAC's policy is rolled out for a few steps in it, from real observations, each step in a random elite network. Of each
of SAC's batches the share ``model_based.real_ratio`` is real and the rest imagined. As imagined steps are cheap, there
are many updates for each real step (``method.feed.num_updates``).

Source: Janner et al., 2019, algorithm 2, with the settings of the authors' code; the model: Chua et al., 2018.

Differs: imagined steps are in a ring buffer of fixed size, of which only as many are sampled as the authors keep; see
also :mod:`thespis.learners.model_based.dynamics`. A feedback's reward reaches SAC's real steps alone: the model
predicts the environment's.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.data.feeds import Replay
from thespis.learners.model_based.model_based_learner import BaseModelBased, ModelBasedLearner
from thespis.methods.online.sac import SAC


class MBPO(BaseModelBased):
    """MBPO: SAC on short imagined rollouts in a learned ensemble of dynamics models; box or discrete actions."""

    method: SAC = SAC(feed=Replay(learning_starts=5_000, num_updates=20))
    """SAC, which acts and learns; its feed keeps the real steps."""
    model_based: ModelBasedLearner = ModelBasedLearner()
    """Model and imagination: ModelBasedLearner."""

    name: ClassVar[str] = "mbpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "When to Trust Your Model: Model-Based Policy Optimization", "Janner et al.", 2019, "arXiv:1906.08253"
        ),
        Citation(
            "Deep Reinforcement Learning in a Handful of Trials using Probabilistic Dynamics Models",
            "Chua et al.",
            2018,
            "arXiv:1805.12114",
        ),
        *SAC.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *SAC.details,
        "the model predicts rewards, changes of observations and, unless it is known, termination",
        "every imagined step draws one of the elite networks, and noise",
        "the model is fitted to all stored steps until the held-out error stops falling",
        "time limits do not end imagined rollouts",
    )
