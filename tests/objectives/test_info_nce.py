import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives.contrast import info_nce


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
