"""Distributions over single actions; batch with ``vmap``. Logarithms are natural, sums run over all parts.

All offer ``sample``, ``sample_with_log_prob``, ``mode``, ``log_prob``, ``entropy``, ``kl`` (of this one from another
of its kind, in nats) and ``candidates``: a finite set of actions with weights whose weighted mean estimates an
expectation under the distribution. It is exact for a discrete choice and a single reparameterised sample for a
continuous one, so that one formula serves both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.spaces import MultiDiscrete, Tree, split_legal

# A finite stand-in for minus infinity: exp of it is exactly 0, and 0 times it is 0, so gradients stay finite.
IMPOSSIBLE = -1e30

Scalar = Float[Array, ""]


class Categorical(eqx.Module):
    """One choice out of ``n``; illegal choices have probability exactly 0 and add 0 to the entropy."""

    log_probs: Float[Array, " n"]

    def __init__(self, logits: Float[Array, " n"], legal: Bool[Array, " n"] | None = None):
        masked = logits if legal is None else jnp.where(legal, logits, IMPOSSIBLE)
        self.log_probs = jax.nn.log_softmax(masked)

    @property
    def probs(self) -> Float[Array, " n"]:
        """Probability of each choice."""
        return jnp.exp(self.log_probs)

    def sample(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """One choice."""
        return jax.random.categorical(key, self.log_probs).astype("int32")

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Scalar]:
        """One choice and its log-probability."""
        action = self.sample(key)
        return action, self.log_prob(action)

    def straight_through(self, key: Key[Array, ""]) -> Float[Array, " n"]:
        """One choice, one-hot, with the gradient of a softmax: straight-through Gumbel-softmax (Jang et al., 2017).

        The same Gumbel noise perturbs both, at temperature 1: the greatest of what is perturbed is a true sample.
        """
        soft = jax.nn.softmax(self.log_probs + jax.random.gumbel(key, self.log_probs.shape))
        hard = jax.nn.one_hot(jnp.argmax(soft), soft.size)
        return hard + (soft - jax.lax.stop_gradient(soft))

    def mode(self) -> Int[Array, ""]:
        """The likeliest choice."""
        return jnp.argmax(self.log_probs).astype("int32")

    def log_prob(self, action: Int[Array, ""]) -> Scalar:
        """Log-probability of a choice."""
        return self.log_probs[action]

    def entropy(self) -> Scalar:
        """Entropy in nats."""
        return -jnp.sum(self.probs * self.log_probs)

    def kl(self, other: Categorical) -> Scalar:
        """``KL(self || other)``; both must find the same choices legal."""
        return jnp.sum(self.probs * (self.log_probs - other.log_probs))

    def candidates(self, key: Key[Array, ""]) -> tuple[Int[Array, " n"], Float[Array, " n"], Float[Array, " n"]]:
        """Every choice, weighted by its probability."""
        return jnp.arange(self.log_probs.shape[-1], dtype="int32"), self.probs, self.log_probs


class Normal(eqx.Module):
    """Independent normals, unbounded: what is stored is what was drawn, never what was clipped."""

    mean: Float[Array, "*shape"]
    log_std: Float[Array, "*shape"]

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """One draw, reparameterised."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "*shape"], Scalar]:
        """One draw and its log-density."""
        action = self.sample(key)
        return action, self.log_prob(action)

    def mode(self) -> Float[Array, "*shape"]:
        """The mean."""
        return self.mean

    def log_prob(self, action: Float[Array, "*shape"]) -> Scalar:
        """Log-density."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi))

    def entropy(self) -> Scalar:
        """Differential entropy in nats."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e))

    def kl(self, other: Normal | SquashedNormal) -> Scalar:
        """``KL(self || other)``."""
        ratio = jnp.exp(2.0 * (self.log_std - other.log_std))
        apart = jnp.square((self.mean - other.mean) * jnp.exp(-other.log_std))
        return 0.5 * jnp.sum(ratio + apart - 1.0 - jnp.log(ratio))

    def candidates(self, key: Key[Array, ""]) -> tuple[Array, Float[Array, " 1"], Float[Array, " 1"]]:
        """One reparameterised draw of weight 1."""
        action, log_prob = self.sample_with_log_prob(key)
        return action[None], jnp.ones(1), log_prob[None]


