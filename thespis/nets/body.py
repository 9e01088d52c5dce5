"""Encoders and bodies: from any observation to a feature vector, with or without memory.

``Encoder`` turns a tree of boxes, choices, images and, optionally, sets of entities into one flat vector; ``Body`` adds
hidden layers and, optionally, a recurrent core. A body without a core has the memory ``()``, so its callers have one
code path; :func:`unroll` replays either over a whole rollout.
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

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, leaf_spaces, map_space
from thespis.nets import resnet as resnet  # its encoders can be chosen by name
from thespis.nets.cnn import CNN, ImageEncoder
from thespis.nets.mlp import MLP, Initializer
from thespis.nets.recurrent import RecurrentCore
from thespis.nets.set_attention import SetEncoder, SetEncoderNetwork, build_set_encoders, is_entity_set


def is_image(space: Space) -> bool:
    """Whether a leaf space is treated as an image: three axes, or two axes of bytes."""
    return isinstance(space, Box) and (len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == "uint8"))


def flatten(space: Space, value: Array) -> Float[Array, " features"]:
    """Flatten a leaf value to a vector of floats: boxes flattened, choices one-hot."""
    match space:
        case Discrete():
            return jax.nn.one_hot(value, space.n)
        case MultiDiscrete():
            return jnp.concatenate([jax.nn.one_hot(value[i], n) for i, n in enumerate(space.nvec)])
        case _:
            return jnp.ravel(value).astype("float32")


ImageEncoderFactory = Callable[[tuple[int, ...], Key[Array, ""]], Callable[[Array], Array] | None]
"""Builds the network that images of some shape pass through; ``None`` means that an image is a flat vector."""


ObservationEncoderFactory = Callable[[Space, Key[Array, ""]], Callable[[PyTree], Array]]
"""Builds a network from one observation of a space to a vector of features: a user's own Equinox module, for one."""
ObservationEncoder = ImageEncoder | ObservationEncoderFactory
"""A setting: the network for the images of an observation, or for the whole of it."""


class Encoder(eqx.Module):
    """Encoder network: one observation (any tree) to one flat vector; images pass through a network of their own.

    With ``set_encoder`` each set of entities is read by a network of its own, which also sees the rest of the
    observation; without, it is flattened.
    """

    image_encoders: tuple[Callable[[Array], Array] | None, ...]
    set_encoders: tuple[SetEncoderNetwork, ...]
    space: Space = eqx.field(static=True)

    def __init__(
        self,
        space: Space,
        key: Key[Array, ""],
        image_encoder: ImageEncoderFactory | None = CNN,
        set_encoder: SetEncoder | None = None,
    ):
        parts = leaf_spaces(space)
        keys = jax.random.split(key, len(parts))
        self.image_encoders = tuple(
            image_encoder(part.shape, k) if image_encoder and isinstance(part, Box) and is_image(part) else None
            for part, k in zip(parts, keys, strict=True)
        )
        self.space, self.set_encoders = space, ()
        if set_encoder is not None:
            shapes = [part.shape for part in parts if isinstance(part, Box) and is_entity_set(part)]
            rest = self.feature_size - sum(rows * width for rows, width in shapes)
            self.set_encoders = build_set_encoders(shapes, rest, set_encoder, key)

    def __call__(self, observation: PyTree) -> Float[Array, " features"]:
        """Features of one observation."""
        image_encoders = iter(self.image_encoders)
        pieces: list[Array] = []
        rows: list[Array] = []

        def leaf(part: Space, value: Array) -> None:
            image_encoder = next(image_encoders)
            if self.set_encoders and is_entity_set(part):
                rows.append(value)
            else:
                pieces.append(flatten(part, value) if image_encoder is None else image_encoder(value))

        map_space(leaf, self.space, observation)
        flat = pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces or [jnp.zeros(0)])
        sets = [set_encoder(flat, value) for set_encoder, value in zip(self.set_encoders, rows, strict=True)]
        return jnp.concatenate([flat, *sets]) if sets else flat

    @property
    def feature_size(self) -> int:
        """Length of the feature vector."""
        return count_features(self, self.space)


