"""Preference losses: against known optima, enumeration and gradients."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from thespis.learners.language.preference_losses import (
    AlphaLink,
    CPLLoss,
    EXOLoss,
    ForwardKLLink,
    IPOLoss,
    JensenShannonLink,
    ORPOLoss,
    ResponseScores,
    ReverseKLLink,
    RPOLoss,
    SigmoidLoss,
    SimPOLoss,
    SPPOLoss,
)
from thespis.objectives.preferences import (
    dpo_loss,
    exo_loss,
    hinge_loss,
    ipo_loss,
    kto_loss,
    odds_ratio_loss,
    regression_loss,
    robust_dpo_loss,
    sppo_loss,
)

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


def test_regression_minimum_is_the_kl_regularized_optimum():
    """All pairs with their rewards: the minimum is reference times exp(reward / beta)."""
    chosen, rejected = PAIRS.T

    def loss(logits):
        log_ratios = ratios(logits)
        gap = REWARD[chosen] - REWARD[rejected]
        return regression_loss(log_ratios[chosen], log_ratios[rejected], gap, 0.7).sum()

    optimum = jax.nn.softmax(REFERENCE + REWARD / 0.7)
    np.testing.assert_allclose(jax.nn.softmax(minimize(loss, jnp.zeros(3))), optimum, atol=1e-4)


@pytest.mark.parametrize("flip", [0.1, 0.4])
def test_the_robust_loss_is_unbiased_under_flipped_labels(flip):
    """Over right and flipped labels, the mean is the loss of right labels."""
    chosen, rejected = jnp.array([0.7, -1.2, 3.0]), jnp.array([-0.4, 0.3, 0.1])
    right, wrong = (robust_dpo_loss(*pair, 0.5, flip) for pair in ((chosen, rejected), (rejected, chosen)))
    np.testing.assert_allclose((1 - flip) * right + flip * wrong, dpo_loss(chosen, rejected, 0.5), rtol=1e-4)


def test_the_exo_loss_is_the_reverse_divergence_to_the_labels():
    margin, wrong = np.linspace(-4, 4, 9), 0.1
    policy = 1 / (1 + np.exp(-0.5 * margin))
    expected = policy * np.log(policy / (1 - wrong)) + (1 - policy) * np.log((1 - policy) / wrong)
    losses = exo_loss(jnp.asarray(margin), jnp.zeros(9), 0.5, wrong)
    np.testing.assert_allclose(losses, expected, atol=1e-5)
    best = minimize(lambda gap: exo_loss(gap, jnp.zeros(()), 0.5, wrong), jnp.zeros(()), 50)
    assert best == pytest.approx(np.log((1 - wrong) / wrong) / 0.5, rel=1e-3)


@pytest.mark.parametrize("p", [0.5, 0.8, 1.0])
def test_the_sppo_minimum_is_how_much_more_often_than_half_a_response_wins(p):
    """Two responses, one preferred with probability p: its log-ratio is (p - 1/2) / beta, the other's minus that."""

    def loss(h):
        return p * sppo_loss(h[0], h[1], 0.3) + (1 - p) * sppo_loss(h[1], h[0], 0.3)

    np.testing.assert_allclose(minimize(loss, jnp.zeros(2), 20), [(p - 0.5) / 0.3, (0.5 - p) / 0.3], atol=1e-4)


def test_odds_are_those_of_probabilities():
    chosen, rejected = np.array([0.9, 0.2, 0.5]), np.array([0.3, 0.6, 0.5])
    ratio = chosen / (1 - chosen) / (rejected / (1 - rejected))
    np.testing.assert_allclose(
        odds_ratio_loss(jnp.log(chosen), jnp.log(rejected)), -np.log(ratio / (1 + ratio)), rtol=1e-5
    )
    assert np.isfinite(jax.grad(lambda x: odds_ratio_loss(x, jnp.array(-1.0)))(jnp.zeros(())))


GENERATORS = [
    (ReverseKLLink(), lambda t: t * jnp.log(t)),
    (ForwardKLLink(), lambda t: -jnp.log(t)),
    (JensenShannonLink(), lambda t: t * jnp.log(t) - (t + 1) * jnp.log((t + 1) / 2)),
    (AlphaLink(0.3), lambda t: (t**0.7 - 0.7 * t - 0.3) / (0.3 * (0.3 - 1))),
]


