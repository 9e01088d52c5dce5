"""What A2C, PPO and IMPALA have in common: an actor-critic that acts, is judged, and learns from its own rollouts.

A concrete method adds its fields and an ``update``; nothing here is overridden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.distributions import Distribution
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Critique, EnvSpec, Transition, View
from thespis.critics.values import seen_by_critics
from thespis.learners.actor_critic import ActorCritic, Assessor, Evaluated, OnPolicyActor, Scales, Seen
from thespis.learners.gradient import Adam, Number, Optimiser, Rate, RMSProp, gradient_step
from thespis.learners.minibatches import columns, epochs
from thespis.learners.networks import Network
from thespis.learners.normalisers import AsTheyAre, ObservationScale, RawReward, RewardScale
from thespis.nets.body import GRU
from thespis.nets.elstm import ELSTM
from thespis.nets.relations import Attention
from thespis.objectives.normalise import explained_variance, mean
from thespis.objectives.policies import policy_gradient

Loss = Callable[[Network, Evaluated, Any], tuple[Array, dict[str, Array]]]


class OnPolicyState(eqx.Module):
    """All that an on-policy method learns."""

    network: Network
    opt: PyTree
    scales: Scales


class OnPolicy(eqx.Module):
    """Any tree of actions, with or without memory."""

    learning_rate: eqx.AbstractVar[Rate]
    trace: eqx.AbstractVar[Number]
    optimiser: eqx.AbstractVar[Literal["adam", "rmsprop"]]

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    entropy_weight: Number = 0.0
    """Weight of the entropy bonus."""
    value_weight: Number = 0.5
    """Weight of the critic's loss."""
    max_gradient_norm: Number = 0.5
    """Global norm to which the gradient is clipped."""
    observations: ObservationScale = AsTheyAre()
    """Scaling of observations: AsTheyAre or RunningScale."""
    rewards: RewardScale = RawReward()
    """Scaling of rewards: RawReward, ReturnScale or Centred."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer, of actor and critic."""
    memory: GRU | ELSTM | None = eqx.field(static=True, default=None)
    """Recurrent core after the hidden layers: None, GRU or ELSTM."""
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jnp.tanh)
    """Activation of the hidden layers."""
    others: Attention | None = eqx.field(static=True, default=None)
    """How sets are read, boxes with a row for each of several others: None (laid flat) or Attention."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> OnPolicyState:
        """Fresh actor and critic."""
        network = ActorCritic(
            spec, self.hidden, key, memory=self.memory, activation=self.activation, others=self.others
        )
        return self.begun(spec, network)

    def begun(self, spec: EnvSpec, network: Network) -> OnPolicyState:
        """With this network, whatever it is."""
        return OnPolicyState(network, self.stepper().init(network), self.assessor().begin_scales(spec))

    def policy(self, state: OnPolicyState, mode: Mode) -> OnPolicyActor:
        """Actor, critic (its memory is carried along) and scale."""
        return OnPolicyActor(state.network, state.scales[0], self.observations, mode)

    def begin(self, policy: OnPolicyActor, n: int) -> Any:
        """Memories of actor and critic."""
        return policy.network.begin(n)

    def act(self, policy: OnPolicyActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """A sample with its log-probability, or the mode when it exploits."""
        return policy.act(memory, view, key)

    def probabilities(self, policy: OnPolicyActor, memory: Any, view: View) -> Float[Array, "row n"]:
        """Of every choice. Raises ``UserError`` unless an action is one discrete choice."""
        return policy.probabilities(memory, view)

    def judge(self, state: OnPolicyState, episode: Transition) -> Critique:
        """State values and generalised advantages, in the world's units of reward."""
        return self.assessor().judge(state.network, state.scales, episode)

    def stepper(self) -> Optimiser:
        """How gradients become steps; epsilon is 1e-5 in both, as in the code of the methods' authors."""
        kind = {"adam": Adam, "rmsprop": RMSProp}[self.optimiser]
        return kind(self.learning_rate, self.max_gradient_norm, 1e-5)

    def assessor(self) -> Assessor:
        """How a rollout is evaluated."""
        return Assessor(self.observations, self.rewards, self.discount, self.trace)

    def descend(self, state: OnPolicyState, batch: Batch, verdict: Evaluated) -> tuple[OnPolicyState, dict[str, Array]]:
        """One gradient step of actor and critic on a whole rollout, after which the scales learn; and its metrics."""

        def loss(network: Network):
            now = replay(network, batch.memory, verdict)
            actor_loss = mean(policy_gradient(now.log_prob, verdict.advantage), verdict.alive)
            critic_loss = mean(jnp.square(now.value - verdict.target), verdict.alive)
            total = actor_loss + self.value_weight * critic_loss - self.entropy_weight * now.entropy
            return total, {"actor_loss": actor_loss, "critic_loss": critic_loss, "entropy": now.entropy}

        network, opt, metrics, norm = gradient_step(self.stepper(), loss, state.network, state.opt)
        scales = self.assessor().learn_scales(state.scales, batch)
        return OnPolicyState(network, opt, scales), metrics | {"gradient": norm}

    def descend_often(
        self, state: OnPolicyState, batch: Batch, verdict: Evaluated, loss: Loss, passes: int, minibatch: int,
        key: Key[Array, ""],
    ) -> tuple[OnPolicyState, dict[str, Array]]:  # fmt: skip
        """Passes over a rollout in minibatches of ``loss(network, steps, memory)``, then scales learn; and metrics."""
        stepper = self.stepper()

        def step(carry: tuple[Network, PyTree], data: tuple[Evaluated, Any]) -> Any:
            network, opt, metrics, norm = gradient_step(stepper, lambda n: loss(n, *data), *carry)
            return (network, opt), metrics | {"gradient": norm}

        data = columns((verdict, batch.memory), joined=self.memory is not None)
        (network, opt), metrics = epochs(step, (state.network, state.opt), data, passes, minibatch, key)
        metrics["explained_variance"] = explained_variance(verdict.value, verdict.target, verdict.alive)
        return OnPolicyState(network, opt, self.assessor().learn_scales(state.scales, batch)), metrics


class Replayed(eqx.Module):
    """What the network under training says of an evaluated rollout, ``[time, row, ...]``; entropy is the mean."""

    policy: Distribution
    log_prob: Float[Array, "time row"]
    entropy: Float[Array, ""]
    value: Float[Array, "time row"]


def replay(network: Network, memory: Any, data: Seen | Evaluated) -> Replayed:
    """Log-probabilities of the stored actions, values and mean entropy, from the memory before the first step."""
    policy = network.distributions(memory, data.view, data.first)
    log_prob = jax.vmap(jax.vmap(lambda p, a: p.log_prob(a)))(policy, data.action)
    entropy = mean(jax.vmap(jax.vmap(lambda p: p.entropy()))(policy), data.alive)
    value, _ = network.values(memory, seen_by_critics(data.told, data.view.observation), data.first)
    return Replayed(policy, log_prob, entropy, value)
