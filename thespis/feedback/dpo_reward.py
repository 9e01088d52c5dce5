r"""DPO's reward of tokens: the log-ratio of a model that DPO has trained on comparisons, and of the one it began with.

.. math:: \min - \log \sigma\Big(\beta \sum_t \log \tfrac{\pi(y^w_t)}{\pi_{ref}(y^w_t)}
          - \beta \sum_t \log \tfrac{\pi(y^l_t)}{\pi_{ref}(y^l_t)}\Big), \qquad
          e_t = \mathrm{clip}\Big(\beta_1 \log \tfrac{\pi(y_t | x, y_{<t})}{\pi_{ref}(y_t | x, y_{<t})}\Big)

Source: Zhong et al., 2024 (RTO), and the authors' code, whose scale and clip of 0.05 are the defaults. See also
:class:`~thespis.methods.language.rto.RTO`, which compares its own responses in its first updates.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.core.records import Citation, EnvSpec, Number
from thespis.envs.registry import make_compiled
from thespis.feedback.fitted_reward import fit_on_rows, write_pairs
from thespis.feedback.text_model import TextModelFeedback
from thespis.feedback.token_feedback import TokenFeedback
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues, sum_over_tokens
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import dpo_loss
from thespis.runs.ranges import AT_LEAST_1, Range, in_range
from thespis.runtime.keys import fold, indexed_keys


class DPORewardState(eqx.Module):
    """State of DPO's reward: the model that has learned from comparisons, and the one that it began with."""

    model: Decoder
    reference: Decoder


class DPOReward(TextModelFeedback, TokenFeedback):
    """DPO's reward of tokens: what a model trained with DPO says more likely than before is rewarded (RTO), for text.

    Before the first update the initial model writes two texts for each of ``num_prompts`` first messages of
    ``labelling_env``, whose task scores them, perhaps with noise: ``score(state, text, key)``. A copy of the model
    learns from the comparisons and is frozen then. Texts and comparisons are others for every seed.
    """

    labelling_env: str = eqx.field(static=True, default="")
    """Environment with the first messages, whose task scores texts."""
    num_prompts: int = eqx.field(static=True, default=4_096, metadata=in_range(AT_LEAST_1))
    """Comparisons that the model learns from."""
    text_temperature: Number = 1.0
    """Temperature at which the initial model writes the texts."""
    beta: Number = eqx.field(default=0.1, metadata=in_range(Range(0)))
    """DPO's beta."""
    num_dpo_steps: int = eqx.field(static=True, default=400, metadata=in_range(AT_LEAST_1))
    """Gradient steps of DPO."""
    dpo_batch_size: int = eqx.field(static=True, default=32, metadata=in_range(AT_LEAST_1))
    """Pairs per gradient step."""
    dpo_learning_rate: Number = 3e-4
    """Step size of DPO."""
    token_reward_coef: Number = eqx.field(default=0.05, metadata=in_range(Range(0)))
    """Weight of the log-ratio of a token: the paper's beta 1."""
    token_reward_clip: Number = eqx.field(default=0.05, metadata=in_range(Range(0)))
    """Largest size of what a token earns."""

    name: ClassVar[str] = "dpo-reward"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("DPO Meets PPO: Reinforced Token Optimization for RLHF", "Zhong et al.", 2024, "arXiv:2404.18922"),
    )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> DPORewardState:
        """The model after DPO. Raises ``UserError`` if no environment scores texts, or no model is named."""
        if not self.labelling_env:
            raise UserError(f"the feedback {self.name} needs comparisons of texts: set feedback.labelling_env")
        env: Any = make_compiled(self.labelling_env)
        own_key, reference = fold(key, self.name), self.initial_model(spec, key)
        states, prompts, texts = write_pairs(
            reference, env.task, self.num_prompts, self.text_temperature, dialogue_spec, own_key
        )
        keys = indexed_keys(fold(own_key, "labels"), 2 * self.num_prompts).reshape(self.num_prompts, 2)
        score = jax.vmap(jax.vmap(env.task.score, in_axes=(None, 0, 0)))
        scores: Float[Array, "prompt 2"] = score(states, texts, keys)
        order = jnp.argsort(-scores, axis=1)
        ordered = jnp.take_along_axis(texts, order[..., None], axis=1)

        return self.fit(reference, self._pairs(prompts, ordered), own_key)

    def fit(self, reference: Decoder, pairs: Dialogues, key: Key[Array, ""]) -> DPORewardState:
        """The model after DPO on pairs, of which even rows are the better texts, and the one that it began with."""

        def loss(model: Decoder, chosen: Int[Array, " chosen"]) -> Float[Array, ""]:
            rows = (2 * chosen[:, None] + jnp.arange(2)).reshape(-1)
            return self.pair_loss(model, reference, pairs.take_rows(rows))

        model = fit_on_rows(
            jax.tree.map(jnp.copy, reference),
            loss,
            len(pairs.transcript) // 2,
            self.dpo_batch_size,
            self.num_dpo_steps,
            self.dpo_learning_rate,
            key,
        )
        return DPORewardState(model, reference)

    def score_tokens(
        self, state: DPORewardState, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row token"]:
        """The weighted log-ratio of each token, clipped."""
        clip = self.token_reward_clip
        log_ratio = log_ratios(state.model, state.reference, dialogues)
        return jax.lax.stop_gradient(jnp.clip(self.token_reward_coef * log_ratio, -clip, clip))

    def pair_loss(self, model: Decoder, reference: Decoder, pairs: Dialogues) -> Float[Array, ""]:
        """DPO's mean loss of pairs, of which even rows are the better texts."""
        sums = sum_over_tokens(log_ratios(model, reference, pairs), pairs.response_mask)
        return dpo_loss(sums[0::2], sums[1::2], self.beta).mean()

    def _pairs(self, prompts: Int[Array, "pair opening"], texts: Int[Array, "pair 2 token"]) -> Dialogues:
        rows = texts.reshape(-1, texts.shape[-1])
        return single_turn_dialogues(jnp.repeat(prompts, 2, axis=0), rows, jnp.ones(len(rows), bool))


def log_ratios(model: Decoder, reference: Decoder, dialogues: Dialogues) -> Float[Array, "time row token"]:
    """Log-ratios of the response tokens by two models, the second without gradient; 0 where there is none."""
    log_probs, ref_log_probs = (
        dialogues.response_log_probs(decoder, TemperatureSampler())[0] for decoder in (model, reference)
    )
    return jnp.where(dialogues.response_mask, log_probs - jax.lax.stop_gradient(ref_log_probs), 0.0)
