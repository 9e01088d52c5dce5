"""Decoder-only transformer over tokens, of the family that Llama, Mistral and Qwen belong to.

It has RMS norms before attention and before a gated feed-forward block (SwiGLU), rotary positions and grouped-query
attention; biases, norms of queries and keys, sliding windows and tied embeddings where the configuration says so.
Functions take one text or a batch of them. The parameters of all layers are stacked on a leading axis and scanned.

Attention is masked by positions alone: a token attends to keys at its own and smaller positions, never below 0. So
padding is a token at position -1, wherever it stands, and training (one pass over a whole text) computes the same as
sampling (a few tokens after those in a :class:`KVCache`).

Sources: Touvron et al., 2023 (Llama); Shazeer, 2020 (SwiGLU); Zhang and Sennrich, 2019 (RMSNorm); Ainslie et al., 2023
(grouped queries); Jiang et al., 2023 (windows); Yang et al., 2025 (norms of queries and keys: Qwen3).
"""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.nets.projection import Projection, matmul, transpose
from thespis.nets.rotary import DefaultRope, RotaryEmbedding, apply_rotary, rotary_cos_sin

_MASKED_SCORE = -1e30  # finite: a query at position -1 attends to nothing, and its softmax must not be NaN


def rms_norm(x: Float[Array, "*axes f"], scale: Float[Array, " f"], epsilon: float) -> Float[Array, "*axes f"]:
    """Root-mean-square normalisation: ``x`` over its root mean square, times ``scale``; computed in float32."""
    x32 = x.astype("float32")
    normalized = x32 * jax.lax.rsqrt(jnp.mean(x32**2, axis=-1, keepdims=True) + epsilon)
    return scale.astype(x.dtype) * normalized.astype(x.dtype)


def grouped_query_attention(
    q: Float[Array, "time head size"],
    k: Float[Array, "kv size slot"],
    v: Float[Array, "kv slot size"],
    mask: Bool[Array, "time slot"],
) -> Float[Array, "time head size"]:
    """Grouped-query attention: ``head / kv`` query heads share a key head; softmax weights are in float32.

    A query whose mask is all false gets some mean of the values. Queries that share a key are rows of one matrix: plain
    products need no transposes, which for one token would take longer than the arithmetic.
    """
    time, heads, size = q.shape
    kv, slots = len(k), k.shape[-1]
    rows = q.reshape(time, kv, -1, size).swapaxes(0, 1).reshape(kv, -1, size)
    scores = (rows @ k).astype("float32").reshape(kv, time, -1, slots) * size**-0.5
    weights = jax.nn.softmax(jnp.where(mask[:, None], scores, _MASKED_SCORE), axis=-1).astype(q.dtype)
    mixed = weights.reshape(kv, -1, slots) @ v
    return mixed.reshape(kv, time, -1, size).swapaxes(0, 1).reshape(time, heads, size)


def causal_mask(
    query_positions: Int[Array, " time"], key_positions: Int[Array, " slot"], window: Int[Array, ""]
) -> Bool[Array, "time slot"]:
    """Causal mask with a sliding window, from positions.

    A query attends to keys at its own and smaller positions, fewer than ``window`` behind it, and never to position -1.
    """
    behind = query_positions[:, None] - key_positions
    return (behind >= 0) & (behind < window) & (key_positions >= 0)


PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
"""Names of a layer's projections; ``biased_projections`` of a :class:`DecoderConfig` lists some of them."""
_UNROLL_LIMIT = 8  # most layers that are unrolled: for a gradient, a loop copies all that each has computed
_NO_WINDOW = 2**30  # a window larger than any sequence
_DEFAULT_ROPE = DefaultRope()


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Sizes and options of a :class:`Decoder`.

    ``sliding_windows``: positions that a token attends to, by layer (``None``: all).
    """

    vocab_size: int
    hidden_size: int = 128
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 384
    rotary: RotaryEmbedding = _DEFAULT_ROPE
    rms_norm_eps: float = 1e-6
    biased_projections: tuple[str, ...] = ()
    qk_norm: bool = False
    tie_embeddings: bool = True
    sliding_windows: tuple[int | None, ...] | None = None

    def __post_init__(self):
        """Raise ``ValueError`` for sizes that do not fit each other."""
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ValueError(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} keys evenly, or a head's size "
                f"{self.head_dim} is odd"
            )
        if self.sliding_windows is not None and len(self.sliding_windows) != self.num_layers:
            raise ValueError(f"{len(self.sliding_windows)} windows for {self.num_layers} layers")

    def projection_shapes(self) -> dict[str, tuple[int, int]]:
        """Input and output size of each projection of a layer."""
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        width, hidden = self.hidden_size, self.intermediate_size
        return {
            "q": (width, q_size),
            "k": (width, kv_size),
            "v": (width, kv_size),
            "o": (q_size, width),
            "gate": (width, hidden),
            "up": (width, hidden),
            "down": (hidden, width),
        }


class DecoderLayer(eqx.Module):
    """Decoder layer: parameters of one layer, or of all layers stacked on a leading axis."""

    input_norm: Float[Array, "*layer width"]
    q: Projection
    k: Projection
    v: Projection
    o: Projection
    q_norm: Float[Array, "*layer size"] | None
    k_norm: Float[Array, "*layer size"] | None
    post_attention_norm: Float[Array, "*layer width"]
    gate: Projection
    up: Projection
    down: Projection

    def projections(self) -> dict[str, Projection]:
        """The projections by name."""
        return {name: getattr(self, name) for name in PROJECTIONS}


class KVCache(eqx.Module):
    """Key-value cache of a batch of texts, by layer: ``slot`` slots, of which the first ``num_used`` are in use.

    A slot whose position is -1 is empty or padding. All rows are written at once, at the same slots.
    """

    keys: tuple[Float[Array, "row kv size slot"], ...]
    values: tuple[Float[Array, "row kv slot size"], ...]
    positions: Int[Array, "row slot"]
    num_used: Int[Array, ""]


@runtime_checkable
class GeneratingModel(Protocol):
    """What generation needs of a language model; functions as those of :class:`Decoder`."""

    @property
    def config(self) -> DecoderConfig:
        """The configuration: of sizes, the vocabulary's is used."""
        ...

    def untie_head(self) -> GeneratingModel:
        """A copy with an untied output head on CPUs."""
        ...

    def unstack_layers(self) -> tuple[DecoderLayer, ...]:
        """The layers one by one."""
        ...

    def init_cache(self, num_rows: int, num_slots: int) -> KVCache:
        """An empty cache for ``num_rows`` texts with ``num_slots`` slots for tokens of each."""
        ...

    def forward_with_cache(
        self,
        cache: KVCache,
        tokens: Int[Array, "row time"],
        positions: Int[Array, "row time"],
        layers: tuple[DecoderLayer, ...],
        output_positions: Int[Array, "row place"] | None = None,
    ) -> tuple[Float[Array, "row place width"], KVCache]:
        """Features of tokens that follow those of the cache, and the cache with these tokens added."""
        ...

    def logits(self, features: Float[Array, "*axes width"]) -> Float[Array, "*axes vocabulary"]:
        """Unnormalised log-probabilities of the next token."""
        ...


