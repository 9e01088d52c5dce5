"""Group baselines and loss reductions: against loops, and bias of the gradients by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives.group_advantages import (
    fixed_length_mean,
    group_mean_advantage,
    group_normalized_advantage,
    leave_one_out_advantage,
    sequence_mean,
    token_mean,
)

RETURNS = jnp.array([[1.0, 0.0, 0.5, 0.0], [2.0, 2.0, 2.0, 2.0]])
REWARD = jnp.array([1.0, 0.2, -0.7])
LOGITS = jnp.array([0.3, -0.4, 0.1])


def test_leave_one_out_and_normalized_advantages():
    for row, advantages in zip(RETURNS, leave_one_out_advantage(RETURNS), strict=True):
        for i, value in enumerate(advantages):
            assert value == pytest.approx(float(row[i]) - np.mean([r for j, r in enumerate(row) if j != i]), abs=1e-6)
    np.testing.assert_allclose(
        group_normalized_advantage(RETURNS)[0], (RETURNS[0] - 0.375) / (np.std(RETURNS[0], ddof=1) + 1e-4), rtol=1e-5
    )
    assert not group_normalized_advantage(RETURNS)[1].any()


@pytest.mark.parametrize("baseline", [leave_one_out_advantage, group_normalized_advantage])
def test_groups_of_one_are_rejected(baseline):
    with pytest.raises(ValueError, match="a group of one"):
        baseline(jnp.ones((2, 1)))


def expected_gradient(baseline, members, reward=REWARD):
    """The exact expected gradient with a baseline, over all groups of ``members`` samples from three actions."""
    probabilities, total = jax.nn.softmax(LOGITS), 0.0
    scores = jax.jacobian(jax.nn.log_softmax)(LOGITS)
    for responses in itertools.product(range(3), repeat=members):
        actions = jnp.array(responses)
        total += jnp.prod(probabilities[actions]) * (
            baseline(reward[actions][None])[0][:, None] * scores[actions]
        ).mean(axis=0)
    return np.asarray(total)


@pytest.mark.parametrize("members", [2, 3])
def test_which_gradients_are_unbiased(members):
    exact = np.asarray(jax.grad(lambda x: jax.nn.softmax(x) @ REWARD)(LOGITS))
    np.testing.assert_allclose(expected_gradient(leave_one_out_advantage, members), exact, atol=1e-6)
    np.testing.assert_allclose(
        expected_gradient(group_mean_advantage, members), exact * (members - 1) / members, atol=1e-6
    )
    np.testing.assert_allclose(expected_gradient(leave_one_out_advantage, members, REWARD / 10), exact / 10, atol=1e-6)
    full_scale, tenth_scale = (
        expected_gradient(group_normalized_advantage, members),
        expected_gradient(group_normalized_advantage, members, REWARD / 10),
    )
    np.testing.assert_allclose(tenth_scale, full_scale, rtol=0.01)  # a tenth of the reward gives the same gradient


def test_token_and_sequence_means():
    losses, mask = (
        jnp.array([[1.0, 1.0, 1.0, 1.0], [4.0, 9.0, 9.0, 9.0]]),
        jnp.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool),
    )
    assert token_mean(losses, mask) == pytest.approx((3 + 4) / 4)
    assert sequence_mean(losses, mask) == pytest.approx((1 + 4) / 2)
    assert fixed_length_mean(losses, mask, 4.0) == pytest.approx((3 + 4) / 8)
    empty_row_mask = mask.at[1].set(False)
    assert sequence_mean(losses, empty_row_mask) == 1.0 and sequence_mean(losses, jnp.zeros_like(mask)) == 0.0


@pytest.mark.parametrize("reduce", [token_mean, sequence_mean, lambda x, m: fixed_length_mean(x, m, 4.0)])
def test_masked_tokens_change_no_bit(reduce):
    mask = jnp.array([[1, 1, 0], [1, 0, 0]], bool)
    losses = jnp.array([[0.3, -1.0, 7.0], [2.0, jnp.nan, jnp.inf]])
    clean = jnp.where(mask, losses, 0.0)
    for f in (reduce, jax.grad(reduce)):
        np.testing.assert_array_equal(f(losses, mask), f(clean, mask))
