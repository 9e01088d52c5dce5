r"""Decoupled value policy optimization: PPO whose critic is a value model of preferences, fitted once and then frozen.

The initial model writes two texts for each prompt, and a judge says which is better. A global value model learns the
expected label of every prefix of these texts, 1 for the preferred and -1 for the other one, by temporal differences
over tokens. Then the policy is trained by PPO, and the frozen values give all advantages:

.. math:: \delta_t = V(s_{t+1}) - V(s_t), \qquad A_t = \sum_{k \ge 0} \lambda^k \delta_{t + k}

There is no reward model and no critic that learns with the policy.

Source: Huang et al., 2025, and the authors' code; of the paper abstract and introduction could be read.

Differs: the value after the last token is part of the advantages, as it says what the whole text is worth; the authors'
code has 0 in its place. The penalty on KL is a loss and not a part of the reward, as in ``ppo-lm``, and values are not
standardized, but advantages are.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec, response_features
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report
from thespis.data.feeds import Episodes
from thespis.envs.registry import make_compiled
from thespis.feedback.fitted_reward import ComparisonReward, fit_on_rows, write_pairs
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.advantage_estimators import TokenAdvantages, TokenGAE, TurnBatch
from thespis.learners.language.dialogues import Dialogues, SampledDialogues, single_turn_dialogues, sum_over_tokens
from thespis.learners.language.frozen_model import FrozenModel, FrozenModelState
from thespis.learners.language.lm_agent import LMWithValueHead, add_value_head
from thespis.learners.language.lm_policy_gradient import LMPolicyGradientState
from thespis.learners.language.model_init import BLANK
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import dpo_loss
from thespis.objectives.statistics import masked_mean
from thespis.runs.ranges import Range, in_range
from thespis.runtime.keys import fold, indexed_keys


class ComparedTexts(eqx.Module):
    """Texts that were compared in pairs: those of pair ``i`` are rows ``2 i`` and ``2 i + 1``."""

    dialogues: Dialogues
    is_preferred: Float[Array, " row"]
    """1 for the preferred text of a pair, 0 for the other."""


def compare_texts(
    model: Decoder,
    labelling_env: str,
    num_comparisons: int,
    temperature: Number,
    limits: DialogueSpec,
    key: Key[Array, ""],
) -> ComparedTexts:
    """Pairs of a model's texts, compared by the judge of an environment, as a reward model of ``comparison-reward``."""
    env: Any = make_compiled(labelling_env)
    states, prompts, responses = write_pairs(model, env.task, num_comparisons, temperature, limits, key)
    keys = indexed_keys(fold(key, "labels"), num_comparisons)
    judge = ComparisonReward()
    labels = jax.vmap(lambda state, pair, k: judge.label(env.task, state, pair, k))(states, responses, keys)
    texts = responses.reshape(2 * num_comparisons, -1)
    dialogues = single_turn_dialogues(jnp.repeat(prompts, 2, axis=0), texts, jnp.ones(len(texts), bool))
    return ComparedTexts(dialogues, labels.reshape(-1))


def pair_rows(pairs: Int[Array, " chosen"]) -> Int[Array, " row"]:
    """Rows of both texts of pairs, the two of a pair one after the other."""
    return (2 * pairs[:, None] + jnp.arange(2)).reshape(-1)


def prefix_values(model: LMWithValueHead, dialogues: Dialogues) -> Float[Array, "turns row place"]:
    """Values before each token of each response, and after its last one."""
    width = dialogues.responses.shape[-1] + 1
    return model.value(response_features(model.model, dialogues.transcript, dialogues.response_starts[:-1], width))


class FrozenValueGAE(TokenGAE):
    """GAE over tokens by the values of a frozen model, which does not learn with the policy."""

    needs_critic: ClassVar[bool] = False


class DVPOState(LMPolicyGradientState):
    """Training state of PPO without a critic, and the frozen value model."""

    value_model: LMWithValueHead | None = None


