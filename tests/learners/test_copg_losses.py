"""CoPG and its rivals, policy gradients on responses of another policy, against sums over all responses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.envs.text.choice import Choice
from thespis.envs.text.task import TextEnv
from thespis.learners.language.preference_losses import RegressionLoss, ResponseScores
from thespis.objectives import aligned_policies
from thespis.papers.copg.losses import OffPolicyGradientLoss, ValueBaselineLoss
from thespis.papers.copg.pairs import BehaviorSampledDPO
from thespis.runtime.keys import seed_key

RNG = np.random.default_rng(0)
REFERENCE, POLICY = (jax.nn.log_softmax(jnp.asarray(RNG.normal(size=5))) for _ in range(2))
UTILITIES = jnp.asarray(RNG.normal(size=5)) + 1
BETA = 0.7
BEST = aligned_policies.optimal_log_probs(REFERENCE, UTILITIES, BETA)
BEHAVIOR, OTHER_BEHAVIOR = (jax.nn.softmax(jnp.asarray(RNG.normal(size=5))) for _ in range(2))
FIRST, SECOND = (x.ravel() for x in jnp.meshgrid(jnp.arange(5), jnp.arange(5), indexing="ij"))


def scores(log_probs, responses):
    """Scores of these responses by the policy with ``log_probs``, with their utilities."""
    ones = jnp.ones_like(responses)
    return ResponseScores(log_probs[responses], REFERENCE[responses], ones, UTILITIES[responses])


def expected_gradient(loss, logits, first_probs, second_probs):
    """Gradient of the expected loss of pairs, which are sampled with these probabilities."""

    def expected_loss(x):
        log_probs = jax.nn.log_softmax(x)
        losses = loss(scores(log_probs, FIRST), scores(log_probs, SECOND))
        return jnp.sum(first_probs[FIRST] * second_probs[SECOND] * losses)

    return jax.grad(expected_loss)(logits)


def policy_gradient(baseline, probs):
    """The gradient of policy gradients on responses with these probabilities, at ``POLICY``, by hand."""
    policy = np.exp(np.asarray(POLICY))
    advantages = np.asarray(UTILITIES - BETA * (POLICY - REFERENCE)) - baseline
    return sum(p * a * (np.eye(5)[i] - policy) for i, (p, a) in enumerate(zip(probs, advantages, strict=True)))


@pytest.mark.long
def test_on_policy_all_have_the_gradient_of_the_regularized_reward():
    sampled = jnp.exp(POLICY)

    def objective(logits):
        return aligned_policies.regularized_reward(jax.nn.log_softmax(logits), REFERENCE, UTILITIES, BETA)

    expected = jax.grad(objective)(POLICY)
    for loss, scale in (
        (OffPolicyGradientLoss(BETA), 2),
        (ValueBaselineLoss(BETA), 1),
        (RegressionLoss(BETA), 4 * BETA),
    ):
        gradient = expected_gradient(loss, POLICY, sampled, sampled)
        np.testing.assert_allclose(-gradient, scale * expected, atol=1e-5)


def test_off_policy_only_the_contrast_of_two_rewards_keeps_the_optimum():
    contrast = expected_gradient(RegressionLoss(BETA), BEST, BEHAVIOR, OTHER_BEHAVIOR)
    np.testing.assert_allclose(contrast, 0.0, atol=1e-5)
    without = expected_gradient(OffPolicyGradientLoss(BETA), BEST, BEHAVIOR, OTHER_BEHAVIOR)
    with_value = expected_gradient(ValueBaselineLoss(BETA), BEST, jnp.exp(BEST), BEHAVIOR)
    assert min(float(jnp.abs(gradient).max()) for gradient in (without, with_value)) > 0.05


def test_baselines_are_none_the_value_of_the_policy_and_that_of_the_data():
    value = float(jnp.exp(POLICY) @ UTILITIES)
    gradient = expected_gradient(OffPolicyGradientLoss(BETA), POLICY, BEHAVIOR, BEHAVIOR)
    np.testing.assert_allclose(-gradient, 2 * policy_gradient(0.0, BEHAVIOR), atol=1e-5)
    gradient = expected_gradient(ValueBaselineLoss(BETA), POLICY, jnp.exp(POLICY), BEHAVIOR)
    np.testing.assert_allclose(-gradient, policy_gradient(value, BEHAVIOR), atol=1e-5)
    value_of_data = float(BEHAVIOR @ (UTILITIES - BETA * (POLICY - REFERENCE)))
    gradient = expected_gradient(RegressionLoss(BETA), POLICY, BEHAVIOR, BEHAVIOR)
    np.testing.assert_allclose(-gradient, 4 * BETA * policy_gradient(value_of_data, BEHAVIOR), atol=1e-5)


def test_the_value_is_the_mean_of_all_own_responses_to_a_prompt():
    own, other = jnp.array([0, 1, 2, 3]), jnp.array([4, 4, 0, 0])
    losses = ValueBaselineLoss(BETA, pairs_per_prompt=2)(scores(POLICY, own), scores(POLICY, other))
    values = np.repeat([float(UTILITIES[:2].mean()), float(UTILITIES[2:4].mean())], 2)
    advantages = np.asarray(UTILITIES - BETA * (POLICY - REFERENCE))[other] - values
    np.testing.assert_allclose(losses, -advantages * np.asarray(POLICY)[other], rtol=1e-4)


@pytest.mark.long
def test_the_behavior_is_the_reference_at_its_temperature_and_the_first_of_a_pair_may_be_the_policys():
    env = TextEnv(Choice(num_words=3))
    settings = {"loss_type": RegressionLoss(BETA), "model": "blank", "num_layers": 1, "hidden_size": 32}
    method = BehaviorSampledDPO(behavior_temperature=2.0, **settings)
    state = method.init(env.spec, seed_key(1))
    features = jax.random.normal(jax.random.key(0), (4, 32))
    reference = jax.tree.map(lambda x: 2 * x, state.reference)
    state = dataclasses.replace(state, reference=reference)
    behavior = method.policy(state, Mode.EXPLORE).model
    np.testing.assert_allclose(2 * behavior.final_norm, reference.final_norm)
    np.testing.assert_allclose(behavior.logits(features), reference.logits(features))
    assert method.policy(state, Mode.SAMPLE).model is state.model
    both = BehaviorSampledDPO(first_is_own=True, **settings).policy(state, Mode.EXPLORE).model
    assert both.alternates and float(both.second_weight) == 1 and both.first is state.model
    np.testing.assert_allclose(both.second.final_norm, behavior.final_norm)