def build_encoder(
    space: Space,
    key: Key[Array, ""],
    encoder: ObservationEncoder | None = None,
    image_encoder: ImageEncoderFactory | None = CNN,
    set_encoder: SetEncoder | None = None,
) -> Callable[[PyTree], Array]:
    """The network from observations to features: an :class:`Encoder`, or what the user's own ``encoder`` builds.

    An ``encoder`` that is an :class:`ImageEncoder` replaces ``image_encoder``.
    """
    if encoder is None or isinstance(encoder, ImageEncoder):
        return Encoder(space, key, encoder or image_encoder, set_encoder)
    return encoder(space, key)


def count_features(encoder: Callable[[PyTree], Array], space: Space) -> int:
    """Length of the vector that an encoder returns. Raises ``UserError`` if it returns anything else."""
    example = map_space(lambda p: np.zeros(*_shape_and_dtype(p)), space)
    arrays, rest = eqx.partition(encoder, eqx.is_array)
    result = jax.eval_shape(lambda arrays, o: eqx.combine(arrays, rest)(o), arrays, example)
    if not isinstance(result, jax.ShapeDtypeStruct) or result.ndim != 1 or result.dtype.kind != "f":
        raise UserError(f"the encoder {type(encoder).__name__} must return a vector of floats, and returns {result}")
    return result.shape[0]


def _shape_and_dtype(space: Space) -> tuple[tuple[int, ...], str]:
    if isinstance(space, Box):
        return space.shape, space.dtype
    return ((len(space.nvec),) if isinstance(space, MultiDiscrete) else ()), "int32"


@dataclasses.dataclass(frozen=True)
class GRU(RecurrentCore):
    """Gated recurrent unit (Cho et al., 2014), as a setting for memory."""

    hidden_size: int = 64
    """Number of units."""

    def build(self, in_size: int, key: Key[Array, ""]) -> eqx.nn.GRUCell:
        """The cell with fresh parameters."""
        return eqx.nn.GRUCell(in_size, self.hidden_size, key=key)

    def init_memory(self, cell: eqx.nn.GRUCell, n: int) -> Float[Array, "n hidden_size"]:
        """Memory of ``n`` fresh episodes: the units' values."""
        return jnp.zeros((n, self.hidden_size))

    def project(self, cell: eqx.nn.GRUCell, x: Float[Array, " in"]) -> Float[Array, " gates"]:
        """The input's part of the gates."""
        assert cell.bias is not None
        return cell.weight_ih @ x + cell.bias

    def step(
        self, cell: eqx.nn.GRUCell, projected: Float[Array, " gates"], memory: Float[Array, " hidden_size"]
    ) -> tuple[Float[Array, " hidden_size"], Float[Array, " hidden_size"]]:
        """Features of one input, which are the memory after it."""
        from_input, from_memory = jnp.split(projected, 3), jnp.split(cell.weight_hh @ memory, 3)
        reset = jax.nn.sigmoid(from_input[0] + from_memory[0])
        update = jax.nn.sigmoid(from_input[1] + from_memory[1])
        assert cell.bias_n is not None
        candidate = jnp.tanh(from_input[2] + reset * (from_memory[2] + cell.bias_n))
        memory = candidate + update * (memory - candidate)
        return memory, memory


@dataclasses.dataclass(frozen=True)
class NetworkOptions:
    """How the networks of a method are built, apart from their sizes."""

    activation: Callable[[Array], Array] = jax.nn.relu
    """Activation of the hidden layers."""
    encoder: ObservationEncoder | None = None
    """Encoder before the hidden layers; ``None``: flattened observations, and images by their size."""
    layer_norm: bool = False
    """Whether the outputs of hidden layers are normalized before the activation."""

    def build_body(
        self,
        space: Space,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        init: Initializer,
        memory: RecurrentCore | None = None,
        set_encoder: SetEncoder | None = None,
    ) -> Body:
        """A body with fresh parameters."""
        return Body(
            space,
            hidden_sizes,
            key,
            init=init,
            activation=self.activation,
            memory=memory,
            set_encoder=set_encoder,
            encoder=self.encoder,
            layer_norm=self.layer_norm,
        )


DEFAULT_NETWORK = NetworkOptions()
"""What methods use without options."""


