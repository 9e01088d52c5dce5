r"""Value rescaling: Q-values are learned on a scale that compresses large returns, and rewards need no clipping.

.. math:: h(x) = \operatorname{sign}(x) \left( \sqrt{|x| + 1} - 1 \right) + \epsilon x, \qquad
    h^{-1}(y) = \operatorname{sign}(y) \left[ \left( \frac{\sqrt{1 + 4 \epsilon (|y| + 1 + \epsilon)} - 1}{2 \epsilon}
    \right)^2 - 1 \right]

Source: Pohlen et al., 2018, proposition A.2; used in R2D2 (Kapturowski et al., 2019).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Number


def rescale_value(value: Float[Array, "*axes"], epsilon: Number) -> Float[Array, "*axes"]:
    """The rescaled value ``h(value)``."""
    return jnp.sign(value) * (jnp.sqrt(jnp.abs(value) + 1.0) - 1.0) + epsilon * value


def unscale_value(rescaled: Float[Array, "*axes"], epsilon: Number) -> Float[Array, "*axes"]:
    """The inverse: the value whose rescaled value is given.

    The fraction of the formula is multiplied by its conjugate, so that a small ``epsilon``, or 0, loses no digits.
    """
    size = jnp.abs(rescaled) + 1.0 + epsilon
    root = 2.0 * size / (jnp.sqrt(1.0 + 4.0 * epsilon * size) + 1.0)
    return jnp.sign(rescaled) * (root**2 - 1.0)
