"""A decoder-only transformer over token ids, of the family that Llama, Mistral and Qwen belong to.

RMS norms before attention and before a gated feed-forward part (SwiGLU), rotary positions, keys and values shared by
groups of heads; biases, norms of queries and keys, windows and tied embeddings where the shape says so. Functions take
one sequence; batch with ``vmap``. The parameters of all layers are stacked on a leading axis and scanned.

What a token sees is settled by positions alone: keys of its own and of smaller positions, none below 0. So padding is
a token at position -1, wherever it stands, and the same function serves a learner (whole sequences) and a sampler (a
few tokens after those that a :class:`Cache` holds).

Sources: Touvron et al., 2023 (Llama); Shazeer, 2020 (SwiGLU); Zhang and Sennrich, 2019 (RMSNorm); Ainslie et al., 2023
(grouped queries); Jiang et al., 2023 (windows); Yang et al., 2025 (norms of queries and keys: Qwen3).
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.nets.attention import attend, rms_norm, visible
from thespis.nets.rotary import Plain, Rotary, turned, turns

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
"""The projections of a layer; ``biased`` of a :class:`Shape` names some of them."""
_ALL = 2**30  # a window that no sequence fills
_PLAIN = Plain()


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes and switches of a :class:`Decoder`; ``windows``: positions a token sees, by layer (``None``: all)."""

    vocabulary: int
    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    hidden: int = 384
    rotary: Rotary = _PLAIN
    epsilon: float = 1e-6
    biased: tuple[str, ...] = ()
    normed: bool = False
    tied: bool = True
    windows: tuple[int | None, ...] | None = None

    def __post_init__(self):
        """Refuse sizes that do not fit each other."""
        if self.heads % self.kv_heads or self.head_size % 2:
            raise ValueError(
                f"{self.heads} heads cannot share {self.kv_heads} keys evenly, or a head's size {self.head_size} is odd"
            )
        if self.windows is not None and len(self.windows) != self.layers:
            raise ValueError(f"{len(self.windows)} windows for {self.layers} layers")


class LowRank(eqx.Module):
    """What an adapter adds to a projection (LoRA: Hu et al., 2021): ``scale * (x @ down) @ up``."""

    down: Float[Array, "*layer in rank"]
    up: Float[Array, "*layer rank out"]
    scale: float = eqx.field(static=True)


class Projection(eqx.Module):
    """``x @ weight + bias``, computed in the dtype of ``x``."""

    weight: Float[Array, "*layer in out"]
    bias: Float[Array, "*layer out"] | None = None
    adapter: LowRank | None = None

    def __call__(self, x: Float[Array, "*axes in"]) -> Float[Array, "*axes out"]:
        """Project the last axis."""
        y = x @ self.weight.astype(x.dtype)
        if self.bias is not None:
            y = y + self.bias.astype(x.dtype)
        if self.adapter is not None:
            y = y + self.adapter.scale * (x @ self.adapter.down.astype(x.dtype)) @ self.adapter.up.astype(x.dtype)
        return y


class Layer(eqx.Module):
    """Parameters of one layer, or of all of them stacked."""

    before: Float[Array, "*layer width"]
    q: Projection
    k: Projection
    v: Projection
    o: Projection
    q_norm: Float[Array, "*layer size"] | None
    k_norm: Float[Array, "*layer size"] | None
    between: Float[Array, "*layer width"]
    gate: Projection
    up: Projection
    down: Projection

    def projections(self) -> dict[str, Projection]:
        """The projections by name."""
        return {name: getattr(self, name) for name in PROJECTIONS}


class Cache(eqx.Module):
    """Keys and values of a sequence so far, by layer: ``slot`` places, of which the first ``used`` are taken.

    A place whose position is -1 is empty or padding. ``used`` is the same for all sequences of a batch, so that writing
    is one copy.
    """

    keys: tuple[Float[Array, "*row slot kv size"], ...]
    values: tuple[Float[Array, "*row slot kv size"], ...]
    positions: Int[Array, "*row slot"]
    used: Int[Array, ""]


