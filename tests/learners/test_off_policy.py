"""IMPALA: equals A2C on on-policy rollouts, and V-trace on off-policy rollouts."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import VECTOR

from thespis.core.laws.assertions import assert_close, to_numpy
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec
from thespis.core.spaces import Discrete
from thespis.learners.on_policy.method import evaluate_rollout
from thespis.methods.online.a2c import A2C
from thespis.methods.online.impala import IMPALA
from thespis.objectives.returns import vtrace

KEY, TIME, ROWS = jax.random.key(0), 7, 4
SPEC = EnvSpec("choices", VECTOR, Discrete(3))
SETTINGS = {"learning_rate": 0.3, "gae_lambda": 0.8, "hidden_sizes": (6,), "ent_coef": 0.01}


def collect(method, shift):
    """A state, a rollout whose stored log-probabilities are ``shift`` below the policy's, and its values."""
    state = method.init(SPEC, KEY)
    steps = random_transitions(SPEC, np.random.default_rng(0), TIME, ROWS)
    extras = {"log_prob": jnp.zeros((TIME, ROWS))}
    steps = eqx.tree_at(lambda s: s.extras, steps, extras, is_leaf=lambda x: isinstance(x, tuple))
    batch = Batch(steps, jnp.ones((TIME, ROWS), bool), state.network.init_memory(ROWS), jnp.zeros((), "int32"))
    data = method.rollout_processor().compute_values(state.network, state.normalizer_states, batch)
    log_prob = evaluate_rollout(state.network, batch.memory, data).log_prob - shift
    batch = eqx.tree_at(lambda b: b.steps.extras["log_prob"], batch, log_prob)
    return state, batch, method.rollout_processor().compute_values(state.network, state.normalizer_states, batch)


@pytest.mark.slow
def test_on_policy_impala_equals_a2c():
    impala, a2c = IMPALA(**SETTINGS), A2C(**SETTINGS)
    state, batch, _ = collect(impala, 0.0)
    updated, report = impala.update(state, batch, KEY)
    assert_close(to_numpy(updated), to_numpy(a2c.update(state, batch, KEY)[0]), "the same step", 1e-5)
    assert report.metrics["kl"] == report.metrics["cut"] == 0.0


@pytest.mark.slow
def test_off_policy_steps_get_vtrace_weights():
    shift = jnp.asarray(np.random.default_rng(1).normal(size=(TIME, ROWS)), "float32")
    impala = IMPALA(**SETTINGS, rho_bar=1.5, c_bar=0.9)
    state, batch, data = collect(impala, shift)
    updated, report = impala.update(state, batch, KEY)
    columns = zip(
        *(np.asarray(x).T for x in (shift, data.reward, data.value, data.next_value, data.terminated, data.done)),
        strict=True,
    )
    results = [vtrace(*map(jnp.asarray, column), 0.99, 0.8, 1.5, 0.9) for column in columns]
    target, advantage = (np.stack(x, axis=1) for x in zip(*results, strict=True))
    log_prob = np.asarray(data.log_prob + shift)
    assert float(report.metrics["critic_loss"]) == pytest.approx(float(np.mean((data.value - target) ** 2)), rel=1e-4)
    assert float(report.metrics["actor_loss"]) == pytest.approx(-float(np.mean(log_prob * advantage)), rel=1e-4)
    assert float(report.metrics["cut"]) == pytest.approx(float(np.mean(np.exp(shift) > 1.5)), abs=1e-6)
    unweighted = A2C(**SETTINGS).update(state, batch, KEY)[0]
    with pytest.raises(Exception, match="the same step"):
        assert_close(to_numpy(updated), to_numpy(unweighted), "the same step", 1e-3)
