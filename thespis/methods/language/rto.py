r"""Reinforced token optimization: PPO whose tokens are rewarded by the log-ratio of a model trained with DPO.

.. math:: r_t = \mathrm{clip}\left(\beta_1 \log \frac{\pi_{DPO}(y_t | x, y_{<t})}{\pi_{ref}(y_t | x, y_{<t})}\right)
          + \mathbb{1}[t = T] \, r(x, y)

Source: Zhong et al., 2024, algorithm 2 and the authors' code, whose scale and clip of 0.05 are the defaults.

Differs: preferences are not logged. In the first ``num_preference_updates`` updates the policy stays as it was, and a
copy of it learns with DPO from pairs of its responses to one prompt, of which the one with the larger return is
preferred; pairs of equal returns are left out. The penalty on KL is a loss and not a part of the reward, as in
``ppo-lm``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import Batch, Citation, EnvSpec, Number, Report
from thespis.data.feeds import Episodes
from thespis.learners.language.advantage_estimators import TokenAdvantages, TokenGAE, TurnBatch
from thespis.learners.language.dialogues import SampledDialogues, sampled_dialogues
from thespis.learners.language.lm_policy_gradient import LMPolicyGradientState
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import dpo_loss
from thespis.runs.ranges import Range, in_range


class RTOState(LMPolicyGradientState):
    """Training state of PPO, with the reward model that DPO trains and the initial model."""

    preference_model: Decoder | None = None
    preference_opt_state: PyTree = ()
    initial_model: Decoder | None = None


class RTO(LanguagePPO):
    """RTO: PPO for language models whose tokens are rewarded by the log-ratio of a model trained with DPO."""

    advantage_estimator: TokenGAE = TokenGAE()
    """Advantage estimator: TokenGAE, as rewards are those of tokens."""
    token_reward_coef: Number = eqx.field(default=0.05, metadata=in_range(Range(0)))
    """Weight of the log-ratio in the reward of a token: the paper's beta 1. With 0 this is PPO."""
    token_reward_clip: Number = eqx.field(default=0.05, metadata=in_range(Range(0)))
    """Largest size of a token's reward by the log-ratio."""
    num_preference_updates: int = eqx.field(static=True, default=20, metadata=in_range(Range(0)))
    """Updates at the beginning in which DPO trains the reward model, and the policy is not trained."""
    num_preference_steps: int = eqx.field(static=True, default=4, metadata=in_range(Range(1)))
    """Gradient steps of DPO on the pairs of each batch."""
    preference_beta: Number = 0.1
    """DPO's beta."""
    preference_learning_rate: Number = 1e-3
    """Step size of DPO."""
    feed: Episodes = eqx.field(static=True, default=Episodes(group_size=2, num_envs=64))
    """Dialogues: group_size (an even number with the same initial state), num_envs, max_steps."""

    name: ClassVar[str] = "rto"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("DPO Meets PPO: Reinforced Token Optimization for RLHF", "Zhong et al.", 2024, "arXiv:2404.18922"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "a model trained with DPO in the first updates",
        "its log-ratio is the reward of tokens",
    )

    def __check_init__(self):
        """Raise ``ValueError`` for groups without pairs."""
        if self.feed.group_size % 2:
            raise ValueError(f"feed.group_size={self.feed.group_size}: an even number, for pairs")

    @property
    def preference_optimizer(self) -> Adam:
        """Optimizer of DPO: Adam with gradients clipped to norm 1."""
        return Adam(self.preference_learning_rate, 1.0)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> RTOState:
        """The state of PPO, and the initial model twice, by which all rewards of tokens are 0."""
        state = super().init(spec, key)
        model, initial = (jax.tree.map(jnp.copy, state.model.model) for _ in range(2))
        return _with_models(state, model, self.preference_optimizer.init(model), initial)

    def update(self, state: RTOState, batch: Batch, key: Key[Array, ""]) -> tuple[RTOState, Report]:
        """Steps of DPO in the first updates, and afterwards epochs of PPO."""
        models = state.preference_model, state.preference_opt_state
        learned, metrics = self._preference_steps(models, state.initial_model, batch)
        is_first_stage = batch.update_index < self.num_preference_updates
        policy_state, report = super().update(state, batch, key)
        model, opt_state = jax.tree.map(lambda new, old: jnp.where(is_first_stage, new, old), learned, models)
        policy_state = _with_models(policy_state, model, opt_state, state.initial_model)
        kept = _with_models(state, model, opt_state, state.initial_model)
        new_state = jax.tree.map(lambda old, new: jnp.where(is_first_stage, old, new), kept, policy_state)
        return new_state, Report({**report.metrics, **metrics})

    def estimate_advantages(
        self, state: RTOState, dialogues: SampledDialogues, group_size: int
    ) -> tuple[TurnBatch, TokenAdvantages]:
        """Advantages of PPO, with what tokens earn by the log-ratio in addition to what they and turns earn anyway."""
        earned = self.token_rewards(state, dialogues)
        total = dialogues.reward + earned.sum(axis=-1)
        if dialogues.token_rewards is not None:
            earned += dialogues.token_rewards
        dialogues = dataclasses.replace(dialogues, reward=total, token_rewards=earned)
        return super().estimate_advantages(state, dialogues, group_size)

    def token_rewards(self, state: RTOState, dialogues: SampledDialogues) -> Float[Array, "time row token"]:
        """Clipped log-ratio of each sampled token, times its weight; 0 where there is no token."""
        log_ratio = self._log_ratios(state.preference_model, state.initial_model, dialogues)
        clip = self.token_reward_clip
        return jax.lax.stop_gradient(jnp.clip(self.token_reward_coef * log_ratio, -clip, clip))

    def _log_ratios(
        self, model: Decoder | None, initial_model: Decoder | None, dialogues: SampledDialogues
    ) -> Float[Array, "time row token"]:
        assert model is not None and initial_model is not None
        log_probs, ref_log_probs = (
            dialogues.response_log_probs(decoder, self.sampler)[0] for decoder in (model, initial_model)
        )
        return jnp.where(dialogues.response_mask, log_probs - jax.lax.stop_gradient(ref_log_probs), 0.0)

    def _preference_steps(
        self, models: tuple[Any, PyTree], initial_model: Any, batch: Batch
    ) -> tuple[tuple[Any, PyTree], dict[str, Array]]:
        """Model and optimizer state after DPO on the pairs of a batch, and metrics."""
        dialogues = sampled_dialogues(batch.steps, batch.mask)
        first, second = dialogues.returns.reshape(-1, 2).T
        sign, count = jnp.sign(first - second), jnp.maximum((first != second).sum(), 1)

        def loss(model: Decoder) -> tuple[Array, dict[str, Array]]:
            scores = self._log_ratios(model, initial_model, dialogues).sum(axis=(0, 2)).reshape(-1, 2)
            margin = sign * (scores[:, 0] - scores[:, 1])
            losses = jnp.where(sign == 0, 0.0, dpo_loss(margin, jnp.zeros_like(margin), self.preference_beta))
            return losses.sum() / count, {"preference_accuracy": ((margin > 0) & (sign != 0)).sum() / count}

        def step(carry: Any, _: Any) -> Any:
            model, opt_state, metrics, _ = gradient_step(self.preference_optimizer, loss, *carry)
            return (model, opt_state), metrics

        learned, metrics = jax.lax.scan(step, models, None, self.num_preference_steps)
        return learned, jax.tree.map(jnp.mean, metrics)


def _with_models(state: LMPolicyGradientState, model: Any, opt_state: PyTree, initial_model: Any) -> RTOState:
    return RTOState.extending(
        state, preference_model=model, preference_opt_state=opt_state, initial_model=initial_model
    )