class Decoder(eqx.Module):
    """Decoder-only language model: its parameters.

    ``compute_dtype``: the dtype of matrix products' inputs and of layers' outputs. Sums, norms and rotations are
    float32, and so are attention and caches on CPUs. ``remat``: recompute the inside of a layer for the gradient
    instead of storing it: less memory, a third more time.
    """

    embedding: Float[Array, "vocabulary width"]
    layers: DecoderLayer
    final_norm: Float[Array, " width"]
    lm_head: Float[Array, "width vocabulary"] | None
    config: DecoderConfig = eqx.field(static=True)
    compute_dtype: str = eqx.field(static=True, default="float32")
    remat: bool = eqx.field(static=True, default=False)

    def __call__(
        self, tokens: Int[Array, "*row time"], positions: Int[Array, "*row time"], branch_ids: Array | None = None
    ) -> Float[Array, "*row time width"]:
        """Features of each token of one text, or of one text per row; positions of -1 are padding.

        ``branch_ids``: continuations of one text. Tokens of branch 0 are visible to all, others only to their own
        branch.
        """
        cos_sin = rotary_cos_sin(self.config.rotary, self.config.head_dim, positions)
        branch_ids = jnp.zeros_like(positions) if branch_ids is None else branch_ids

        def apply_layer(x, xs):
            layer, window = xs

            def attend(q, k, v, places, branch):
                mask = causal_mask(places, places, window) & ((branch == 0) | (branch == branch[:, None]))
                return grouped_query_attention(q, k.transpose(1, 2, 0), v.transpose(1, 0, 2), mask)

            attended = (jax.vmap(attend) if tokens.ndim > 1 else attend)(
                *self._project_qkv(layer, x, cos_sin), positions, branch_ids
            )
            return self._residual_mlp(layer, x, attended), None

        body = jax.checkpoint(apply_layer) if self.remat else apply_layer  # pyright: ignore[reportPrivateImportUsage]
        x, unroll = self.embedding[tokens].astype(self.compute_dtype), self.config.num_layers <= _UNROLL_LIMIT
        x, _ = jax.lax.scan(body, x, (self.layers, self._window_sizes()), unroll=unroll)
        return rms_norm(x, self.final_norm, self.config.rms_norm_eps)

    def untie_head(self) -> Decoder:
        """A copy with an untied output head on CPUs, for generation loops.

        There, a product with tied embeddings would transpose them at every token.
        """
        if self.lm_head is not None or jax.default_backend() != "cpu":
            return self
        return dataclasses.replace(self, lm_head=with_layout_constraint(self.embedding.T, Layout((0, 1))))

    def unstack_layers(self) -> tuple[DecoderLayer, ...]:
        """The layers one by one, for :meth:`forward_with_cache` in a loop.

        A scan would copy a layer's weights for every token.
        """
        return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], self.layers) for i in range(self.config.num_layers))

    def forward_with_cache(
        self,
        cache: KVCache,
        tokens: Int[Array, "row time"],
        positions: Int[Array, "row time"],
        layers: tuple[DecoderLayer, ...],
        output_positions: Int[Array, "row place"] | None = None,
    ) -> tuple[Float[Array, "row place width"], KVCache]:
        """Features of tokens that follow those of the cache, and the cache with these tokens added.

        ``layers``: as :meth:`unstack_layers` returns them. The caller must make sure that the cache has room for
        ``time`` more tokens. ``output_positions``: indices in the block of the tokens whose features are returned; the
        last layer then computes only keys and values of the others. Default: all tokens.
        """
        cos_sin = rotary_cos_sin(self.config.rotary, self.config.head_dim, positions)
        key_positions = _update_slice(cache.positions, positions, cache.num_used, axis=1)
        x, keys, values = self.embedding[tokens].astype(self.compute_dtype), [], []
        for i, (layer, window) in enumerate(zip(layers, self._window_sizes(), strict=True)):
            q, k, v = self._project_qkv(layer, x, cos_sin)
            keys.append(_update_slice(cache.keys[i], k.transpose(0, 2, 3, 1), cache.num_used, axis=3))
            values.append(_update_slice(cache.values[i], v.transpose(0, 2, 1, 3), cache.num_used, axis=2))
            query_positions = positions
            if output_positions is not None and i == self.config.num_layers - 1:
                query_positions, q, x = (
                    jax.vmap(lambda row, indices: row[indices])(part, output_positions) for part in (positions, q, x)
                )
            masks = jax.vmap(causal_mask, in_axes=(0, 0, None))(query_positions, key_positions, window)
            x = self._residual_mlp(layer, x, jax.vmap(grouped_query_attention)(q, keys[i], values[i], masks))
        new_cache = KVCache(tuple(keys), tuple(values), key_positions, cache.num_used + tokens.shape[1])
        return rms_norm(x, self.final_norm, self.config.rms_norm_eps), new_cache

    def logits(self, features: Float[Array, "*axes width"]) -> Float[Array, "*axes vocabulary"]:
        """Unnormalised log-probabilities of the next token, in float32."""
        dtype = features.dtype
        weight = transpose(self.embedding.astype(dtype)) if self.lm_head is None else self.lm_head.astype(dtype)
        return matmul(features, weight).astype("float32")

    def init_cache(self, num_rows: int, num_slots: int) -> KVCache:
        """An empty cache for ``num_rows`` texts with ``num_slots`` slots for tokens of each."""
        config, lead, dtype = self.config, (num_rows, self.config.num_kv_heads), self._attention_dtype()
        keys = jnp.zeros((*lead, config.head_dim, num_slots), dtype)
        values = jnp.zeros((*lead, num_slots, config.head_dim), dtype)
        return KVCache(
            (keys,) * config.num_layers,
            (values,) * config.num_layers,
            jnp.full((num_rows, num_slots), -1),
            jnp.array(0),
        )

    def _window_sizes(self) -> Int[Array, " layer"]:
        return jnp.array(
            [_NO_WINDOW if w is None else w for w in self.config.sliding_windows or (None,) * self.config.num_layers]
        )

    def _project_qkv(self, layer: DecoderLayer, x: Array, cos_sin: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        """Queries, keys and values ``[..., head, size]`` of features ``[..., width]``, after rotary embedding."""
        size, x = self.config.head_dim, rms_norm(x, layer.input_norm, self.config.rms_norm_eps)
        q, k, v = (part(x).reshape(*x.shape[:-1], -1, size) for part in (layer.q, layer.k, layer.v))
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = (rms_norm(y, s, self.config.rms_norm_eps) for y, s in ((q, layer.q_norm), (k, layer.k_norm)))
        q, k, v = (y.astype(self._attention_dtype()) for y in (apply_rotary(q, cos_sin), apply_rotary(k, cos_sin), v))
        return q, k, v

    def _attention_dtype(self) -> str:
        """Dtype of attention and caches: float32 on CPUs, which would convert a half-precision cache at every token."""
        return "float32" if jax.default_backend() == "cpu" else self.compute_dtype

    def _residual_mlp(self, layer: DecoderLayer, x: Array, attended: Array) -> Array:
        """The rest of a layer: attention's output is added to ``x``, then that of the feed-forward block."""
        residual = x + layer.o(attended.reshape(*x.shape[:-1], -1).astype(self.compute_dtype))
        normalized = rms_norm(residual, layer.post_attention_norm, self.config.rms_norm_eps).astype(self.compute_dtype)
        inner = jax.nn.silu(layer.gate(normalized)) * layer.up(normalized)
        return (residual + layer.down(inner.astype(self.compute_dtype))).astype(x.dtype)


def _update_slice(old: Array, new: Array, start: Int[Array, ""], axis: int) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), start, axis)