class DVPO(LanguagePPO):
    """DVPO: PPO for language models with advantages by a frozen value model that is fitted to comparisons."""

    advantage_estimator: TokenGAE = FrozenValueGAE()
    """Advantage estimator: FrozenValueGAE, or TokenGAE for a critic that learns with the policy from the frozen values
    of whole texts."""
    labelling_env: str = eqx.field(static=True, default="")
    """Environment whose prompts are answered, and whose task compares the texts."""
    num_comparisons: int = eqx.field(static=True, default=4_096)
    """Pairs of texts of the initial model that are compared."""
    text_temperature: Number = 1.2
    """Temperature at which the initial model writes these texts: above 1, so that some of them are faulty."""
    value_model: str = eqx.field(static=True, default=BLANK)
    """Initial value model: blank, or any that ``model`` may be."""
    value_gae_lambda: Number = 0.95
    """Lambda of the returns that the value model is fitted to."""
    num_value_steps: int = eqx.field(static=True, default=600, metadata=in_range(Range(1)))
    """Gradient steps of the value model."""
    value_batch_size: int = eqx.field(static=True, default=32, metadata=in_range(Range(1)))
    """Pairs per gradient step of the value model."""
    value_learning_rate: Number = 1e-3
    """Step size of the value model."""

    name: ClassVar[str] = "dvpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Lean and Mean: Decoupled Value Policy Optimization with Global Value Guidance",
            "Huang et al.",
            2025,
            "arXiv:2502.16944",
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("a frozen value model gives the advantages", "rewards are not read")

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DVPOState:
        """The state of PPO, and the value model after it was fitted to comparisons of the initial model's texts."""
        state = super().init(spec, key)
        own_key = fold(key, "comparisons")
        compared = compare_texts(
            state.model.model,
            self.labelling_env,
            self.num_comparisons,
            self.text_temperature,
            state.dialogue_spec,
            own_key,
        )
        source = dataclasses.replace(self.model_init, name_or_path=self.value_model)
        model = source.init_from(spec, fold(own_key, "value model"))
        value_model = self.fit_values(add_value_head(model, model.config.hidden_size), compared, fold(own_key, "fit"))
        return DVPOState.extending(state, value_model=value_model)

    def fit_values(self, model: LMWithValueHead, compared: ComparedTexts, key: Key[Array, ""]) -> LMWithValueHead:
        """The value model after regression on lambda-returns of the labels, 1 or -1 at the end of each text."""
        labels = 2.0 * compared.is_preferred - 1.0

        def loss(model: LMWithValueHead, pairs: Int[Array, " chosen"]) -> Float[Array, ""]:
            rows = pair_rows(pairs)
            dialogues = compared.dialogues.take_rows(rows)
            values = prefix_values(model, dialogues)
            mask = place_mask(dialogues)
            turns = TurnBatch(labels[rows][None], dialogues.alive, jnp.zeros(len(rows), bool), mask, 1)
            padded = jnp.concatenate([values, jnp.zeros_like(values[:1])])
            target = jax.lax.stop_gradient(TokenGAE(self.value_gae_lambda)(turns, padded).target)
            return masked_mean(jnp.square(values - target), mask)

        return fit_on_rows(
            model,
            loss,
            self.num_comparisons,
            self.value_batch_size,
            self.num_value_steps,
            self.value_learning_rate,
            key,
        )

    def update(self, state: DVPOState, batch: Batch, key: Key[Array, ""]) -> tuple[DVPOState, Report]:
        """Epochs of PPO; the value model stays as it was."""
        new_state, report = super().update(state, batch, key)
        return DVPOState.extending(new_state, value_model=state.value_model), report

    def estimate_advantages(
        self, state: DVPOState, dialogues: SampledDialogues, group_size: int
    ) -> tuple[TurnBatch, TokenAdvantages]:
        """Advantages by the frozen values; the value after the last token stands where a reward would.

        With ``TokenGAE`` that value is the reward of PPO, whose critic learns.
        """
        assert state.value_model is not None
        values = jax.lax.stop_gradient(prefix_values(state.value_model, dialogues))
        num_tokens = dialogues.response_mask.sum(axis=-1, keepdims=True)
        final_value = jnp.take_along_axis(values, num_tokens, axis=-1)[..., 0]
        reward = jnp.where(dialogues.is_last_turn, final_value, 0.0)
        valued = dataclasses.replace(dialogues, reward=reward, truncated=jnp.zeros_like(dialogues.truncated))
        if self.advantage_estimator.needs_critic:
            return super().estimate_advantages(state, valued, group_size)
        turns = TurnBatch(
            valued.reward,
            valued.alive,
            valued.truncated,
            valued.response_mask,
            group_size,
            min(self.num_players, valued.alive.shape[1]),
        )
        before_tokens = values[..., :-1]
        padded = jnp.concatenate([before_tokens, jnp.zeros_like(before_tokens[:1])])
        return turns, self.advantage_estimator(turns, padded)


