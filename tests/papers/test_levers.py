"""Levers: what is known of them, by enumeration."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.envs.compiled.levers import CREW, Levers

KEY = jax.random.key(0)


def test_it_keeps_its_promises():
    check_environment(Levers(count=2))


@pytest.mark.parametrize("power", [1.0, 2.5])
def test_values_against_enumeration(power):
    """Value iteration over every vector of choices at every cue."""
    world, discount = Levers(count=3, choices=2, cues=3, power=power), 0.8
    vectors = np.array(list(itertools.product(range(2), repeat=3)))
    right = (np.arange(3)[:, None] + np.arange(3)) % 2
    paid = (vectors[None] == right[:, None]).mean(axis=-1) ** power  # [cue, vector]
    values = np.zeros(3)
    for _ in range(200):
        values = (paid + discount * values.mean()).max(axis=1)
    wanted = paid + discount * values.mean()
    found = jax.vmap(lambda cue: jax.vmap(lambda v: world.known(cue, v, discount))(jnp.asarray(vectors)))(jnp.arange(3))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_step_pays_and_shows_another_cue():
    world = Levers(noise=0.5, power=2.0)
    state, first = world.reset((), KEY)
    assert first.observation.tolist() == np.eye(4)[int(state.cue)].tolist()
    half = jnp.where(jnp.arange(8) < 4, world.right(state.cue), (world.right(state.cue) + 1) % 3)
    after, answers = jax.vmap(lambda key: world.step(state, half, key))(jax.random.split(KEY, 4_000))
    assert float(answers.reward.mean()) == pytest.approx(0.25, abs=0.03)
    assert float(answers.reward.std()) == pytest.approx(0.5, abs=0.03)
    np.testing.assert_allclose(np.bincount(after.cue) / 4_000, 0.25, atol=0.03)
    assert float(CREW.paid(jnp.int32(0), CREW.right(jnp.int32(0)))) == 1.0
