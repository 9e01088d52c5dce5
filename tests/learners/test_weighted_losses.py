"""Weights of rows that were not sampled uniformly: they multiply losses, and updates report priorities."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES
from synthetic_batches import quick_key

from thespis.core.laws.assertions import ContractViolation, assert_same_bits
from thespis.core.laws.random_samples import first_episode_mask, random_transitions
from thespis.core.records import Batch

ROWS = 6


def weighted_batch(method, spec, weights, reward_of_first=None):
    rng = np.random.default_rng(0)
    steps = random_transitions(spec, rng, method.feed.sequence_length, ROWS)
    if reward_of_first is not None:
        steps = dataclasses.replace(steps, reward=np.asarray(steps.reward).copy())
        steps.reward[0, 0] = reward_of_first
    mask = first_episode_mask(np.asarray(steps.terminated) | np.asarray(steps.truncated))
    return Batch(steps, mask, (), jnp.int32(5), jnp.asarray(weights, "float32"), jnp.arange(ROWS))


@pytest.mark.parametrize("name", ["dqn", "c51", *(pytest.param(n, marks=pytest.mark.slow) for n in ("ddpg", "td3"))])
def test_a_row_of_weight_zero_teaches_nothing_and_is_still_reported(name):
    case = CASES[name]
    method, spec = case.method, case.env.spec
    state = jax.jit(lambda key: method.init(spec, key))(quick_key(1))
    update = jax.jit(lambda batch: method.update(state, batch, quick_key(2)))
    weights = [0.0, *[1.0] * (ROWS - 1)]
    learned, report = update(weighted_batch(method, spec, weights))
    other, other_report = update(weighted_batch(method, spec, weights, reward_of_first=3.0))
    assert_same_bits(critics(learned), critics(other), "a row of weight zero")
    assert report.priorities.shape == (ROWS,) and (np.asarray(report.priorities) >= 0).all()
    assert report.priorities[0] != other_report.priorities[0]
    np.testing.assert_array_equal(report.priorities[1:], other_report.priorities[1:])
    heavier, _ = update(weighted_batch(method, spec, [1.0] * ROWS, reward_of_first=3.0))
    with pytest.raises(ContractViolation, match="differs"):
        assert_same_bits(critics(heavier), critics(other), "but one of weight one teaches")


def critics(state):
    return state.critic if hasattr(state, "critic") else state.critics
