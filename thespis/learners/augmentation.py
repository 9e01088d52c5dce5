"""How replayed images are changed before they are learnt from."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.spaces import Space, leaves, map_space
from thespis.nets.body import is_image


class AsSeen(eqx.Module):
    """Not at all."""

    def __call__(self, space: Space, observation: PyTree, key: Key[Array, ""]) -> PyTree:
        """One observation, as it is."""
        return observation


class RandomShift(eqx.Module):
    """Images are moved by up to ``pad`` pixels in either direction, their edges repeated (Kostrikov et al., 2021).

    As published 4 pixels of 84; all images of one observation move alike.
    """

    pad: int = eqx.field(static=True, default=4)
    """Most pixels."""

    def __call__(self, space: Space, observation: PyTree, key: Key[Array, ""]) -> PyTree:
        """One observation."""
        shift = jax.random.randint(key, (2,), 0, 2 * self.pad + 1)

        def leaf(part: Space, value: Array) -> Array:
            return self._moved(value, shift) if is_image(part) else value

        return map_space(leaf, space, observation) if any(map(is_image, leaves(space))) else observation

    def _moved(self, image: Array, shift: Array) -> Array:
        axes = (1, 2) if image.ndim == 3 and image.shape[0] < image.shape[2] else (0, 1)
        padded = jnp.pad(
            image, [(self.pad,) * 2 if axis in axes else (0, 0) for axis in range(image.ndim)], mode="edge"
        )
        for axis, start in zip(axes, shift, strict=True):
            padded = jax.lax.dynamic_slice_in_dim(padded, start, image.shape[axis], axis)
        return padded


Augmentation = AsSeen | RandomShift
