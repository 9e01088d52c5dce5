"""Observation and action spaces, token vocabularies and agent groups as small hashable values, and functions over them.

Methods see **canonical** actions: a dimension of a :class:`Box` that is bounded on both sides is rescaled so that
``[-1, 1]`` covers ``[low, high]``. :func:`unscale_action` turns a canonical action into the one that the environment
receives (rescaled, then clipped); :func:`scale_action` is its inverse. Stored actions and log-probabilities always
refer to the canonical, unclipped action.

In a multi-agent environment, values of agents are dicts by group, with an axis ``[agent]`` after the others.
:func:`map_groups` also accepts a single-agent environment, where values have neither: callers have one code path.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PAD, UNKNOWN, END = "<pad>", "<unk>", "<end>"
"""The first tokens of every closed vocabulary."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A vocabulary: tokens are below ``size``, those in ``eos_tokens`` end a response.

    ``words``: the word of each token, for closed vocabularies; ``tokenizer_dir``: the directory of the tokenizer, for
    others.
    """

    size: int
    eos_tokens: tuple[int, ...]
    words: tuple[str, ...] = ()
    tokenizer_dir: str = ""


def word_vocabulary(words: Iterable[str]) -> Vocabulary:
    """A closed vocabulary of single words after the special tokens; ``<end>`` ends a response."""
    all_words = tuple(dict.fromkeys((PAD, UNKNOWN, END, *words)))
    return Vocabulary(len(all_words), (all_words.index(END),), all_words)


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of one shape. ``low`` and ``high`` are one number or a flat tuple with one per element."""

    shape: tuple[int, ...]
    low: float | int | tuple[float | int, ...] = -math.inf
    high: float | int | tuple[float | int, ...] = math.inf
    dtype: str = "float32"

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound, each of ``shape``, in the space's dtype."""

        def broadcast(bound):
            return np.broadcast_to(
                np.asarray(bound, self.dtype).reshape(self.shape if isinstance(bound, tuple) else ()),
                self.shape,
            )

        return broadcast(self.low), broadcast(self.high)