def place_mask(dialogues: Dialogues) -> Bool[Array, "turns row place"]:
    """Places before the tokens of responses, and after their last ones."""
    num_places = dialogues.responses.shape[-1] + 1
    num_tokens = dialogues.response_mask.sum(axis=-1, keepdims=True)
    return dialogues.alive[..., None] & (jnp.arange(num_places) <= num_tokens)


class ComparisonDPO(FrozenModel):
    """DPO on comparisons of the initial model's texts, all of it before the first update; the policy is frozen then."""

    labelling_env: str = eqx.field(static=True, default="")
    """Environment whose prompts are answered, and whose task compares the texts."""
    num_comparisons: int = eqx.field(static=True, default=4_096)
    """Pairs of texts of the initial model that are compared."""
    text_temperature: Number = 1.2
    """Temperature at which the initial model writes these texts: above 1, so that some of them are faulty."""
    beta: Number = 0.1
    """Weight of the log-ratios in the loss, above 0."""
    num_preference_steps: int = eqx.field(static=True, default=100, metadata=in_range(Range(1)))
    """Gradient steps."""
    preference_batch_size: int = eqx.field(static=True, default=32, metadata=in_range(Range(1)))
    """Pairs per gradient step."""
    learning_rate: Number = 3e-4
    """Step size."""
    feed: Episodes = eqx.field(static=True, default=Episodes())
    """Dialogues that are played and not learned from."""

    name: ClassVar[str] = "comparison-dpo"
    learns: ClassVar[bool] = True  # so that a run can consist of it alone

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> FrozenModelState:
        """The model after DPO on comparisons of its own texts."""
        state = super().init(spec, key)
        own_key = fold(key, "comparisons")
        compared = compare_texts(
            state.model, self.labelling_env, self.num_comparisons, self.text_temperature, state.dialogue_spec, own_key
        )
        model = self.fit_policy(state.model, compared, fold(own_key, "fit"))
        return FrozenModelState(model, state.dialogue_spec)

    def fit_policy(self, initial: Decoder, compared: ComparedTexts, key: Key[Array, ""]) -> Decoder:
        """The policy after gradient steps on the loss of DPO, with the initial model as the reference."""
        sampler = TemperatureSampler(jnp.asarray(self.temperature, "float32"))

        def text_log_probs(model: Decoder, rows: Int[Array, " row"]) -> Float[Array, " row"]:
            dialogues = compared.dialogues.take_rows(rows)
            return sum_over_tokens(dialogues.response_log_probs(model, sampler)[0], dialogues.response_mask)

        def loss(model: LMWithValueHead, pairs: Int[Array, " chosen"]) -> Float[Array, ""]:
            rows = pair_rows(pairs)
            log_ratio = text_log_probs(model.model, rows) - jax.lax.stop_gradient(text_log_probs(initial, rows))
            sign = 2.0 * compared.is_preferred[rows] - 1.0
            margin = (sign * log_ratio).reshape(-1, 2).sum(axis=1)
            return dpo_loss(margin, jnp.zeros_like(margin), self.beta).mean()

        return fit_on_rows(
            add_value_head(initial, 0),
            loss,
            self.num_comparisons,
            self.preference_batch_size,
            self.num_preference_steps,
            self.learning_rate,
            key,
        ).model
