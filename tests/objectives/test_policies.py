"""Actor losses against rlax; KL estimators against an enumerated policy of five tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from thespis.objectives import policy_losses

LOGITS = jnp.array([0.5, -1.0, 0.2, 1.1, -0.3])
REFERENCE = jax.nn.log_softmax(jnp.array([-0.2, 0.4, 0.9, 0.1, -0.8]))
BEHAVIOUR = jax.nn.log_softmax(jnp.array([0.1, 0.3, -0.5, 0.4, 0.2]))
SAMPLES = 20_000


def reverse_kl(logits):
    log_prob = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(log_prob) * (log_prob - REFERENCE))


def forward_kl(logits):
    return jnp.sum(jnp.exp(REFERENCE) * (REFERENCE - jax.nn.log_softmax(logits)))


def estimator(name, behaviour):
    def per_token(logits):
        log_prob = jax.nn.log_softmax(logits)
        if name == "reverse_kl":
            return policy_losses.reverse_kl(log_prob, REFERENCE, behaviour)
        return getattr(policy_losses, name)(REFERENCE - log_prob)

    return per_token


def sample_moments(per_token, behaviour):
    """Mean and standard error of value and gradient over sampled tokens."""
    tokens = jax.random.categorical(jax.random.key(0), behaviour, shape=(SAMPLES,))
    values, gradients = per_token(LOGITS)[tokens], jax.jacobian(per_token)(LOGITS)[tokens]
    return [(x.mean(0), x.std(0) / SAMPLES**0.5) for x in (values, gradients)]


def is_within(mean, error, truth, sigmas=3.0):
    return bool(jnp.all(jnp.abs(mean - truth) <= sigmas * error + 1e-6))


# From the docstrings: (value unbiased, gradient unbiased) on-policy, and the same off-policy.
LABELS = {
    "kl_k1": ((True, False), (False, False)),
    "kl_k2": ((False, True), (False, False)),
    "kl_k3": ((True, False), (False, False)),
    "reverse_kl": ((True, True), (True, True)),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("where", ["on-policy", "off-policy"])
def test_kl_estimators_have_their_documented_bias(name, where):
    behaviour = jax.nn.log_softmax(LOGITS) if where == "on-policy" else BEHAVIOUR
    per_token = estimator(name, behaviour)
    value, gradient = sample_moments(per_token, behaviour)
    label = LABELS[name][where == "off-policy"]
    assert is_within(*value, reverse_kl(LOGITS)) == label[0]
    assert is_within(*gradient, jax.grad(reverse_kl)(LOGITS)) == label[1]
    # the same by enumeration, without sampling error
    weights = jnp.exp(behaviour)
    exact = weights @ per_token(LOGITS), weights @ jax.jacobian(per_token)(LOGITS)
    truth = reverse_kl(LOGITS), jax.grad(reverse_kl)(LOGITS)
    for ours, theirs, unbiased in zip(exact, truth, label, strict=True):
        assert bool(jnp.allclose(ours, theirs, atol=1e-6)) == unbiased


def test_biased_gradients_match_the_docstrings():
    weights = jnp.exp(jax.nn.log_softmax(LOGITS))
    k1 = weights @ jax.jacobian(estimator("kl_k1", None))(LOGITS)
    k3 = weights @ jax.jacobian(estimator("kl_k3", None))(LOGITS)
    np.testing.assert_allclose(k1, np.zeros(5), atol=1e-6)
    np.testing.assert_allclose(k3, jax.grad(forward_kl)(LOGITS), atol=1e-6)


def test_kl_is_zero_between_equal_policies_and_k2_k3_are_never_negative():
    ratios = jnp.linspace(-3, 3, 101)
    for name in ("kl_k1", "kl_k2", "kl_k3"):
        assert getattr(policy_losses, name)(jnp.zeros(())) == 0
    assert (policy_losses.kl_k2(ratios) >= 0).all() and (policy_losses.kl_k3(ratios) >= 0).all()


def test_ppo_clip_equals_rlax():
    rng = np.random.default_rng(0)
    log_ratio, advantage = jnp.asarray(rng.normal(0, 0.5, (2, 64)), "float32")
    ours, ours_gradient = jax.value_and_grad(lambda x: policy_losses.ppo_clip_loss(x, advantage, 0.2).mean())(log_ratio)
    theirs, theirs_gradient = jax.value_and_grad(lambda x: rlax.clipped_surrogate_pg_loss(jnp.exp(x), advantage, 0.2))(
        log_ratio
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    np.testing.assert_allclose(ours_gradient, theirs_gradient, atol=1e-6)


@pytest.mark.parametrize(
    "ratio, advantage, has_gradient", [(1.5, 1, 0), (1.5, -1, 1), (0.5, 1, 1), (0.5, -1, 0), (1, 1, 1)]
)
def test_ppo_clip_has_no_gradient_beyond_the_clip_range(ratio, advantage, has_gradient):
    gradient = jax.grad(policy_losses.ppo_clip_loss)(jnp.log(float(ratio)), jnp.float32(advantage), 0.2)
    assert bool(gradient != 0) == bool(has_gradient)


@pytest.mark.filterwarnings("ignore:Rlax softmax:PendingDeprecationWarning")
def test_policy_gradient_equals_rlax_without_advantage_gradient():
    logits = jax.random.normal(jax.random.key(1), (16, 5))
    action = jax.random.randint(jax.random.key(2), (16,), 0, 5)
    advantage = jax.random.normal(jax.random.key(3), (16,))

    def ours(logits, advantage):
        log_prob = jax.nn.log_softmax(logits)[jnp.arange(16), action]
        return policy_losses.policy_gradient_loss(log_prob, advantage).mean()

    def theirs(logits):
        return rlax.policy_gradient_loss(logits, action, advantage, jnp.ones(16))

    np.testing.assert_allclose(ours(logits, advantage), theirs(logits), atol=1e-6)
    np.testing.assert_allclose(jax.grad(ours)(logits, advantage), jax.grad(theirs)(logits), atol=1e-6)
    np.testing.assert_array_equal(jax.grad(ours, 1)(logits, advantage), np.zeros(16))
