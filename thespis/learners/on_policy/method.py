"""Shared base of the on-policy actor-critic methods (A2C, PPO, IMPALA): network, acting, critique and updates.

A concrete method adds its fields and an ``update``; nothing here is overridden.

Advantages are normalized over the batch, over each minibatch, or not at all. In the normalizers, ``mask`` selects the
entries that count; ``None``: all.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.actors.continuous_heads import OnPolicyHead
from thespis.actors.distributions import Distribution
from thespis.core.contracts import Mode
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Critique, EnvSpec, Number, Transition, View
from thespis.critics.value_functions import critic_observation
from thespis.learners.on_policy.actor_critic import (
    DEFAULT_POLICY_HEAD,
    ActorCritic,
    ActorCriticNetwork,
    InitializerName,
    NormalizerStates,
    OnPolicyActor,
    RolloutProcessor,
    RolloutWithAdvantages,
    RolloutWithValues,
)
from thespis.learners.on_policy.shared_actor_critic import SharedBodyActorCritic, SharedEncoderActorCritic
from thespis.learners.optim.minibatches import run_epochs, to_sequences
from thespis.learners.optim.normalizers import IDENTITY, RAW_REWARD, ObsNormalizer, RewardNormalizer
from thespis.learners.optim.optimizers import (
    Adam,
    LearningRate,
    Optimizer,
    OptimizerFactory,
    RMSProp,
    build_optimizer,
    gradient_step,
)
from thespis.nets.body import NetworkOptions, ObservationEncoder
from thespis.nets.recurrent import RecurrentCore
from thespis.nets.set_attention import SetEncoder
from thespis.objectives.policy_losses import policy_gradient_loss
from thespis.objectives.statistics import explained_variance, masked_mean, standardize

Mask = Bool[Array, "..."] | None


class AdvantageNormalizer(eqx.Module):
    """Slot: how advantages are normalized, over a batch or over each of its minibatches."""

    @abc.abstractmethod
    def normalize_batch(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""

    @abc.abstractmethod
    def normalize_minibatch(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of one minibatch."""


