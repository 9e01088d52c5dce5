r"""GLAM: a language model chooses among listed utterances, and PPO grounds it in the world.

.. math:: \pi(a|s) = \frac{\exp \sum_i \log p(a_i|s, a_{<i})}{\sum_b \exp \sum_i \log p(b_i|s, b_{<i})}

for the utterances :math:`b` of the list. One decoder serves the actor and the critic, a head on what it makes of the
conversation so far.

Source: Carta et al., 2023; defaults, the step size apart, are those of the authors' code, as is the critic's place.
Differs: the step size suits small models (theirs, 1e-6, suits Flan-T5); a decoder-only model, all of whose parameters
learn; hidden layers of the critic are smaller and hyperbolic tangents; rewards are not multiplied by 20; the whole
conversation is read, where their prompt holds the last three observations.
"""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Array, Float, Key

from thespis.actors.listed import ListedActor
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, EnvSpec, Report, View
from thespis.critics.listed import TextHead
from thespis.learners.listed import Choosing, Listed, ListedActorCritic, ListedState
from thespis.learners.on_policy import OnPolicyState
from thespis.methods.online.ppo import PPO
from thespis.nets.listing import Listing
from thespis.nets.mlp import orthogonal


class GLAM(Listed):
    """PPO for utterances that a world lists."""

    method: PPO = PPO(learning_rate=1e-4, trace=0.99, entropy_weight=0.01, epochs=4, feed=Rollouts(length=40, envs=32))
    """By what it learns; ``hidden`` are the layers of the critic's head, and there is neither memory nor scaling."""

    name: ClassVar[str] = "glam"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Grounding Large Language Models in Interactive Environments with Online RL", "Carta et al.", 2023,
                 "arXiv:2302.02662"),
        *PPO.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (*PPO.details, "a softmax over listed utterances", "one decoder for both")

    def begun(self, spec: EnvSpec, listing: Listing, key: Key[Array, ""]) -> OnPolicyState:
        """The model, and a fresh head."""
        width = listing.model.shape.width
        head = TextHead(width, self.method.hidden, 1, orthogonal(2**0.5), self.method.activation, key)
        return self.method.begun(spec, ListedActorCritic(ListedActor(listing), head))

    def probabilities(self, policy: Choosing, memory: Any, view: View) -> Float[Array, "row choice"]:
        """Of the listed utterances."""
        return self.method.probabilities(policy.actor, memory, view)

    def learn(self, state: ListedState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """PPO's update."""
        return self.method.update(state.learnt, batch, key)
