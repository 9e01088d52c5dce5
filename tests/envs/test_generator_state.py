"""Saved states of NumPy generators: a restored generator against the original, including a buffered 32-bit half."""

from __future__ import annotations

import numpy as np
import pytest

from thespis.envs.host.snapshot import get_rng_state, set_rng_state


@pytest.mark.parametrize("num_draws", [0, 1, 2])
def test_restored_generator_continues_the_stream(num_draws):
    original, restored = np.random.default_rng(3), np.random.default_rng(4)
    original.integers(0, 1000, num_draws, dtype="uint32")  # each uses 32 of 64 bits; the other half is buffered
    set_rng_state(restored, get_rng_state(original))
    assert original.bit_generator.state["has_uint32"] == num_draws % 2
    np.testing.assert_array_equal(
        *(generator.integers(0, 1000, 5, dtype="uint32") for generator in (original, restored))
    )
    np.testing.assert_array_equal(*(generator.normal(size=5) for generator in (original, restored)))
