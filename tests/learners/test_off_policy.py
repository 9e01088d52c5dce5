"""IMPALA on what its own policy collected is A2C; on what another collected it weighs each step."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import VECTOR

from thespis.core.laws import as_numpy, close
from thespis.core.records import Batch, EnvSpec
from thespis.core.samples import random_steps
from thespis.core.spaces import Discrete
from thespis.learners.on_policy import replay
from thespis.methods.online.a2c import A2C
from thespis.methods.online.impala import IMPALA
from thespis.objectives.returns import vtrace

KEY, TIME, ROWS = jax.random.key(0), 7, 4
SPEC = EnvSpec("choices", VECTOR, Discrete(3))
SAME = {"learning_rate": 0.3, "trace": 0.8, "hidden": (6,), "entropy_weight": 0.01}


def collected(method, shift):
    """A state and a rollout whose stored log-probabilities are ``shift`` below those of its policy."""
    state = method.init(SPEC, KEY)
    steps = random_steps(SPEC, np.random.default_rng(0), TIME, ROWS)
    extras = {"log_prob": jnp.zeros((TIME, ROWS))}
    steps = eqx.tree_at(lambda s: s.extras, steps, extras, is_leaf=lambda x: isinstance(x, tuple))
    batch = Batch(steps, jnp.ones((TIME, ROWS), bool), state.network.begin(ROWS), jnp.zeros((), "int32"))
    seen = method.assessor().see(state.network, state.scales, batch)
    log_prob = replay(state.network, batch.memory, seen).log_prob - shift
    batch = eqx.tree_at(lambda b: b.steps.extras["log_prob"], batch, log_prob)
    return state, batch, method.assessor().see(state.network, state.scales, batch)


@pytest.mark.slow
def test_on_its_own_rollouts_it_is_a2c():
    impala, a2c = IMPALA(**SAME), A2C(**SAME)
    state, batch, _ = collected(impala, 0.0)
    new, report = impala.update(state, batch, KEY)
    close(as_numpy(new), as_numpy(a2c.update(state, batch, KEY)[0]), "the same step", 1e-5)
    assert report.metrics["kl"] == report.metrics["cut"] == 0.0


@pytest.mark.slow
def test_steps_of_another_policy_are_weighed():
    shift = jnp.asarray(np.random.default_rng(1).normal(size=(TIME, ROWS)), "float32")
    impala = IMPALA(**SAME, rho_bar=1.5, c_bar=0.9)
    state, batch, seen = collected(impala, shift)
    new, report = impala.update(state, batch, KEY)
    columns = zip(*(np.asarray(x).T for x in (shift, seen.reward, seen.value, seen.next_value, seen.terminated,
                                              seen.ended)), strict=True)  # fmt: skip
    found = [vtrace(*map(jnp.asarray, column), 0.99, 0.8, 1.5, 0.9) for column in columns]
    target, advantage = (np.stack(x, axis=1) for x in zip(*found, strict=True))
    log_prob = np.asarray(seen.log_prob + shift)
    assert float(report.metrics["critic_loss"]) == pytest.approx(float(np.mean((seen.value - target) ** 2)), rel=1e-4)
    assert float(report.metrics["actor_loss"]) == pytest.approx(-float(np.mean(log_prob * advantage)), rel=1e-4)
    assert float(report.metrics["cut"]) == pytest.approx(float(np.mean(np.exp(shift) > 1.5)), abs=1e-6)
    blind = A2C(**SAME).update(state, batch, KEY)[0]
    with pytest.raises(Exception, match="the same step"):
        close(as_numpy(new), as_numpy(blind), "the same step", 1e-3)
