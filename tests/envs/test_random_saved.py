"""A generator goes on where it was saved, also where half of a word is left over."""

from __future__ import annotations

import numpy as np
import pytest

from thespis.envs.host.snapshot import load_random, save_random


@pytest.mark.parametrize("drawn", [0, 1, 2])
def test_numbers_of_half_a_word_go_on(drawn):
    one, other = np.random.default_rng(3), np.random.default_rng(4)
    one.integers(0, 1000, drawn, dtype="uint32")  # each takes half of a word; the other half is kept
    load_random(other, save_random(one))
    assert one.bit_generator.state["has_uint32"] == drawn % 2
    np.testing.assert_array_equal(*(each.integers(0, 1000, 5, dtype="uint32") for each in (one, other)))
    np.testing.assert_array_equal(*(each.normal(size=5) for each in (one, other)))