class SquashedNormal(eqx.Module):
    """``tanh`` of independent normals: a density on the open box ``(-1, 1)`` (Haarnoja et al., 2018, app. C)."""

    mean: Float[Array, "*shape"]
    log_std: Float[Array, "*shape"]

    def _log_densities(self, z: Array, u: Array) -> Float[Array, "*shape"]:
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not lose digits for large |u|
        squash = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
        return -0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi) - squash

    def _log_density(self, z: Array, u: Array) -> Scalar:
        return jnp.sum(self._log_densities(z, u))

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """One draw, reparameterised."""
        return self.sample_with_log_prob(key)[0]

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "*shape"], Scalar]:
        """One draw and its log-density, from the value before squashing: exact also near the bounds."""
        u, z = self.before(key)
        return jnp.tanh(u), self._log_density(z, u)

    def before(self, key: Key[Array, ""]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
        """One draw before it is squashed, and the standard normal draw that it is made of."""
        z = jax.random.normal(key, self.mean.shape)
        return self.mean + jnp.exp(self.log_std) * z, z

    def log_probs_before(self, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log-density of each number of ``tanh(u)``; they are independent."""
        return self._log_densities((u - self.mean) * jnp.exp(-self.log_std), u)

    def mode(self) -> Float[Array, "*shape"]:
        """The squashed mean."""
        return jnp.tanh(self.mean)

    def log_prob(self, action: Float[Array, "*shape"]) -> Scalar:
        """Log-density of an action; those at the bounds are moved inside by one float32 step."""
        inside = jnp.clip(action, -1 + 1e-6, 1 - 1e-6)
        return jnp.sum(self.log_probs_before(jnp.arctanh(inside)))

    def entropy(self) -> Scalar:
        """Not available in closed form."""
        raise ValueError("a squashed normal has no closed-form entropy; use -log_prob of a sample")

    def kl(self, other: SquashedNormal) -> Scalar:
        """``KL(self || other)``: that before squashing."""
        return Normal(self.mean, self.log_std).kl(other)

    def candidates(self, key: Key[Array, ""]) -> tuple[Array, Float[Array, " 1"], Float[Array, " 1"]]:
        """One reparameterised draw of weight 1."""
        action, log_prob = self.sample_with_log_prob(key)
        return action[None], jnp.ones(1), log_prob[None]

    def candidates_in_parts(
        self, key: Key[Array, ""]
    ) -> tuple[Float[Array, "1 *shape"], Float[Array, " 1"], Float[Array, "1 *shape"]]:
        """The same, with the log-density of each number."""
        u, z = self.before(key)
        return jnp.tanh(u)[None], jnp.ones(1), self._log_densities(z, u)[None]


class Product(eqx.Module):
    """Independent parts, put together as the space says: vectors of choices, dicts and tuples of anything."""

    parts: tuple[Any, ...]
    space: MultiDiscrete | Tree = eqx.field(static=True)

    def _build(self, values: list[Any]) -> Any:
        return jnp.stack(values) if isinstance(self.space, MultiDiscrete) else self.space.build(values)

    def _split(self, action: Any) -> list[Any]:
        if isinstance(self.space, MultiDiscrete):
            return [action[i] for i in range(len(self.parts))]
        return self.space.split(action)

    def sample(self, key: Key[Array, ""]) -> Any:
        """One draw of every part."""
        keys = jax.random.split(key, len(self.parts))
        return self._build([part.sample(k) for part, k in zip(self.parts, keys, strict=True)])

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Any, Scalar]:
        """One draw of every part and the log-density of them together."""
        keys = jax.random.split(key, len(self.parts))
        pairs = [part.sample_with_log_prob(k) for part, k in zip(self.parts, keys, strict=True)]
        return self._build([action for action, _ in pairs]), _total(log_prob for _, log_prob in pairs)

    def mode(self) -> Any:
        """The mode of every part."""
        return self._build([part.mode() for part in self.parts])

    def log_prob(self, action: Any) -> Scalar:
        """Log-density of all parts together."""
        return _total(p.log_prob(a) for p, a in zip(self.parts, self._split(action), strict=True))

    def entropy(self) -> Scalar:
        """Sum of the parts' entropies."""
        return _total(part.entropy() for part in self.parts)

    def kl(self, other: Product) -> Scalar:
        """Sum of the parts' divergences."""
        return _total(mine.kl(its) for mine, its in zip(self.parts, other.parts, strict=True))


def _total(terms: Iterable[Scalar]) -> Scalar:
    return jnp.sum(jnp.stack(list(terms)))


Distribution = Categorical | Normal | SquashedNormal | Product


def multi_categorical(
    space: MultiDiscrete, logits: Float[Array, " choices"], legal: Bool[Array, " choices"] | None
) -> Product:
    """Independent choices from logits and masks laid end to end."""
    masks = split_legal(space, legal)
    pieces = split_legal(space, logits)
    return Product(tuple(Categorical(z, mask) for z, mask in zip(pieces, masks, strict=True)), space)
