"""Clustering of points."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def k_means(points: Float[Array, "n d"], num_clusters: int, num_iterations: int = 20) -> Int[Array, " n"]:
    """k-means: the index of the cluster of each point, with at most ``num_clusters``, by Lloyd's algorithm (1982).

    The first centre is the point farthest from the mean, each further one the point farthest from all centres so far:
    nothing is random. With equal points there may be fewer clusters; the remaining indices are not used.
    """

    def squared_distances(centres: Float[Array, "k d"]) -> Float[Array, "n k"]:
        return jnp.sum((points[:, None] - centres[None]) ** 2, axis=-1)

    first = points[jnp.argmax(jnp.sum((points - jnp.mean(points, axis=0)) ** 2, axis=-1))]

    def add_centre(index: Int[Array, ""], centres: Float[Array, "k d"]) -> Float[Array, "k d"]:
        placed = jnp.arange(num_clusters) < index
        nearest = jnp.min(jnp.where(placed, squared_distances(centres), jnp.inf), axis=1)
        return centres.at[index].set(points[jnp.argmax(nearest)])

    def lloyd_step(_: Int[Array, ""], centres: Float[Array, "k d"]) -> Float[Array, "k d"]:
        members = jax.nn.one_hot(jnp.argmin(squared_distances(centres), axis=1), num_clusters)
        total = jnp.sum(members, axis=0)[:, None]
        return jnp.where(total > 0, members.T @ points / jnp.maximum(total, 1.0), centres)

    centres = jnp.broadcast_to(first, (num_clusters, points.shape[1]))
    centres = jax.lax.fori_loop(1, num_clusters, add_centre, centres)
    centres = jax.lax.fori_loop(0, num_iterations, lloyd_step, centres)
    return jnp.argmin(squared_distances(centres), axis=1).astype("int32")
