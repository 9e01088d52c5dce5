"""Points in groups of near ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def k_means(points: Float[Array, "n d"], count: int, rounds: int = 20) -> Int[Array, " n"]:
    """Which of at most ``count`` clusters each point belongs to, by Lloyd's rounds (1982).

    The first centre is the point farthest from the mean, each further one the point farthest from all centres so far:
    nothing is left to chance. Of equal points there may be fewer clusters than asked for; those numbers stay unused.
    """

    def apart(centres: Float[Array, "k d"]) -> Float[Array, "n k"]:
        return jnp.sum((points[:, None] - centres[None]) ** 2, axis=-1)

    first = points[jnp.argmax(jnp.sum((points - jnp.mean(points, axis=0)) ** 2, axis=-1))]

    def further(index: Int[Array, ""], centres: Float[Array, "k d"]) -> Float[Array, "k d"]:
        known = jnp.arange(count) < index
        nearest = jnp.min(jnp.where(known, apart(centres), jnp.inf), axis=1)
        return centres.at[index].set(points[jnp.argmax(nearest)])

    def better(_: Int[Array, ""], centres: Float[Array, "k d"]) -> Float[Array, "k d"]:
        belongs = jax.nn.one_hot(jnp.argmin(apart(centres), axis=1), count)
        total = jnp.sum(belongs, axis=0)[:, None]
        return jnp.where(total > 0, belongs.T @ points / jnp.maximum(total, 1.0), centres)

    centres = jnp.broadcast_to(first, (count, points.shape[1]))
    centres = jax.lax.fori_loop(1, count, further, centres)
    centres = jax.lax.fori_loop(0, rounds, better, centres)
    return jnp.argmin(apart(centres), axis=1).astype("int32")
