r"""Adversarial imitation (GAIL, AIRL): the reward is how much a step looks like one of the demonstrations.

A discriminator :math:`D = \sigma(f)` learns to tell steps of the demonstrations from the learner's own, by the binary
cross-entropy over as many of both. The learner never sees the environment's reward.

- **GAIL** (Ho and Ermon, 2016): :math:`f` is any network of state and action, the reward
  :math:`-\log(1 - D) = \text{softplus}(f)`.
- **DAC** (Kostrikov et al., 2019): the same on replay, for off-policy learners, with the reward
  :math:`\log D - \log(1 - D) = f`, a gradient penalty, and absorbing states.
- **AIRL** (Fu et al., 2018): :math:`f = g(s, a) + \gamma h(s') - h(s) - \log \pi(a | s)`, whose first three terms are
  the reward; after convergence :math:`g` is one up to shaping.

Absorbing states: where an episode terminates, the learner's return goes on for ever with the reward of one absorbing
state, :math:`\gamma r_{abs} / (1 - \gamma)`, and the discriminator sees that state once for each termination. Without
it a reward that is never negative favours long episodes, one that is never positive short ones.

Differs from DAC: the return after the end is added as a number instead of being learned from padded episodes; the
discriminator learns from the batch of each update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, Rewards, Transition
from thespis.data.feeds import LoggedTransitions
from thespis.learners.optim.normalizers import IDENTITY, ObsNormalizer, RunningMeanStd
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.body import build_encoder, count_features
from thespis.nets.mlp import MLP, Linear, uniform_fan_in
from thespis.runtime.keys import fold


class PairNetwork(eqx.Module):
    """Network from one observation and one action (or another observation) to a number."""

    encoders: tuple[Callable[[PyTree], Array], ...]
    mlp: MLP
    out: Linear
    num_features: int = eqx.field(static=True)

    def __init__(self, spaces: tuple[Any, ...], hidden_sizes: tuple[int, ...], key: Key[Array, ""]):
        *keys, mlp_key, out_key = jax.random.split(key, len(spaces) + 2)
        self.encoders = tuple(build_encoder(space, k) for space, k in zip(spaces, keys, strict=True))
        width = sum(count_features(encoder, space) for encoder, space in zip(self.encoders, spaces, strict=True))
        self.num_features = width + 1
        self.mlp = MLP(width + 1, hidden_sizes, uniform_fan_in, jax.nn.relu, mlp_key)
        self.out = Linear(hidden_sizes[-1], 1, uniform_fan_in, out_key)

    def features(self, inputs: tuple[PyTree, ...]) -> Float[Array, " features"]:
        """The encoded inputs of one step; the last feature marks the absorbing state and is 0 here."""
        encoded = [encoder(value) for encoder, value in zip(self.encoders, inputs, strict=True)]
        return jnp.concatenate([*encoded, jnp.zeros(1)])

    def absorbing_features(self) -> Float[Array, " features"]:
        """The features of the absorbing state: zeros, and the mark."""
        return jnp.zeros(self.num_features).at[-1].set(1.0)

    def of_features(self, features: Float[Array, " features"]) -> Float[Array, ""]:
        """The network's output for encoded inputs."""
        return self.out(self.mlp(features))[0]

    def __call__(self, *inputs: PyTree) -> Float[Array, ""]:
        """The network's output for one step."""
        return self.of_features(self.features(inputs))


class DiscriminatorState(eqx.Module):
    """State: networks, optimizer state, and moments of the observations."""

    network: Any
    opt_state: PyTree
    obs_moments: PyTree