def init_decoder(config: DecoderConfig, key: Key[Array, ""], dtype: str = "float32") -> Decoder:
    """Initialize a decoder with random weights: normal with standard deviation 0.02.

    Weights of projections into the residual stream are divided by ``sqrt(2 num_layers)``.
    """
    keys, num_layers, sizes = (
        iter(jax.random.split(key, len(PROJECTIONS) + 2)),
        config.num_layers,
        config.projection_shapes(),
    )

    def normal(size: tuple[int, ...], scale: float = 0.02) -> Array:
        return (scale * jax.random.normal(next(keys), size)).astype(dtype)

    def projection(name: str) -> Projection:
        scale = 0.02 / (2 * num_layers) ** 0.5 if name in ("o", "down") else 0.02
        bias = jnp.zeros((num_layers, sizes[name][1]), dtype) if name in config.biased_projections else None
        return Projection(normal((num_layers, *sizes[name]), scale), bias)

    ones = jnp.ones((num_layers, config.hidden_size), dtype)
    head_norm = jnp.ones((num_layers, config.head_dim), dtype) if config.qk_norm else None
    parts = {name: projection(name) for name in PROJECTIONS}
    stacked = DecoderLayer(input_norm=ones, post_attention_norm=ones, q_norm=head_norm, k_norm=head_norm, **parts)
    head = None if config.tie_embeddings else normal((config.hidden_size, config.vocab_size))
    return Decoder(normal((config.vocab_size, config.hidden_size)), stacked, ones[0], head, config)
