r"""How many steps of a world that goes on a gradient is made of, and how they are weighed.

A gradient is :math:`\sum_i w_i g_i` over a trajectory whose length is drawn before it begins. Lengths and weights do
not depend on what happens, so that the sum can be kept while the world is played.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key


class FixedLength(eqx.Module):
    """The mean over a fixed number of steps."""

    steps: int = eqx.field(static=True, default=4)
    """Steps of a trajectory."""

    def draw(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Their number."""
        return jnp.full((), self.steps, "int32")

    def weight(self, place: Int[Array, ""], length: Int[Array, ""]) -> Float[Array, ""]:
        """Of the step at ``place`` (0: the first) in a trajectory of ``length``."""
        return 1.0 / length.astype("float32")


class MultiLevel(eqx.Module):
    r"""Multi-level Monte Carlo: mostly short trajectories, with the expectation of long ones.

    With :math:`P(J = j) = 2^{-j}` a trajectory has :math:`2^J` steps, and

    .. math:: g = g_1 + 2^J (\bar g_{2^J} - \bar g_{2^{J-1}})

    where :math:`\bar g_n` is the mean over the first :math:`n`. Beyond ``levels`` it is one step long and
    :math:`g = g_1`. The expectation is that of :math:`\bar g_{2^{levels}}`, at ``levels`` steps and a little.

    Source: the estimator in the code of Suttle et al., 2023 (``estimate_loss``). There a ``J`` beyond the largest is
    drawn again, which weighs all but the first step :math:`1 / (1 - 2^{-levels})` times too much.
    """

    levels: int = eqx.field(static=True, default=4)
    """The longest trajectory has 2 to this power steps."""

    def draw(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """A length."""
        level = jax.random.geometric(key, 0.5, dtype="int32")
        return jnp.where(level <= self.levels, 2 ** jnp.minimum(level, self.levels), 1)

    def weight(self, place: Int[Array, ""], length: Int[Array, ""]) -> Float[Array, ""]:
        """Of the step at ``place`` in a trajectory of ``length``: the halves count -1 and 1, the first step 1 more."""
        half = jnp.where(2 * place >= length, 1.0, -1.0)
        return jnp.where(place == 0, 1.0, 0.0) + jnp.where(length > 1, half, 0.0)


Length = FixedLength | MultiLevel