class Decoder(eqx.Module):
    """Parameters of a language model. ``compute``: the dtype of all between embedding and logits.

    ``remat``: forget what is inside a layer and compute it again for the gradient: less memory, a third more time.
    """

    embedding: Float[Array, "vocabulary width"]
    layers: Layer
    norm: Float[Array, " width"]
    head: Float[Array, "width vocabulary"] | None
    shape: Shape = eqx.field(static=True)
    compute: str = eqx.field(static=True, default="float32")
    remat: bool = eqx.field(static=True, default=False)

    def __call__(
        self, tokens: Int[Array, " time"], positions: Int[Array, " time"], cache: Cache | None = None
    ) -> tuple[Float[Array, "time width"], Cache | None]:
        """Features of each token, and the cache with their keys and values; positions of -1 are padding.

        The caller sees to it that the cache has room for ``time`` more.
        """
        by = turns(self.shape.rotary, self.shape.head_size, positions)
        x = self.embedding[tokens].astype(self.compute)
        windows = jnp.array([_ALL if w is None else w for w in self.shape.windows or (None,) * self.shape.layers])
        if cache is not None:
            x, cache = self._after(cache, x, positions, by, windows)
        else:

            def one(x, xs):
                layer, window = xs
                q, k, v = self._heads(layer, x, by)
                return self._mixed(layer, x, attend(q, k, v, visible(positions, positions, window))), None

            body = jax.checkpoint(one) if self.remat else one  # pyright: ignore[reportPrivateImportUsage]
            x, _ = jax.lax.scan(body, x, (self.layers, windows))
        return rms_norm(x, self.norm, self.shape.epsilon), cache

    def _after(self, cache: Cache, x: Array, positions: Array, by: tuple, windows: Array) -> tuple[Array, Cache]:
        """All layers with a cache, one by one: a scan would copy each layer's cache and weights for every token."""

        def placed(old: Array, new: Array) -> Array:
            return jax.lax.dynamic_update_slice(old, new.astype(old.dtype), (cache.used, *[0] * (new.ndim - 1)))

        places, keys, values = placed(cache.positions, positions), [], []
        for i in range(self.shape.layers):
            layer = jax.tree.map(lambda leaf, i=i: leaf[i], self.layers)
            q, k, v = self._heads(layer, x, by)
            keys.append(placed(cache.keys[i], k))
            values.append(placed(cache.values[i], v))
            k, v = keys[i].astype(x.dtype), values[i].astype(x.dtype)
            x = self._mixed(layer, x, attend(q, k, v, visible(positions, places, windows[i])))
        return x, Cache(tuple(keys), tuple(values), places, cache.used + len(positions))

    def _mixed(self, layer: Layer, x: Array, seen: Array) -> Array:
        """A layer's end: what attention has seen is added, then what the feed-forward part makes of it."""
        x = x + layer.o(seen.reshape(x.shape[0], -1))
        normal = rms_norm(x, layer.between, self.shape.epsilon)
        return x + layer.down(jax.nn.silu(layer.gate(normal)) * layer.up(normal))

    def logits(self, features: Float[Array, "*axes width"]) -> Float[Array, "*axes vocabulary"]:
        """Unnormalised log-probabilities of the next token, in float32."""
        weight = self.embedding.T if self.head is None else self.head
        return (features @ weight.astype(features.dtype)).astype("float32")

    def batch(
        self, tokens: Int[Array, "row time"], positions: Int[Array, "row time"], cache: Cache
    ) -> tuple[Float[Array, "row time width"], Cache]:
        """What the decoder itself does, for rows of texts with a cache of as many rows."""

        def one(tokens, positions, keys, values, places):
            features, after = self(tokens, positions, Cache(keys, values, places, cache.used))
            assert after is not None
            return features, after.keys, after.values, after.positions

        over = jax.vmap(one)
        features, keys, values, places = over(tokens, positions, cache.keys, cache.values, cache.positions)
        return features, Cache(keys, values, places, cache.used + tokens.shape[1])

    def empty(self, slots: int, *rows: int, dtype: str | None = None) -> Cache:
        """A cache with room for ``slots`` tokens, of one text or of ``rows`` texts."""
        shape = self.shape
        room = jnp.zeros((*rows, slots, shape.kv_heads, shape.head_size), dtype or self.compute)
        return Cache((room,) * shape.layers, (room,) * shape.layers, jnp.full((*rows, slots), -1), jnp.array(0))

    def _heads(self, layer: Layer, x: Array, by: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        """Queries, keys and values ``[time, head, size]``, queries and keys turned."""
        size, x = self.shape.head_size, rms_norm(x, layer.before, self.shape.epsilon)
        q, k, v = (part(x).reshape(x.shape[0], -1, size) for part in (layer.q, layer.k, layer.v))
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = (rms_norm(y, s, self.shape.epsilon) for y, s in ((q, layer.q_norm), (k, layer.k_norm)))
        return turned(q, by), turned(k, by), v


def decoder(shape: Shape, key: Key[Array, ""], dtype: str = "float32") -> Decoder:
    """A fresh model: normal weights of deviation 0.02, those into the residual stream over ``sqrt(2 layers)``."""
    keys = iter(jax.random.split(key, len(PROJECTIONS) + 2))
    inner, shared, layers = shape.heads * shape.head_size, shape.kv_heads * shape.head_size, shape.layers
    sizes = {
        "q": (shape.width, inner), "k": (shape.width, shared), "v": (shape.width, shared), "o": (inner, shape.width),
        "gate": (shape.width, shape.hidden), "up": (shape.width, shape.hidden), "down": (shape.hidden, shape.width),
    }  # fmt: skip

    def normal(size: tuple[int, ...], scale: float = 0.02) -> Array:
        return (scale * jax.random.normal(next(keys), size)).astype(dtype)

    def projection(name: str) -> Projection:
        scale = 0.02 / (2 * layers) ** 0.5 if name in ("o", "down") else 0.02
        bias = jnp.zeros((layers, sizes[name][1]), dtype) if name in shape.biased else None
        return Projection(normal((layers, *sizes[name]), scale), bias)

    ones = jnp.ones((layers, shape.width), dtype)
    heads = jnp.ones((layers, shape.head_size), dtype) if shape.normed else None
    parts = {name: projection(name) for name in PROJECTIONS}
    stacked = Layer(before=ones, between=ones, q_norm=heads, k_norm=heads, **parts)
    head = None if shape.tied else normal((shape.width, shape.vocabulary))
    return Decoder(normal((shape.vocabulary, shape.width)), stacked, ones[0], head, shape)
