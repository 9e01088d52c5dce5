r"""DrQ-v2: off-policy deterministic actor-critic from images, with random-shift augmentation.

Twin critics on one encoder :math:`f` regress on :math:`r + \gamma^n \min_i \bar Q_i(f(o'), a')`, where :math:`a'` is
the actor's action plus clipped noise; the actor maximizes :math:`\min_i Q_i(f(o), a)`, also with clipped noise, and
without a gradient through the encoder. Images of replayed observations are shifted at random before each loss
(:class:`RandomShift`).

Source: Yarats et al., 2022; random shift: Kostrikov et al., 2021; hyperparameters are those of the code of Ma et al.,
2024.

Differs: convolutions are those of :class:`~thespis.nets.cnn.CNN`; noise decays with updates, not with steps; each
critic has its own trunk.
"""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.deterministic import DPGMethod, NoisyPolicy
from thespis.actors.policy_heads import require_bounded
from thespis.actors.visual_encoder import TrunkMLP, VisualActor, add_clipped_noise, ensemble_q_values, min_policy_values
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition
from thespis.core.spaces import Box, Space, leaf_spaces, map_space
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import n_step_batch
from thespis.learners.off_policy.replay_ratio import Fixed, ReplayRatio
from thespis.learners.optim.optimizers import (
    LearningRate,
    OptimizerFactory,
    build_optimizer,
    gradient_step,
    polyak_update,
)
from thespis.nets.body import Encoder, is_image
from thespis.objectives.statistics import masked_mean


class _NoAugmentation(eqx.Module):
    """No augmentation: images are used as they are."""

    def __call__(self, space: Space, observation: PyTree, key: Key[Array, ""]) -> PyTree:
        """Return the observation unchanged."""
        return observation


NO_AUGMENTATION = _NoAugmentation()
"""What ``augmentation=None`` does."""


class Augmentation(eqx.Module):
    """Slot: how replayed observations are changed at random before each loss."""

    @abc.abstractmethod
    def __call__(self, space: Space, observation: PyTree, key: Key[Array, ""]) -> PyTree:
        """One observation of ``space``, changed at random."""


class RandomShift(Augmentation):
    """Random shift: move images by up to ``pad`` pixels in each direction, repeating edges (Kostrikov et al., 2021).

    The paper uses 4 pixels of 84. All images of one observation are shifted alike.
    """

    pad: int = eqx.field(static=True, default=4)
    """Largest shift, in pixels."""

    def __call__(self, space: Space, observation: PyTree, key: Key[Array, ""]) -> PyTree:
        """One observation with its images shifted; other parts are unchanged."""
        shift = jax.random.randint(key, (2,), 0, 2 * self.pad + 1)

        def leaf(part: Space, value: Array) -> Array:
            return self._shift_image(value, shift) if is_image(part) else value

        return map_space(leaf, space, observation) if any(map(is_image, leaf_spaces(space))) else observation

    def _shift_image(self, image: Array, shift: Array) -> Array:
        axes = (1, 2) if image.ndim == 3 and image.shape[0] < image.shape[2] else (0, 1)
        padded = jnp.pad(
            image, [(self.pad,) * 2 if axis in axes else (0, 0) for axis in range(image.ndim)], mode="edge"
        )
        for axis, start in zip(axes, shift, strict=True):
            padded = jax.lax.dynamic_slice_in_dim(padded, start, image.shape[axis], axis)
        return padded


class DrQv2State(eqx.Module):
    """Training state of DrQ-v2; ``opt_states`` are those of the actor, and of encoder and critics."""

    actor: VisualActor
    critics: TrunkMLP
    target_critics: TrunkMLP
    opt_states: tuple[PyTree, PyTree]
    num_updates: Int[Array, ""]
    """Updates offered by the feed, whether or not they were applied."""
    replay_ratio_state: PyTree


