"""Losses of preferences, against the optima that are known of them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from thespis.objectives.preferences import dpo, hinge, ipo, kto

REWARD, REFERENCE = jnp.array([1.0, 0.0, -0.5]), jnp.log(jnp.array([0.2, 0.5, 0.3]))
PAIRS = jnp.array(list(itertools.permutations(range(3), 2)))


def least(loss, start, steps=400):
    """Where a smooth loss is least."""
    solver = optax.lbfgs()

    def step(carry, _):
        x, state = carry
        value, slope = optax.value_and_grad_from_state(loss)(x, state=state)
        change, state = solver.update(slope, state, x, value=value, grad=slope, value_fn=loss)
        return (optax.apply_updates(x, change), state), None

    return jax.lax.scan(step, (start, solver.init(start)), None, steps)[0][0]


def ratios(logits):
    return jax.nn.log_softmax(logits) - REFERENCE


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_dpo_ends_at_the_policy_that_is_best_under_a_penalty(beta):
    """All pairs, labelled as often as Bradley and Terry say: the minimum is reference times exp(reward / beta)."""
    won, lost = PAIRS.T
    often = jax.nn.sigmoid(REWARD[won] - REWARD[lost])

    def loss(logits):
        found = ratios(logits)
        return (often * dpo(found[won], found[lost], beta)).sum()

    best = jax.nn.softmax(REFERENCE + REWARD / beta)
    np.testing.assert_allclose(jax.nn.softmax(least(loss, jnp.zeros(3))), best, atol=1e-4)


@pytest.mark.parametrize(("p", "beta"), [(0.8, 0.5), (1.0, 0.1)])
def test_ipo_stops_where_preferences_say(p, beta):
    """Of two answers, one preferred with probability p: the log-ratios end (p - 1/2) / beta apart, certain or not."""

    def loss(apart):
        return p * ipo(apart, jnp.zeros(()), beta) + (1 - p) * ipo(jnp.zeros(()), apart, beta)

    assert least(loss, jnp.zeros(()), 20) == pytest.approx((p - 0.5) / beta, rel=1e-3)


def test_doubt_is_a_mixture_of_both_labels():
    w, lo = jnp.array(0.7), jnp.array(-0.4)
    assert dpo(w, lo, 0.5, 0.2) == pytest.approx(float(0.8 * dpo(w, lo, 0.5) + 0.2 * dpo(lo, w, 0.5)), rel=1e-6)
    assert dpo(w, w, 0.5) == pytest.approx(np.log(2))


def test_hinge_rests_beyond_its_margin():
    slope = jax.grad(lambda w: hinge(w, jnp.zeros(()), 0.5))
    assert slope(jnp.array(3.0)) == 0.0 and slope(jnp.array(1.0)) == -0.5


def test_kto_moves_good_up_and_bad_down_and_least_far_from_the_point():
    def slope(ratio, good, point=0.2):
        return float(jax.grad(lambda r: kto(r, jnp.array(good), 0.5, point, (1.0, 2.0)))(jnp.array(ratio)))

    s = 1 / (1 + np.exp(-0.5 * 0.3))
    assert slope(0.5, True) == pytest.approx(-0.5 * s * (1 - s), rel=1e-5)
    assert slope(0.5, False) == pytest.approx(2 * 0.5 * s * (1 - s), rel=1e-5)
    assert abs(slope(9.0, True)) < 0.1 * abs(slope(0.2, True)) and abs(slope(-9.0, True)) < 0.1 * abs(slope(0.2, True))
    assert jax.grad(lambda z: kto(jnp.array(0.5), jnp.array(True), 0.5, z))(0.2) == 0.0
