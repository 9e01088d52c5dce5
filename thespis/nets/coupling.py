r"""Additive couplings (Dinh et al., 2015): a net whose inverse is as easy as itself, and which keeps volumes.

.. math:: y = z + (1 - m) \odot t(m \odot z, c)

The mask :math:`m` says which entries pass unchanged; what is added to the others depends on these and on a context
:math:`c`, so that it can be taken away again.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.nets.mlp import Linear, orthogonal


class Shift(eqx.Module):
    """Hidden layers with layer normalisation and swish, and a linear output: what a coupling adds."""

    layers: tuple[Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    out: Linear

    def __init__(self, size_in: int, hidden: tuple[int, ...], size_out: int, key: Key[Array, ""]):
        sizes, keys = (size_in, *hidden), jax.random.split(key, len(hidden) + 1)
        init = orthogonal(1.0)
        self.layers = tuple(Linear(a, b, init, k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=False))
        self.norms = tuple(eqx.nn.LayerNorm(size) for size in hidden)
        self.out = Linear(sizes[-1], size_out, init, keys[-1])

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """One vector in, one vector out."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = jax.nn.swish(norm(layer(x)))
        return self.out(x)


class Couplings(eqx.Module):
    """``pairs`` pairs of couplings of vectors: in each pair first the even entries pass unchanged, then the odd ones.

    A single number is passed by the first of a pair, and shifted by what the context says by the second.
    """

    shifts: tuple[Shift, ...]

    def __init__(self, size: int, context: int, pairs: int, hidden: tuple[int, ...], key: Key[Array, ""]):
        keys = jax.random.split(key, 2 * pairs)
        self.shifts = tuple(Shift(size + context, hidden, size, k) for k in keys)

    def __call__(self, z: Float[Array, " size"], context: Float[Array, " context"]) -> Float[Array, " size"]:
        """Through all couplings; the determinant of the derivative is 1."""
        for i, shift in enumerate(self.shifts):
            z = z + self._added(i, shift, z, context)
        return z

    def inverse(self, y: Float[Array, " size"], context: Float[Array, " context"]) -> Float[Array, " size"]:
        """Back through all couplings."""
        for i, shift in reversed(list(enumerate(self.shifts))):
            y = y - self._added(i, shift, y, context)
        return y

    def _added(self, i: int, shift: Shift, z: Array, context: Array) -> Array:
        kept = (jnp.arange(z.shape[0]) % 2 == i % 2).astype(z.dtype)
        return (1.0 - kept) * shift(jnp.concatenate([kept * z, context]))
