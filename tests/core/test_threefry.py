"""Our keys against JAX's own: the same bits, whatever is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.keys import fold, key_of, per_index


def pair(seed):
    return key_of(seed), jax.random.key(seed, impl="threefry2x32")


def same(seed, draw):
    ours, theirs = (draw(k) for k in pair(seed))
    if jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
        ours, theirs = jax.random.key_data(ours), jax.random.key_data(theirs)
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, -1])
def test_seeds_splits_and_folds(seed):
    assert same(seed, lambda k: k)
    assert same(seed, lambda k: jax.random.split(k, 3))
    assert same(seed, lambda k: jax.random.split(k, (2, 5)))
    assert same(seed, lambda k: jax.random.fold_in(k, 7))
    assert same(seed, lambda k: fold(k, "act", 2**31 - 1))
    assert same(seed, lambda k: per_index(k, 4))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4, 5), (2, 0)])
def test_draws(shape):
    for width in (8, 16, 32):
        assert same(11, lambda k, width=width: jax.random.bits(k, shape, f"uint{width}"))
    assert same(11, lambda k: jax.random.normal(k, shape))
    assert same(11, lambda k: jax.random.randint(k, shape, -3, 1000))
    assert same(11, lambda k: jax.random.gumbel(k, shape))
    assert same(11, lambda k: jax.random.permutation(k, 100))


@pytest.mark.parametrize("seed", [2**40 + 3, -(2**40)])
def test_wide_seeds_and_numbers(seed):
    with jax.enable_x64(True):
        assert same(seed, lambda k: k)
        assert same(seed, lambda k: jax.random.bits(k, (7,), "uint64"))
        assert same(seed, lambda k: jax.random.normal(k, (7,), "float64"))


def test_vectorised_and_compiled_the_bits_stay():
    program = jax.jit(jax.vmap(lambda k: jax.random.normal(k, (3,))))
    assert same(3, lambda k: program(jax.random.split(k, 5)))


def test_too_many_at_once_are_refused():
    with pytest.raises(ValueError, match="at a time"):
        jax.jit(lambda: jax.random.bits(key_of(0), (2**16, 2**16))).lower()
