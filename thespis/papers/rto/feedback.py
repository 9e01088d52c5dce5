r"""RTO's reward: a reward model for the whole text and DPO's log-ratios for its tokens, from the same comparisons.

.. math:: r_t = \mathrm{clip}\Big(\beta_1 \log \tfrac{\pi_{DPO}(y_t | x, y_{<t})}{\pi_{ref}(y_t | x, y_{<t})}\Big)
          + \beta_3 \, \mathbb{1}[t = T] \, r(x, y)

Source: Zhong et al., 2024, and the authors' code. The reward model and its comparisons are those that
``comparison-reward`` has for the same seed, so that DPO adds no comparison.

Differs: the penalty on KL is a loss of the method and not a part of the reward.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Batch, EnvSpec, Number, Rewards
from thespis.feedback.dpo_reward import DPOReward, DPORewardState
from thespis.feedback.fitted_reward import ComparisonReward, FittedScorer
from thespis.learners.language.dialogues import Dialogues, is_last_token
from thespis.learners.language.lm_agent import LMModelConfig
from thespis.papers.dvpo.method import ComparedTexts, compare_texts
from thespis.runtime.keys import fold


class RTORewardState(eqx.Module):
    """State of RTO's reward: the reward model of whole texts, and DPO's model with the one that it began with."""

    outcome: FittedScorer
    tokens: DPORewardState


class RTOReward(DPOReward):
    """RTO's reward: a reward model's for the text and DPO's for each token, both from the same comparisons, for text.

    The environment's reward does not count; ``outcome_weight`` is the weight of the reward model's, standardized.
    """

    text_temperature: Number = 1.2
    """Temperature at which the initial model writes the texts: that of ``comparison-reward``."""
    num_reward_steps: int = eqx.field(static=True, default=600)
    """Gradient steps of the reward model, which starts from random parameters."""
    payment: Literal["token", "response"] = eqx.field(static=True, default="token")
    """When DPO's rewards are paid: each with its token, or all with the last one (response): not dense any more."""

    name: ClassVar[str] = "rto-reward"

    @property
    def outcome_reward(self) -> ComparisonReward:
        """The reward model of whole texts."""
        model = {field.name: getattr(self, field.name) for field in dataclasses.fields(LMModelConfig)}
        return ComparisonReward(
            **model,
            labelling_env=self.labelling_env,
            num_prompts=self.num_prompts,
            text_temperature=self.text_temperature,
            num_reward_steps=self.num_reward_steps,
        )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> RTORewardState:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Both models after they have learned from the comparisons. Raises ``UserError`` if nobody makes any."""
        outcome = self.outcome_reward.init_state(spec, dialogue_spec, key)
        reference, own_key = self.initial_model(spec, key), fold(key, ComparisonReward.name)
        compared = compare_texts(
            reference, self.labelling_env, self.num_prompts, self.text_temperature, dialogue_spec, own_key
        )
        return RTORewardState(outcome, self.fit(reference, better_first(compared), fold(own_key, self.name)))

    def score_tokens(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state: RTORewardState, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row token"]:
        """The weighted log-ratio of each token, clipped, or their sum at the last one."""
        earned = super().score_tokens(state.tokens, dialogues, key)
        if self.payment == "token":
            return earned
        return jnp.where(is_last_token(dialogues.response_mask), earned.sum(axis=-1, keepdims=True), 0.0)

    def score_turns(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state: RTORewardState, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """The weighted reward of the reward model, and the sum of what tokens earn."""
        outcome = self.outcome_reward.score_turns(state.outcome, dialogues, key)
        return super().score_turns(state, dataclasses.replace(dialogues, reward=outcome), key)

    def score(self, state: RTORewardState, batch: Batch, key: Key[Array, ""]) -> Rewards:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Rewards of responses, and what part of them each token earns."""
        return super().score(state, batch.with_rewards(self.outcome_reward.score(state.outcome, batch, key)), key)


def better_first(compared: ComparedTexts) -> Dialogues:
    """The texts of pairs, of which even rows are the preferred ones."""
    order = jnp.argsort(-compared.is_preferred.reshape(-1, 2), axis=1)
    return compared.dialogues.take_rows((2 * jnp.arange(len(order))[:, None] + order).reshape(-1))
