"""The stochastic actor of soft methods: a squashed normal for a box, a categorical for a choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from thespis.actors.heads import Continuous, PolicyHead, SquashedGaussian
from thespis.core.contracts import Mode
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import random_action
from thespis.nets.body import Body
from thespis.nets.mlp import uniform_fan_in

AS_PUBLISHED = SquashedGaussian()


@runtime_checkable
class Soft(Protocol):
    """An actor of soft methods."""

    def __call__(self, view: View) -> Any:
        """The distribution for one view."""
        ...

    def at_first(self, chosen: Any, view: View, key: Key[Array, ""]) -> PyTree:
        """What it does in a view, where it would choose by ``chosen``, before it has learnt anything."""
        ...


class SoftActor(eqx.Module):
    """Body and squashed or categorical head."""

    body: Body
    head: PolicyHead

    def __init__(
        self,
        spec: EnvSpec,
        hidden: tuple[int, ...],
        key: Key[Array, ""],
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        continuous: Continuous = AS_PUBLISHED,
    ):
        body_key, head_key = jax.random.split(key)
        self.body = Body(spec.observation, hidden, body_key, init=uniform_fan_in, activation=activation)
        self.head = PolicyHead(spec.action, self.body.size, head_key, init=uniform_fan_in, continuous=continuous)

    def __call__(self, view: View) -> Any:
        """The distribution for one view: a ``SquashedNormal`` for a box, a ``Categorical`` for a choice."""
        return self.head(self.body((), view.observation)[0], view.legal)

    def at_first(self, chosen: Any, view: View, key: Key[Array, ""]) -> PyTree:
        """Anything, uniformly."""
        return random_action(self.head.space, key, view.legal)


class SoftPolicy(eqx.Module):
    """What a soft actor carries; ``random`` until the first update."""

    actor: Soft
    scale: PyTree
    random: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)

    def __call__(self, view: View, key: Key[Array, ""]) -> PyTree:
        """One action for one scaled view: the mode, a sample, or at first, while it explores, what it does then."""
        chosen = self.actor(view)
        if self.mode is Mode.EXPLOIT:
            return chosen.mode()
        if self.mode is Mode.SAMPLE:
            return chosen.sample(key)
        sample_key, random_key = jax.random.split(key)
        first = self.actor.at_first(chosen, view, random_key)
        return jax.tree.map(lambda u, a: jnp.where(self.random, u, a), first, chosen.sample(sample_key))
