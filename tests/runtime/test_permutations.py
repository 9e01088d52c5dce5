"""Random permutations computed index by index: valid, and as random as sorted ones."""

import jax
import numpy as np
import pytest
from scipy import stats

from thespis.runtime.keys import seed_key
from thespis.runtime.shuffle import MIN_FEISTEL_SIZE, permutation, permute


def permutations(n, draws):
    keys = jax.random.split(seed_key(5), draws)
    return np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, n)))(keys))


@pytest.mark.parametrize(
    "n", [1, 2, MIN_FEISTEL_SIZE, MIN_FEISTEL_SIZE + 1, 521, 1000, 1009, 2048, 4099, 16_384, 30_030]
)
def test_every_number_occurs_once(n):
    orders = permutations(n, 3)
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(n), (3, 1)))
    assert n < 3 or not np.array_equal(orders[0], orders[1])


@pytest.mark.long
@pytest.mark.parametrize("n", [600, 601, 1024])
def test_randomness_statistics(n):
    """Positions, differences of neighbours, fixed points, rises and parity, by statistical tests."""
    orders = permutations(n, 4_000)
    positions = np.histogram(orders[:, [0, n // 2, n - 1]], bins=20, range=(0, n))[0]
    differences = np.histogram((orders[:, 1::7] - orders[:, 0:-1:7]) % n, bins=20, range=(1, n))[0]
    assert stats.chisquare(positions, np.diff(np.ceil(np.linspace(0, n, 21))) * 12_000 / n).pvalue > 1e-3
    expected = np.diff(np.ceil(np.linspace(1, n, 21))) * differences.sum() / (n - 1)
    assert stats.chisquare(differences, expected).pvalue > 1e-3
    fixed_points = (orders == np.arange(n)).sum(axis=1)
    counts = [(fixed_points == k).sum() for k in range(4)] + [(fixed_points > 3).sum()]
    poisson = [stats.poisson.pmf(k, 1) for k in range(4)]
    assert stats.chisquare(counts, 4_000 * np.array([*poisson, 1 - sum(poisson)])).pvalue > 1e-3
    rises = (np.diff(orders, axis=1) > 0).sum(axis=1)
    assert abs(rises.mean() - (n - 1) / 2) < 4 * np.sqrt((n + 1) / 12 / 4_000)
    assert 0.9 < rises.var() / ((n + 1) / 12) < 1.1
    assert abs(stats.pearsonr(orders[:, 3] % 2, orders[:, 4] % 2).statistic) < 0.06


def test_places_in_a_permutation_of_a_traced_number_of_entries():
    place = jax.jit(lambda key, n: permute(key, jax.numpy.arange(3_000), n))
    for n in (1, 2, 3, 5, 16, 17, 250, 1_000, 1_024, 1_025, 2_999):
        places = np.asarray([place(seed_key(i), n) for i in range(3)])
        orders = places[:, :n]
        assert (places[:, n:] == orders[:, -1:]).all()
        np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(n), (3, 1)))
        assert n < 250 or not np.array_equal(orders[0], orders[1])
    orders = np.asarray(
        jax.jit(jax.vmap(lambda key: permute(key, jax.numpy.arange(200), 200)))(jax.random.split(seed_key(3), 4_000))
    )
    counts = np.histogram2d(orders.ravel(), np.tile(np.arange(200), 4_000), bins=[10, 10])[0]
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3
    differences = np.histogram((orders[:, 1::7] - orders[:, 0:-1:7]) % 200, bins=np.arange(1, 201))[0]
    assert stats.chisquare(differences).pvalue > 1e-3
