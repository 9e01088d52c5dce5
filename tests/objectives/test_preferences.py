"""Preference losses (DPO, IPO, hinge, KTO): against known optima and gradients."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from thespis.objectives.preferences import dpo_loss, hinge_loss, ipo_loss, kto_loss

REWARD, REFERENCE = jnp.array([1.0, 0.0, -0.5]), jnp.log(jnp.array([0.2, 0.5, 0.3]))
PAIRS = jnp.array(list(itertools.permutations(range(3), 2)))


def minimize(loss, start, steps=400):
    """Minimizer of a smooth loss by L-BFGS."""
    solver = optax.lbfgs()

    def step(carry, _):
        x, state = carry
        value, gradient = optax.value_and_grad_from_state(loss)(x, state=state)
        updates, state = solver.update(gradient, state, x, value=value, grad=gradient, value_fn=loss)
        return (optax.apply_updates(x, updates), state), None

    return jax.lax.scan(step, (start, solver.init(start)), None, steps)[0][0]


def ratios(logits):
    return jax.nn.log_softmax(logits) - REFERENCE


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_dpo_minimum_is_the_kl_regularized_optimum(beta):
    """All pairs with Bradley-Terry preference rates: the minimum is reference times exp(reward / beta)."""
    chosen, rejected = PAIRS.T
    preference_probs = jax.nn.sigmoid(REWARD[chosen] - REWARD[rejected])

    def loss(logits):
        log_ratios = ratios(logits)
        return (preference_probs * dpo_loss(log_ratios[chosen], log_ratios[rejected], beta)).sum()

    optimum = jax.nn.softmax(REFERENCE + REWARD / beta)
    np.testing.assert_allclose(jax.nn.softmax(minimize(loss, jnp.zeros(3))), optimum, atol=1e-4)


@pytest.mark.parametrize(("p", "beta"), [(0.8, 0.5), (1.0, 0.1)])
def test_ipo_minimum_has_the_known_log_ratio_gap(p, beta):
    """Two responses, one preferred with probability p: at the minimum the log-ratios differ by (p - 1/2) / beta."""

    def loss(gap):
        return p * ipo_loss(gap, jnp.zeros(()), beta) + (1 - p) * ipo_loss(jnp.zeros(()), gap, beta)

    assert minimize(loss, jnp.zeros(()), 20) == pytest.approx((p - 0.5) / beta, rel=1e-3)


def test_label_smoothing_mixes_both_labels():
    chosen, rejected = jnp.array(0.7), jnp.array(-0.4)
    assert dpo_loss(chosen, rejected, 0.5, 0.2) == pytest.approx(
        float(0.8 * dpo_loss(chosen, rejected, 0.5) + 0.2 * dpo_loss(rejected, chosen, 0.5)), rel=1e-6
    )
    assert dpo_loss(chosen, chosen, 0.5) == pytest.approx(np.log(2))


def test_hinge_loss_has_no_gradient_beyond_its_margin():
    gradient = jax.grad(lambda w: hinge_loss(w, jnp.zeros(()), 0.5))
    assert gradient(jnp.array(3.0)) == 0.0 and gradient(jnp.array(1.0)) == -0.5


def test_kto_gradients_match_the_formula():
    def gradient(ratio, desirable, reference_point=0.2):
        return float(
            jax.grad(lambda r: kto_loss(r, jnp.array(desirable), 0.5, reference_point, (1.0, 2.0)))(jnp.array(ratio))
        )

    s = 1 / (1 + np.exp(-0.5 * 0.3))
    assert gradient(0.5, True) == pytest.approx(-0.5 * s * (1 - s), rel=1e-5)
    assert gradient(0.5, False) == pytest.approx(2 * 0.5 * s * (1 - s), rel=1e-5)
    assert abs(gradient(9.0, True)) < 0.1 * abs(gradient(0.2, True)) and abs(gradient(-9.0, True)) < 0.1 * abs(
        gradient(0.2, True)
    )
    assert jax.grad(lambda z: kto_loss(jnp.array(0.5), jnp.array(True), 0.5, z))(0.2) == 0.0
