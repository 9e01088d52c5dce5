r"""Values of vectors of choices as means of utilities, one of each choice (Seyde et al., 2022).

.. math:: Q(s, a) = \tfrac1N \sum_i U_i(s, a_i)

The best vector is then the best choice of each part by itself, however many vectors there are.
"""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, MultiDiscrete, Space
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, uniform_fan_in

_NO_CHOICE = -1e9


@dataclasses.dataclass(frozen=True)
class Parts:
    """What is chosen: a vector of choices as it is, or each dimension of a box from ``bins`` amounts.

    The amounts of a dimension lie from one bound to the other at equal distances: 2 are bang-bang control.
    """

    space: Box | MultiDiscrete
    bins: int

    @property
    def choices(self) -> MultiDiscrete:
        """How many there are in each part."""
        if isinstance(self.space, MultiDiscrete):
            return self.space
        return MultiDiscrete((self.bins,) * int(np.prod(self.space.shape)))

    def entered(self, action: PyTree) -> Int[Array, " part"]:
        """The choices that a canonical action is made of; the nearest ones, if it is not."""
        if isinstance(self.space, MultiDiscrete):
            return action
        place = (jnp.ravel(action) + 1.0) / 2.0 * (self.bins - 1)
        return jnp.clip(jnp.round(place), 0, self.bins - 1).astype("int32")

    def left(self, choices: Int[Array, " part"]) -> PyTree:
        """The canonical action made of choices."""
        if isinstance(self.space, MultiDiscrete):
            return choices
        return (choices * (2.0 / (self.bins - 1)) - 1.0).astype(self.space.dtype).reshape(self.space.shape)

    def table(self, values: Float[Array, "*axes choices"]) -> Float[Array, "*axes part widest"]:
        """Values laid end to end as one row a part; where a part has no such choice, far below any other."""
        return jnp.where(self._places < 0, _NO_CHOICE, values[..., self._places])

    @functools.cached_property
    def _places(self) -> Int[np.ndarray, "part widest"]:
        counts = np.array(self.choices.nvec)
        places = (np.cumsum(counts) - counts)[:, None] + np.arange(counts.max())
        return np.where(np.arange(counts.max()) < counts[:, None], places, -1)


def parts_of(space: Space, bins: int, whose: str) -> Parts:
    """How a method called ``whose`` acts. Raises ``UserError`` for a space that cannot be cut into choices."""
    bounded = isinstance(space, Box) and all(np.isfinite(bound).all() for bound in space.bounds())
    if isinstance(space, MultiDiscrete) or (isinstance(space, Box) and bounded and bins > 1):
        return Parts(space, bins)
    raise UserError(
        f"{whose} needs a vector of choices, or a box with finite bounds and two bins or more, and this action is "
        f"{space}: use dqn for one choice, ppo or a2c for anything"
    )


def utilities_of(
    table: Float[Array, "*axes part widest"], choices: Int[Array, "*axes part"]
) -> Float[Array, "*axes part"]:
    """Of the choices in each part; their mean is the value of the vector."""
    return jnp.take_along_axis(table, choices[..., None], axis=-1)[..., 0]


class DecoupledValue(eqx.Module):
    """Utilities of all choices from one pass."""

    body: Body
    out: Linear
    parts: Parts = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, parts: Parts, hidden: tuple[int, ...], key: Key[Array, ""]):
        body_key, out_key = jax.random.split(key)
        self.parts = parts
        self.body = Body(spec.observation, hidden, body_key, init=uniform_fan_in, activation=jax.nn.relu)
        self.out = Linear(self.body.size, sum(parts.choices.nvec), uniform_fan_in, out_key)

    def all(self, observation: PyTree) -> Float[Array, " choices"]:
        """The utilities of every choice, part after part."""
        features, _ = self.body((), observation)
        return self.out(features)

    def __call__(self, observation: PyTree, actions: PyTree) -> Float[Array, " k"]:
        """The values of ``k`` canonical actions."""
        table = self.parts.table(self.all(observation))
        return jax.vmap(lambda action: jnp.mean(utilities_of(table, self.parts.entered(action))))(actions)
