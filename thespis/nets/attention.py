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
    k: Float[Array, "slot kv size"],
    v: Float[Array, "slot kv size"],
    seen: Bool[Array, "time slot"],
) -> Float[Array, "time head size"]:
    """Softmax attention, ``head / kv`` queries to a key; weights in float32. What sees nothing gets some mean."""
    time, heads, size = q.shape
    grouped = q.reshape(time, k.shape[1], heads // k.shape[1], size)
    scores = jnp.einsum("tgrf,sgf->grts", grouped, k).astype("float32") * size**-0.5
    weights = jax.nn.softmax(jnp.where(seen, scores, _HIDDEN), axis=-1).astype(q.dtype)
    return jnp.einsum("grts,sgf->tgrf", weights, v).reshape(time, heads, size)


def visible(query: Int[Array, " time"], key: Int[Array, " slot"], window: Int[Array, ""]) -> Bool[Array, "time slot"]:
    """Which keys a token sees: of its own and smaller positions, less than ``window`` behind, none at -1."""
    behind = query[:, None] - key
    return (behind >= 0) & (behind < window) & (key >= 0)
