"""From any observation to a feature vector, with or without memory.

``Encoder`` turns a tree of boxes, choices, images and, if asked for, sets into one flat vector; ``Body`` adds hidden
layers and, if asked for, a recurrent core. A body without a core has the memory ``()``, so its callers have one code
path; :func:`unroll` replays either over a whole rollout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, leaves, map_space
from thespis.nets.cnn import CNN
from thespis.nets.elstm import ELSTM, ELSTMCell
from thespis.nets.mlp import MLP, Initialiser
from thespis.nets.relations import Attended, Attention, attend, is_set


def is_image(space: Space) -> bool:
    """Whether a leaf space is treated as an image: three axes, or two axes of bytes."""
    return isinstance(space, Box) and (len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == "uint8"))


def flatten(space: Space, value: Array) -> Float[Array, " features"]:
    """A leaf value as floats: boxes ravelled, choices one-hot."""
    match space:
        case Discrete():
            return jax.nn.one_hot(value, space.n)
        case MultiDiscrete():
            return jnp.concatenate([jax.nn.one_hot(value[i], n) for i, n in enumerate(space.nvec)])
        case _:
            return jnp.ravel(value).astype("float32")


Image = Callable[[tuple[int, ...], Key[Array, ""]], Callable[[Array], Array] | None]
"""What makes the net that an image of some shape passes through; where it makes none, an image is a flat vector."""


class Encoder(eqx.Module):
    """One observation (any tree) to one flat vector; images pass through a net of their own.

    With ``others`` each set is read by attention, in which the rest of what is seen asks; else it is laid flat.
    """

    convolutions: tuple[Callable[[Array], Array] | None, ...]
    attended: tuple[Attended, ...]
    space: Space = eqx.field(static=True)

    def __init__(self, space: Space, key: Key[Array, ""], image: Image = CNN, others: Attention | None = None):
        parts = leaves(space)
        keys = jax.random.split(key, len(parts))
        self.convolutions = tuple(
            image(part.shape, k) if isinstance(part, Box) and is_image(part) else None
            for part, k in zip(parts, keys, strict=True)
        )
        self.space, self.attended = space, ()
        if others is not None:
            shapes = [part.shape for part in parts if isinstance(part, Box) and is_set(part)]
            rest = self.size - sum(rows * width for rows, width in shapes)
            self.attended = attend(shapes, rest, others, key)

    def __call__(self, observation: PyTree) -> Float[Array, " features"]:
        """Features of one observation."""
        convolutions = iter(self.convolutions)
        pieces: list[Array] = []
        rows: list[Array] = []

        def leaf(part: Space, value: Array) -> None:
            cnn = next(convolutions)
            if self.attended and is_set(part):
                rows.append(value)
            else:
                pieces.append(flatten(part, value) if cnn is None else cnn(value))

        map_space(leaf, self.space, observation)
        flat = jnp.concatenate(pieces) if len(pieces) > 1 else pieces[0]
        read = [net(flat, value) for net, value in zip(self.attended, rows, strict=True)]
        return jnp.concatenate([flat, *read]) if read else flat

    @property
    def size(self) -> int:
        """Length of the feature vector."""
        example = map_space(lambda p: np.zeros(*_leaf(p)), self.space)
        return jax.eval_shape(lambda encoder, o: encoder(o), self, example).shape[0]


def _leaf(space: Space) -> tuple[tuple[int, ...], str]:
    if isinstance(space, Box):
        return space.shape, space.dtype
    return ((len(space.nvec),) if isinstance(space, MultiDiscrete) else ()), "int32"


@dataclasses.dataclass(frozen=True)
class GRU:
    """Gated recurrent unit (Cho et al., 2014) with ``size`` units, as a choice of memory."""

    size: int = 64

    def build(self, size_in: int, key: Key[Array, ""]) -> eqx.nn.GRUCell:
        """The cell with its parameters."""
        return eqx.nn.GRUCell(size_in, self.size, key=key)


class Body(eqx.Module):
    """Encoder, hidden layers and an optional recurrent core: ``features, memory = body(memory, observation)``."""

    encoder: Encoder
    mlp: MLP
    core: eqx.nn.GRUCell | ELSTMCell | None

    def __init__(
        self,
        space: Space,
        hidden: tuple[int, ...],
        key: Key[Array, ""],
        *,
        init: Initialiser,
        activation: Callable[[Array], Array],
        memory: GRU | ELSTM | None = None,
        image: Image = CNN,
        others: Attention | None = None,
    ):
        encoder_key, mlp_key, core_key = jax.random.split(key, 3)
        self.encoder = Encoder(space, encoder_key, image, others)
        self.mlp = MLP(self.encoder.size, hidden, init, activation, mlp_key)
        size = hidden[-1] if hidden else self.encoder.size
        self.core = memory.build(size, core_key) if memory else None

    @property
    def size(self) -> int:
        """Length of the features."""
        if self.core is not None:
            return self.core.hidden_size
        return self.mlp.layers[-1].bias.shape[-1] if self.mlp.layers else self.encoder.size

    def begin(self, n: int) -> Any:
        """Memory of ``n`` fresh episodes: ``Float[n, size]``, ``Cells``, or ``()`` without a core."""
        if isinstance(self.core, ELSTMCell):
            return self.core.begin(n)
        return () if self.core is None else jnp.zeros((n, self.core.hidden_size))

    def resumed(self, memory: Any) -> Any:
        """The memory with which a rollout that is learnt from begins: the same, with its past as a gradient."""
        return self.core.resumed(memory) if isinstance(self.core, ELSTMCell) else memory

    def __call__(self, memory: Any, observation: PyTree) -> tuple[Float[Array, " size"], Any]:
        """Features of one observation, and the memory after it."""
        features = self.mlp(self.encoder(observation))
        if self.core is None:
            return features, memory
        if isinstance(self.core, ELSTMCell):
            return self.core(features, memory)
        memory = self.core(features, memory)
        return memory, memory


@runtime_checkable
class Remembering(Protocol):
    """A body, or several in a row; the memory is any tree, without leaves where nothing is kept."""

    def begin(self, n: int) -> Any:
        """Memory of ``n`` fresh episodes."""
        ...

    def __call__(self, memory: Any, observation: PyTree) -> tuple[PyTree, Any]:
        """Features of one observation, and the memory after it."""
        ...


def unroll(
    body: Remembering, memory: Any, observations: PyTree, first: Bool[Array, "time row"]
) -> tuple[PyTree[Float[Array, "time row ..."]], Any]:
    """Features of a whole rollout and the memory after each step ``[time, row, ...]`` (``()`` if none).

    ``memory`` is that before the first step, ``[row, ...]``; it is cleared wherever an episode begins, as the
    loop clears it while acting.
    """
    if not jax.tree.leaves(memory):
        features = jax.vmap(jax.vmap(lambda o: body(memory, o)[0]))(observations)
        return features, memory

    def step(memory, inputs):
        observation, first = inputs
        memory = jax.tree.map(lambda m: jnp.where(first.reshape(-1, *[1] * (m.ndim - 1)), 0.0, m), memory)
        features, memory = jax.vmap(body)(memory, observation)
        return memory, (features, memory)

    _, (features, memories) = jax.lax.scan(step, memory, (observations, first))
    return features, memories
