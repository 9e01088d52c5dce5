"""A critic that says how likely returns are, not only what they are on average (Bellemare et al., 2017)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, Shaped

from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, uniform_fan_in


class CategoricalValue(eqx.Module):
    """Of every choice the chances of ``atoms`` returns from ``lowest`` to ``highest``: all from one pass."""

    body: Body
    out: Linear
    lowest: float = eqx.field(static=True)
    highest: float = eqx.field(static=True)
    atoms: int = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        hidden: tuple[int, ...],
        key: Key[Array, ""],
        *,
        lowest: float = -10.0,
        highest: float = 10.0,
        atoms: int = 51,
    ):
        assert isinstance(spec.action, Discrete)
        body_key, out_key = jax.random.split(key)
        self.lowest, self.highest, self.atoms = lowest, highest, atoms
        self.body = Body(spec.observation, hidden, body_key, init=uniform_fan_in, activation=jax.nn.relu)
        self.out = Linear(self.body.size, spec.action.n * atoms, uniform_fan_in, out_key)

    @property
    def support(self) -> Float[Array, " atoms"]:
        """The returns that have a chance."""
        return jnp.linspace(self.lowest, self.highest, self.atoms)

    def logits(self, observation: PyTree) -> Float[Array, "n atoms"]:
        """Of the chances, for every choice."""
        features, _ = self.body((), observation)
        return self.out(features).reshape(-1, self.atoms)

    def chances(self, observation: PyTree) -> Float[Array, "n atoms"]:
        """The distribution of the return, for every choice."""
        return jax.nn.softmax(self.logits(observation))

    def all(self, observation: PyTree) -> Float[Array, " n"]:
        """The mean return of every choice."""
        return self.chances(observation) @ self.support

    def __call__(self, observation: PyTree, actions: Shaped[Array, " k"]) -> Float[Array, " k"]:
        """The mean returns of ``k`` choices."""
        return self.all(observation)[actions]