@dataclasses.dataclass(frozen=True)
class Discrete:
    """One of the integers ``0 .. n - 1``."""

    n: int


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """A vector of independent choices; entry ``i`` is one of ``0 .. nvec[i] - 1``.

    Its action mask is the masks of its choices, concatenated: ``Bool[sum(nvec)]``.
    """

    nvec: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Text:
    """Token sequences of at most ``max_length``, padded with -1: ``int32[max_length]``.

    ``max_env_tokens``: for observations, the largest number of tokens that a step adds besides the agent's own
    response (0: unknown); earlier tokens never change. ``choices``: for actions, the token sequences of a closed list
    of responses; each then has a number, as a discrete action has, and action probabilities can be computed.
    """

    max_length: int
    vocabulary: Vocabulary
    max_env_tokens: int = 0
    choices: tuple[tuple[int, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class CompositeSpace:
    """Composite space of named parts (``kind="dict"``) or ordered parts (``kind="tuple"``), each a space of its own."""

    spaces: tuple[tuple[str, Space], ...]
    kind: str = "dict"

    def __post_init__(self):
        """Reject a dict whose parts are not in JAX's order."""
        names = [name for name, _ in self.spaces]
        if self.kind == "dict" and names != sorted(names):
            raise ValueError(f"the parts of a dict space must be ordered by name, as JAX orders them: {names}")

    def pack(self, values: list[Any]) -> Any:
        """Put one value per part, in the order of ``spaces``, into the dict or tuple that an environment uses."""
        if self.kind == "tuple":
            return tuple(values)
        return {name: value for (name, _), value in zip(self.spaces, values, strict=True)}

    def unpack(self, value: Any) -> list[Any]:
        """The inverse of :meth:`pack`; ``None`` gives ``None`` for every part."""
        if value is None:
            return [None] * len(self.spaces)
        if self.kind == "tuple":
            return list(value)
        return [value[name] for name, _ in self.spaces]


Space = Box | Discrete | MultiDiscrete | Text | CompositeSpace


def dict_space(**parts: Space) -> CompositeSpace:
    """A :class:`CompositeSpace` of named parts, ordered by name as JAX orders dictionaries."""
    return CompositeSpace(tuple(sorted(parts.items())))


def tuple_space(*parts: Space) -> CompositeSpace:
    """A :class:`CompositeSpace` of ordered parts."""
    return CompositeSpace(tuple((str(i), part) for i, part in enumerate(parts)), kind="tuple")


def map_space(leaf: Callable[..., Any], space: Space, *values: Any) -> Any:
    """Apply ``leaf(space_leaf, *value_leaves)`` to every leaf and rebuild the tree of values."""
    if isinstance(space, CompositeSpace):
        columns = [space.unpack(value) for value in values]
        rows = [[column[i] for column in columns] for i in range(len(space.spaces))]
        return space.pack([map_space(leaf, part, *row) for (_, part), row in zip(space.spaces, rows, strict=True)])
    return leaf(space, *values)


def leaf_spaces(space: Space) -> list[Space]:
    """The leaf spaces, in the order in which JAX flattens their values."""
    if isinstance(space, CompositeSpace):
        return [leaf for _, part in space.spaces for leaf in leaf_spaces(part)]
    return [space]


def contains_text(space: Space) -> bool:
    """Whether a value of the space contains a text."""
    return any(isinstance(leaf, Text) for leaf in leaf_spaces(space))


def space_dtype(space: Space) -> str:
    """The dtype of a leaf space's values."""
    return space.dtype if isinstance(space, Box) else "int32"


def space_shape(space: Space) -> tuple[int, ...]:
    """The shape of a leaf space's values."""
    match space:
        case Box():
            return space.shape
        case MultiDiscrete():
            return (len(space.nvec),)
        case Text():
            return (space.max_length,)
        case _:
            return ()


def zero_value(space: Space, batch: tuple[int, ...] = ()) -> Any:
    """A value of zeros with leading axes ``batch``, as an example of shapes and dtypes."""
    return map_space(lambda leaf: jnp.zeros(batch + space_shape(leaf), space_dtype(leaf)), space)


def action_mask_size(space: Space) -> int:
    """Length of the action mask of a discrete leaf space."""
    match space:
        case Discrete():
            return space.n
        case MultiDiscrete():
            return sum(space.nvec)
        case _:
            raise ValueError(f"{space} has no action mask: only Discrete and MultiDiscrete have one")


def _action_bounds(space: Box) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    low, high = space.bounds()
    bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):  # an unbounded dimension has no midpoint: it is passed through
        half = np.where(bounded, (high - low) / 2, 1).astype(space.dtype)
        middle = np.where(bounded, (high + low) / 2, 0).astype(space.dtype)
    return low, high, bounded, half, middle


def unscale_action(space: Space, action: Any) -> Any:
    """The action in the environment's units for a canonical one (any leading batch axes)."""

    def leaf(part, value):
        if not isinstance(part, Box) or not np.issubdtype(part.dtype, np.floating):
            return value
        low, high, bounded, half, middle = _action_bounds(part)
        inside = jnp.where(bounded, jnp.clip(value, -1.0, 1.0), value)
        return jnp.clip(inside * half + middle, low, high)

    return map_space(leaf, space, action)


def scale_action(space: Space, action: Any) -> Any:
    """The canonical action for one in the environment's units; exact inverse of :func:`unscale_action` in bounds."""

    def leaf(part, value):
        if not isinstance(part, Box) or not np.issubdtype(part.dtype, np.floating):
            return value
        _, _, _, half, middle = _action_bounds(part)
        return (value - middle) / np.where(half == 0, 1, half)  # a dimension of zero width has the single value 0

    return map_space(leaf, space, action)


def random_action(space: Space, key: jax.Array, action_mask: Any = None) -> Any:
    """Sample a canonical action: uniform over bounded boxes and legal choices, normal where unbounded."""

    def leaf(part, mask, key):
        match part:
            case Box():
                bounded = _action_bounds(part)[2]
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
                masks = split_action_mask(part, mask)
                keys = jax.random.split(key, len(part.nvec))
                choices = zip(part.nvec, masks, keys, strict=True)
                return jnp.stack([leaf(Discrete(n), m, k) for n, m, k in choices])  # pyright: ignore
            case Text():
                length, tokens = jax.random.split(key)
                within_text = jnp.arange(part.max_length) < jax.random.randint(length, (), 1, part.max_length + 1)
                return jnp.where(
                    within_text, jax.random.randint(tokens, (part.max_length,), 0, part.vocabulary.size), -1
                )

    count = len(leaf_spaces(space))
    keys = iter(jax.random.split(key, count))
    return map_space(lambda part, mask: leaf(part, mask, next(keys)), space, action_mask)


def split_action_mask(space: MultiDiscrete, action_mask: Any) -> list[Any]:
    """The masks of the single choices (split along the last axis), or ``None`` for each."""
    if action_mask is None:
        return [None] * len(space.nvec)
    return jnp.split(action_mask, np.cumsum(space.nvec)[:-1], axis=-1)


@dataclasses.dataclass(frozen=True)
class AgentGroup:
    """``num_agents`` agents that share one observation and one action space.

    ``max_turns``: steps of an episode in which an agent acts at most, while others act in between (``None``: all).
    """

    name: str
    num_agents: int
    max_turns: int | None = None


def map_groups(groups: tuple[AgentGroup, ...], space: Space, build: Callable[..., Any], *values: Any) -> Any:
    """``build(space, axes, *values)`` for each group, by name; ``axes`` is ``(num_agents,)``.

    With no groups it is called once, for the whole, with axes ``()``.
    """
    if not groups:
        return build(space, (), *values)
    parts = dict(space.spaces) if isinstance(space, CompositeSpace) else {}

    def of_group(value: Any, name: str) -> Any:
        return None if value is None else value[name]

    return {
        g.name: build(parts[g.name], (g.num_agents,), *(of_group(value, g.name) for value in values)) for g in groups
    }
