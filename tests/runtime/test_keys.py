"""Random keys against JAX's own threefry keys: the same bits for every operation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.runtime.keys import fold, indexed_keys, seed_key


def both_keys(seed):
    return seed_key(seed), jax.random.key(seed, impl="threefry2x32")


def same_bits(seed, draw):
    ours, theirs = (draw(k) for k in both_keys(seed))
    if jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
        ours, theirs = jax.random.key_data(ours), jax.random.key_data(theirs)
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, -1])
def test_seeds_splits_and_folds(seed):
    assert same_bits(seed, lambda k: k)
    assert same_bits(seed, lambda k: jax.random.split(k, 3))
    assert same_bits(seed, lambda k: jax.random.split(k, (2, 5)))
    assert same_bits(seed, lambda k: jax.random.fold_in(k, 7))
    assert same_bits(seed, lambda k: fold(k, "act", 2**31 - 1))
    assert same_bits(seed, lambda k: indexed_keys(k, 4))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4, 5), (2, 0)])
def test_draws(shape):
    for width in (8, 16, 32):
        assert same_bits(11, lambda k, width=width: jax.random.bits(k, shape, f"uint{width}"))
    assert same_bits(11, lambda k: jax.random.normal(k, shape))
    assert same_bits(11, lambda k: jax.random.randint(k, shape, -3, 1000))
    assert same_bits(11, lambda k: jax.random.gumbel(k, shape))
    assert same_bits(11, lambda k: jax.random.permutation(k, 100))


@pytest.mark.parametrize("seed", [2**40 + 3, -(2**40)])
def test_wide_seeds_and_numbers(seed):
    with jax.enable_x64(True):
        assert same_bits(seed, lambda k: k)
        assert same_bits(seed, lambda k: jax.random.bits(k, (7,), "uint64"))
        assert same_bits(seed, lambda k: jax.random.normal(k, (7,), "float64"))


def test_vmap_and_jit_keep_the_bits():
    program = jax.jit(jax.vmap(lambda k: jax.random.normal(k, (3,))))
    assert same_bits(3, lambda k: program(jax.random.split(k, 5)))


def test_too_large_arrays_are_refused():
    with pytest.raises(ValueError, match="at a time"):
        jax.jit(lambda: jax.random.bits(seed_key(0), (2**16, 2**16))).lower()
