"""Which parameters of a language model learn: all of them, or low-rank adapters alone (LoRA: Hu et al., 2021).

What does not learn has no gradient and no place in the optimiser; a critic beside the model always learns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, PyTree

from thespis.language.adapters import trainable, with_adapters
from thespis.learners.gradient import Optimiser, gradient_step
from thespis.nets.decoder import PROJECTIONS, Decoder

Params = TypeVar("Params")


class Everything(eqx.Module):
    """All parameters learn."""

    def begun(self, model: Decoder, key: Key[Array, ""]) -> Decoder:
        """The model as it is."""
        return model


class Adapters(eqx.Module):
    """Adapters learn, which begin by changing nothing. Differs from PEFT's defaults: on all projections."""

    rank: int = eqx.field(static=True, default=8)
    """Of each adapter, from 1."""
    alpha: float = eqx.field(static=True, default=16.0)
    """What an adapter adds is scaled by ``alpha / rank``."""
    targets: tuple[str, ...] = eqx.field(static=True, default=PROJECTIONS)
    """Projections that get one: q, k, v, o, gate, up, down."""

    def __check_init__(self):
        """Refuse adapters of nothing."""
        if self.rank < 1 or not self.targets or set(self.targets) - set(PROJECTIONS):
            raise ValueError(
                f"rank={self.rank}, targets={','.join(self.targets)}: a rank from 1 and some of "
                f"{', '.join(PROJECTIONS)}"
            )

    def begun(self, model: Decoder, key: Key[Array, ""]) -> Decoder:
        """The model with adapters."""
        return with_adapters(model, key, self.rank, self.alpha, self.targets)


Tuning = Everything | Adapters


def opened(optimiser: Optimiser, params: PyTree) -> PyTree:
    """A fresh optimiser's state for the parameters that learn: those of adapters in decoders that have any."""
    return optimiser.init(_parted(params)[0])


def descended(
    optimiser: Optimiser, loss: Callable[[Params], tuple[Array, Any]], params: Params, opt: PyTree
) -> tuple[Params, PyTree, Any, Float[Array, ""]]:
    """As :func:`~thespis.learners.gradient.gradient_step`, of the parameters that learn."""
    learning, still = _parted(params)
    learning, opt, aux, norm = gradient_step(optimiser, lambda part: loss(eqx.combine(part, still)), learning, opt)
    return eqx.combine(learning, still), opt, aux, norm


def _parted(params: Params) -> tuple[Params, Params]:
    """What learns, and what does not."""

    def of(part: Any) -> Any:
        return trainable(part) if isinstance(part, Decoder) else True

    return eqx.partition(params, jax.tree.map(of, params, is_leaf=lambda part: isinstance(part, Decoder)))