class BatchNormalizer(AdvantageNormalizer):
    """Normalize advantages over the whole batch; the result does not depend on the split into minibatches."""

    def normalize_batch(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""
        return standardize(advantage, mask)

    def normalize_minibatch(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of one minibatch."""
        return advantage


class MinibatchNormalizer(AdvantageNormalizer):
    """Normalize advantages over each minibatch, as most published code does; the result depends on the split."""

    def normalize_batch(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""
        return advantage

    def normalize_minibatch(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of one minibatch."""
        return standardize(advantage, mask)


class _NoNormalizer(eqx.Module):
    """No normalization of advantages."""

    def normalize_batch(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""
        return advantage

    def normalize_minibatch(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of one minibatch."""
        return advantage


NO_NORMALIZER = _NoNormalizer()
"""What ``advantage_normalizer=None`` does."""


MinibatchLoss = Callable[[ActorCriticNetwork, RolloutWithAdvantages, Any], tuple[Array, dict[str, Array]]]


class OnPolicyState(eqx.Module):
    """Learner state of an on-policy method: network, optimizer state and normalizer states."""

    network: ActorCriticNetwork
    opt_state: PyTree
    normalizer_states: NormalizerStates


class OnPolicyMethod(eqx.Module):
    """Base of on-policy actor-critic methods, for any tree of actions, with or without recurrent memory."""

    learning_rate: eqx.AbstractVar[LearningRate]
    gae_lambda: eqx.AbstractVar[Number]
    optimizer: eqx.AbstractVar[Literal["adam", "rmsprop"] | OptimizerFactory]
    feed: eqx.AbstractVar[RolloutFeed]

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    ent_coef: Number = 0.0
    """Weight of the entropy bonus."""
    vf_coef: Number = 0.5
    """Weight of the value loss."""
    max_grad_norm: Number = 0.5
    """Global norm to which the gradient is clipped."""
    obs_normalizer: ObsNormalizer | None = None
    """Normalization of observations: None or RunningMeanStd."""
    reward_normalizer: RewardNormalizer | None = None
    """Normalization of rewards: None, ReturnNormalizer or RewardCentering."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer, of actor and critic alike."""
    memory: RecurrentCore | None = eqx.field(static=True, default=None)
    """Recurrent core after the hidden layers: None, GRU, LSTM, ELSTM or your own module:Class."""
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jnp.tanh)
    """Activation of the hidden layers."""
    set_encoder: SetEncoder | None = eqx.field(static=True, default=None)
    """Encoder of set observations, boxes with a row for each of several others: None (flattened), SetAttention or your
    own module:Class."""
    encoder: ObservationEncoder | None = eqx.field(static=True, default=None)
    """Encoder before the hidden layers: None (images: by their size), NatureCNN, MinAtarCNN, ImpalaCNN, ResNet or your
    own module:Class, built with (observation_space, key)."""
    policy_head: OnPolicyHead = eqx.field(static=True, default=DEFAULT_POLICY_HEAD)
    """Distribution head of the actor for boxes: Gaussian (with log_std_init, in canonical units) or StateDependentNoise
    (gSDE: smooth exploration by noise that depends on the state)."""
    layer_norm: bool = eqx.field(static=True, default=False)
    """Layer normalization in the hidden layers, before the activation."""
    initializer: InitializerName = eqx.field(static=True, default="orthogonal")
    """Initial weights of linear layers: orthogonal (times sqrt(2) in hidden layers, 0.01 in the policy's last and 1 in
    the value's; biases 0), or uniform in ±1/sqrt(inputs), biases too, as in PyTorch (ortho_init=False in SB3)."""
    share_encoder: bool = eqx.field(static=True, default=False)
    """Whether actor and critic share one encoder, as is usual for images: it is passed once instead of twice."""
    share_body: bool = eqx.field(static=True, default=False)
    """Whether actor and critic share encoder, hidden layers and memory, with an output layer each: half the work."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> OnPolicyState:
        """Learner state with a freshly initialized actor and critic."""
        separate_bodies = SharedEncoderActorCritic if self.share_encoder else ActorCritic
        build = SharedBodyActorCritic if self.share_body else separate_bodies
        network = build(
            spec,
            self.hidden_sizes,
            key,
            memory=self.memory,
            set_encoder=self.set_encoder,
            options=NetworkOptions(self.activation, self.encoder, self.layer_norm),
            policy_head=self.policy_head,
            initializer=self.initializer,
        )
        return self.init_from(spec, network)

    def init_from(self, spec: EnvSpec, network: ActorCriticNetwork) -> OnPolicyState:
        """Learner state that starts from ``network``, with fresh optimizer and normalizer states."""
        return OnPolicyState(
            network, self.make_optimizer().init(network), self.rollout_processor().init_normalizers(spec)
        )

    def policy(self, state: OnPolicyState, mode: Mode) -> OnPolicyActor:
        """The part that actors carry: network (the critic's memory goes along), observation normalizer and mode."""
        return OnPolicyActor(state.network, state.normalizer_states[0], self.obs_normalizer or IDENTITY, mode)

    def init_memory(self, policy: OnPolicyActor, n: int) -> Any:
        """Recurrent memories of actor and critic for ``n`` fresh episodes."""
        return policy.network.init_memory(n)

    def act(self, policy: OnPolicyActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Sample an action with its log-probability, or take the mode of the distribution in ``Mode.EXPLOIT``."""
        return policy.act(memory, view, key)

    def action_probs(self, policy: OnPolicyActor, memory: Any, view: View) -> Float[Array, "row n"]:
        """Probability of every action. Raises ``UserError`` unless an action is one discrete choice."""
        return policy.action_probs(memory, view)

    def log_probs(self, state: OnPolicyState, steps: Transition) -> Float[Array, "time row"]:
        """Log-probabilities of the actions of ``steps[time, row]``; recurrent memory starts empty."""
        actor, rows = self.policy(state, Mode.SAMPLE), steps.reward.shape[1]

        def observe(view: View) -> View:
            normalized = actor.obs_normalizer.normalize(actor.obs_normalizer_state, view.observation)
            return View(normalized, view.action_mask)

        views = jax.vmap(jax.vmap(observe))(steps.view)
        policies = state.network.distributions(state.network.init_memory(rows), views, steps.is_first)
        return jax.vmap(jax.vmap(lambda policy, action: policy.log_prob(action)))(policies, steps.action)

    def judge(self, state: OnPolicyState, episode: Transition) -> Critique:
        """State values and GAE advantages of an episode, in the environment's units of reward."""
        return self.rollout_processor().judge(state.network, state.normalizer_states, episode)

    def make_optimizer(self) -> Optimizer:
        """Adam or RMSProp with gradient clipping; epsilon is 1e-5 in both, as in the code of the methods' authors."""
        if isinstance(self.optimizer, OptimizerFactory):
            return build_optimizer(self.optimizer, self.learning_rate, self.max_grad_norm)
        kind = {"adam": Adam, "rmsprop": RMSProp}[self.optimizer]
        return kind(self.learning_rate, self.max_grad_norm, 1e-5)

    def rollout_processor(self) -> RolloutProcessor:
        """The processor that turns a rollout into values, advantages and targets."""
        return RolloutProcessor(
            self.obs_normalizer or IDENTITY,
            self.reward_normalizer or RAW_REWARD,
            self.discount,
            self.gae_lambda,
            self.feed.num_envs,
        )

    def update_full_batch(
        self, state: OnPolicyState, batch: Batch, rollout: RolloutWithAdvantages
    ) -> tuple[OnPolicyState, dict[str, Array]]:
        """One gradient step on a whole rollout, then an update of the normalizers. Returns the state and metrics."""

        def loss(network: ActorCriticNetwork):
            evaluation = evaluate_rollout(network, batch.memory, rollout)
            actor_loss = masked_mean(policy_gradient_loss(evaluation.log_prob, rollout.advantage), rollout.alive)
            critic_loss = masked_mean(jnp.square(evaluation.value - rollout.target), rollout.alive)
            total = actor_loss + self.vf_coef * critic_loss - self.ent_coef * evaluation.entropy
            return total, {"actor_loss": actor_loss, "critic_loss": critic_loss, "entropy": evaluation.entropy}

        network, opt_state, metrics, grad_norm = gradient_step(
            self.make_optimizer(), loss, state.network, state.opt_state
        )
        normalizer_states = self.rollout_processor().update_normalizers(state.normalizer_states, batch)
        return OnPolicyState(network, opt_state, normalizer_states), metrics | {"gradient": grad_norm}

    def update_minibatches(
        self,
        state: OnPolicyState,
        batch: Batch,
        rollout: RolloutWithAdvantages,
        loss_fn: MinibatchLoss,
        num_epochs: int,
        minibatch_size: int,
        key: Key[Array, ""],
    ) -> tuple[OnPolicyState, dict[str, Array]]:
        """Epochs of minibatch steps over a rollout, then an update of the normalizers. Returns the state and metrics.

        The loss of a minibatch is ``loss_fn(network, rollout, memory)``.
        """
        optimizer = self.make_optimizer()

        def step(carry: tuple[ActorCriticNetwork, PyTree], data: tuple[RolloutWithAdvantages, Any]) -> Any:
            network, opt, metrics, norm = gradient_step(optimizer, lambda n: loss_fn(n, *data), *carry)
            return (network, opt), metrics | {"gradient": norm}

        data = to_sequences((rollout, batch.memory), keep_sequences=self.memory is not None)
        (network, opt), metrics = run_epochs(
            step, (state.network, state.opt_state), data, num_epochs, minibatch_size, key
        )
        metrics["explained_variance"] = explained_variance(rollout.value, rollout.target, rollout.alive)
        return OnPolicyState(
            network, opt, self.rollout_processor().update_normalizers(state.normalizer_states, batch)
        ), metrics


class RolloutEvaluation(eqx.Module):
    """What the network under training makes of a rollout, leaves ``[time, row, ...]``; ``entropy`` is the mean."""

    policy: Distribution
    log_prob: Float[Array, "time row"]
    entropy: Float[Array, ""]
    value: Float[Array, "time row"]


def evaluate_rollout(
    network: ActorCriticNetwork, memory: Any, rollout: RolloutWithValues | RolloutWithAdvantages
) -> RolloutEvaluation:
    """Log-probabilities of the stored actions, values and mean entropy, from the memory before the first step."""
    policy, value = network.evaluate(
        memory,
        rollout.view,
        critic_observation(rollout.privileged, rollout.view.observation),
        rollout.is_first,
    )
    log_prob = jax.vmap(jax.vmap(lambda p, a: p.log_prob(a)))(policy, rollout.action)
    entropy = masked_mean(jax.vmap(jax.vmap(lambda p: p.entropy()))(policy), rollout.alive)
    return RolloutEvaluation(policy, log_prob, entropy, value)
