r"""What weighs an action where a whole way is worth a set function of its places, and steps are paid marginal gains.

Rows hold one episode each; ``alive`` is false behind its end. ``advantage`` is what follows from an action on, less the
critic's value; the gains before an action are known when it is taken.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Steps = Float[Array, "time row"]
Alive = Bool[Array, "time row"]


class ToGo(eqx.Module):
    """The gains from the action on, less a baseline: unbiased (Prajapat et al. 2024)."""

    def __call__(self, gain: Steps, advantage: Steps, alive: Alive) -> Steps:
        """As they are."""
        return advantage


class Whole(eqx.Module):
    """The worth of the whole way, less the same baseline: unbiased too, but past gains only add noise."""

    def __call__(self, gain: Steps, advantage: Steps, alive: Alive) -> Steps:
        """With the gains before the action."""
        return advantage + earned(gain, alive) - gain


class SoFar(eqx.Module):
    """The worth of the way up to the place that the action leads to, as the authors' released ``main.py`` has it.

    Biased: an action is told what it did not cause, and not what it made possible. Without a baseline, as there.
    """

    def __call__(self, gain: Steps, advantage: Steps, alive: Alive) -> Steps:
        """Gains up to the action, with its own."""
        return earned(gain, alive)


def earned(gain: Steps, alive: Alive) -> Steps:
    """Gains of the episode so far, with that of the step itself."""
    return jnp.cumsum(jnp.where(alive, gain, 0.0), axis=0)


Gains = ToGo | Whole | SoFar
