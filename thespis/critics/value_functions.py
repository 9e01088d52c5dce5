"""State-value and Q-value networks, privileged critic inputs, and critic ensembles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, Shaped

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete
from thespis.nets.body import DEFAULT_NETWORK, Body, Encoder, NetworkOptions, build_encoder, count_features, flatten
from thespis.nets.mlp import MLP, Initializer, Linear, uniform_fan_in


class StateValue(eqx.Module):
    """State-value network: a body with one linear output. Its memory is that of the body."""

    body: Body
    out: Linear

    def __init__(self, body: Body, init: Initializer, key: Key[Array, ""]):
        self.body, self.out = body, Linear(body.feature_size, 1, init, key)

    def __call__(self, memory: Any, observation: PyTree) -> tuple[Float[Array, ""], Any]:
        """Value of one observation, and the memory afterwards."""
        features, memory = self.body(memory, observation)
        return self.out(features)[0], memory


class DiscreteQ(eqx.Module):
    """Q-network ``Q(o, ·)`` of discrete actions: all values from one pass.

    Optionally dueling (Wang et al., 2016, eq. 9).
    """

    body: Body
    advantage_out: Linear
    value_out: Linear | None

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        dueling: bool = False,
        options: NetworkOptions = DEFAULT_NETWORK,
    ):
        assert isinstance(spec.action_space, Discrete)
        body_key, out_key, state_key = jax.random.split(key, 3)
        self.body = options.build_body(spec.observation_space, hidden_sizes, body_key, init=uniform_fan_in)
        self.advantage_out = Linear(self.body.feature_size, spec.action_space.n, uniform_fan_in, out_key)
        self.value_out = Linear(self.body.feature_size, 1, uniform_fan_in, state_key) if dueling else None

    def q_values(self, observation: PyTree) -> Float[Array, " n"]:
        """Q-values of all actions."""
        features, _ = self.body((), observation)
        values = self.advantage_out(features)
        return values if self.value_out is None else values - jnp.mean(values) + self.value_out(features)

    def __call__(self, observation: PyTree, actions: Shaped[Array, " k"]) -> Float[Array, " k"]:
        """Q-values of ``k`` actions."""
        return self.q_values(observation)[actions]


class ContinuousQ(eqx.Module):
    """Q-network ``Q(o, a)`` of a continuous action, which is concatenated with the encoded observation."""

    encoder: Callable[[PyTree], Array]
    mlp: MLP
    out: Linear
    space: Box = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        options: NetworkOptions = DEFAULT_NETWORK,
    ):
        assert isinstance(spec.action_space, Box)
        encoder_key, mlp_key, out_key = jax.random.split(key, 3)
        self.space = spec.action_space
        self.encoder = build_encoder(spec.observation_space, encoder_key, options.encoder)
        width = count_features(self.encoder, spec.observation_space)
        width += flatten(self.space, jnp.zeros(self.space.shape)).shape[0]
        self.mlp = MLP(width, hidden_sizes, uniform_fan_in, options.activation, mlp_key, options.layer_norm)
        self.out = Linear(hidden_sizes[-1], 1, uniform_fan_in, out_key)

    def __call__(self, observation: PyTree, actions: Float[Array, "k *action"]) -> Float[Array, " k"]:
        """Q-values of ``k`` actions for one observation."""
        encoded = self.encoder(observation)

        def single_value(action):
            return self.out(self.mlp(jnp.concatenate([encoded, flatten(self.space, action)])))[0]

        return jax.vmap(single_value)(actions)


class GaussianReturnQ(eqx.Module):
    """Distributional Q-network: Gaussian return of ``(o, a)`` for a continuous action (Duan et al., 2021).

    Mean and standard deviation have their own last two hidden layers, those before are shared, so that the steep
    gradient of the deviation does not disturb the features of the mean.
    """

    encoder: Encoder
    shared_mlp: MLP
    branch_mlps: tuple[MLP, MLP]
    branch_outs: tuple[Linear, Linear]
    space: Box = eqx.field(static=True)

    def __init__(
        self, spec: EnvSpec, hidden_sizes: tuple[int, ...], key: Key[Array, ""], *, activation: Callable = jax.nn.relu
    ):
        if not isinstance(spec.action_space, Box):
            raise UserError(
                f"this method's critic needs one box of actions, {spec.name} has {spec.action_space}: use sac, dqn "
                "or ppo"
            )
        encoder_key, shared_key, *keys = jax.random.split(key, 6)
        self.space = spec.action_space
        self.encoder = Encoder(spec.observation_space, encoder_key)
        width = self.encoder.feature_size + flatten(self.space, jnp.zeros(self.space.shape)).shape[0]
        common, own = hidden_sizes[:-2], hidden_sizes[-2:]
        self.shared_mlp = MLP(width, common, uniform_fan_in, activation, shared_key)
        width = common[-1] if common else width
        mean, deviation = (MLP(width, own, uniform_fan_in, activation, k) for k in keys[:2])
        self.branch_mlps = mean, deviation
        mean_out, deviation_out = (Linear(own[-1], 1, uniform_fan_in, k) for k in keys[2:])
        self.branch_outs = mean_out, deviation_out

    def __call__(
        self, observation: PyTree, actions: Float[Array, "k *action"]
    ) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """Mean and standard deviation, which is positive, of the returns of ``k`` actions for one observation."""
        encoded = self.encoder(observation)

        def single_return(action):
            x = self.shared_mlp(jnp.concatenate([encoded, flatten(self.space, action)]))
            mean, deviation = (
                out(branch(x))[0] for branch, out in zip(self.branch_mlps, self.branch_outs, strict=True)
            )
            return mean, jax.nn.softplus(deviation)

        return jax.vmap(single_return)(actions)


def critic_spec(spec: EnvSpec) -> EnvSpec:
    """Environment spec as critics see it: the privileged space, where there is one, replaces the observation space.

    An asymmetric critic (Pinto et al., 2018, arXiv:1710.06542): it is not needed any more when the actor plays.
    """
    return spec if spec.privileged_space is None else dataclasses.replace(spec, observation_space=spec.privileged_space)


def critic_observation(privileged: PyTree, observation: PyTree) -> PyTree:
    """Return the input of such a critic: ``privileged``, or the observation where that is ``None``."""
    return observation if privileged is None else privileged


@runtime_checkable
class QFunction(Protocol):
    """Interface of Q-functions ``Q(o, .)`` of some actions."""

    def __call__(self, observation: PyTree, actions: PyTree) -> Float[Array, " k"]:
        """Q-values of ``k`` actions for one observation."""
        ...


Critic = TypeVar("Critic", bound=QFunction)


def build_q_function(
    spec: EnvSpec, hidden_sizes: tuple[int, ...], key: Key[Array, ""], options: NetworkOptions = DEFAULT_NETWORK
) -> QFunction:
    """Q-network of the critic input that fits the action space.

    Raises ``UserError`` for vectors and trees of choices.
    """
    match spec.action_space:
        case Discrete():
            return DiscreteQ(critic_spec(spec), hidden_sizes, key, options=options)
        case Box():
            return ContinuousQ(critic_spec(spec), hidden_sizes, key, options=options)
        case other:
            raise UserError(
                f"this method's critic needs one discrete choice or one box of actions, {spec.name} has {other}: "
                "use ppo or a2c, which take any tree of actions"
            )


def init_ensemble(build: Callable[[Key[Array, ""]], Critic], num_members: int, key: Key[Array, ""]) -> Critic:
    """Initialize ``num_members`` independent critics, with their parameters stacked on a leading axis."""
    return jax.vmap(build)(jax.random.split(key, num_members))


def evaluate_ensemble(critics: QFunction, observation: PyTree, actions: PyTree) -> Float[Array, "members k"]:
    """Q-values of ``k`` actions for one observation, by every member."""
    return jax.vmap(lambda critic: critic(observation, actions))(critics)
