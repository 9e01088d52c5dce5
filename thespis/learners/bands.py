"""What of the target critics' values reaches a target: everything, or what varies slowly with the action."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Space
from thespis.critics.values import ActionValue, evaluate_ensemble
from thespis.learners.gradient import Number
from thespis.learners.soft import Evaluate, least


class FullBand(eqx.Module):
    """Everything."""

    def fits(self, space: Space) -> None:
        """Anything does."""

    def least(self, critics: ActionValue, key: Key[Array, ""]) -> Evaluate:
        """The least value among the members."""
        return least(critics)


class LowPass(eqx.Module):
    r"""Values are averaged over actions near by (Campo et al., 2020): convolved with a normal of deviation ``width``.

    The convolution is estimated by ``samples`` draws; draws beyond the bounds are mirrored at them, so that the part of
    a value that goes as :math:`\cos(k \pi (a + 1) / 2)` is multiplied by :math:`\exp(-(k \pi \sigma / 2)^2 / 2)` and
    nothing else happens to it.
    """

    width: Number = 0.1
    """Standard deviation of the filter, in canonical units of the action: its box is [-1, 1]."""
    samples: int = eqx.field(static=True, default=8)
    """Draws for each value."""

    def fits(self, space: Space) -> None:
        """Raises ``UserError`` for other actions than a box."""
        if not isinstance(space, Box):
            raise UserError(f"values over {space} have no frequencies to leave out: use band=FullBand")

    def least(self, critics: ActionValue, key: Key[Array, ""]) -> Evaluate:
        """The least filtered value among the members."""

        def evaluate(observation: PyTree, actions: Float[Array, "k *action"]) -> Float[Array, " k"]:
            noise = self.width * jax.random.normal(key, (self.samples, *actions.shape))
            values = jax.vmap(lambda a: evaluate_ensemble(critics, observation, a))(mirrored(actions + noise))
            return jnp.min(jnp.mean(values, axis=0), axis=0)

        return evaluate


def mirrored(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """``x`` folded back at -1 and 1, as often as it takes."""
    return 1.0 - jnp.abs(jnp.mod(x + 1.0, 4.0) - 2.0)


Band = FullBand | LowPass
