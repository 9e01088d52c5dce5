"""SAC-GLAM: off-policy SAC of a language model over candidate actions, with hindsight relabeling of goals.

The actor is GLAM's: a softmax over the log-probabilities of candidate actions. It learns by discrete soft actor-critic,
whose sums over actions are exact, from a replay buffer of turns, with ``n_step`` returns; a share of the replayed turns
is relabeled as if a goal that was reached later had been the goal (:mod:`thespis.learners.off_policy.hindsight`). Each
critic is a head on a decoder's features of the dialogue, with a value for every candidate action.

Source: Gaven et al., 2024: its abstract and summaries of it, since its appendix and code were not available; and the
code of the same authors' next paper, MAGELLAN (Gaven et al., 2025), which trains its agent by SAC-GLAM without
hindsight. From there are the n-step returns, the critic's MLP on the model's features, the constant or tuned entropy
coefficient, and critics that learn first. Not verified: which goals hindsight chooses, and how many.

Differs: critics have decoders of their own, initialized from the actor's, and a value for every candidate at once,
theirs read each candidate as text; decoder-only models, all of whose parameters are trained; hindsight looks ahead as
far as ``method.feed.sequence_length``. Not corrected: actions within an n-step return were chosen by older policies.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.actors.lm_policy import CandidateActor
from thespis.core.records import Batch, Citation, EnvSpec, Report
from thespis.critics.candidate_values import CandidateQ, ValueHead
from thespis.critics.value_functions import init_ensemble
from thespis.data.feeds import Replay
from thespis.learners.language.candidate_scoring import CandidateMethod, CandidateMethodState
from thespis.learners.off_policy.hindsight import NO_RELABELING, HindsightFuture, HindsightRelabeling
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.online.sac import SAC, SACState
from thespis.nets.candidate_scoring import CandidateScorer
from thespis.nets.mlp import uniform_fan_in
from thespis.runtime.keys import fold


class SACGLAM(CandidateMethod):
    """SAC-GLAM: off-policy SAC of a language model over candidate actions, with hindsight experience replay."""

    method: SAC = SAC(
        learning_rate=1e-4,
        temperature=FixedTemperature(0.02),
        hidden_sizes=(64,),
        feed=Replay(
            buffer_size=100_000,
            batch_size=64,
            learning_starts=1_000,
            update_interval=1,
            sequence_length=12,
            num_envs=32,
        ),
    )
    """SAC that learns; ``hidden_sizes`` are the layers of the critics' heads, and nothing is normalized."""
    hindsight: HindsightRelabeling | None = HindsightFuture()
    """Goal relabeling of replayed turns: HindsightFuture, HindsightFinal, or None."""
    n_step: int = eqx.field(static=True, default=3)
    """Number of steps of a return; at most ``method.feed.sequence_length``, within which hindsight finds goals."""
    critic_warmup_updates: int = eqx.field(static=True, default=100)
    """Updates of the critics before the actor's first update."""

    name: ClassVar[str] = "sac-glam"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "SAC-GLAM: Improving Online RL for LLM agents with Soft Actor-Critic and Hindsight Relabeling",
            "Gaven et al.",
            2024,
            "arXiv:2410.12481",
        ),
        Citation("Hindsight Experience Replay", "Andrychowicz et al.", 2017, "arXiv:1707.01495"),
        *SAC.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        "a softmax over candidate actions",
        "the model itself acts until the first update",
        "hindsight relabeling when a batch is sampled, not when it is stored",
        "critics learn first; each has its own decoder",
        SAC.details[0],
        *SAC.details[3:],
    )

    def init_from(self, spec: EnvSpec, listing: CandidateScorer, key: Key[Array, ""]) -> SACState:
        """Initialize from the language model; critics share its initial weights except for their heads."""
        sizes = listing.model.config.hidden_size, self.method.hidden_sizes, len(listing.candidates)

        def critic(key: Key[Array, ""]) -> CandidateQ:
            return CandidateQ(listing, ValueHead(*sizes, uniform_fan_in, jax.nn.relu, key))

        return self.method.init_from(spec, CandidateActor(listing), init_ensemble(critic, self.method.num_critics, key))

    def update_method(self, state: CandidateMethodState, batch: Batch, key: Key[Array, ""]) -> tuple[SACState, Report]:
        """SAC's update on the relabeled batch; without the actor in the first ``critic_warmup_updates`` updates."""
        relabeled = (self.hindsight or NO_RELABELING)(state.goal_relabeler, batch, fold(key, "hindsight"))
        steps = jax.tree.map(lambda x: x[: self.n_step], relabeled.steps)
        relabeled = dataclasses.replace(relabeled, steps=steps, mask=relabeled.mask[: self.n_step])
        method_state, report = self.method.update(state.method_state, relabeled, fold(key, "sac"))
        is_warmup = batch.update_index < self.critic_warmup_updates

        def actor_parts(state: SACState) -> tuple:
            return state.actor, state.actor_opt_state, state.temperature

        parts = jax.tree.map(
            lambda old, new: jnp.where(is_warmup, old, new), actor_parts(state.method_state), actor_parts(method_state)
        )
        reward_share = jnp.mean((relabeled.steps.reward > 0) & relabeled.mask, dtype="float32")
        return eqx.tree_at(actor_parts, method_state, parts), Report({**report.metrics, "rewarded": reward_share})
