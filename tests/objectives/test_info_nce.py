import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives.contrast import cluster_nce, info_nce


def test_it_is_the_loss_of_finding_the_partner_both_ways():
    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, 5, 3))
    counts, temperature = np.array([True, True, False, True, True]), 0.3
    total, hits, kept = 0.0, 0, [0, 1, 3, 4]
    for i in kept:
        for a, b in ((one, other), (other, one)):
            alike = [a[i] @ b[j] / np.linalg.norm(a[i]) / np.linalg.norm(b[j]) / temperature for j in kept]
            total -= alike[kept.index(i)] - np.log(np.exp(alike).sum())
            hits += a is one and kept[int(np.argmax(alike))] == i
    loss, found = info_nce(jnp.asarray(one, "float32"), jnp.asarray(other, "float32"), jnp.asarray(counts), temperature)
    assert loss == pytest.approx(total / 8, rel=1e-5) and found == pytest.approx(hits / 4)


def test_what_does_not_count_is_nowhere():
    one = jnp.asarray(np.random.default_rng(1).normal(size=(4, 2)), "float32")
    counts = jnp.array([True, True, True, False])
    assert info_nce(one, one, counts, 0.1) == info_nce(one.at[3].set(7.0), one.at[3].set(-1.0), counts, 0.1)
    assert float(info_nce(one, one, jnp.zeros(4, bool), 0.1)[0]) == 0.0


def test_what_is_missed_among_its_like_is_the_formula_written_out():
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(0, 2, (6, 6)).astype("float32"), np.array([0, 1, 0, 2, 1, 0], "int32")
    counts = np.array([True, True, True, True, True, False])
    wanted = []
    for i in range(6):
        every = [np.exp(scores[i, j]) for j in range(6) if counts[j]]
        same = [np.exp(scores[i, j]) for j in range(6) if counts[j] and labels[j] == labels[i]]
        wanted.append(-np.log(sum(same) / sum(every)) if counts[i] else 0.0)
    found = cluster_nce(jnp.asarray(scores), jnp.asarray(labels), jnp.asarray(counts))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
