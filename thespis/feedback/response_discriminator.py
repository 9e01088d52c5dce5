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
from thespis.learners.optim.optimizers import AdamW, Optimizer, gradient_step
from thespis.objectives.statistics import masked_mean


class ResponseDiscriminatorState(eqx.Module):
    """State of the discriminator: model and optimizer state."""

    model: LMWithValueHead
    opt_state: PyTree
    absorbing_logit: Float[Array, ""] | None = None
    """Log-odds that an expert is in the absorbing state; ``None`` without one."""


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
    weight_decay: Number | None = None
    """Decoupled weight decay of the model; None: none, and gradients are clipped to norm 1."""
    absorbing_state: bool = eqx.field(static=True, default=False)
    """Whether a dialogue that terminates is followed by turns in an absorbing state, up to the largest number of turns.

    Experts and policy are compared in that state too, and the last turn also earns the rewards of all turns in it.
    """

    name: ClassVar[str] = "response-discriminator"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("From Novice to Expert (StepAgent)", "Deng et al.", 2024, "arXiv:2411.03817"),
    )

    @property
    def feed(self) -> LoggedEpisodes:
        """The dialogues of experts."""
        return LoggedEpisodes(batch_size=self.batch_size, data=self.data, num_updates=self.num_updates)

    @property
    def optimizer(self) -> Optimizer:
        """Optimizer of the model: Adam with gradients clipped to norm 1, or AdamW."""
        if self.weight_decay is None:
            return super().optimizer
        return AdamW(self.learning_rate, self.weight_decay)

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> ResponseDiscriminatorState:
        """The initial model with a head of zeros, by which every response is as likely an expert's as not."""
        model = self.initial_scorer(spec, key)
        logit = jnp.zeros(()) if self.absorbing_state else None
        return ResponseDiscriminatorState(model, self.optimizer.init(model), logit)

    def score_turns(
        self, state: ResponseDiscriminatorState, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """The clipped log-odds, and those of the absorbing state at last turns; the environment's are not used."""
        logits = turn_scores(state.model, dialogues)
        rewards = jnp.clip(logits, -self.max_reward, self.max_reward)
        if state.absorbing_logit is None:
            return rewards
        absorbing = jnp.clip(state.absorbing_logit, -self.max_reward, self.max_reward)
        num_absorbed = absorbed_turns(dialogues, len(dialogues.alive))
        return rewards + jnp.where(dialogues.is_last_turn, num_absorbed * absorbing, 0.0)

    def learn(
        self,
        state: ResponseDiscriminatorState,
        dialogues: Dialogues,
        own_dialogues: Dialogues | None,
        key: Key[Array, ""],
    ) -> tuple[ResponseDiscriminatorState, Metrics]:
        """One step of the optimizer on the method's dialogues and those of experts."""
        assert own_dialogues is not None
        expert_share = policy_share = jnp.zeros(())
        if self.absorbing_state:
            num_turns = len(dialogues.alive)
            expert_share, policy_share = absorbed_share(own_dialogues, num_turns), absorbed_share(dialogues, num_turns)
        model, opt_state, metrics, _ = gradient_step(
            self.optimizer,
            lambda model: discriminator_loss(model, own_dialogues, dialogues, 1 - expert_share, 1 - policy_share),
            state.model,
            state.opt_state,
        )
        if not self.absorbing_state:
            return ResponseDiscriminatorState(model, opt_state), metrics
        logit = jnp.log(expert_share) - jnp.log(policy_share)
        return ResponseDiscriminatorState(model, opt_state, logit), metrics | {"absorbing_logit": logit}


def absorbed_turns(dialogues: Dialogues, num_turns: int) -> Float[Array, " row"]:
    """Turns of each dialogue, out of ``num_turns``, in the absorbing state that follows on its termination."""
    num_left = num_turns - dialogues.alive.sum(axis=0)
    return jnp.where(dialogues.truncated, 0, num_left).astype("float32")


def absorbed_share(dialogues: Dialogues, num_turns: int) -> Float[Array, ""]:
    """Share of turns, out of ``num_turns`` or those before a truncation, that are in the absorbing state.

    One turn more is counted on either side, so that the share is neither 0 nor 1.
    """
    absorbed = absorbed_turns(dialogues, num_turns).sum()
    return (absorbed + 1.0) / (absorbed + dialogues.alive.sum() + 2.0)


def discriminator_loss(
    model: LMWithValueHead,
    expert: Dialogues,
    policy: Dialogues,
    expert_weight: Float[Array, ""] | float = 1.0,
    policy_weight: Float[Array, ""] | float = 1.0,
) -> tuple[Float[Array, ""], Metrics]:
    """Discriminator loss: cross-entropy over turns, and metrics.

    Expert and policy have equal weight, unless part of their turns is in an absorbing state: ``expert_weight`` and
    ``policy_weight`` are the shares of turns with responses.
    """
    expert_scores, policy_scores = turn_scores(model, expert), turn_scores(model, policy)
    loss = expert_weight * masked_mean(jax.nn.softplus(-expert_scores), expert.alive)
    loss += policy_weight * masked_mean(jax.nn.softplus(policy_scores), policy.alive)
    return loss, {
        "discriminator_loss": loss,
        "expert_accuracy": masked_mean((expert_scores > 0).astype("float32"), expert.alive),
        "learner_accuracy": masked_mean((policy_scores <= 0).astype("float32"), policy.alive),
    }