class DrQv2(DPGMethod):
    """DrQ-v2: off-policy deterministic actor-critic with image augmentation; box actions, any observations."""

    initial_exploration_noise: Number = 1.0
    """Initial standard deviation of the noise; it decays to ``exploration_noise``. Also the noise in the losses."""
    noise_decay_updates: Number = 250_000.0
    """Updates over which the noise decays linearly; those that ``replay_ratio`` leaves out count too."""
    target_noise_clip: Number = 0.3
    """Bound of the noise on actions in the losses."""
    learning_rate: LearningRate = 1e-4
    """Learning rate of encoder, actor and critics."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    discount: Number = 0.99
    """Discount factor per step, in [0, 1]."""
    tau: Number = 0.01
    """Polyak step size of the target critics at each update."""
    augmentation: Augmentation | None = RandomShift()
    """Image augmentation before each loss: RandomShift, None or your own module:Class."""
    replay_ratio: ReplayRatio = Fixed()
    """Share of the scheduled updates that are made: Fixed (all) or Adaptive."""
    feature_size: int = eqx.field(static=True, default=50)
    """Size of the trunk's output, to which image features are projected."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(1024, 1024))
    """Units of each hidden layer, of actor and critics."""
    feed: WindowFeed = eqx.field(
        static=True, default=Replay(batch_size=256, learning_starts=2_000, update_interval=2, sequence_length=3)
    )
    """Replay buffer: buffer_size, batch_size, learning_starts, update_interval, num_updates, sequence_length
    (n-step)."""

    name: ClassVar[str] = "drq-v2"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Mastering Visual Continuous Control (DrQ-v2)", "Yarats et al.", 2022, "arXiv:2107.09645"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "one encoder, trained by the critics only and without a target copy; minimum of two critics",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DrQv2State:
        """Initialize all networks; critics see the actor's observation, nothing privileged."""
        if not isinstance(spec.action_space, Box):
            raise UserError(
                f"{self.name} needs one box of actions, {spec.name} has {spec.action_space}: use dqn or sac"
            )
        require_bounded(spec.action_space)
        encoder_key, actor_key, critic_key = jax.random.split(key, 3)
        encoder, action_size = Encoder(spec.observation_space, encoder_key), math.prod(spec.action_space.shape)
        actor = VisualActor(
            encoder,
            TrunkMLP(encoder.feature_size, self.feature_size, 0, self.hidden_sizes, action_size, actor_key),
            spec.action_space,
        )
        build = jax.vmap(
            lambda k: TrunkMLP(encoder.feature_size, self.feature_size, action_size, self.hidden_sizes, 1, k)
        )
        critics = build(jax.random.split(critic_key))
        optimizer = build_optimizer(self.optimizer, self.learning_rate)
        opt_states = optimizer.init(actor.network), optimizer.init((encoder, critics))
        return DrQv2State(actor, critics, critics, opt_states, jnp.zeros((), "int32"), self.replay_ratio.init())

    def noise_std(self, num_updates: Int[Array, ""]) -> Float[Array, ""]:
        """Standard deviation of the noise after ``num_updates`` updates."""
        return self.initial_exploration_noise + jnp.minimum(num_updates / self.noise_decay_updates, 1.0) * (
            self.exploration_noise - self.initial_exploration_noise
        )

    def policy(self, state: DrQv2State, mode: Mode) -> NoisyPolicy:
        """The actor, with exploration noise in explore mode."""
        theta = jnp.asarray(self.noise_theta, "float32")
        return NoisyPolicy(state.actor, self.noise_std(state.num_updates), theta, state.num_updates == 0, mode)

    def judge(self, state: DrQv2State, episode: Transition) -> Critique:
        """Minimum Q-values of the actions taken, their advantage over the actor's actions, and critic disagreement."""

        def evaluate_step(o: PyTree, action: Array) -> Array:
            features = state.actor.encoder(o)
            return jnp.stack([ensemble_q_values(state.critics, features, a)[0] for a in (action, state.actor(o))])

        values = jax.vmap(evaluate_step)(episode.view.observation, episode.action)
        min_values, disagreement = jnp.min(values, axis=2), jnp.std(values[:, 0], axis=1)
        return Critique(min_values[:, 0], min_values[:, 0] - min_values[:, 1], disagreement, discount=self.discount)

    def update(self, state: DrQv2State, batch: Batch, key: Key[Array, ""]) -> tuple[DrQv2State, Report]:
        """One gradient step of all networks and a Polyak step of the targets, if the replay ratio allows it."""
        data, space = n_step_batch(batch, self.discount), state.actor.space
        optimizer = build_optimizer(self.optimizer, self.learning_rate)
        keys, std = jax.random.split(key, (4, data.reward.shape[0])), self.noise_std(state.num_updates)
        augment = jax.vmap(lambda o, k: (self.augmentation or NO_AUGMENTATION)(state.actor.encoder.space, o, k))
        observations, next_observations = (
            augment(data.view.observation, keys[0]),
            augment(data.next_view.observation, keys[1]),
        )

        add_noise = lambda action, key: add_clipped_noise(action, std, self.target_noise_clip, key)  # noqa: E731
        features = jax.vmap(state.actor.encoder)(next_observations)
        target = data.reward + data.discount * min_policy_values(
            state.target_critics, state.actor, features, add_noise, keys[2]
        )

        def critic_loss(nets: tuple[Encoder, TrunkMLP]) -> Any:
            features = jax.vmap(nets[0])(observations)
            values, active = jax.vmap(lambda f, a: ensemble_q_values(nets[1], f, a))(features, data.action)
            loss = jnp.sum(data.masked_mean(jnp.square(values - target[:, None])))
            return loss, (features, loss, jnp.mean(values), jnp.mean(active))

        (encoder, critics), critic_opt, (features, loss, value, active), _ = gradient_step(
            optimizer, critic_loss, (state.actor.encoder, state.critics), state.opt_states[1]
        )

        def actor_loss(net: TrunkMLP) -> Any:
            return -masked_mean(
                min_policy_values(critics, VisualActor(encoder, net, space), features, add_noise, keys[3]), data.alive
            ), ()

        network, actor_opt, _, _ = gradient_step(optimizer, actor_loss, state.actor.network, state.opt_states[0])
        updated = DrQv2State(
            VisualActor(encoder, network, space),
            critics,
            polyak_update(state.target_critics, critics, self.tau),
            (actor_opt, critic_opt),
            state.num_updates + 1,
            state.replay_ratio_state,
        )
        updated = self.replay_ratio.select(state.replay_ratio_state, batch.update_index, updated, state)
        ratio_state = self.replay_ratio.update(state.replay_ratio_state, active, batch.update_index)
        updated = eqx.tree_at(
            lambda s: (s.replay_ratio_state, s.num_updates), updated, (ratio_state, state.num_updates + 1)
        )
        updates_made = self.replay_ratio.num_applied(ratio_state, updated.num_updates)
        return updated, Report(
            {"critic_loss": loss, "value": value, "active_units": active, "updates_made": updates_made}
        )
