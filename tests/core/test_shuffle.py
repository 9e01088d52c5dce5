"""Random orders worked out place by place are permutations, and as random as sorted ones."""

import jax
import numpy as np
import pytest
from scipy import stats

from thespis.core.keys import key_of
from thespis.core.shuffle import FEW, permutation


def orders(n, draws):
    keys = jax.random.split(key_of(5), draws)
    return np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, n)))(keys))


@pytest.mark.parametrize("n", [1, 2, FEW, FEW + 1, 521, 1000, 1009, 2048, 4099, 16_384, 30_030])
def test_every_number_comes_once(n):
    found = orders(n, 3)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(n), (3, 1)))
    assert n < 3 or not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("n", [600, 601, 1024])
def test_orders_are_as_random_as_sorted_ones(n):
    """Where one number lands, how far neighbours come apart, numbers left in place, rises, and the parity of both."""
    found = orders(n, 4_000)
    lands = np.histogram(found[:, [0, n // 2, n - 1]], bins=20, range=(0, n))[0]
    apart = np.histogram((found[:, 1::7] - found[:, 0:-1:7]) % n, bins=20, range=(1, n))[0]
    assert stats.chisquare(lands, np.diff(np.ceil(np.linspace(0, n, 21))) * 12_000 / n).pvalue > 1e-3
    expected = np.diff(np.ceil(np.linspace(1, n, 21))) * apart.sum() / (n - 1)
    assert stats.chisquare(apart, expected).pvalue > 1e-3
    kept = (found == np.arange(n)).sum(axis=1)
    seen = [(kept == k).sum() for k in range(4)] + [(kept > 3).sum()]
    poisson = [stats.poisson.pmf(k, 1) for k in range(4)]
    assert stats.chisquare(seen, 4_000 * np.array([*poisson, 1 - sum(poisson)])).pvalue > 1e-3
    rises = (np.diff(found, axis=1) > 0).sum(axis=1)
    assert abs(rises.mean() - (n - 1) / 2) < 4 * np.sqrt((n + 1) / 12 / 4_000)
    assert 0.9 < rises.var() / ((n + 1) / 12) < 1.1
    assert abs(stats.pearsonr(found[:, 3] % 2, found[:, 4] % 2).statistic) < 0.06
