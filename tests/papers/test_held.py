"""Held actions against stepping by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Walk

from thespis.core.conformance import check_environment
from thespis.envs.compiled.held import Held
from thespis.envs.compiled.swing_up import SwingUp
from thespis.envs.registry import compiled


def test_the_contract():
    check_environment(Held(SwingUp(limit=7), 3))
    assert Held(SwingUp(limit=7), 3).spec.time_limit == 3


@pytest.mark.parametrize("times", [1, 3, 4])
def test_a_step_is_so_many_of_the_worlds_until_its_end(times):
    world, held = Walk(limit=5), Held(Walk(limit=5), times)
    push, ends = jnp.array([0.4, -0.1]), 0
    step, whole = jax.jit(world.step), jax.jit(held.step)
    for seed in range(6):
        state, _ = first, _ = world.reset(world.spec.params, jax.random.key(seed))
        for tick in range(5):
            key, paid = jax.random.key(10 * tick + seed), 0.0
            first, wanted = whole(first, push, key)
            for part in jax.random.split(key, times):
                state, found = step(state, push, part)
                paid += float(found.reward)
                if found.terminated or found.truncated:
                    break
            assert wanted.reward == pytest.approx(paid, abs=1e-5)
            np.testing.assert_allclose(wanted.observation, found.observation, rtol=1e-6)
            assert (bool(wanted.terminated), bool(wanted.truncated)) == (bool(found.terminated), bool(found.truncated))
            if found.terminated or found.truncated:
                ends += 1
                break
    assert ends == 6


def test_they_can_be_named():
    for name, limit in (("PENDULUM_4", 50), ("SWING_UP_4", 50)):
        assert compiled(f"thespis.envs.compiled.held_worlds:{name}").spec.time_limit == limit
