"""Turning bodies: every step against a reference in plain Python, and what a policy that knows the headings earns."""

import cmath
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.papers.hypernetwork_q_policy.envs import TurningBodies

ENV = TurningBodies(num_bodies=2, step_size=0.2, turn=0.5, time_limit=4)


def reference_step(positions, headings, action):
    """Reference step in complex numbers: positions and headings after it, and reward."""
    pushes = [
        complex(*(min(max(a, -1.0), 1.0) for a in action[2 * i : 2 * i + 2])) * cmath.exp(1j * heading)
        for i, heading in enumerate(headings)
    ]
    positions = [z + ENV.step_size * push for z, push in zip(positions, pushes, strict=True)]
    return positions, [h + ENV.turn for h in headings], -sum(map(abs, positions)) / len(positions)


def test_environment_is_lawful():
    check_environment(ENV)


def test_steps_agree_with_reference():
    rng = np.random.default_rng(0)
    state, step = ENV.reset((), jax.random.key(3))
    positions = [complex(x, y) for x, y in np.asarray(state.positions).tolist()]
    headings = np.asarray(state.headings).tolist()
    for time in range(1, ENV.time_limit + 1):
        action = rng.uniform(-1.5, 1.5, 4).tolist()
        state, step = ENV.step(state, jnp.asarray(action), jax.random.key(time))
        positions, headings, reward = reference_step(positions, headings, action)
        observation = [
            *(part for z in positions for part in (z.real, z.imag)),
            *map(math.cos, headings),
            *map(math.sin, headings),
        ]
        np.testing.assert_allclose(np.asarray(step.observation), observation, atol=1e-5)
        assert float(step.reward) == pytest.approx(reward, abs=1e-5)
        assert bool(step.truncated) == (time == ENV.time_limit)
        assert not bool(step.terminated)


def test_starts_are_spread_over_square_and_circle():
    state, _ = jax.vmap(lambda key: ENV.reset((), key))(jax.random.split(jax.random.key(0), 2_000))
    positions, headings = np.asarray(state.positions), np.asarray(state.headings)
    assert np.abs(positions).max() <= 1.0
    np.testing.assert_allclose(positions.mean(axis=0), 0.0, atol=0.06)
    np.testing.assert_allclose(np.stack([np.cos(headings), np.sin(headings)]).mean(axis=1), 0.0, atol=0.06)
    assert headings.min() >= 0.0
    assert headings.max() < 2 * math.pi


def test_who_knows_the_headings_brings_all_bodies_to_the_origin():
    state, _ = ENV.reset((), jax.random.key(1))
    step = None
    for _ in range(12):
        to_origin = -np.asarray(state.positions) / ENV.step_size
        angles = -np.asarray(state.headings)
        action = [
            (complex(*vector) * cmath.exp(1j * angle)) / max(1.0, abs(complex(*vector)))
            for vector, angle in zip(to_origin.tolist(), angles.tolist(), strict=True)
        ]
        flat = jnp.asarray([part for z in action for part in (z.real, z.imag)])
        state, step = ENV.step(state, flat, jax.random.key(0))
    assert step is not None
    assert float(step.reward) == pytest.approx(0.0, abs=1e-4)
