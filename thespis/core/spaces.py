"""What an observation or an action may be, as small hashable values.

Methods see **canonical** actions: a dimension of a :class:`Box` that is bounded on both sides is
rescaled so that ``[-1, 1]`` covers ``[low, high]``. :func:`to_world` turns a canonical action into the
one the world receives (rescaled, then clipped); :func:`from_world` is its inverse. What is stored and
what log-probabilities refer to is always the canonical, unclipped action.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of one shape. ``low`` and ``high`` are one number or a flat tuple with one per element."""

    shape: tuple[int, ...]
    low: float | int | tuple[float | int, ...] = -math.inf
    high: float | int | tuple[float | int, ...] = math.inf
    dtype: str = "float32"

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound, each of ``shape``, in the space's dtype."""

        def whole(bound):
            return np.broadcast_to(
                np.asarray(bound, self.dtype).reshape(self.shape if isinstance(bound, tuple) else ()),
                self.shape,
            )

        return whole(self.low), whole(self.high)


@dataclasses.dataclass(frozen=True)
class Discrete:
    """One of the integers ``0 .. n - 1``."""

    n: int


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """A vector of independent choices; entry ``i`` is one of ``0 .. nvec[i] - 1``.

    A legal mask for it is the masks of its choices laid end to end: ``Bool[sum(nvec)]``.
    """

    nvec: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Text:
    """At most ``length`` token ids, then -1: ``int32[length]``.

    ``news``: of an observation, how many ids at most a step adds beside the agent's own utterance (0: not told). What
    was there before stays as it is. ``choices``: of an action, the utterances that mean something where that is a short
    list, as ids; a choice has a number then, and policies can be read.
    """

    length: int
    vocabulary: Vocabulary
    news: int = 0
    choices: tuple[tuple[int, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class Tree:
    """Named parts (``kind="dict"``) or ordered parts (``kind="tuple"``), each a space of its own."""

    parts: tuple[tuple[str, Space], ...]
    kind: str = "dict"

    def __post_init__(self):
        """Refuse a dict whose parts JAX would order otherwise."""
        names = [name for name, _ in self.parts]
        if self.kind == "dict" and names != sorted(names):
            raise ValueError(f"the parts of a dict space must be ordered by name, as JAX orders them: {names}")

    def build(self, values: list[Any]) -> Any:
        """Put one value per part, in the order of ``parts``, into the dict or tuple that a world uses."""
        if self.kind == "tuple":
            return tuple(values)
        return {name: value for (name, _), value in zip(self.parts, values, strict=True)}

    def split(self, value: Any) -> list[Any]:
        """The inverse of :meth:`build`; ``None`` gives ``None`` for every part."""
        if value is None:
            return [None] * len(self.parts)
        if self.kind == "tuple":
            return list(value)
        return [value[name] for name, _ in self.parts]


Space = Box | Discrete | MultiDiscrete | Text | Tree


def dict_space(**parts: Space) -> Tree:
    """A :class:`Tree` of named parts, ordered by name as JAX orders dictionaries."""
    return Tree(tuple(sorted(parts.items())))


def tuple_space(*parts: Space) -> Tree:
    """A :class:`Tree` of ordered parts."""
    return Tree(tuple((str(i), part) for i, part in enumerate(parts)), kind="tuple")


def map_space(leaf: Callable[..., Any], space: Space, *values: Any) -> Any:
    """Apply ``leaf(space_leaf, *value_leaves)`` to every leaf and rebuild the tree of values."""
    if isinstance(space, Tree):
        columns = [space.split(value) for value in values]
        rows = [[column[i] for column in columns] for i in range(len(space.parts))]
        return space.build([map_space(leaf, part, *row) for (_, part), row in zip(space.parts, rows, strict=True)])
    return leaf(space, *values)


def leaves(space: Space) -> list[Space]:
    """The leaf spaces, in the order JAX flattens their values."""
    if isinstance(space, Tree):
        return [leaf for _, part in space.parts for leaf in leaves(part)]
    return [space]


def dtype_of(space: Space) -> str:
    """The dtype that values of a leaf space have."""
    return space.dtype if isinstance(space, Box) else "int32"


def shape_of(space: Space) -> tuple[int, ...]:
    """The shape that values of a leaf space have."""
    match space:
        case Box():
            return space.shape
        case MultiDiscrete():
            return (len(space.nvec),)
        case Text():
            return (space.length,)
        case _:
            return ()


def zeros(space: Space, batch: tuple[int, ...] = ()) -> Any:
    """A value of zeros with leading axes ``batch``: an example for shapes and dtypes."""
    return map_space(lambda leaf: jnp.zeros(batch + shape_of(leaf), dtype_of(leaf)), space)


def legal_size(space: Space) -> int:
    """How many entries the legal mask of a discrete leaf space has."""
    match space:
        case Discrete():
            return space.n
        case MultiDiscrete():
            return sum(space.nvec)
        case _:
            raise ValueError(f"{space} has no legal mask: only Discrete and MultiDiscrete have one")


def _scaling(space: Box) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    low, high = space.bounds()
    bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):  # an unbounded dimension has no middle: it is passed through
        half = np.where(bounded, (high - low) / 2, 1).astype(space.dtype)
        middle = np.where(bounded, (high + low) / 2, 0).astype(space.dtype)
    return low, high, bounded, half, middle


def to_world(space: Space, action: Any) -> Any:
    """The action a world receives for a canonical one (any leading batch axes)."""

    def leaf(part, value):
        if not isinstance(part, Box) or not np.issubdtype(part.dtype, np.floating):
            return value
        low, high, bounded, half, middle = _scaling(part)
        inside = jnp.where(bounded, jnp.clip(value, -1.0, 1.0), value)
        return jnp.clip(inside * half + middle, low, high)

    return map_space(leaf, space, action)


def from_world(space: Space, action: Any) -> Any:
    """The canonical action for one in the world's units; exact inverse of :func:`to_world` inside bounds."""

    def leaf(part, value):
        if not isinstance(part, Box) or not np.issubdtype(part.dtype, np.floating):
            return value
        _, _, _, half, middle = _scaling(part)
        return (value - middle) / np.where(half == 0, 1, half)  # a dimension of no width has the one value 0

    return map_space(leaf, space, action)


def random_action(space: Space, key: jax.Array, legal: Any = None) -> Any:
    """One canonical action, uniform over bounded boxes and legal choices, normal where unbounded."""

    def leaf(part, mask, key):
        match part:
            case Box():
                bounded = _scaling(part)[2]
                uniform, normal = jax.random.split(key)
                return jnp.where(
                    bounded,
                    jax.random.uniform(uniform, part.shape, part.dtype, -1.0, 1.0),
                    jax.random.normal(normal, part.shape, part.dtype),
                )
            case Discrete():
                logits = jnp.zeros(part.n) if mask is None else jnp.where(mask, 0.0, -jnp.inf)
                return jax.random.categorical(key, logits).astype("int32")
            case MultiDiscrete():
                masks = split_legal(part, mask)
                keys = jax.random.split(key, len(part.nvec))
                choices = zip(part.nvec, masks, keys, strict=True)
                return jnp.stack([leaf(Discrete(n), m, k) for n, m, k in choices])  # pyright: ignore
            case Text():
                length, ids = jax.random.split(key)
                spoken = jnp.arange(part.length) < jax.random.randint(length, (), 1, part.length + 1)
                return jnp.where(spoken, jax.random.randint(ids, (part.length,), 0, part.vocabulary.size), -1)

    count = len(leaves(space))
    keys = iter(jax.random.split(key, count))
    return map_space(lambda part, mask: leaf(part, mask, next(keys)), space, legal)


def split_legal(space: MultiDiscrete, legal: Any) -> list[Any]:
    """One mask per choice (last axis), or ``None`` for each."""
    if legal is None:
        return [None] * len(space.nvec)
    return jnp.split(legal, np.cumsum(space.nvec)[:-1], axis=-1)
