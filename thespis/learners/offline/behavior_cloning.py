"""Behaviour cloning: maximum likelihood of recorded actions.

Also learns the average policy of fictitious self-play, from its own recorded actions.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.policy_heads import Gaussian, PolicyHead, action_probs, vmap_act
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.learners.optim.normalizers import IDENTITY, ObsNormalizer
from thespis.learners.optim.optimizers import LearningRate, OptimizerFactory, build_optimizer, gradient_step
from thespis.nets.body import Body, ObservationEncoder
from thespis.nets.mlp import orthogonal


class BCNetwork(eqx.Module):
    """Policy network: body and policy head."""

    body: Body
    policy_head: PolicyHead


class BCState(eqx.Module):
    """State of behaviour cloning: network, optimizer and observation normalizer."""

    network: BCNetwork
    opt_state: PyTree
    obs_normalizer_state: PyTree


class BCPolicy(eqx.Module):
    """Policy of behaviour cloning: network, observation normalizer and acting mode."""

    network: BCNetwork
    obs_normalizer_state: PyTree
    mode: Mode = eqx.field(static=True)


class BehaviorCloning(eqx.Module):
    """Behaviour cloning by a feed-forward policy, for any action space; nothing here is overridden."""

    learning_rate: LearningRate = 1e-3
    """Step size."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    obs_normalizer: ObsNormalizer | None = None
    """Normalizer of observations: None or RunningMeanStd."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer."""
    encoder: ObservationEncoder | None = eqx.field(static=True, default=None)
    """Encoder before the hidden layers: None (images: by their size), NatureCNN, MinAtarCNN, ImpalaCNN, ResNet or your
    own module:Class, built with (observation_space, key)."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> BCState:
        """Training state with a fresh policy network."""
        body_key, head_key = jax.random.split(key)
        body = Body(
            spec.observation_space,
            self.hidden_sizes,
            body_key,
            init=orthogonal(2**0.5),
            activation=jax.nn.relu,
            encoder=self.encoder,
        )
        head = PolicyHead(
            spec.action_space, body.feature_size, head_key, init=orthogonal(0.01), continuous_head=Gaussian()
        )
        network = BCNetwork(body, head)
        opt = build_optimizer(self.optimizer, self.learning_rate).init(network)
        return BCState(network, opt, (self.obs_normalizer or IDENTITY).init(spec.observation_space))

    def policy(self, state: BCState, mode: Mode) -> BCPolicy:
        """The network and the observation normalizer."""
        return BCPolicy(state.network, state.obs_normalizer_state, mode)

    def init_memory(self, policy: BCPolicy, n: int) -> tuple[()]:
        """An empty memory: the policy is memoryless."""
        return ()

    def act(self, policy: BCPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Sampled actions, or the mode of the distribution in ``EXPLOIT`` mode."""

        def single(memory, view, key):
            distribution = self._distribution(policy.network, policy.obs_normalizer_state, view)
            return (distribution.mode() if policy.mode is Mode.EXPLOIT else distribution.sample(key)), memory, ()

        return vmap_act(single, memory, view, key)

    def action_probs(self, policy: BCPolicy, memory: Any, view: View) -> Float[Array, "row n"]:
        """Probability of every action.

        Raises ``UserError`` unless the action space is one discrete choice.
        """

        def single(view):
            return action_probs(
                self._distribution(policy.network, policy.obs_normalizer_state, view),
                greedy=policy.mode is Mode.EXPLOIT,
            )

        return jax.vmap(single)(View(view.observation, view.action_mask))

    def judge(self, state: BCState, episode: Transition) -> Critique:
        """Empty critique: there is no critic."""
        return Critique()

    def update(self, state: BCState, batch: Batch, key: Key[Array, ""]) -> tuple[BCState, Report]:
        """One gradient step on the negative log-likelihood of a batch."""
        scale = (self.obs_normalizer or IDENTITY).update(
            state.obs_normalizer_state, batch.steps.view.observation, batch.mask
        )
        weight = batch.mask.astype("float32")

        def loss(clone):
            def log_prob(view, action):
                return self._distribution(clone, scale, view).log_prob(action)

            log_probs = jax.vmap(jax.vmap(log_prob))(batch.steps.view, batch.steps.action)
            nll = -jnp.sum(log_probs * weight) / jnp.sum(weight)
            return nll, nll

        clone, opt, nll, norm = gradient_step(
            build_optimizer(self.optimizer, self.learning_rate), loss, state.network, state.opt_state
        )
        return BCState(clone, opt, scale), Report({"negative_log_likelihood": nll, "gradient": norm})

    def _distribution(self, network: BCNetwork, obs_normalizer_state: PyTree, view: View) -> Any:
        features, _ = network.body(
            (), (self.obs_normalizer or IDENTITY).normalize(obs_normalizer_state, view.observation)
        )
        return network.policy_head(features, view.action_mask)
