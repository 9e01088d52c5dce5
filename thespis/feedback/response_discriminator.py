"""Adversarial imitation for language models: a discriminator of expert and policy responses as reward."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Citation, EnvSpec, Metrics, Number
from thespis.data.feeds import LoggedEpisodes
from thespis.feedback.text_model import TurnScorer
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import LMWithValueHead
from thespis.learners.language.turn_scores import turn_scores
from thespis.learners.optim.optimizers import gradient_step
from thespis.objectives.statistics import masked_mean


class ResponseDiscriminatorState(eqx.Module):
    """State of the discriminator: model and optimizer state."""

    model: LMWithValueHead
    opt_state: PyTree


class ResponseDiscriminator(TurnScorer):
    r"""Response discriminator: every turn earns the log-odds of being an expert's (StepAgent), for text.

    Deng et al. 2024:

    .. math:: r = \log D(s, a) - \log (1 - D(s, a)), \qquad \max_D \; E_{expert} \log D + E_{own} \log (1 - D)

    :math:`D` reads a dialogue up to the end of a response; each batch is scored before the discriminator is trained on
    it. The environment's reward is not used. Not verified: the paper's form of the reward, as its text could not be
    read beyond the abstract. Differs from GAIL: either half of :math:`r` alone would reward long dialogues or short
    ones, whatever is said in them.
    """

    data: str = eqx.field(static=True, default="demonstrations:512")
    """Dialogues of experts, named as for --data: demonstrations:N of the environment's demonstrator,
    demonstrations:N:ENV of another's, or a dataset."""
    batch_size: int = eqx.field(static=True, default=64)
    """Dialogues of experts in one update of the discriminator, with all of the method's batch."""
    num_updates: int = eqx.field(static=True, default=2)
    """Updates of the discriminator for each update of the method."""
    max_reward: Number = 3.0
    """Largest reward of a turn; rewards are clipped to [-max_reward, max_reward]."""

    name: ClassVar[str] = "response-discriminator"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("From Novice to Expert (StepAgent)", "Deng et al.", 2024, "arXiv:2411.03817"),
    )

    @property
    def feed(self) -> LoggedEpisodes:
        """The dialogues of experts."""
        return LoggedEpisodes(batch_size=self.batch_size, data=self.data, num_updates=self.num_updates)

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> ResponseDiscriminatorState:
        """The initial model with a head of zeros, by which every response is as likely an expert's as not."""
        model = self.initial_scorer(spec, key)
        return ResponseDiscriminatorState(model, self.optimizer.init(model))

    def score_turns(
        self, state: ResponseDiscriminatorState, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """The clipped log-odds; the environment's rewards are not used."""
        return jnp.clip(turn_scores(state.model, dialogues), -self.max_reward, self.max_reward)

    def learn(
        self,
        state: ResponseDiscriminatorState,
        dialogues: Dialogues,
        own_dialogues: Dialogues | None,
        key: Key[Array, ""],
    ) -> tuple[ResponseDiscriminatorState, Metrics]:
        """One step of Adam on the method's dialogues and those of experts."""
        assert own_dialogues is not None
        model, opt_state, metrics, _ = gradient_step(
            self.optimizer,
            lambda model: discriminator_loss(model, own_dialogues, dialogues),
            state.model,
            state.opt_state,
        )
        return ResponseDiscriminatorState(model, opt_state), metrics


def discriminator_loss(
    model: LMWithValueHead, expert: Dialogues, policy: Dialogues
) -> tuple[Float[Array, ""], Metrics]:
    """Discriminator loss: cross-entropy over turns, in which expert's and policy's have equal weight; and metrics."""
    expert_scores, policy_scores = turn_scores(model, expert), turn_scores(model, policy)
    expert_loss = masked_mean(jax.nn.softplus(-expert_scores), expert.alive)
    loss = expert_loss + masked_mean(jax.nn.softplus(policy_scores), policy.alive)
    return loss, {
        "discriminator_loss": loss,
        "expert_accuracy": masked_mean((expert_scores > 0).astype("float32"), expert.alive),
        "learner_accuracy": masked_mean((policy_scores <= 0).astype("float32"), policy.alive),
    }
