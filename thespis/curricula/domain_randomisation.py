r"""Domain randomisation (Tobin et al. 2017): a world's parameters are drawn anew for every episode.

.. math:: \theta_f \sim U(low_f, high_f) \text{ for each named field } f

The other fields keep their defaults.

Integer fields are drawn from ``low .. high``, both included; fields that are arrays are drawn elementwise.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.keys import fold, per_index
from thespis.core.records import Citation, EnvSpec, Outcomes, Report
from thespis.curricula.fixed import repeat
from thespis.curricula.parameters import by_path, require_field, with_leaves

Range = tuple[str, float | int, float | int]


class DomainRandomisation(eqx.Module):
    """Uniform over named fields of ``spec.params``; the state is the defaults of the others.

    A field of a nested tree of parameters is named by its path: ``pole.length``.
    """

    ranges: tuple[Range, ...] = eqx.field(static=True)
    """(field, low, high) of each parameter that varies."""

    name: ClassVar[str] = "domain_randomisation"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Domain Randomization for Transferring Deep Neural Networks from Simulation to the Real World",
            "Tobin et al.",
            2017,
            "arXiv:1703.06907",
        ),
    )

    @staticmethod
    def parse(texts: list[str]) -> DomainRandomisation:
        """From texts such as ``"length=0.3..0.8"``. Raises ``UserError`` for any other form."""
        return DomainRandomisation(tuple(_parse(text) for text in texts))

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PyTree:
        """The default parameters. Raises ``UserError`` for a field or range that cannot be."""
        params = jax.tree.map(jnp.asarray, spec.params)
        fields = by_path(params)
        if not fields:
            raise UserError(f"{spec.name} has no parameters to randomise; use the fixed curriculum")
        if not self.ranges:
            raise UserError("domain randomisation needs at least one range, such as length=0.3..0.8")
        for name, low, high in self.ranges:
            _check(spec.name, fields, name, low, high)
        return params

    def draw(self, state: PyTree, key: Key[Array, ""], n: int) -> PyTree:
        """Parameters of ``n`` episodes; the i-th does not depend on ``n``, nor on which other fields vary."""
        columns = by_path(repeat(state, n))
        for name, low, high in self.ranges:
            keys = per_index(fold(key, name), n)
            columns[name] = jax.vmap(lambda key, leaf, low=low, high=high: _uniform(key, leaf, low, high))(
                keys, columns[name]
            )
        return with_leaves(state, columns)

    def update(self, state: PyTree, outcomes: Outcomes, key: Key[Array, ""]) -> tuple[PyTree, Report]:
        """Nothing is learnt."""
        return state, Report({})


def _parse(text: str) -> Range:
    try:
        name, bounds = text.split("=")
        low, high = bounds.split("..")
        return name.strip(), float(low), float(high)
    except ValueError:
        raise UserError(
            f"cannot read the range {text!r}; write it as field=low..high, such as length=0.3..0.8"
        ) from None


def _check(world: str, fields: dict[str, Array], name: str, low: float | int, high: float | int) -> None:
    dtype = require_field(world, fields, name).dtype
    if not jnp.issubdtype(dtype, jnp.number):
        raise UserError(f"the parameter {name!r} of {world} is of type {dtype}: only numbers can be randomised")
    if not -jnp.inf < low <= high < jnp.inf:
        raise UserError(f"the range {name}={low:g}..{high:g} is empty or endless; give low <= high")
    if jnp.issubdtype(dtype, jnp.integer) and not (float(low).is_integer() and float(high).is_integer()):
        raise UserError(f"the parameter {name!r} of {world} is an integer; {low:g}..{high:g} must be integers too")


def _uniform(key: Key[Array, ""], like: Array, low: float | int, high: float | int) -> Array:
    if jnp.issubdtype(like.dtype, jnp.integer):
        return jax.random.randint(key, like.shape, int(low), int(high) + 1, like.dtype)
    return jax.random.uniform(key, like.shape, like.dtype, low, high)
