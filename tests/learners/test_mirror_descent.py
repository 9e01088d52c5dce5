"""Mirror descent: where its penalties come to rest is known in closed form for choices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from cases import ppo
from worlds import Walk

from thespis.actors.distributions import Categorical
from thespis.core.keys import key_of
from thespis.core.records import View
from thespis.core.samples import random_steps
from thespis.core.spaces import Discrete
from thespis.learners.anchors import Proximal
from thespis.learners.held import Steps
from thespis.learners.on_policy import Replayed

SPEC, KEY = Walk(Discrete(4)).spec, key_of(0)
BEFORE = jnp.log(jnp.array([0.1, 0.2, 0.3, 0.4]))
WORTH = jnp.array([1.0, -0.5, 0.2, 0.0])


def flat(loss, at):
    """How steep a loss of a distribution over choices is at logits ``at``."""
    return float(jnp.abs(jax.grad(loss)(at)).max())


@pytest.mark.parametrize(("index", "size"), [(0, 0.5), (5, 0.25), (10, 0.005)])
def test_a_step_comes_to_rest_where_the_exponential_weights_are(index, size):
    """``pi_k exp(t_k A)`` over its sum solves the problem (Tomar et al. 2022, equation 4)."""
    method = ppo()
    state = made_up.begun(method, SPEC)
    acting = jax.jit(lambda state, steps: made_up.experience(method, state, steps, KEY))
    batch = acting(state, random_steps(SPEC, np.random.default_rng(0), 2, 3))
    data = method.assessor().assess(state.network, state.scales, batch)
    shape = data.value.shape

    def spread(logits):
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, *x.shape)), Categorical(logits))

    def loss(logits):
        now = Replayed(spread(logits), jnp.zeros(shape), jnp.zeros(()), jnp.zeros(shape))
        drawn = Proximal(0.5, 10.0).pull(now, data, lambda: spread(BEFORE), jnp.array(index))
        return drawn - jnp.sum(jax.nn.softmax(logits) * WORTH)

    assert flat(loss, BEFORE + size * WORTH) < 1e-5 / size
    assert flat(loss, BEFORE) > 0.05


def test_an_actor_off_policy_descends_what_the_authors_have():
    """``c log pi + (lambda - c) log pi_k - Q`` under the actor, whose best choice is known."""
    view, weight, alpha = View(jnp.zeros(3)), 1.5, 0.2

    def cost(logits):
        now = Categorical(jax.nn.log_softmax(logits))
        soft = jnp.sum(now.probs * (WORTH - alpha * now.log_probs))
        return Steps(weight).cost(lambda _: Categorical(BEFORE), now, view, jnp.array(alpha)) - soft

    def theirs(logits):
        logs = np.asarray(jax.nn.log_softmax(logits), np.float64)
        return np.sum(np.exp(logs) * (weight * logs + (alpha - weight) * np.asarray(BEFORE) - np.asarray(WORTH)))

    for logits in jax.random.normal(KEY, (5, 4)):
        assert cost(logits) == pytest.approx(theirs(logits), abs=1e-5)
    assert flat(cost, (WORTH + (weight - alpha) * BEFORE) / weight) < 1e-5


def test_the_actor_that_is_held_to_changes_when_a_problem_is_over():
    hold, first, now = Steps(every=3), jnp.array(1.0), jnp.array(2.0)
    found = [float(hold.renewed(first, now, jnp.array(count))) for count in (1, 2, 3, 4, 6)]
    assert found == [1.0, 1.0, 2.0, 1.0, 2.0]