class GAIL(eqx.Module):
    """GAIL feedback: a discriminator of state and action between demonstrations and the learner's own steps.

    With ``reward="logit"``, ``gradient_penalty=10`` and ``absorbing_states`` on a replay method it is DAC.
    """

    data: str | None = eqx.field(static=True, default=None)
    """Dataset of demonstrations, named as for --data."""
    batch_size: int = eqx.field(static=True, default=256)
    """Steps of the demonstrations, and as many of the learner, in one update of the discriminator."""
    num_updates: int = eqx.field(static=True, default=2)
    """Updates of the discriminator for each update of the method (for each rollout, on-policy)."""
    learning_rate: Number = 1e-3
    """Adam's learning rate for the discriminator."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(32, 32))
    """Hidden layers of the discriminator."""
    reward: Literal["softplus", "logit"] = eqx.field(static=True, default="softplus")
    """The reward of a step with output f: softplus(f), never negative, as in GAIL; or f itself, as in DAC."""
    gradient_penalty: Number = 0.0
    """Weight of the penalty on the gradient's norm, which should be 1, between the two kinds of steps (DAC: 10)."""
    absorbing_states: bool = eqx.field(static=True, default=False)
    """Whether the return goes on after an episode terminates, with the reward of an absorbing state (DAC)."""
    discount: Number = 0.99
    """The method's discount, for absorbing states."""
    uses_actions: bool = eqx.field(static=True, default=True)
    """Whether the discriminator sees the action; else it sees the next observation (imitation from observation)."""
    obs_normalizer: ObsNormalizer | None = RunningMeanStd(clip=10.0)
    """How observations are normalised, over both kinds of steps: None, or RunningMeanStd."""

    name: ClassVar[str] = "gail"
    env_kind: ClassVar[str] = "control"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Generative Adversarial Imitation Learning", "Ho and Ermon", 2016, "arXiv:1606.03476"),
        Citation("Discriminator-Actor-Critic", "Kostrikov et al.", 2019, "arXiv:1809.02925"),
    )

    @property
    def feed(self) -> LoggedTransitions:
        """The demonstrations."""
        return LoggedTransitions(batch_size=self.batch_size, data=self.data, num_updates=self.num_updates)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DiscriminatorState:
        """A fresh discriminator."""
        second = spec.action_space if self.uses_actions else spec.observation_space
        network: Any = PairNetwork((spec.observation_space, second), self.hidden_sizes, key)
        moments = self._normalizer.init(spec.observation_space)
        return DiscriminatorState(network, Adam(self.learning_rate).transform().init(network), moments)

    def score(self, state: DiscriminatorState, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The discriminator's rewards; the environment's are not used."""
        steps = batch.steps
        rewards = self._reward(_vmap_steps(lambda step: state.network(*self._inputs(state, step)))(steps))
        if self.absorbing_states:
            absorbing = self._reward(_absorbing_output(state.network))
            rewards = rewards + absorbing_return(steps, absorbing, self.discount)
        return Rewards(rewards)

    def update(
        self, state: DiscriminatorState, batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[DiscriminatorState, Report]:
        """One step of Adam on as many steps of the demonstrations as of the learner."""
        assert own_batch is not None
        expert, learner = flat_steps(own_batch), sample_steps(batch, own_batch.mask.size, fold(key, "rows"))
        moments = add_observations(self._normalizer, state.obs_moments, expert, learner)
        state = dataclasses.replace(state, obs_moments=moments)

        def features(network: PairNetwork, side: tuple[Transition, Array]) -> tuple[Array, Array]:
            """Encoded steps and their weights; of terminated ones also the absorbing state."""
            steps, weight = side
            rows = jax.vmap(lambda step: network.features(self._inputs(state, step)))(steps)
            if not self.absorbing_states:
                return rows, weight
            ends = jnp.broadcast_to(network.absorbing_features(), rows.shape)
            return jnp.concatenate([rows, ends]), jnp.concatenate([weight, weight * steps.terminated])

        def loss(network: PairNetwork) -> tuple[Array, dict[str, Array]]:
            (real, real_weight), (fake, fake_weight) = features(network, expert), features(network, learner)
            real_logits, fake_logits = (jax.vmap(network.of_features)(x) for x in (real, fake))
            total, metrics = discriminator_loss(real_logits, real_weight, fake_logits, fake_weight)
            penalty = _gradient_penalty(network, real, fake, real_weight * fake_weight, fold(key, "penalty"))
            return total + self.gradient_penalty * penalty, metrics | {"gradient_penalty": penalty}

        network, opt_state, metrics, _ = gradient_step(Adam(self.learning_rate), loss, state.network, state.opt_state)
        return DiscriminatorState(network, opt_state, moments), Report(metrics)

    @property
    def _normalizer(self) -> Any:
        return self.obs_normalizer or IDENTITY

    def _inputs(self, state: DiscriminatorState, step: Transition) -> tuple[PyTree, PyTree]:
        normalize = self._normalizer.normalize
        now = normalize(state.obs_moments, step.view.observation)
        return now, step.action if self.uses_actions else normalize(state.obs_moments, step.next_view.observation)

    def _reward(self, logits: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        return jax.nn.softplus(logits) if self.reward == "softplus" else logits


def dac() -> GAIL:
    """DAC: the discriminator of GAIL for replay, with a gradient penalty, absorbing states, and its logit as reward."""
    return GAIL(num_updates=1, reward="logit", gradient_penalty=10.0, absorbing_states=True)


class AIRLNetworks(eqx.Module):
    """Networks of AIRL: the reward ``g(s, a)`` and the potential ``h(s)``."""

    reward: PairNetwork
    potential: PairNetwork


class AIRL(eqx.Module):
    """AIRL feedback: a discriminator whose output is a reward with a potential, minus the policy's log-probability.

    For methods with log-probabilities of given actions (PPO, A2C).
    """

    data: str | None = eqx.field(static=True, default=None)
    """Dataset of demonstrations, named as for --data."""
    batch_size: int = eqx.field(static=True, default=256)
    """Steps of the demonstrations, and as many of the learner, in one update of the discriminator."""
    num_updates: int = eqx.field(static=True, default=2)
    """Updates of the discriminator for each update of the method."""
    learning_rate: Number = 1e-3
    """Adam's learning rate for the discriminator."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(32, 32))
    """Hidden layers of the reward and of the potential."""
    discount: Number = 0.99
    """Discount of the potential, the method's own."""
    uses_actions: bool = eqx.field(static=True, default=True)
    """Whether the reward depends on the action; a reward of states alone transfers to other dynamics."""
    absorbing_states: bool = eqx.field(static=True, default=False)
    """Whether the return goes on after an episode terminates, with the reward of an absorbing state."""
    obs_normalizer: ObsNormalizer | None = RunningMeanStd(clip=10.0)
    """How observations are normalised, over both kinds of steps: None, or RunningMeanStd."""

    name: ClassVar[str] = "airl"
    env_kind: ClassVar[str] = "control"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Learning Robust Rewards with Adversarial IRL", "Fu et al.", 2018, "arXiv:1710.11248"),
    )
    uses_log_probs: ClassVar[bool] = True

    @property
    def feed(self) -> LoggedTransitions:
        """The demonstrations."""
        return LoggedTransitions(batch_size=self.batch_size, data=self.data, num_updates=self.num_updates)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DiscriminatorState:
        """Fresh networks of reward and potential."""
        reward_key, potential_key = jax.random.split(key)
        observation = spec.observation_space
        spaces = (observation, spec.action_space) if self.uses_actions else (observation,)
        networks: Any = AIRLNetworks(
            PairNetwork(spaces, self.hidden_sizes, reward_key),
            PairNetwork((observation,), self.hidden_sizes, potential_key),
        )
        moments = self._normalizer.init(observation)
        return DiscriminatorState(networks, Adam(self.learning_rate).transform().init(networks), moments)

    def score(self, state: DiscriminatorState, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The shaped rewards; the environment's are not used."""
        steps = batch.steps
        rewards = _vmap_steps(lambda step: self.shaped_reward(state.network, state.obs_moments, step))(steps)
        if self.absorbing_states:
            rewards = rewards + absorbing_return(steps, _absorbing_output(state.network.reward), self.discount)
        return Rewards(rewards)

    def update(
        self, state: DiscriminatorState, batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[DiscriminatorState, Report]:
        """One step of Adam on as many steps of the demonstrations as of the learner."""
        assert own_batch is not None
        expert, learner = flat_steps(own_batch), sample_steps(batch, own_batch.mask.size, fold(key, "rows"))
        moments = add_observations(self._normalizer, state.obs_moments, expert, learner)

        def loss(networks: AIRLNetworks) -> tuple[Array, dict[str, Array]]:
            def logits(side: tuple[Transition, Array]) -> tuple[Array, Array]:
                """Outputs and weights of steps; in the absorbing state there is one action."""
                steps, weight = side
                shaped = jax.vmap(lambda step: self.shaped_reward(networks, moments, step))(steps)
                outputs = shaped - steps.extras["log_prob"]
                if not self.absorbing_states:
                    return outputs, weight
                ends = jnp.broadcast_to(_absorbing_output(networks.reward), outputs.shape)
                return jnp.concatenate([outputs, ends]), jnp.concatenate([weight, weight * steps.terminated])

            return discriminator_loss(*logits(expert), *logits(learner))

        networks, opt_state, metrics, _ = gradient_step(Adam(self.learning_rate), loss, state.network, state.opt_state)
        return DiscriminatorState(networks, opt_state, moments), Report(metrics)

    @property
    def _normalizer(self) -> Any:
        return self.obs_normalizer or IDENTITY

    def shaped_reward(self, networks: AIRLNetworks, obs_moments: PyTree, step: Transition) -> Float[Array, ""]:
        """``g(s, a) + discount * h(s') - h(s)`` of one step; the potential of a terminal state is 0."""
        now = self._normalizer.normalize(obs_moments, step.view.observation)
        following = self._normalizer.normalize(obs_moments, step.next_view.observation)
        reward = networks.reward(now, step.action) if self.uses_actions else networks.reward(now)
        next_potential = jnp.where(step.terminated, 0.0, networks.potential(following))
        return reward + self.discount * next_potential - networks.potential(now)


def absorbing_return(steps: Transition, reward: Float[Array, ""], discount: Number) -> Float[Array, "time row"]:
    """What comes after each step where the episode terminates: the absorbing state's reward for ever; else 0."""
    return jnp.where(steps.terminated, discount / (1.0 - discount) * reward, 0.0)


def _absorbing_output(network: PairNetwork) -> Float[Array, ""]:
    return network.of_features(network.absorbing_features())


def discriminator_loss(
    real_logits: Float[Array, " row"],
    real_weight: Float[Array, " row"],
    fake_logits: Float[Array, " row"],
    fake_weight: Float[Array, " row"],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Binary cross-entropy, the mean of those of demonstrations and of the learner's steps, and metrics."""
    real_loss, fake_loss = jax.nn.softplus(-real_logits), jax.nn.softplus(fake_logits)
    loss = (_weighted_mean(real_loss, real_weight) + _weighted_mean(fake_loss, fake_weight)) / 2
    metrics = {
        "discriminator_loss": loss,
        "expert_accuracy": _weighted_mean((real_logits > 0).astype("float32"), real_weight),
        "learner_accuracy": _weighted_mean((fake_logits <= 0).astype("float32"), fake_weight),
    }
    return loss, metrics


def flat_steps(batch: Batch) -> tuple[Transition, Float[Array, " step"]]:
    """All steps of a batch in a row, and their weights: 0 for those that do not count."""
    steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch.steps)
    return steps, batch.mask.reshape(-1).astype("float32")


def sample_steps(batch: Batch, count: int, key: Key[Array, ""]) -> tuple[Transition, Float[Array, " step"]]:
    """``count`` steps of a batch, sampled without replacement as far as there are as many, and their weights."""
    steps, weight = flat_steps(batch)
    order = jax.random.permutation(key, weight.shape[0])
    rows = jnp.take(order, jnp.arange(count) % weight.shape[0])
    return jax.tree.map(lambda x: x[rows], (steps, weight))


def add_observations(
    normalizer: Any, state: PyTree, expert: tuple[Transition, Array], learner: tuple[Transition, Array]
) -> PyTree:
    """The normalizer's state with the observations of both kinds of steps added."""
    for steps, weight in (expert, learner):
        observations, mask = jax.tree.map(lambda x: x[None], (steps.view.observation, weight > 0))
        state = normalizer.update(state, observations, mask)
    return state


def _gradient_penalty(
    network: PairNetwork,
    real: Float[Array, "row features"],
    fake: Float[Array, "row features"],
    weight: Float[Array, " row"],
    key: Key[Array, ""],
) -> Float[Array, ""]:
    """The mean of ``(norm of the gradient - 1)**2`` at points between encoded steps of both kinds (Gulrajani 2017).

    ``weight`` of each pair: 0 where one of its steps does not count.
    """
    mix = jax.random.uniform(key, (real.shape[0], 1))
    points = mix * real + (1.0 - mix) * fake
    gradients = jax.vmap(jax.grad(network.of_features))(points)
    norms = jnp.sqrt(jnp.sum(jnp.square(gradients), axis=1) + 1e-12)
    return _weighted_mean(jnp.square(norms - 1.0), weight)


def _weighted_mean(values: Float[Array, " row"], weight: Float[Array, " row"]) -> Float[Array, ""]:
    return jnp.sum(values * weight) / jnp.maximum(jnp.sum(weight), 1.0)


def _vmap_steps(function: Callable[[Transition], Array]) -> Callable[[Transition], Array]:
    """Map a function of one step over ``[time, row]``."""
    return jax.vmap(jax.vmap(function))
