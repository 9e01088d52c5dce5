"""What weighs an action, against the gradient of a way's expected worth, summed over all ways."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from cases import CHOICE

from thespis.core.feeds import Episodes, Rollouts
from thespis.core.keys import key_of
from thespis.core.samples import random_steps
from thespis.learners.gains import SoFar, ToGo, Whole
from thespis.methods.online.a2c import A2C
from thespis.methods.online.subpo import SubPO

COVERS = [{0, 1}, {1, 2}, {2, 3, 4}]
WORTH = [1.0, 0.5, 2.0, 0.3, 0.2]
"""Places cover things; a way is worth what it covers. Who stands at a place goes to any."""
WAYS = np.array(list(itertools.product(range(3), repeat=3)))


def worth(way):
    return sum(WORTH[i] for i in set().union(*(COVERS[place] for place in way)))


def chances(logits, way):
    """Of each step: what is done depends on the time and on where one stands, first at place 0."""
    stands = jnp.concatenate([jnp.zeros(1, "int32"), way[:-1]])
    return jax.nn.log_softmax(logits)[jnp.arange(3), stands, way]


def gradient(gains, logits):
    """The expected estimate, all ways of three steps weighed by their chance, with a baseline of the time alone."""
    gain = np.array([[worth(way[: i + 1]) - (worth(way[:i]) if i else 0.0) for i in range(3)] for way in WAYS])
    to_go = gain[:, ::-1].cumsum(1)[:, ::-1] - np.array([2.0, 1.0, 0.5])
    alive = jnp.ones((3, len(WAYS)), bool)
    weights = gains(jnp.array(gain.T, "float32"), jnp.array(to_go.T, "float32"), alive).T
    likely = jnp.exp(jax.vmap(chances, (None, 0))(logits, jnp.array(WAYS)).sum(axis=1))

    def surrogate(at):
        scores = jax.vmap(chances, (None, 0))(at, jnp.array(WAYS))
        return jnp.sum(likely * jnp.sum(scores * weights, axis=1))

    return jax.grad(surrogate)(logits)


@pytest.mark.parametrize(("gains", "unbiased"), [(ToGo(), True), (Whole(), True), (SoFar(), False)])
def test_gains_to_go_climb_the_worth_of_the_way(gains, unbiased):
    logits = jax.random.normal(key_of(1), (3, 3, 3))
    worths = jnp.array([worth(way) for way in WAYS])

    def expected(at):
        return jnp.sum(jnp.exp(jax.vmap(chances, (None, 0))(at, jnp.array(WAYS)).sum(axis=1)) * worths)

    off = float(jnp.abs(gradient(gains, logits) - jax.grad(expected)(logits)).max())
    assert off < 1e-5 if unbiased else off > 0.05, off


def test_what_lies_behind_the_end_earns_nothing():
    gain, alive = jnp.array([[1.0, 2.0, 4.0]]).T, jnp.array([[True, True, False]]).T
    np.testing.assert_array_equal(SoFar()(gain, gain, alive)[:, 0], [1.0, 3.0, 3.0])
    np.testing.assert_array_equal(Whole()(gain, jnp.zeros((3, 1)), alive)[:2, 0], [0.0, 1.0])


@pytest.mark.slow
def test_where_all_episodes_last_as_long_it_is_a2c_without_discount():
    settings = {"hidden": (4,), "learning_rate": 0.01, "discount": 1.0, "max_gradient_norm": 1e9, "optimiser": "adam"}
    one = SubPO(hidden=(4,), feed=Episodes(4, envs=3))
    other = A2C(**settings, feed=Rollouts(4, envs=3))
    state = jax.jit(lambda key: one.init(CHOICE.spec, key))(key_of(0))
    steps = random_steps(CHOICE.spec, np.random.default_rng(0), 4, 3)
    first, last = (jnp.zeros((4, 3), bool).at[i].set(True) for i in (0, -1))
    steps = dataclasses.replace(steps, first=first, terminated=last, truncated=jnp.zeros((4, 3), bool))
    batch = jax.jit(lambda state: made_up.experience(other, state, steps, key_of(2)))(state)
    assert batch.mask.all()
    ours, theirs = (jax.jit(method.update)(state, batch, key_of(3))[0] for method in (one, other))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), ours, theirs)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), ours.network.head, state.network.head)
    assert max(jax.tree.leaves(moved)) > 1e-3