class Body(eqx.Module):
    """Encoder, hidden layers and an optional recurrent core: ``features, memory = body(memory, observation)``."""

    encoder: Callable[[PyTree], Array]
    mlp: MLP
    core: Any
    """The cell of the recurrent core, ``None`` without one."""
    num_encoded: int = eqx.field(static=True)
    memory: RecurrentCore | None = eqx.field(static=True)

    def __init__(
        self,
        space: Space,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        init: Initializer,
        activation: Callable[[Array], Array],
        memory: RecurrentCore | None = None,
        image_encoder: ImageEncoderFactory | None = CNN,
        set_encoder: SetEncoder | None = None,
        encoder: ObservationEncoder | None = None,
        layer_norm: bool = False,
    ):
        encoder_key, mlp_key, core_key = jax.random.split(key, 3)
        self.encoder = build_encoder(space, encoder_key, encoder, image_encoder, set_encoder)
        self.num_encoded = count_features(self.encoder, space)
        self.mlp = MLP(self.num_encoded, hidden_sizes, init, activation, mlp_key, layer_norm)
        size = hidden_sizes[-1] if hidden_sizes else self.num_encoded
        self.memory = memory
        self.core = memory.build(size, core_key) if memory else None

    @property
    def feature_size(self) -> int:
        """Length of the feature vector."""
        if self.memory is not None:
            return self.memory.hidden_size
        return self.mlp.layers[-1].bias.shape[-1] if self.mlp.layers else self.num_encoded

    def init_memory(self, n: int) -> Any:
        """Memory of ``n`` fresh episodes, that of the recurrent core; ``()`` without a core."""
        return () if self.memory is None else self.memory.init_memory(self.core, n)

    def resume_memory(self, memory: Any) -> Any:
        """The initial memory of a rollout that is trained on: the same values, with their past's gradient if known."""
        return memory if self.memory is None else self.memory.resume_memory(self.core, memory)

    def encode(self, observation: PyTree) -> Float[Array, " features"]:
        """All that comes before the memory: hidden layers, and what the recurrent core computes of them alone."""
        features = self.mlp(self.encoder(observation))
        return features if self.memory is None else self.memory.project(self.core, features)

    def step(self, memory: Any, encoded: Float[Array, " features"]) -> tuple[Float[Array, " feature_size"], Any]:
        """Features of one encoded observation, and the memory after it."""
        return (encoded, memory) if self.memory is None else self.memory.step(self.core, encoded, memory)

    def __call__(self, memory: Any, observation: PyTree) -> tuple[Float[Array, " feature_size"], Any]:
        """Features of one observation, and the memory after it."""
        return self.step(memory, self.encode(observation))


@runtime_checkable
class RecurrentModule(Protocol):
    """Interface of recurrent modules: a body, or several in sequence.

    The memory is any tree, without leaves where there is no memory.
    """

    def init_memory(self, n: int) -> Any:
        """Memory of ``n`` fresh episodes."""
        ...

    def encode(self, observation: PyTree) -> PyTree:
        """All of the network that comes before the memory, for one observation."""
        ...

    def step(self, memory: Any, encoded: PyTree) -> tuple[PyTree, Any]:
        """Features of one encoded observation, and the memory after it."""
        ...


def unroll(
    body: RecurrentModule, memory: Any, observations: PyTree, is_first: Bool[Array, "time row"]
) -> tuple[PyTree[Float[Array, "time row ..."]], Any]:
    """Unroll a body over a whole rollout: features and the memory after each step, ``[time, row, ...]``.

    The memory after each step is ``()`` without a core. ``memory`` is that before the first step, ``[row, ...]``. It is
    reset where ``is_first`` says that an episode starts, as the loop resets it while acting. All observations are
    encoded at once; only the recurrent core goes step by step.
    """
    encoded = jax.vmap(jax.vmap(body.encode))(observations)
    if not jax.tree.leaves(memory):
        return jax.vmap(jax.vmap(lambda e: body.step(memory, e)[0]))(encoded), memory

    def step(memory, inputs):
        encoded, first = inputs
        memory = jax.tree.map(lambda m: jnp.where(first.reshape(-1, *[1] * (m.ndim - 1)), 0.0, m), memory)
        features, memory = jax.vmap(body.step)(memory, encoded)
        return memory, (features, memory)

    _, (features, memories) = jax.lax.scan(step, memory, (encoded, is_first))
    return features, memories
