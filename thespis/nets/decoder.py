"""A decoder-only transformer over token ids, of the family that Llama, Mistral and Qwen belong to.

RMS norms before attention and before a gated feed-forward part (SwiGLU), rotary positions, keys and values shared by
groups of heads; biases, norms of queries and keys, windows and tied embeddings where the shape says so. Functions take
one text or a batch of them. The parameters of all layers are stacked on a leading axis and scanned.

What a token sees is settled by positions alone: keys of its own and of smaller positions, none below 0. So padding is
a token at position -1, wherever it stands, and a learner (one pass over a whole text) computes the same as a sampler (a
few tokens after those that a :class:`Cache` holds).

Sources: Touvron et al., 2023 (Llama); Shazeer, 2020 (SwiGLU); Zhang and Sennrich, 2019 (RMSNorm); Ainslie et al., 2023
(grouped queries); Jiang et al., 2023 (windows); Yang et al., 2025 (norms of queries and keys: Qwen3).
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float, Int, Key

from thespis.nets.attention import attend, rms_norm, visible
from thespis.nets.projection import Projection, times, transposed
from thespis.nets.rotary import Plain, Rotary, turned, turns

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
"""The projections of a layer; ``biased`` of a :class:`Shape` names some of them."""
_FEW = 8  # layers that are written out one by one: for a gradient, a loop copies all that each has computed
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

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of each projection of a layer."""
        inner, shared = self.heads * self.head_size, self.kv_heads * self.head_size
        width, hidden = self.width, self.hidden
        return {
            "q": (width, inner), "k": (width, shared), "v": (width, shared), "o": (inner, width),
            "gate": (width, hidden), "up": (width, hidden), "down": (hidden, width),
        }  # fmt: skip


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
    """Keys and values of rows of texts so far, by layer: ``slot`` places, of which the first ``used`` are taken.

    A place whose position is -1 is empty or padding. All rows are written at once, at the same places.
    """

    keys: tuple[Float[Array, "row kv size slot"], ...]
    values: tuple[Float[Array, "row kv slot size"], ...]
    positions: Int[Array, "row slot"]
    used: Int[Array, ""]


