"""How likely each member of a pool of opponents is drawn."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


@runtime_checkable
class Choice(Protocol):
    """Chances over members of a pool."""

    def chances(
        self,
        there: Bool[Array, " member"],
        age: Int[Array, " member"],
        points: Float[Array, " member"],
        matrix: Float[Array, "member member"],
    ) -> Float[Array, " member"]:
        """Probabilities, 0 for places that are not ``there``.

        ``age``: larger is later. ``points``: the learner's against each, in [0, 1]. ``matrix``: of each against each.
        """
        ...


class Latest(eqx.Module):
    """The one that joined last: self-play."""

    def chances(self, there: Array, age: Array, points: Array, matrix: Array) -> Float[Array, " member"]:
        """All on the latest."""
        return jax.nn.one_hot(jnp.argmax(jnp.where(there, age, -2)), there.shape[0])


class Uniformly(eqx.Module):
    """All alike: fictitious self-play."""

    def chances(self, there: Array, age: Array, points: Array, matrix: Array) -> Float[Array, " member"]:
        """Even."""
        return there / jnp.sum(there)


class HardFirst(eqx.Module):
    """The more often, the less the learner wins: ``(1 - points)**power`` (Vinyals et al. 2019, PFSP)."""

    power: float = 2.0

    def chances(self, there: Array, age: Array, points: Array, matrix: Array) -> Float[Array, " member"]:
        """By what is lost; even where nothing is lost to anybody."""
        return weighted(there, (1.0 - points) ** self.power)


class Equilibrium(eqx.Module):
    """As the equilibrium of the zero-sum game whose moves are the members (Lanctot et al. 2017), by regret matching.

    Symmetric: ``matrix`` holds points, of which 1/2 is even.
    """

    iterations: int = eqx.field(static=True, default=500)

    def chances(self, there: Array, age: Array, points: Array, matrix: Array) -> Float[Array, " member"]:
        """The average strategy of regret matching+ against itself (Tammelin 2014)."""
        payoff = jnp.where(there[:, None] & there[None, :], matrix - 0.5, 0.0)

        def strategy(regret: Array) -> Array:
            positive = jnp.where(there, jnp.maximum(regret, 0.0), 0.0)
            total = jnp.sum(positive)
            return jnp.where(total > 0, positive / jnp.where(total > 0, total, 1.0), there / jnp.sum(there))

        def step(carry: tuple[Array, Array], weight: Array) -> tuple[tuple[Array, Array], None]:
            regret, total = carry
            now = strategy(regret)
            value = payoff @ now
            regret = jnp.maximum(regret + value - now @ value, 0.0)
            return (regret, total + weight * now), None

        zero = jnp.zeros(there.shape)
        (_, total), _ = jax.lax.scan(step, (zero, zero), 1.0 + jnp.arange(self.iterations))
        return total / jnp.sum(total)


def weighted(there: Bool[Array, " member"], weight: Float[Array, " member"]) -> Float[Array, " member"]:
    """Chances in proportion to weights of at least 0 of those ``there``; even where no weight is left."""
    weight = jnp.where(there, weight + 1e-6, 0.0)
    return weight / jnp.sum(weight)
