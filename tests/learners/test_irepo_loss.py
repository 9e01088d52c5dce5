"""iREPO's loss, against sums over all responses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.learners.language.preference_losses import ResponseScores
from thespis.objectives import aligned_policies
from thespis.papers.irepo.losses import IREPOLoss

RNG = np.random.default_rng(0)
REFERENCE, POLICY = (jax.nn.log_softmax(jnp.asarray(RNG.normal(size=5))) for _ in range(2))
UTILITIES = jnp.asarray(RNG.normal(size=5))
BETA = 0.7
BEST = aligned_policies.optimal_log_probs(REFERENCE, UTILITIES, BETA)
BEHAVIOR = jax.nn.softmax(jnp.asarray(RNG.normal(size=5)))
FIRST, SECOND = (x.ravel() for x in jnp.meshgrid(jnp.arange(5), jnp.arange(5), indexing="ij"))


def scores(logits, responses, returns):
    """Scores of these responses by the policy with ``logits``."""
    log_probs = jax.nn.log_softmax(logits)
    return ResponseScores(log_probs[responses], REFERENCE[responses], jnp.ones_like(responses), returns)


def expected_loss(loss, logits, sampled, first_returns, second_returns):
    """Mean loss of all pairs of responses that are drawn from the probabilities ``sampled``."""
    losses = loss(scores(logits, FIRST, first_returns), scores(logits, SECOND, second_returns))
    return jnp.sum(sampled[FIRST] * sampled[SECOND] * losses)


def test_irepo_has_its_optimum_at_the_best_policy_for_the_rewards_of_bradley_and_terry():
    share = jax.nn.sigmoid(UTILITIES[FIRST] - UTILITIES[SECOND])

    def gradient(logits):
        loss = IREPOLoss(BETA, 1e-4)
        return jax.grad(lambda x: expected_loss(loss, x, BEHAVIOR, share, 1 - share))(logits)

    np.testing.assert_allclose(gradient(BEST), 0.0, atol=1e-5)
    assert float(jnp.abs(gradient(POLICY)).max()) > 0.05


@pytest.mark.parametrize(("share", "clipped"), [(1.0, 0.9), (0.0, 0.1), (0.6, 0.6)])
def test_irepo_clips_unanimous_votes(share, clipped):
    loss, responses = IREPOLoss(1.0, 0.1), jnp.array([0])
    first, second = (
        scores(REFERENCE, responses, jnp.array([share])),
        scores(REFERENCE, responses, jnp.array([1 - share])),
    )
    np.testing.assert_allclose(loss(first, second), np.log(clipped / (1 - clipped)) ** 2, rtol=1e-4)
    assert not loss.orders_pairs
