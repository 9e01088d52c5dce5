"""Stochastic actors of soft actor-critic methods: a squashed normal for boxes, a categorical for discrete choices."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from thespis.actors.policy_heads import ContinuousHead, PolicyHead, SquashedGaussian
from thespis.actors.state_dependent_noise import ExplorationNoise
from thespis.core.contracts import Mode
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import random_action
from thespis.nets.body import DEFAULT_NETWORK, Body, NetworkOptions
from thespis.nets.mlp import uniform_fan_in

DEFAULT_POLICY_HEAD = SquashedGaussian()


@runtime_checkable
class StochasticActor(Protocol):
    """Interface of stochastic actors of soft actor-critic methods."""

    def __call__(self, view: View) -> Any:
        """The distribution for one view."""
        ...

    def initial_action(self, distribution: Any, view: View, key: Key[Array, ""]) -> PyTree:
        """An action before the first update, for a view whose policy is ``distribution``."""
        ...


@runtime_checkable
class ActorWithNoise(Protocol):
    """Interface of stochastic actors that may explore by noise that outlasts a step."""

    def __call__(self, view: View, noise: ExplorationNoise | None = None) -> Any:
        """The distribution for one view, while acting with its noise."""
        ...

    def init_noise(self, n: int) -> ExplorationNoise | None:
        """The exploration noise of ``n`` fresh episodes; ``None`` if there is an independent one at each step."""
        ...


class SoftActor(eqx.Module):
    """Actor network of soft actor-critic methods: a body, and a squashed Gaussian or categorical head."""

    body: Body
    head: PolicyHead

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        options: NetworkOptions = DEFAULT_NETWORK,
        continuous_head: ContinuousHead = DEFAULT_POLICY_HEAD,
    ):
        body_key, head_key = jax.random.split(key)
        self.body = options.build_body(spec.observation_space, hidden_sizes, body_key, init=uniform_fan_in)
        self.head = PolicyHead(
            spec.action_space, self.body.feature_size, head_key, init=uniform_fan_in, continuous_head=continuous_head
        )

    def __call__(self, view: View, noise: ExplorationNoise | None = None) -> Any:
        """The distribution for one view: a ``SquashedNormal`` for a box, a ``Categorical`` for a choice.

        ``noise``: the exploration noise while acting, for a head that has one.
        """
        return self.head(self.body((), view.observation)[0], view.action_mask, noise)

    def init_noise(self, n: int) -> ExplorationNoise | None:
        """The exploration noise of ``n`` fresh episodes; ``None`` if there is an independent one at each step."""
        return self.head.init_noise(n)

    def initial_action(self, distribution: Any, view: View, key: Key[Array, ""]) -> PyTree:
        """A uniform legal action."""
        return random_action(self.head.space, key, view.action_mask)


class SoftPolicy(eqx.Module):
    """Behaviour policy of a soft actor; ``random_actions`` is true until the first update."""

    actor: StochasticActor
    obs_normalizer_state: PyTree
    random_actions: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)

    def init_memory(self, n: int) -> tuple[ExplorationNoise, ...]:
        """The memory of ``n`` fresh episodes: the exploration noise, if it outlasts a step."""
        noise = self.actor.init_noise(n) if isinstance(self.actor, ActorWithNoise) else None
        return () if noise is None else (noise,)

    def __call__(self, view: View, key: Key[Array, ""], memory: tuple[ExplorationNoise, ...] = ()) -> PyTree:
        """One action for one normalised view: the mode (``EXPLOIT``), or a sample.

        In ``EXPLORE`` it is the actor's ``initial_action`` while ``random_actions`` is set. ``memory``: the exploration
        noise of this step, if there is one.
        """
        actor: Any = self.actor  # with noise only where ``init_memory`` has found some
        distribution = actor(view, *memory)
        if self.mode is Mode.EXPLOIT:
            return distribution.mode()
        if self.mode is Mode.SAMPLE:
            return distribution.sample(key)
        sample_key, random_key = jax.random.split(key)
        initial = self.actor.initial_action(distribution, view, random_key)
        return jax.tree.map(lambda u, a: jnp.where(self.random_actions, u, a), initial, distribution.sample(sample_key))
