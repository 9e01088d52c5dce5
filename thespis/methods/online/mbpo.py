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

from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.data.feeds import Replay
from thespis.learners.model_based.model_based_learner import ModelBasedLearner, ModelBasedState
from thespis.methods.online.sac import SAC, SACState
from thespis.runtime.keys import fold


class MBPOState(eqx.Module):
    """Training state of MBPO: the state of SAC, the model and its imagined steps."""

    method_state: SACState
    model_based_state: ModelBasedState


class MBPO(eqx.Module):
    """MBPO: SAC on short imagined rollouts in a learned ensemble of dynamics models; box or discrete actions."""

    method: SAC = SAC(feed=Replay(learning_starts=5_000, num_updates=20))
    """SAC, which acts and learns; its feed keeps the real steps."""
    model_based: ModelBasedLearner = ModelBasedLearner()
    """Model and imagination: ModelBasedLearner."""

    name: ClassVar[str] = "mbpo"
    uses_stored_steps: ClassVar[bool] = True
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

    @property
    def feed(self) -> WindowFeed:
        """Feed of SAC."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> MBPOState:
        """Initialize SAC and the model."""
        state = self.method.init(spec, fold(key, "sac"))
        return MBPOState(state, self.model_based.init(self.method, spec, state, fold(key, "model")))

    def policy(self, state: MBPOState, mode: Mode) -> Any:
        """SAC's policy."""
        return self.method.policy(state.method_state, mode)

    def init_memory(self, policy: Any, n: int) -> Any:
        """SAC's memory of ``n`` fresh episodes."""
        return self.method.init_memory(policy, n)

    def act(self, policy: Any, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Act as SAC does."""
        return self.method.act(policy, memory, view, key)

    def judge(self, state: MBPOState, episode: Transition) -> Critique:
        """SAC's critique of one episode."""
        return self.method.judge(state.method_state, episode)

    def update(self, state: MBPOState, batch: Batch, key: Key[Array, ""]) -> tuple[MBPOState, Report]:
        """Fit the model and imagine steps where it is time to, then update SAC on real and imagined steps."""
        args = self.method, state.model_based_state, state.method_state, batch, fold(key, "model")
        model_based_state, mixed, metrics = self.model_based.update(*args)
        method_state, report = self.method.update(state.method_state, mixed, fold(key, "sac"))
        return MBPOState(method_state, model_based_state), report.with_metrics(metrics)