@pytest.mark.parametrize(("link", "generator"), GENERATORS)
def test_links_are_derivatives_of_the_generators(link, generator):
    """To a constant, which the difference of a pair does not see."""
    points = jnp.array([0.2, 0.7, 1.0, 2.5])
    derivative = jax.vmap(jax.grad(generator))(points)
    difference = link(jnp.log(points)) - derivative
    np.testing.assert_allclose(difference, difference[0], atol=1e-5)


@pytest.mark.parametrize("link", [link for link, _ in GENERATORS])
def test_the_minimum_with_a_link_is_the_optimum_with_its_divergence(link):
    """Bradley-Terry preferences of a policy's own link: the loss recovers that policy."""
    policy = jax.nn.softmax(jnp.array([0.8, -0.3, 0.1]))
    rewards = 0.5 * link(jnp.log(policy) - REFERENCE)
    chosen, rejected = PAIRS.T
    probs, loss_type = jax.nn.sigmoid(rewards[chosen] - rewards[rejected]), SigmoidLoss(0.5, link=link)

    def loss(logits):
        sides = (scores(jax.nn.log_softmax(logits)[side], REFERENCE[side]) for side in (chosen, rejected))
        return (probs * loss_type(*sides)).sum()

    np.testing.assert_allclose(jax.nn.softmax(minimize(loss, jnp.zeros(3), 2000)), policy, atol=2e-3)


def scores(log_prob, ref_log_prob=0.0, num_tokens=1, returns=0.0):
    """Scores of responses, with the same number of tokens and return where one is given."""
    arrays = (ref_log_prob, num_tokens, returns)
    ref_log_prob, num_tokens, returns = (jnp.broadcast_to(jnp.asarray(x), log_prob.shape) for x in arrays)
    return ResponseScores(log_prob, ref_log_prob.astype("float32"), num_tokens, returns.astype("float32"))


def test_rpo_adds_the_likelihood_per_token_of_the_chosen_dialogue_to_any_loss():
    log_probs, refs, lengths = np.array([[-3.0, -1.0], [-2.0, -6.0]]), np.array([[-2.5, -2.0], [-2.5, -4.0]]), (2, 5)
    sides = [scores(jnp.asarray(x), jnp.asarray(ref), n) for x, ref, n in zip(log_probs, refs, lengths, strict=True)]
    margins = (log_probs - refs)[0] - (log_probs - refs)[1]
    for loss, expected in ((SigmoidLoss(0.3), np.log1p(np.exp(-0.3 * margins))), (IPOLoss(0.4), (margins - 1.25) ** 2)):
        np.testing.assert_allclose(RPOLoss(loss, 0.7)(*sides), expected - 0.7 * log_probs[0] / 2, rtol=1e-5)
    for loss in (SimPOLoss(), SPPOLoss(win_rates=True)):
        with pytest.raises(ValueError, match=r"RPO needs a loss with a reference that orders pairs"):
            RPOLoss(loss)


def test_losses_without_a_reference_do_not_use_it():
    chosen, rejected = jnp.array([-3.0, -1.0]), jnp.array([-2.0, -6.0])
    lengths = jnp.array([2, 3]), jnp.array([4, 5])
    for loss_type in (SimPOLoss(), ORPOLoss(), CPLLoss()):
        assert not loss_type.needs_reference
        losses = [
            loss_type(*(scores(x, ref, n) for x, n in zip((chosen, rejected), lengths, strict=True)))
            for ref in (0.0, jnp.array([1.0, -5.0]))
        ]
        np.testing.assert_array_equal(*losses)
    means = np.array([-3 / 2, -1 / 3]), np.array([-2 / 4, -6 / 5])
    expected = np.log1p(np.exp(-1.5 * (means[0] - means[1] - 0.4)))
    sides = [scores(x, 0.0, n) for x, n in zip((chosen, rejected), lengths, strict=True)]
    np.testing.assert_allclose(SimPOLoss(1.5, 0.4)(*sides), expected, rtol=1e-5)
    np.testing.assert_allclose(
        CPLLoss(0.5, 0.25)(*sides),
        np.log1p(np.exp(-0.5 * (np.asarray(chosen) - 0.25 * np.asarray(rejected)))),
        rtol=1e-5,
    )
    assert EXOLoss().needs_reference


def test_ipo_can_take_log_ratios_per_token():
    sides = [scores(jnp.array([-3.0]), -1.0, 4), scores(jnp.array([-2.0]), 0.0, 2)]
    np.testing.assert_allclose(IPOLoss(0.5, per_token=True)(*sides), (-2 / 4 + 2 / 2 - 1) ** 2, rtol=1e-5)
    np.testing.assert_allclose(IPOLoss(0.5)(*sides), (-2 + 2 - 1) ** 2, rtol=1e-5)