class Decoder(eqx.Module):
    """Parameters of a language model. ``compute``: the dtype of what products take and what layers hand on.

    Sums, norms and rotations are float32, and so are attention and caches on CPUs.
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
        self, tokens: Int[Array, "*row time"], positions: Int[Array, "*row time"], branches: Array | None = None
    ) -> Float[Array, "*row time width"]:
        """Features of each token of one text, or of one in each row; positions of -1 are padding.

        ``branches``: continuations of one text; those of branch 0 are seen by all, others by their own branch.
        """
        by = turns(self.shape.rotary, self.shape.head_size, positions)
        branches = jnp.zeros_like(positions) if branches is None else branches

        def one(x, xs):
            layer, window = xs

            def text(q, k, v, places, branch):
                seen = visible(places, places, window) & ((branch == 0) | (branch == branch[:, None]))
                return attend(q, k.transpose(1, 2, 0), v.transpose(1, 0, 2), seen)

            seen = (jax.vmap(text) if tokens.ndim > 1 else text)(*self._heads(layer, x, by), positions, branches)
            return self._mixed(layer, x, seen), None

        body = jax.checkpoint(one) if self.remat else one  # pyright: ignore[reportPrivateImportUsage]
        x, few = self.embedding[tokens].astype(self.compute), self.shape.layers <= _FEW
        x, _ = jax.lax.scan(body, x, (self.layers, self._windows()), unroll=few)
        return rms_norm(x, self.norm, self.shape.epsilon)

    def untied(self) -> Decoder:
        """The same with a head of its own, for a loop on CPUs: products would turn a tied one at every token."""
        if self.head is not None or jax.default_backend() != "cpu":
            return self
        return dataclasses.replace(self, head=with_layout_constraint(self.embedding.T, Layout((0, 1))))

    def apart(self) -> tuple[Layer, ...]:
        """The layers one by one, for :meth:`read` in a loop: a scan would copy a layer's weights for every token."""
        return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], self.layers) for i in range(self.shape.layers))

    def read(
        self,
        cache: Cache,
        tokens: Int[Array, "row time"],
        positions: Int[Array, "row time"],
        layers: tuple[Layer, ...],
        wanted: Int[Array, "row place"] | None = None,
    ) -> tuple[Float[Array, "row place width"], Cache]:
        """What the decoder itself says of tokens that follow those of the cache, and the cache with them.

        ``layers``: as :meth:`apart` gives them. The caller sees to it that the cache has room for ``time`` more.
        ``wanted``: the tokens whose features are asked for, by their places in the block; the last layer then makes
        nothing but keys and values of the others. Without it all are.
        """
        by = turns(self.shape.rotary, self.shape.head_size, positions)
        places = _write(cache.positions, positions, cache.used, axis=1)
        x, keys, values = self.embedding[tokens].astype(self.compute), [], []
        for i, (layer, window) in enumerate(zip(layers, self._windows(), strict=True)):
            q, k, v = self._heads(layer, x, by)
            keys.append(_write(cache.keys[i], k.transpose(0, 2, 3, 1), cache.used, axis=3))
            values.append(_write(cache.values[i], v.transpose(0, 2, 1, 3), cache.used, axis=2))
            asking = positions
            if wanted is not None and i == self.shape.layers - 1:
                asking, q, x = (jax.vmap(lambda each, at: each[at])(part, wanted) for part in (positions, q, x))
            shown = jax.vmap(visible, in_axes=(0, 0, None))(asking, places, window)
            x = self._mixed(layer, x, jax.vmap(attend)(q, keys[i], values[i], shown))
        after = Cache(tuple(keys), tuple(values), places, cache.used + tokens.shape[1])
        return rms_norm(x, self.norm, self.shape.epsilon), after

    def logits(self, features: Float[Array, "*axes width"]) -> Float[Array, "*axes vocabulary"]:
        """Unnormalised log-probabilities of the next token, in float32."""
        dtype = features.dtype
        weight = transposed(self.embedding.astype(dtype)) if self.head is None else self.head.astype(dtype)
        return times(features, weight).astype("float32")

    def empty(self, rows: int, slots: int) -> Cache:
        """A cache for ``rows`` texts with room for ``slots`` tokens of each."""
        shape, lead, dtype = self.shape, (rows, self.shape.kv_heads), self._attending()
        keys = jnp.zeros((*lead, shape.head_size, slots), dtype)
        values = jnp.zeros((*lead, slots, shape.head_size), dtype)
        return Cache((keys,) * shape.layers, (values,) * shape.layers, jnp.full((rows, slots), -1), jnp.array(0))

    def _windows(self) -> Int[Array, " layer"]:
        return jnp.array([_ALL if w is None else w for w in self.shape.windows or (None,) * self.shape.layers])

    def _heads(self, layer: Layer, x: Array, by: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        """Queries, keys and values ``[..., head, size]`` of features ``[..., width]``, queries and keys turned."""
        size, x = self.shape.head_size, rms_norm(x, layer.before, self.shape.epsilon)
        q, k, v = (part(x).reshape(*x.shape[:-1], -1, size) for part in (layer.q, layer.k, layer.v))
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = (rms_norm(y, s, self.shape.epsilon) for y, s in ((q, layer.q_norm), (k, layer.k_norm)))
        q, k, v = (y.astype(self._attending()) for y in (turned(q, by), turned(k, by), v))
        return q, k, v

    def _attending(self) -> str:
        """The dtype of attention and so of caches. CPUs would convert a whole cache of halves at every token."""
        return "float32" if jax.default_backend() == "cpu" else self.compute

    def _mixed(self, layer: Layer, x: Array, seen: Array) -> Array:
        """A layer's end: what attention has seen is added, then what the feed-forward part makes of it."""
        wide = x + layer.o(seen.reshape(*x.shape[:-1], -1).astype(self.compute))
        normal = rms_norm(wide, layer.between, self.shape.epsilon).astype(self.compute)
        inner = jax.nn.silu(layer.gate(normal)) * layer.up(normal)
        return (wide + layer.down(inner.astype(self.compute))).astype(x.dtype)


def _write(old: Array, new: Array, at: Int[Array, ""], axis: int) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), at, axis)


def decoder(shape: Shape, key: Key[Array, ""], dtype: str = "float32") -> Decoder:
    """A fresh model: normal weights of deviation 0.02, those into the residual stream over ``sqrt(2 layers)``."""
    keys, layers, sizes = iter(jax.random.split(key, len(PROJECTIONS) + 2)), shape.layers, shape.sizes()

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
