"""Baselines of groups, against loops and against gradients by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives.groups import beyond_mean, leave_one_out, over_answers, over_budget, over_tokens, scaled

RETURNS = jnp.array([[1.0, 0.0, 0.5, 0.0], [2.0, 2.0, 2.0, 2.0]])
REWARD = jnp.array([1.0, 0.2, -0.7])
LOGITS = jnp.array([0.3, -0.4, 0.1])


def test_each_is_compared_with_the_others():
    for row, found in zip(RETURNS, leave_one_out(RETURNS), strict=True):
        for i, value in enumerate(found):
            assert value == pytest.approx(float(row[i]) - np.mean([r for j, r in enumerate(row) if j != i]), abs=1e-6)
    np.testing.assert_allclose(
        scaled(RETURNS)[0], (RETURNS[0] - 0.375) / (np.std(RETURNS[0], ddof=1) + 1e-4), rtol=1e-5
    )
    assert not scaled(RETURNS)[1].any()


@pytest.mark.parametrize("baseline", [leave_one_out, scaled])
def test_a_group_of_one_is_refused(baseline):
    with pytest.raises(ValueError, match="a group of one"):
        baseline(jnp.ones((2, 1)))


def expected(baseline, members, reward=REWARD):
    """The gradient that a baseline gives, over all ways to draw ``members`` answers of a policy of three."""
    probabilities, total = jax.nn.softmax(LOGITS), 0.0
    scores = jax.jacobian(jax.nn.log_softmax)(LOGITS)
    for drawn in itertools.product(range(3), repeat=members):
        at = jnp.array(drawn)
        total += jnp.prod(probabilities[at]) * (baseline(reward[at][None])[0][:, None] * scores[at]).mean(axis=0)
    return np.asarray(total)


@pytest.mark.parametrize("members", [2, 3])
def test_which_gradients_are_unbiased(members):
    true = np.asarray(jax.grad(lambda x: jax.nn.softmax(x) @ REWARD)(LOGITS))
    np.testing.assert_allclose(expected(leave_one_out, members), true, atol=1e-6)
    np.testing.assert_allclose(expected(beyond_mean, members), true * (members - 1) / members, atol=1e-6)
    np.testing.assert_allclose(expected(leave_one_out, members, REWARD / 10), true / 10, atol=1e-6)
    much, little = expected(scaled, members), expected(scaled, members, REWARD / 10)
    np.testing.assert_allclose(little, much, rtol=0.01)  # a tenth of the stakes, and the question weighs as much


def test_how_tokens_are_counted():
    losses, mask = (
        jnp.array([[1.0, 1.0, 1.0, 1.0], [4.0, 9.0, 9.0, 9.0]]),
        jnp.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool),
    )
    assert over_tokens(losses, mask) == pytest.approx((3 + 4) / 4)
    assert over_answers(losses, mask) == pytest.approx((1 + 4) / 2)
    assert over_budget(losses, mask, 4.0) == pytest.approx((3 + 4) / 8)
    silent = mask.at[1].set(False)
    assert over_answers(losses, silent) == 1.0 and over_answers(losses, jnp.zeros_like(mask)) == 0.0


@pytest.mark.parametrize("how", [over_tokens, over_answers, lambda x, m: over_budget(x, m, 4.0)])
def test_what_is_masked_changes_no_bit(how):
    mask = jnp.array([[1, 1, 0], [1, 0, 0]], bool)
    losses = jnp.array([[0.3, -1.0, 7.0], [2.0, jnp.nan, jnp.inf]])
    clean = jnp.where(mask, losses, 0.0)
    for f in (how, jax.grad(how)):
        np.testing.assert_array_equal(f(losses, mask), f(clean, mask))
