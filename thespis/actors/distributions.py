"""Distributions over single actions; batch with ``vmap``. Logarithms are natural, sums run over all components.

All offer ``sample``, ``sample_with_log_prob``, ``mode``, ``log_prob``, ``entropy`` and ``kl`` (from another
distribution of its kind, in nats). Leaf distributions also offer ``action_samples``: a finite set of actions with
weights whose weighted mean estimates an expectation under the distribution. It is exact for a discrete choice and a
single reparameterised sample for a continuous one, so that one formula serves both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.spaces import CompositeSpace, MultiDiscrete, split_action_mask

# A finite stand-in for minus infinity: exp of it is exactly 0, and 0 times it is 0, so gradients stay finite.
MASKED_LOGIT = -1e30

Scalar = Float[Array, ""]


class Categorical(eqx.Module):
    """Categorical distribution over ``n`` choices; illegal ones have probability exactly 0 and add 0 to the entropy."""

    log_probs: Float[Array, " n"]

    def __init__(self, logits: Float[Array, " n"], action_mask: Bool[Array, " n"] | None = None):
        masked = logits if action_mask is None else jnp.where(action_mask, logits, MASKED_LOGIT)
        self.log_probs = jax.nn.log_softmax(masked)

    @property
    def probs(self) -> Float[Array, " n"]:
        """Probability of each choice."""
        return jnp.exp(self.log_probs)

    def sample(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Sample one choice from the distribution."""
        return jax.random.categorical(key, self.log_probs).astype("int32")

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Scalar]:
        """A sampled choice and its log-probability."""
        action = self.sample(key)
        return action, self.log_prob(action)

    def straight_through(self, key: Key[Array, ""]) -> Float[Array, " n"]:
        """Straight-through Gumbel-softmax sample: one-hot, with the gradient of a softmax (Jang et al., 2017).

        The same Gumbel noise perturbs both, at temperature 1: the argmax of the perturbed logits is an exact sample.
        """
        soft = jax.nn.softmax(self.log_probs + jax.random.gumbel(key, self.log_probs.shape))
        hard = jax.nn.one_hot(jnp.argmax(soft), soft.size)
        return hard + (soft - jax.lax.stop_gradient(soft))

    def mode(self) -> Int[Array, ""]:
        """The most probable choice."""
        return jnp.argmax(self.log_probs).astype("int32")

    def log_prob(self, action: Int[Array, ""]) -> Scalar:
        """Log-probability of a choice."""
        return self.log_probs[action]

    def entropy(self) -> Scalar:
        """Entropy of the distribution in nats."""
        return -jnp.sum(self.probs * self.log_probs)

    def kl(self, other: Categorical) -> Scalar:
        """``KL(self || other)``; both must have the same legal choices."""
        return jnp.sum(self.probs * (self.log_probs - other.log_probs))

    def action_samples(self, key: Key[Array, ""]) -> tuple[Int[Array, " n"], Float[Array, " n"], Float[Array, " n"]]:
        """Every choice, its probability as weight, and its log-probability."""
        return jnp.arange(self.log_probs.shape[-1], dtype="int32"), self.probs, self.log_probs


class Normal(eqx.Module):
    """Normal distribution with independent components on an unbounded space.

    Log-densities are of the sample before any clipping.
    """

    mean: Float[Array, "*shape"]
    log_std: Float[Array, "*shape"]

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """Reparameterised sample, through which gradients flow."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "*shape"], Scalar]:
        """A reparameterised sample and its log-density."""
        action = self.sample(key)
        return action, self.log_prob(action)

    def shifted(self, offset: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The action at a distance from the mean."""
        return self.mean + offset

    def mode(self) -> Float[Array, "*shape"]:
        """The mode of a normal distribution: its mean."""
        return self.mean

    def log_prob(self, action: Float[Array, "*shape"]) -> Scalar:
        """Log-density of an action under the distribution."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi))

    def entropy(self) -> Scalar:
        """Differential entropy in nats."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e))

    def kl(self, other: Normal | SquashedNormal) -> Scalar:
        """``KL(self || other)``."""
        ratio = jnp.exp(2.0 * (self.log_std - other.log_std))
        squared_distance = jnp.square((self.mean - other.mean) * jnp.exp(-other.log_std))
        return 0.5 * jnp.sum(ratio + squared_distance - 1.0 - jnp.log(ratio))

    def action_samples(self, key: Key[Array, ""]) -> tuple[Array, Float[Array, " 1"], Float[Array, " 1"]]:
        """One reparameterised sample, its weight 1, and its log-density."""
        action, log_prob = self.sample_with_log_prob(key)
        return action[None], jnp.ones(1), log_prob[None]


class DirectedNormal(eqx.Module):
    """Normal distribution whose sample is given: an action with a direction of noise, and its density over all of them.

    See :mod:`thespis.actors.state_dependent_noise`.
    """

    normal: Normal | SquashedNormal
    offset: Float[Array, "*shape"]

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """The mean with the noise added; the key is not used."""
        return self.normal.shifted(self.offset)

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "*shape"], Scalar]:
        """The mean with the noise added, and its log-density."""
        action = self.sample(key)
        return action, self.normal.log_prob(action)

    def mode(self) -> Float[Array, "*shape"]:
        """The action without noise."""
        return self.normal.mode()

    def log_prob(self, action: Float[Array, "*shape"]) -> Scalar:
        """Log-density of an action over all directions."""
        return self.normal.log_prob(action)

    def entropy(self) -> Scalar:
        """Differential entropy over all directions, in nats; raises ``ValueError`` where it has no closed form."""
        return self.normal.entropy()

    def kl(self, other: Any) -> Scalar:
        """``KL(self || other)``, over all directions."""
        return self.normal.kl(other)


