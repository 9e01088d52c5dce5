r"""GLAM: PPO of a language model that chooses among candidate actions by their likelihood.

.. math:: \pi(a|s) = \frac{\exp \sum_i \log p(a_i|s, a_{<i})}{\sum_b \exp \sum_i \log p(b_i|s, b_{<i})}

for the candidates :math:`b` of the list. Actor and critic share one decoder; the critic is a head on its features of
the dialogue so far.

Source: Carta et al., 2023; defaults, except the learning rate, are those of the authors' code, as is the critic's
position.

Differs: the learning rate suits small models (theirs, 1e-6, suits Flan-T5); a decoder-only model, all of whose
parameters are trained; hidden layers of the critic are smaller and use tanh; rewards are not multiplied by 20; the
whole dialogue is the prompt, where theirs holds the last three observations.
"""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Array, Float, Key

from thespis.actors.lm_policy import CandidateActor
from thespis.core.records import Batch, Citation, EnvSpec, Report, View
from thespis.critics.candidate_values import ValueHead
from thespis.data.feeds import Rollouts
from thespis.learners.language.candidate_scoring import (
    CandidateActorCritic,
    CandidateMethod,
    CandidateMethodState,
    CandidatePolicy,
)
from thespis.learners.on_policy.method import OnPolicyState
from thespis.methods.online.ppo import PPO
from thespis.nets.candidate_scoring import CandidateScorer
from thespis.nets.mlp import orthogonal


class GLAM(CandidateMethod):
    """GLAM: PPO of a language model over candidate actions that the environment lists."""

    method: PPO = PPO(
        learning_rate=1e-4, gae_lambda=0.99, ent_coef=0.01, num_epochs=4, feed=Rollouts(num_steps=40, num_envs=32)
    )
    """PPO that learns; ``hidden_sizes`` are the layers of the critic's head. It has no memory and no normalization."""

    name: ClassVar[str] = "glam"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Grounding Large Language Models in Interactive Environments with Online RL",
            "Carta et al.",
            2023,
            "arXiv:2302.02662",
        ),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "a softmax over candidate actions",
        "actor and critic share one decoder",
    )

    def init_from(self, spec: EnvSpec, listing: CandidateScorer, key: Key[Array, ""]) -> OnPolicyState:
        """Initialize from the language model, with a fresh critic head."""
        width = listing.model.config.hidden_size
        head = ValueHead(width, self.method.hidden_sizes, 1, orthogonal(2**0.5), self.method.activation, key)
        return self.method.init_from(spec, CandidateActorCritic(CandidateActor(listing), head))

    def action_probs(self, policy: CandidatePolicy, memory: Any, view: View) -> Float[Array, "row choice"]:
        """Probabilities of the candidate actions."""
        return self.method.action_probs(policy.actor, memory, view)

    def update_method(
        self, state: CandidateMethodState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[OnPolicyState, Report]:
        """Update by the rules of PPO."""
        return self.method.update(state.method_state, batch, key)
