"""Parts of transformers: root-mean-square norms, and attention in which groups of heads share keys."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

_HIDDEN = -1e30  # finite: a query at position -1 sees nothing, and its softmax must not be NaN


def rms_norm(x: Float[Array, "*axes f"], scale: Float[Array, " f"], epsilon: float) -> Float[Array, "*axes f"]:
    """``x`` over its root mean square, times ``scale``; computed in float32."""
    wide = x.astype("float32")
    normal = wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + epsilon)
    return scale.astype(x.dtype) * normal.astype(x.dtype)


def attend(
    q: Float[Array, "time head size"],
    k: Float[Array, "kv size slot"],
    v: Float[Array, "kv slot size"],
    seen: Bool[Array, "time slot"],
) -> Float[Array, "time head size"]:
    """Softmax attention, ``head / kv`` queries to a key; weights in float32. What sees nothing gets some mean.

    Queries that share a key are rows of one matrix: plain products need no transposes, which for one token would take
    longer than the arithmetic.
    """
    time, heads, size = q.shape
    kv, slots = len(k), k.shape[-1]
    rows = q.reshape(time, kv, -1, size).swapaxes(0, 1).reshape(kv, -1, size)
    scores = (rows @ k).astype("float32").reshape(kv, time, -1, slots) * size**-0.5
    weights = jax.nn.softmax(jnp.where(seen[:, None], scores, _HIDDEN), axis=-1).astype(q.dtype)
    mixed = weights.reshape(kv, -1, slots) @ v
    return mixed.reshape(kv, time, -1, size).swapaxes(0, 1).reshape(time, heads, size)


def visible(query: Int[Array, " time"], key: Int[Array, " slot"], window: Int[Array, ""]) -> Bool[Array, "time slot"]:
    """Which keys a token sees: of its own and smaller positions, less than ``window`` behind, none at -1."""
    behind = query[:, None] - key
    return (behind >= 0) & (behind < window) & (key >= 0)