class SquashedNormal(eqx.Module):
    """Squashed normal distribution: ``tanh`` of independent normals (Haarnoja et al., 2018, app. C).

    It is a density on the open box ``(-1, 1)``.
    """

    mean: Float[Array, "*shape"]
    log_std: Float[Array, "*shape"]

    def _log_densities(self, z: Array, u: Array) -> Float[Array, "*shape"]:
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not lose digits for large |u|
        squash = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
        return -0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi) - squash

    def _log_density(self, z: Array, u: Array) -> Scalar:
        return jnp.sum(self._log_densities(z, u))

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """Reparameterised sample, through which gradients flow."""
        return self.sample_with_log_prob(key)[0]

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "*shape"], Scalar]:
        """A sample and its log-density, computed from the value before squashing: exact also near the bounds."""
        u, z = self.sample_pre_tanh(key)
        return jnp.tanh(u), self._log_density(z, u)

    def sample_pre_tanh(self, key: Key[Array, ""]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
        """A sample before it is squashed, and the standard normal sample that it is made of."""
        z = jax.random.normal(key, self.mean.shape)
        return self.mean + jnp.exp(self.log_std) * z, z

    def log_probs_pre_tanh(self, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log-density of each coordinate of ``tanh(u)``; coordinates are independent."""
        return self._log_densities((u - self.mean) * jnp.exp(-self.log_std), u)

    def shifted(self, offset: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The action at a distance from the mean, which is measured before squashing."""
        return jnp.tanh(self.mean + offset)

    def mode(self) -> Float[Array, "*shape"]:
        """The mean before squashing, squashed: the greedy action."""
        return jnp.tanh(self.mean)

    def log_prob(self, action: Float[Array, "*shape"]) -> Scalar:
        """Log-density of an action; actions at the bounds are moved inside by about 1e-6."""
        inside = jnp.clip(action, -1 + 1e-6, 1 - 1e-6)
        return jnp.sum(self.log_probs_pre_tanh(jnp.arctanh(inside)))

    def entropy(self) -> Scalar:
        """Not available in closed form: raises ``ValueError``."""
        raise ValueError("a squashed normal has no closed-form entropy; use -log_prob of a sample")

    def kl(self, other: SquashedNormal) -> Scalar:
        """``KL(self || other)``, which equals that before squashing."""
        return Normal(self.mean, self.log_std).kl(other)

    def action_samples(self, key: Key[Array, ""]) -> tuple[Array, Float[Array, " 1"], Float[Array, " 1"]]:
        """One reparameterised sample, its weight 1, and its log-density."""
        action, log_prob = self.sample_with_log_prob(key)
        return action[None], jnp.ones(1), log_prob[None]

    def action_samples_per_dim(
        self, key: Key[Array, ""]
    ) -> tuple[Float[Array, "1 *shape"], Float[Array, " 1"], Float[Array, "1 *shape"]]:
        """As :meth:`action_samples`, with a log-density for each coordinate."""
        u, z = self.sample_pre_tanh(key)
        return jnp.tanh(u)[None], jnp.ones(1), self._log_densities(z, u)[None]


class ProductDistribution(eqx.Module):
    """Product of independent distributions, for vectors of choices and for dicts and tuples of any spaces."""

    components: tuple[Any, ...]
    space: MultiDiscrete | CompositeSpace = eqx.field(static=True)

    def _build(self, values: list[Any]) -> Any:
        return jnp.stack(values) if isinstance(self.space, MultiDiscrete) else self.space.pack(values)

    def _split(self, action: Any) -> list[Any]:
        if isinstance(self.space, MultiDiscrete):
            return [action[i] for i in range(len(self.components))]
        return self.space.unpack(action)

    def sample(self, key: Key[Array, ""]) -> Any:
        """A sample of every component."""
        keys = jax.random.split(key, len(self.components))
        return self._build([part.sample(k) for part, k in zip(self.components, keys, strict=True)])

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Any, Scalar]:
        """A sample of every component and their joint log-density."""
        keys = jax.random.split(key, len(self.components))
        pairs = [part.sample_with_log_prob(k) for part, k in zip(self.components, keys, strict=True)]
        return self._build([action for action, _ in pairs]), _sum_terms(log_prob for _, log_prob in pairs)

    def mode(self) -> Any:
        """The mode of every component."""
        return self._build([part.mode() for part in self.components])

    def log_prob(self, action: Any) -> Scalar:
        """Joint log-density of all components."""
        return _sum_terms(p.log_prob(a) for p, a in zip(self.components, self._split(action), strict=True))

    def entropy(self) -> Scalar:
        """Sum of the components' entropies."""
        return _sum_terms(part.entropy() for part in self.components)

    def kl(self, other: ProductDistribution) -> Scalar:
        """Sum of the components' divergences."""
        return _sum_terms(own.kl(theirs) for own, theirs in zip(self.components, other.components, strict=True))


def _sum_terms(terms: Iterable[Scalar]) -> Scalar:
    return jnp.sum(jnp.stack(list(terms)))


Distribution = Categorical | Normal | DirectedNormal | SquashedNormal | ProductDistribution


def multi_categorical(
    space: MultiDiscrete, logits: Float[Array, " choices"], action_mask: Bool[Array, " choices"] | None
) -> ProductDistribution:
    """Product of categorical distributions from concatenated logits and action masks."""
    masks = split_action_mask(space, action_mask)
    pieces = split_action_mask(space, logits)
    return ProductDistribution(tuple(Categorical(z, mask) for z, mask in zip(pieces, masks, strict=True)), space)
