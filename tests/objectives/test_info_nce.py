"""Contrastive losses (InfoNCE and its clustered form): against loops in numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives.contrastive import cluster_nce, info_nce


def test_info_nce_matches_a_loop_in_both_directions():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 5, 3))
    mask, temperature = np.array([True, True, False, True, True]), 0.3
    total, num_correct, rows = 0.0, 0, [0, 1, 3, 4]
    for i in rows:
        for a, b in ((first, second), (second, first)):
            similarities = [a[i] @ b[j] / np.linalg.norm(a[i]) / np.linalg.norm(b[j]) / temperature for j in rows]
            total -= similarities[rows.index(i)] - np.log(np.exp(similarities).sum())
            num_correct += a is first and rows[int(np.argmax(similarities))] == i
    loss, accuracy = info_nce(
        jnp.asarray(first, "float32"), jnp.asarray(second, "float32"), jnp.asarray(mask), temperature
    )
    assert loss == pytest.approx(total / 8, rel=1e-5) and accuracy == pytest.approx(num_correct / 4)


def test_masked_rows_are_ignored():
    vectors = jnp.asarray(np.random.default_rng(1).normal(size=(4, 2)), "float32")
    mask = jnp.array([True, True, True, False])
    assert info_nce(vectors, vectors, mask, 0.1) == info_nce(vectors.at[3].set(7.0), vectors.at[3].set(-1.0), mask, 0.1)
    assert float(info_nce(vectors, vectors, jnp.zeros(4, bool), 0.1)[0]) == 0.0


def test_cluster_nce_matches_the_formula():
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(0, 2, (6, 6)).astype("float32"), np.array([0, 1, 0, 2, 1, 0], "int32")
    mask = np.array([True, True, True, True, True, False])
    expected = []
    for i in range(6):
        all_scores = [np.exp(scores[i, j]) for j in range(6) if mask[j]]
        same_cluster = [np.exp(scores[i, j]) for j in range(6) if mask[j] and labels[j] == labels[i]]
        expected.append(-np.log(sum(same_cluster) / sum(all_scores)) if mask[i] else 0.0)
    result = cluster_nce(jnp.asarray(scores), jnp.asarray(labels), jnp.asarray(mask))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
