"""K-means clustering: against enumeration of all clusterings of a few points."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives.clustering import k_means


def within_cluster_variance(points, labels):
    return sum(((points[labels == k] - points[labels == k].mean(0)) ** 2).sum() for k in set(labels.tolist()))


@pytest.mark.parametrize("seed", range(5))
def test_k_means_finds_the_optimal_clustering(seed):
    rng = np.random.default_rng(seed)
    points = (rng.normal(0, 4, (3, 2))[[0, 0, 0, 1, 1, 2, 2]] + rng.normal(0, 0.3, (7, 2))).astype("float32")
    labels = np.asarray(jax.jit(k_means, static_argnums=1)(points, 3))
    best = min(within_cluster_variance(points, np.array(x)) for x in itertools.product(range(3), repeat=7))
    np.testing.assert_allclose(within_cluster_variance(points, labels), best, rtol=1e-4)


def test_equal_points_share_a_cluster_and_extra_labels_are_unused():
    labels = k_means(jnp.array([[0.0], [0.0], [5.0], [5.0]]), 3)
    assert len(set(labels.tolist())) == 2 and labels[0] == labels[1] != labels[2]
