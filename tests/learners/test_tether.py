"""Decentralized policy optimisation: its penalties written out, its weights by hand, and what they do to a step."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from cases import SMALL, ppo
from worlds import Walk

from thespis.core.samples import random_steps
from thespis.core.spaces import Discrete
from thespis.learners.anchors import Tether
from thespis.learners.on_policy import Replayed, replay
from thespis.methods.teams.decentralized import Surrogate

SPEC = Walk(Discrete(4), legal=True).spec
KEY = made_up.quick_key(0)
NONE = (), ()
NEVER = jax.device_put(np.int32(0))


def experienced(method):
    state = made_up.begun(method, SPEC)
    acting = jax.jit(lambda state, steps: made_up.experience(method, state, steps, KEY))
    return state, acting(state, random_steps(SPEC, np.random.default_rng(0), 8, 3))


def sharper(network):
    """With opinions of its own: fresh policies are nearly uniform."""
    return eqx.tree_at(lambda n: n.head.out.weight, network, 200.0 * network.head.out.weight)


def test_the_penalties_are_means_over_states_of_the_divergence_and_its_root():
    method = ppo()
    state, batch = experienced(method)
    one, other = (made_up.begun(method, SPEC, i).network for i in range(2))

    @jax.jit
    def told(state, batch, one, other):
        one, other = sharper(one), sharper(other)
        data = method.assessor().assess(state.network, state.scales, batch)
        now = replay(other, NONE, data)
        assert isinstance(now, Replayed)
        before = lambda: one.distributions(NONE, data.view, data.first)  # noqa: E731
        pulls = [Tether(*weights).pull(now, data, before, NEVER) for weights in ((2.0, 0.0), (0.0, 3.0))]
        slopes = jax.grad(lambda n: Tether().pull(replay(n, NONE, data), data, before, NEVER))(one)
        return [x.log_probs for x in (before(), now.policy)], pulls, slopes

    logs, (root, whole), slopes = jax.tree.map(np.asarray, told(state, batch, one, other))
    p, q = (np.exp(x.astype("float64")) for x in logs)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0).sum(-1)
    assert apart.shape == (8, 3) and (apart > 0.01).mean() > 0.5
    np.testing.assert_allclose(root, 2 * np.sqrt(apart).mean(), rtol=1e-3)
    np.testing.assert_allclose(whole, 3 * apart.mean(), rtol=1e-3)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))  # where nothing has moved yet


@pytest.mark.parametrize(
    ("went", "wanted"),
    [((0.05, 0.005), (0.5, 2.0)), ((0.1, 0.01), (1.0, 4.0)), ((0.2, 0.02), (2.0, 8.0)), ((0.05, 0.02), (0.5, 8.0))],
)
def test_weights_are_halved_below_two_thirds_of_the_aim_and_doubled_above_three_halves(went, wanted):
    method = Surrogate(aim=0.01)
    np.testing.assert_array_equal(method.adapted(jnp.array([1.0, 4.0]), jnp.array(went)), wanted)


def test_weights_keep_to_their_bounds_and_one_of_nothing_stays():
    method, far = Surrogate(first=Tether(0.0, 2.0)), jnp.array([9.0, 9.0])
    np.testing.assert_array_equal(method.adapted(jnp.array([0.0, 1500.0]), far), [0.0, 2000.0])
    np.testing.assert_array_equal(method.adapted(jnp.array([0.0, 0.003]), 0 * far), [0.0, np.float32(0.002)])


def test_an_update_goes_as_far_as_its_weights_let_it_and_adapts_them():
    base = dataclasses.replace(ppo(), hidden=SMALL, clip=1e9, learning_rate=0.03, epochs=8)

    def went(first):
        method = Surrogate(base, aim=0.01, first=first)
        state, batch = experienced(method)
        state, report = jax.jit(method.update)(state, batch, KEY)
        return float(report.metrics["divergence"]), np.asarray(state.weights)

    (free, raised), (held, lowered) = went(Tether(1e-3, 1e-3)), went(Tether(100.0, 100.0))
    assert free > 0.015 and held < 0.2 * free
    np.testing.assert_allclose(raised, 2e-3)
    assert lowered[1] == 50.0
