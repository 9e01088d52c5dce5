"""Critics that evaluate states and actions."""

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
from thespis.nets.body import Body, Encoder, flatten
from thespis.nets.mlp import MLP, Initialiser, Linear, uniform_fan_in


class Value(eqx.Module):
    """State value: a body with one linear output. Its memory is that of the body."""

    body: Body
    out: Linear

    def __init__(self, body: Body, init: Initialiser, key: Key[Array, ""]):
        self.body, self.out = body, Linear(body.size, 1, init, key)

    def __call__(self, memory: Any, observation: PyTree) -> tuple[Float[Array, ""], Any]:
        """Value of one observation and the memory after it."""
        features, memory = self.body(memory, observation)
        return self.out(features)[0], memory


class ChoiceValue(eqx.Module):
    """``Q(o, ·)`` of a discrete choice: all values from one pass; optionally duelling (Wang et al., 2016, eq. 9)."""

    body: Body
    out: Linear
    state: Linear | None

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""], *, duelling: bool = False):
        assert isinstance(spec.action, Discrete)
        body_key, out_key, state_key = jax.random.split(key, 3)
        self.body = Body(spec.observation, hidden, body_key, init=uniform_fan_in, activation=jax.nn.relu)
        self.out = Linear(self.body.size, spec.action.n, uniform_fan_in, out_key)
        self.state = Linear(self.body.size, 1, uniform_fan_in, state_key) if duelling else None

    def all(self, observation: PyTree) -> Float[Array, " n"]:
        """The values of every choice."""
        features, _ = self.body((), observation)
        values = self.out(features)
        return values if self.state is None else values - jnp.mean(values) + self.state(features)

    def __call__(self, observation: PyTree, actions: Shaped[Array, " k"]) -> Float[Array, " k"]:
        """The values of ``k`` choices."""
        return self.all(observation)[actions]


class PairValue(eqx.Module):
    """``Q(o, a)`` of a continuous action, which enters beside the encoded observation."""

    encoder: Encoder
    mlp: MLP
    out: Linear
    space: Box = eqx.field(static=True)

    def __init__(
        self, spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""], *, activation: Callable = jax.nn.relu
    ):
        assert isinstance(spec.action, Box)
        encoder_key, mlp_key, out_key = jax.random.split(key, 3)
        self.space = spec.action
        self.encoder = Encoder(spec.observation, encoder_key)
        width = self.encoder.size + flatten(self.space, jnp.zeros(self.space.shape)).shape[0]
        self.mlp = MLP(width, hidden, uniform_fan_in, activation, mlp_key)
        self.out = Linear(hidden[-1], 1, uniform_fan_in, out_key)

    def __call__(self, observation: PyTree, actions: Float[Array, "k *action"]) -> Float[Array, " k"]:
        """The values of ``k`` actions for one observation."""
        encoded = self.encoder(observation)

        def one(action):
            return self.out(self.mlp(jnp.concatenate([encoded, flatten(self.space, action)])))[0]

        return jax.vmap(one)(actions)


class PairReturn(eqx.Module):
    """Normal distribution of the return of ``(o, a)`` for a continuous action (Duan et al., 2021).

    The last two hidden layers belong to mean and deviation each, those before are shared, so that the steep
    gradient of the deviation does not bend what the mean needs.
    """

    encoder: Encoder
    shared: MLP
    branches: tuple[MLP, MLP]
    outs: tuple[Linear, Linear]
    space: Box = eqx.field(static=True)

    def __init__(
        self, spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""], *, activation: Callable = jax.nn.relu
    ):
        if not isinstance(spec.action, Box):
            raise UserError(
                f"this method's critic needs one box of actions, {spec.name} has {spec.action}: use sac, dqn or ppo"
            )
        encoder_key, shared_key, *keys = jax.random.split(key, 6)
        self.space = spec.action
        self.encoder = Encoder(spec.observation, encoder_key)
        width = self.encoder.size + flatten(self.space, jnp.zeros(self.space.shape)).shape[0]
        common, own = hidden[:-2], hidden[-2:]
        self.shared = MLP(width, common, uniform_fan_in, activation, shared_key)
        width = common[-1] if common else width
        mean, deviation = (MLP(width, own, uniform_fan_in, activation, k) for k in keys[:2])
        self.branches = mean, deviation
        mean_out, deviation_out = (Linear(own[-1], 1, uniform_fan_in, k) for k in keys[2:])
        self.outs = mean_out, deviation_out

    def __call__(
        self, observation: PyTree, actions: Float[Array, "k *action"]
    ) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """Mean and standard deviation, which is positive, of the returns of ``k`` actions for one observation."""
        encoded = self.encoder(observation)

        def one(action):
            x = self.shared(jnp.concatenate([encoded, flatten(self.space, action)]))
            mean, deviation = (out(branch(x))[0] for branch, out in zip(self.branches, self.outs, strict=True))
            return mean, jax.nn.softplus(deviation)

        return jax.vmap(one)(actions)


def for_critics(spec: EnvSpec) -> EnvSpec:
    """``spec`` as critics know it: what is privileged takes the place of the observation, where there is such a thing.

    An asymmetric critic (Pinto et al., 2018, arXiv:1710.06542): it is not needed any more when the actor plays.
    """
    return spec if spec.privileged is None else dataclasses.replace(spec, observation=spec.privileged)


def seen_by_critics(privileged: PyTree, observation: PyTree) -> PyTree:
    """What such a critic looks at: ``privileged``, or the observation where that is ``None``."""
    return observation if privileged is None else privileged


@runtime_checkable
class ActionValue(Protocol):
    """``Q(o, .)`` of some actions."""

    def __call__(self, observation: PyTree, actions: PyTree) -> Float[Array, " k"]:
        """The values of ``k`` actions for one observation."""
        ...


Critic = TypeVar("Critic", bound=ActionValue)


def action_value(spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""]) -> ActionValue:
    """The action value, of what critics see, that fits the action space. Raises ``UserError`` for vectors and trees
    of choices.
    """
    match spec.action:
        case Discrete():
            return ChoiceValue(for_critics(spec), hidden, key)
        case Box():
            return PairValue(for_critics(spec), hidden, key)
        case other:
            raise UserError(
                f"this method's critic needs one discrete choice or one box of actions, {spec.name} has {other}: "
                "use ppo or a2c, which take any tree of actions"
            )


def ensemble(build: Callable[[Key[Array, ""]], Critic], members: int, key: Key[Array, ""]) -> Critic:
    """``members`` independent critics with their parameters stacked on a leading axis."""
    return jax.vmap(build)(jax.random.split(key, members))


def evaluate_ensemble(critics: ActionValue, observation: PyTree, actions: PyTree) -> Float[Array, "members k"]:
    """Values of ``k`` actions for one observation, by every member."""
    return jax.vmap(lambda critic: critic(observation, actions))(critics)
