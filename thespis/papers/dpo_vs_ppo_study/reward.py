r"""Reward model of logged pairs as feedback, trained while the policy learns from it.

.. math:: \min - \log \sigma(r(x, y_w) - r(x, y_l))

over all pairs of logged dialogues in a batch that have the same prompt and different returns.

Source: Xu et al., 2024, equation 2. Differs: the reward model is trained along with the policy, not before it.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Citation, EnvSpec, Metrics
from thespis.data.feeds import LoggedEpisodes
from thespis.feedback.text_model import TurnScorer
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import LMWithValueHead
from thespis.learners.language.turn_scores import turn_scores
from thespis.learners.optim.optimizers import gradient_step
from thespis.objectives.preferences import bradley_terry_loss


class LoggedPairReward(TurnScorer):
    """Reward model of logged pairs: scores last responses by the model of Bradley and Terry, for text."""

    data: str = eqx.field(static=True, default="demonstrations:512")
    """Logged dialogues, of which the returns say who is preferred; named as for --data."""
    batch_size: int = eqx.field(static=True, default=64)
    """Logged dialogues in one update of the reward model."""
    num_updates: int = eqx.field(static=True, default=1)
    """Updates of the reward model for each update of the method."""

    name: ClassVar[str] = "logged-pair-reward"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Is DPO Superior to PPO for LLM Alignment? A Comprehensive Study", "Xu et al.", 2024, "arXiv:2404.10719"
        ),
    )

    @property
    def feed(self) -> LoggedEpisodes:
        """The logged dialogues."""
        return LoggedEpisodes(batch_size=self.batch_size, data=self.data, num_updates=self.num_updates)

    def init_state(
        self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]
    ) -> tuple[LMWithValueHead, PyTree]:
        """The initial model with a head of zeros, and the state of the optimizer."""
        scorer = self.initial_scorer(spec, key)
        return scorer, self.optimizer.init(scorer)

    def score_turns(
        self, state: tuple[LMWithValueHead, PyTree], dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """The reward of each dialogue at its last response; 0 at all others."""
        return jnp.where(dialogues.is_last_turn, turn_scores(state[0], dialogues), 0.0)

    def learn(
        self,
        state: tuple[LMWithValueHead, PyTree],
        dialogues: Dialogues,
        own_dialogues: Dialogues | None,
        key: Key[Array, ""],
    ) -> tuple[tuple[LMWithValueHead, PyTree], Metrics]:
        """One step of the optimizer on the logged dialogues."""
        assert own_dialogues is not None
        scorer, opt_state, metrics, _ = gradient_step(
            self.optimizer, lambda scorer: all_pairs_loss(scorer, own_dialogues), *state
        )
        return (scorer, opt_state), metrics


def all_pairs_loss(scorer: LMWithValueHead, dialogues: Dialogues) -> tuple[Float[Array, ""], Metrics]:
    """Bradley-Terry loss of all pairs of dialogues with equal prompts and different returns, and metrics."""
    rewards = jnp.sum(jnp.where(dialogues.is_last_turn, turn_scores(scorer, dialogues), 0.0), axis=0)
    place = jnp.arange(dialogues.transcript.shape[1])
    prompts = jnp.where(place < dialogues.response_starts[0][:, None], dialogues.transcript, -1)
    has_equal_prompt = jnp.all(prompts[:, None] == prompts[None], axis=-1)
    counts = has_equal_prompt & (dialogues.returns[:, None] > dialogues.returns[None])
    margins = rewards[:, None] - rewards[None]
    total = jnp.maximum(counts.sum(), 1)
    loss = jnp.sum(jnp.where(counts, bradley_terry_loss(-margins, 0.0), 0.0)) / total
    return loss, {"loss": loss, "accuracy": jnp.sum(counts & (margins > 0)) / total}
