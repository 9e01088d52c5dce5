"""What changes a decoder's word before a token is drawn: nothing, or a critic that has looked one token ahead."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thespis.nets.decoder import Cache, Decoder, Layer


class Unsteered(eqx.Module):
    """The decoder's own word."""

    def __call__(
        self,
        model: Decoder,
        layers: tuple[Layer, ...],
        cache: Cache,
        features: Float[Array, "row width"],
        logits: Float[Array, "row token"],
        at: Int[Array, " row"],
    ) -> Float[Array, "row token"]:
        """As it is."""
        return logits


class ByCritic(eqx.Module):
    r"""Likely tokens are weighed by what a critic says of the text with them, over what it says of the text so far.

    .. math:: p(a|s) \propto \pi(a|s) \left(\frac{\sigma(V(s, a))}{\sigma(V(s))}\right)^{\text{strength}}

    for the ``likely`` tokens of the largest :math:`\pi(a|s)`; all others keep theirs (Kim et al. 2022, CriticControl).
    The critic is linear in the decoder's features, so each of those tokens is read once, and forgotten.
    """

    weight: Float[Array, " width"]
    bias: Float[Array, ""]
    strength: float | Float[Array, ""]
    likely: int = eqx.field(static=True)

    def __call__(
        self,
        model: Decoder,
        layers: tuple[Layer, ...],
        cache: Cache,
        features: Float[Array, "row width"],
        logits: Float[Array, "row token"],
        at: Int[Array, " row"],
    ) -> Float[Array, "row token"]:
        """Logits of the weighed distribution; ``at``: the position of the token to come."""
        tokens = jax.lax.top_k(logits, min(self.likely, logits.shape[-1]))[1]
        roomy = _with_room(cache)

        def after(token: Array) -> Array:
            seen, _ = model.read(roomy, token[:, None], at[:, None], layers)
            return jax.nn.log_sigmoid(linear(seen[:, 0], self.weight, self.bias))

        now = jax.nn.log_sigmoid(linear(features, self.weight, self.bias))
        gain = self.strength * (jax.vmap(after, in_axes=1, out_axes=1)(tokens) - now[:, None])
        return logits.at[jnp.arange(len(logits))[:, None], tokens].add(gain.astype(logits.dtype))


Steering = Unsteered | ByCritic


def linear(
    features: Float[Array, "*axes width"], weight: Float[Array, " width"], bias: Float[Array, ""]
) -> Float[Array, "*axes"]:
    """A critic's word; features have norm ``sqrt(width)``, which would make its gradient drown the actor's."""
    return features @ weight / max(weight.shape[0], 1) ** 0.5 + bias


def _with_room(cache: Cache) -> Cache:
    """The cache and one place more, which is the next to be written: it may be full."""

    def longer(x: Array, axis: int, filling: int = 0) -> Array:
        return jnp.pad(x, [(0, int(i == axis)) for i in range(x.ndim)], constant_values=filling)

    keys, values = (tuple(longer(x, axis) for x in each) for each, axis in ((cache.keys, 3), (cache.values, 2)))
    slots = jnp.full_like(cache.used, cache.positions.shape[1])
    return dataclasses.replace(cache, keys=keys, values=values, positions=longer(cache.positions, 1, -1), used=slots)
