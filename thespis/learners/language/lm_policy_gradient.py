"""Policy gradient for language models: sampled dialogues, advantages, minibatch steps, KL penalty and reduction.

A dialogue is one pass of the decoder: the last transcript of an episode holds all responses, and each starts where the
transcript ended before it. Losses are over sampled tokens, with the log-probability that each was sampled with;
environment tokens are read only, and padding is not. A concrete method chooses the parts.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, KVCacheState, LMPolicy, response_features, token_log_probs
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Batch, Critique, EnvSpec, Number, Report, Transition, View
from thespis.data.feeds import Episodes
from thespis.learners.language.advantage_estimators import AdvantageEstimator, TokenAdvantages, TurnBatch
from thespis.learners.language.dialogues import SampledDialogues, flatten_turns, sampled_dialogues
from thespis.learners.language.lm_agent import (
    LMWithValueHead,
    TrainableLMAgent,
    add_value_head,
    init_opt_state,
    trainable_gradient_step,
)
from thespis.learners.language.policy_losses import KLPenalty, LossReduction, PolicyLoss
from thespis.learners.language.response_critics import TurnAdvantageCritic
from thespis.learners.language.rollout_transforms import NO_TRANSFORM, RolloutTransform
from thespis.learners.optim.minibatches import SequenceBatch, run_epochs
from thespis.objectives.policy_losses import kl_k3
from thespis.objectives.statistics import explained_variance, masked_mean, standardize
from thespis.runtime.keys import fold

StateT = TypeVar("StateT", bound="LMPolicyGradientState")


class LMPolicyGradientState(eqx.Module):
    """Training state: model with value head, optimizer, reference and rollout transform."""

    model: LMWithValueHead
    opt_state: PyTree
    dialogue_spec: DialogueSpec = eqx.field(static=True)
    reference: PyTree
    """The reference decoder of the KL penalty; ``()`` if there is none."""
    rollout_transform_state: PyTree = ()
    """State of the rollout transform."""
    critic: PyTree = ()
    """State of the critic of turns; ``()`` if there is none."""

    @classmethod
    def extending(cls: type[StateT], state: LMPolicyGradientState, **fields: Any) -> StateT:
        """A state of this class with the fields that all have, from ``state``, and those of its own."""
        shared = {field.name: getattr(state, field.name) for field in dataclasses.fields(LMPolicyGradientState)}
        return cls(**shared, **fields)


class DialogueBatch(eqx.Module):
    """Batch of dialogues with advantages: ``transcript[row, length]``, all else ``[time, row, ...]``."""

    transcript: Int[Array, "row length"]
    response_starts: Int[Array, "time row"]
    responses: Int[Array, "time row token"]
    log_probs: Float[Array, "time row token"]
    advantages: TokenAdvantages
    turns: TurnBatch
    ref_log_probs: Float[Array, "time row token"]
    """Log-probabilities by the reference; zeros if there is none."""


class LMPolicyGradientSettings(eqx.Module):
    """Parts of a policy-gradient method that a concrete class chooses."""

    advantage_estimator: eqx.AbstractVar[AdvantageEstimator]
    objective: eqx.AbstractVar[PolicyLoss]
    loss_reduction: eqx.AbstractVar[LossReduction]


class LMPolicyGradient(TrainableLMAgent, LMPolicyGradientSettings):
    """Base of policy-gradient methods for language models: rollout, advantages, loss and epochs."""

    vf_coef: Number = 0.5
    """Weight of the value loss, where there is a critic."""
    ent_coef: Number = 0.0
    """Weight of the entropy bonus."""
    kl_penalty: KLPenalty | None = None
    """KL penalty to the initial model: None, ReverseKL, K3 or FirstTurnKL."""
    reference_model: str | None = eqx.field(static=True, default=None)
    """The model of the KL penalty: a checkpoint or a run, such as a merged one; None: the initial model."""
    rollout_transform: RolloutTransform | None = None
    """Transform of sampled dialogues before advantages are estimated.

    None, MovingAverageBaseline, PlayerBaseline, SuccessReplay, RankFilter, RejectionSampling, TrajectoryRevision,
    SecondAttempts, ReflectionCredit, LastResponses, RefinementsInGroup or DemonstrationsInGroup.
    Rewards are the run's feedback (``--feedback``).
    """
    recompute_log_probs: bool = eqx.field(static=True, default=False)
    """Whether importance ratios are to the model before the batch's first step instead of the one that sampled.

    Dialogues that a rollout transform has stored then count as if the current model had sampled them.
    """
    critic: TurnAdvantageCritic | None = None
    """Critic of turns, whose advantages take the place of rewards: None, or OffPolicyTurnCritic.

    It has a model and a state of its own; the critic of TurnGAE and TokenGAE is a head on the policy's model.
    """
    separate_value_model: bool = eqx.field(static=True, default=False)
    """Whether the critic of TurnGAE and TokenGAE is a copy of the initial model, and not a head on the policy's."""
    normalize_advantage: bool = eqx.field(static=True, default=False)
    """Whether advantages are normalized to mean 0 and standard deviation 1 over the batch."""
    num_epochs: int = eqx.field(static=True, default=1)
    """Epochs over each batch of dialogues."""
    minibatch_size: int = eqx.field(static=True, default=32)
    """Dialogues per gradient step."""
    num_players: int = eqx.field(static=True, default=1)
    """Players that share the parameters; dialogues are compared with those of the same player."""
    feed: Episodes = eqx.field(static=True, default=Episodes(group_size=8, num_envs=64))
    """Feed of dialogues: group_size (of equal initial states), num_envs, max_steps (turns; 0: the environment's)."""

    def __check_init__(self):
        """Raise ``ValueError`` for a critic that needs pairs of dialogues.

        Also for a transform that is a feedback or a critic today, as in runs of earlier versions.
        """
        part = self.rollout_transform
        if part is not None and not isinstance(part, RolloutTransform):
            raise ValueError(
                f"{type(part).__name__} is no transform of rollouts any more: rewards are feedback (--feedback, "
                "thespis list feedback), and critics of turns are the setting critic"
            )
        if self.critic is not None and self.critic.needs_pairs:
            raise ValueError(
                f"{type(self.critic).__name__} learns from pairs of a better and a worse dialogue, and this method "
                "samples its own: critic=OffPolicyTurnCritic, or a method that learns from pairs (sweet-rl)"
            )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> LMPolicyGradientState:
        """The model that ``model`` names, with a value head of zeros.

        Raises ``UserError`` for an environment without text.
        """
        dialogue_spec = DialogueSpec.from_spec(spec)
        model = self.init_from(spec, key)
        needs_critic = self.advantage_estimator.needs_critic
        model_with_head = add_value_head(model, model.config.hidden_size if needs_critic else 0)
        if needs_critic and self.separate_value_model:
            model_with_head = dataclasses.replace(model_with_head, value_model=jax.tree.map(jnp.copy, model))
        reference = () if self.kl_penalty is None else self.init_reference(model, self.reference_model, spec, key)
        num_turns = min(self.feed.max_steps or dialogue_spec.max_turns, dialogue_spec.num_own_turns)
        player_spec = dataclasses.replace(dialogue_spec, num_players=self.num_players)
        transform_key = fold(key, "experience")
        transform_state = (self.rollout_transform or NO_TRANSFORM).init(model, player_spec, num_turns, transform_key)
        critic = () if self.critic is None else self.critic.init_from(model, dialogue_spec, transform_key)
        return LMPolicyGradientState(
            model_with_head,
            init_opt_state(self.make_optimizer(), model_with_head),
            dialogue_spec,
            reference,
            transform_state,
            critic,
        )

    def policy(self, state: LMPolicyGradientState, mode: Mode) -> LMPolicy:
        """The decoder as policy."""
        return LMPolicy(state.model.model, self.sampler, state.dialogue_spec, mode)

    def action_probs(self, policy: LMPolicy, memory: KVCacheState, view: View) -> Float[Array, "row choice"]:
        """Probabilities of the listed responses. Raises ``UserError`` where none are listed."""
        if not policy.dialogue_spec.choices:
            raise UserError("a language model has action probabilities only where an environment lists its responses")
        return policy.action_probs(view)

    def judge(self, state: LMPolicyGradientState, episode: Transition) -> Critique:
        """The critic's values of the dialogue before each response, and advantages, if there is a critic."""
        if not self.advantage_estimator.needs_critic and self.critic is None:
            return Critique()
        steps = jax.tree.map(lambda x: x[:, None], episode)
        dialogues = sampled_dialogues(steps, jnp.ones(steps.reward.shape, bool))
        if self.critic is not None:
            values = self.critic.values(state.critic, state.reference, dialogues)
            advantages = self.critic.turn_advantages(state.critic, state.reference, dialogues)
            return Critique(value=None if values is None else values[:-1, 0, 0], advantage=advantages[:, 0])
        dialogue_batch = self._dialogue_batch(state, dialogues, 1)
        return Critique(
            value=dialogue_batch.advantages.value[:, 0, 0], advantage=dialogue_batch.advantages.advantage[:, 0, 0]
        )

    def update(
        self, state: LMPolicyGradientState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[LMPolicyGradientState, Report]:
        """Epochs of minibatch steps over the sampled dialogues.

        Raises ``UserError`` for rewards of tokens together with a transform of rollouts, which knows turns only.
        """
        if batch.steps.token_rewards is not None and self.rollout_transform is not None:
            raise UserError(
                "the feedback rewards single tokens, and rollout_transform knows rewards of whole responses: leave "
                "one of them out"
            )
        group_size = min(self.feed.group_size, batch.mask.shape[1] // self.num_players)
        dialogues = sampled_dialogues(batch.steps, batch.mask).own_turns(state.dialogue_spec.num_own_turns)
        transform_key = fold(key, "experience")
        transform_state, dialogues, transform_metrics = (self.rollout_transform or NO_TRANSFORM)(
            state.rollout_transform_state, dialogues, group_size, transform_key
        )
        group_size = group_size * dialogues.alive.shape[1] // batch.mask.shape[1]  # a transform may leave some out
        if self.recompute_log_probs:
            log_probs = dialogues.response_log_probs(state.model.model, self.sampler)[0]
            dialogues = dataclasses.replace(dialogues, log_probs=jax.lax.stop_gradient(log_probs))
        critic, dialogues, critic_metrics = self.judge_turns(state, dialogues, batch.update_index, transform_key)
        dialogue_batch = self._dialogue_batch(state, dialogues, group_size)
        optimizer = self.make_optimizer()

        def step(carry: tuple[LMWithValueHead, PyTree], data: tuple[Any, Any]) -> Any:
            model, opt_state, metrics, grad_norm = trainable_gradient_step(
                optimizer, lambda model: self._loss(model, *data, batch.update_index), *carry
            )
            return (model, opt_state), metrics | {"gradient": grad_norm}

        advantages, mask = dialogue_batch.advantages, dialogue_batch.turns.response_mask
        if self.normalize_advantage:
            advantage = jnp.where(mask, standardize(advantages.advantage, mask), 0.0)
            advantages = dataclasses.replace(advantages, advantage=advantage)
        time_major = (
            dialogue_batch.response_starts,
            dialogue_batch.responses,
            dialogue_batch.log_probs,
            advantages,
            mask,
            dialogue_batch.ref_log_probs,
        )
        data = SequenceBatch(time_major, dialogue_batch.transcript)
        minibatch_steps = self.minibatch_size * data.shape[0]
        (model, opt_state), metrics = run_epochs(
            step, (state.model, state.opt_state), data, self.num_epochs, minibatch_steps, key
        )
        num_turns = dialogue_batch.turns.alive.sum(axis=0)
        metrics |= {
            "turns": num_turns.mean(dtype="float32"),
            "alike": dialogue_batch.turns.zero_std_fraction,
            **transform_metrics,
            **critic_metrics,
        }
        if self.advantage_estimator.needs_critic:
            metrics["explained_variance"] = explained_variance(
                advantages.value, advantages.target, advantages.value_mask
            )
        new_state = LMPolicyGradientState(
            model, opt_state, state.dialogue_spec, state.reference, transform_state, critic
        )
        return new_state, Report(metrics)

    def judge_turns(
        self, state: LMPolicyGradientState, dialogues: SampledDialogues, update_index: Array, key: Key[Array, ""]
    ) -> tuple[PyTree, SampledDialogues, dict[str, Array]]:
        """The critic of turns after an update, dialogues with its advantages as rewards, and its metrics."""
        if self.critic is None:
            return (), dialogues, {}
        critic, _, metrics = self.critic.update(state.critic, state.reference, dialogues, (), update_index, key)
        advantages = self.critic.turn_advantages(critic, state.reference, dialogues)
        rewards = jnp.where(dialogues.alive, jax.lax.stop_gradient(advantages), 0.0)
        return critic, dataclasses.replace(dialogues, reward=rewards, token_rewards=None), metrics

    def _dialogue_batch(
        self, state: LMPolicyGradientState, dialogues: SampledDialogues, group_size: int
    ) -> DialogueBatch:
        """Dialogues with the advantages that the current critic gives them."""
        turns, advantages = self.estimate_advantages(state, dialogues, group_size)
        ref_log_probs = jnp.zeros(turns.response_mask.shape)
        if self.kl_penalty is not None:
            ref_log_probs, _ = dialogues.response_log_probs(state.reference, self.sampler)
        return DialogueBatch(
            dialogues.transcript,
            dialogues.response_starts[:-1],
            dialogues.responses,
            dialogues.log_probs,
            advantages,
            turns,
            ref_log_probs,
        )

    def estimate_advantages(
        self, state: LMPolicyGradientState, dialogues: SampledDialogues, group_size: int
    ) -> tuple[TurnBatch, TokenAdvantages]:
        """The turns of dialogues, and the advantages that the current critic gives them."""
        mask = dialogues.response_mask
        turns = TurnBatch(
            dialogues.reward,
            dialogues.alive,
            dialogues.truncated,
            mask,
            group_size,
            min(self.num_players, mask.shape[1]),
            dialogues.token_rewards,
        )
        values = None
        if self.advantage_estimator.needs_critic:
            features = response_features(
                state.model.value_model or state.model.model,
                dialogues.transcript,
                dialogues.response_starts,
                dialogues.responses.shape[-1],
            )
            values = state.model.value(features)
        return turns, self.advantage_estimator(turns, values)

    def _loss(
        self, model: LMWithValueHead, step_data: Any, transcript: Array, update_index: Array
    ) -> tuple[Array, dict[str, Array]]:
        starts, responses, old_log_probs, advantages, mask, ref_log_probs = step_data
        features = response_features(model.model, transcript, starts, responses.shape[-1])
        log_prob, entropy = token_log_probs(model.model, self.sampler, features, responses)
        log_ratio = jnp.where(mask, log_prob - old_log_probs, 0.0)
        losses = self.objective(log_prob, log_ratio, advantages.advantage)
        losses -= self.ent_coef * entropy
        if self.kl_penalty is not None:
            losses += self.kl_penalty(log_prob, log_ratio, ref_log_probs, update_index)
        total = self.loss_reduction(flatten_turns(losses), flatten_turns(mask))
        metrics = {
            "policy_loss": total,
            "entropy": masked_mean(entropy, mask),
            "kl": masked_mean(kl_k3(log_ratio), mask),
            "ratio": jnp.max(jnp.where(mask, jnp.abs(log_ratio), 0.0)),
        }
        if self.advantage_estimator.needs_critic:
            if model.value_model is not None:
                features = response_features(model.value_model, transcript, starts, responses.shape[-1])
            critic_loss = masked_mean(jnp.square(model.value(features) - advantages.target), advantages.value_mask)
            total, metrics = total + self.vf_coef * critic_loss, metrics | {"critic_loss": critic_loss}
        if self.critic is not None and self.critic.num_critic_pretrain_updates:
            total = jnp.where(update_index < self.critic.num_critic_pretrain_updates, 0.0, total)
        return total, metrics
