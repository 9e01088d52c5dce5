"""Parts of soft actor-critics against hand-written numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import BOX, VECTOR

from thespis.actors.soft import SoftActor
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Discrete
from thespis.critics.values import PairReturn, action_value, ensemble
from thespis.learners.backup import Backup, fit_returns
from thespis.learners.gradient import Adam
from thespis.learners.soft import climb, least, soft_value

KEY, ALPHA = jax.random.key(0), jnp.asarray(0.3)
CHOICES, PUSHES = EnvSpec("choices", VECTOR, Discrete(4)), EnvSpec("pushes", VECTOR, BOX)
VIEW = View(jnp.array([0.1, -0.2, 0.3]))


def nets(spec):
    return SoftActor(spec, (8,), KEY), ensemble(lambda k: action_value(spec, (8,), k), 3, jax.random.key(1))


def member(critics, i):
    return jax.tree.map(lambda x: x[i], critics)


def test_the_soft_value_of_a_choice_is_the_exact_sum_over_legal_choices():
    actor, critics = nets(CHOICES)
    legal = jnp.array([True, True, False, True])
    value, entropy = soft_value(actor, least(critics), ALPHA, View(VIEW.observation, legal), KEY)
    q = np.min([member(critics, i).all(VIEW.observation) for i in range(3)], axis=0)[np.asarray(legal)]
    log_probs = np.asarray(actor(View(VIEW.observation, legal)).log_probs)[np.asarray(legal)]
    assert entropy == pytest.approx(-np.sum(np.exp(log_probs) * log_probs), abs=1e-6)
    assert value == pytest.approx(np.sum(np.exp(log_probs) * (q - 0.3 * log_probs)), abs=1e-6)


def test_the_soft_value_of_an_amount_is_that_of_one_sample():
    actor, critics = nets(PUSHES)
    value, entropy = soft_value(actor, least(critics), ALPHA, VIEW, KEY)
    action, log_prob = actor(VIEW).sample_with_log_prob(KEY)
    q = min(float(member(critics, i)(VIEW.observation, action[None])[0]) for i in range(3))
    assert entropy == -log_prob
    assert value == pytest.approx(q - 0.3 * float(log_prob), abs=1e-6)


@pytest.mark.parametrize("spec", [CHOICES, pytest.param(PUSHES, marks=pytest.mark.slow)], ids=["choices", "pushes"])
def test_an_actor_climbs_and_says_what_was_there_before(spec):
    actor, critics = nets(spec)
    views, keys = View(jax.random.normal(KEY, (32, 3))), jax.random.split(KEY, 32)

    def soft(actor):
        return jax.vmap(lambda view, key: soft_value(actor, least(critics), ALPHA, view, key)[0])(views, keys)

    adam = Adam(1e-3)
    stepped, _, (values, _), norm = climb(adam, actor, adam.init(actor), least(critics), ALPHA, views, keys)
    np.testing.assert_allclose(values, soft(actor), atol=1e-6)
    assert soft(stepped).mean() > values.mean() and norm > 0


def test_a_normal_return_is_fitted_to_mean_and_deviation_of_its_samples():
    critic = PairReturn(PUSHES, (16,), KEY)
    rng, rows, adam = np.random.default_rng(0), 512, Adam(1e-2)
    views, action = View(jnp.tile(VIEW.observation, (rows, 1))), jnp.zeros((rows, *BOX.shape))
    opt_state = adam.init(critic)
    nothing = jnp.zeros(rows)

    @jax.jit
    def fit(critic, opt_state, target):
        data = Backup(views, action, nothing, nothing, views)
        return fit_returns(adam, critic, opt_state, data, target, floor=0.1, bound=10.0)

    for _ in range(600):
        target = jnp.asarray(rng.normal(2.0, 0.5, rows), "float32")
        critic, opt_state, metrics = fit(critic, opt_state, target)
    assert metrics["value"] == pytest.approx(2.0, abs=0.05)
    assert metrics["deviation"] == pytest.approx(0.5, abs=0.05)
