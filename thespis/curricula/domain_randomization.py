r"""Domain randomisation (Tobin et al. 2017): parameters of the environment are drawn anew for every episode.

.. math:: \theta_f \sim U(low_f, high_f) \text{ for each named field } f

The other fields keep their defaults. Integer fields are drawn from ``low .. high``, both included; fields that are
arrays are drawn elementwise.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Citation, Critique, Draw, EnvSpec, EpisodeStats, Report, Transition
from thespis.curricula.fixed import repeat_params
from thespis.curricula.parameters import leaves_by_path, replace_leaves, require_parameter
from thespis.runtime.keys import fold, indexed_keys

ParameterRange = tuple[str, float | int, float | int]


class DomainRandomization(eqx.Module):
    """Curriculum that draws named fields of ``spec.params`` uniformly from ranges.

    Its state is the default parameters. A field of a nested tree of parameters is named by its path: ``pole.length``.
    """

    ranges: tuple[ParameterRange, ...] = eqx.field(static=True)
    """``(field, low, high)`` of each parameter that varies."""

    name: ClassVar[str] = "domain_randomisation"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Domain Randomization for Transferring Deep Neural Networks from Simulation to the Real World",
            "Tobin et al.",
            2017,
            "arXiv:1703.06907",
        ),
    )
    needs_critique: ClassVar[bool] = False
    draws_per_rollout: ClassVar[bool] = False

    @staticmethod
    def parse(texts: list[str]) -> DomainRandomization:
        """Parse texts such as ``"length=0.3..0.8"``. Raises ``UserError`` for any other form."""
        return DomainRandomization(tuple(_parse(text) for text in texts))

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PyTree:
        """The default parameters. Raises ``UserError`` for an invalid field or range."""
        params = jax.tree.map(jnp.asarray, spec.params)
        fields = leaves_by_path(params)
        if not fields:
            raise UserError(f"{spec.name} has no parameters to randomise; use the fixed curriculum")
        if not self.ranges:
            raise UserError("domain randomisation needs at least one range, such as length=0.3..0.8")
        for name, low, high in self.ranges:
            _check_range(spec.name, fields, name, low, high)
        return params

    def draw(self, state: PyTree, key: Key[Array, ""], n: int) -> Draw:
        """Parameters of ``n`` episodes; the i-th does not depend on ``n``, nor on which other fields vary."""
        columns = leaves_by_path(repeat_params(state, n))
        for name, low, high in self.ranges:
            keys = indexed_keys(fold(key, name), n)
            columns[name] = jax.vmap(lambda key, leaf, low=low, high=high: _sample_uniform(key, leaf, low, high))(
                keys, columns[name]
            )
        return Draw(replace_leaves(state, columns))

    def update(
        self, state: PyTree, rollout: Transition, critique: Critique | None, stats: EpisodeStats, key: Key[Array, ""]
    ) -> tuple[PyTree, Report]:
        """Return the state unchanged: nothing is learned."""
        return state, Report({})


def _parse(text: str) -> ParameterRange:
    try:
        name, bounds = text.split("=")
        low, high = bounds.split("..")
        return name.strip(), float(low), float(high)
    except ValueError:
        raise UserError(
            f"cannot read the range {text!r}; write it as field=low..high, such as length=0.3..0.8"
        ) from None


def _check_range(env_name: str, fields: dict[str, Array], name: str, low: float | int, high: float | int) -> None:
    dtype = require_parameter(env_name, fields, name).dtype
    if not jnp.issubdtype(dtype, jnp.number):
        raise UserError(f"the parameter {name!r} of {env_name} is of type {dtype}: only numbers can be randomised")
    if not -jnp.inf < low <= high < jnp.inf:
        raise UserError(f"the range {name}={low:g}..{high:g} is empty or endless; give low <= high")
    if jnp.issubdtype(dtype, jnp.integer) and not (float(low).is_integer() and float(high).is_integer()):
        raise UserError(f"the parameter {name!r} of {env_name} is an integer; {low:g}..{high:g} must be integers too")


def _sample_uniform(key: Key[Array, ""], like: Array, low: float | int, high: float | int) -> Array:
    if jnp.issubdtype(like.dtype, jnp.integer):
        return jax.random.randint(key, like.shape, int(low), int(high) + 1, like.dtype)
    return jax.random.uniform(key, like.shape, like.dtype, low, high)
