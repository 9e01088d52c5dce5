"""Levers: optimal values against value iteration over all actions, and mean rewards of steps."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.papers.revalued.envs import TWELVE_LEVERS, Levers

KEY = jax.random.key(0)


def test_contract():
    check_environment(Levers(num_levers=2))


@pytest.mark.parametrize("exponent", [1.0, 2.5])
def test_optimal_q_values(exponent):
    """Against value iteration over every joint action at every cue."""
    env, discount = Levers(num_levers=3, num_choices=2, num_cues=3, exponent=exponent), 0.8
    actions = np.array(list(itertools.product(range(2), repeat=3)))
    targets = (np.arange(3)[:, None] + np.arange(3)) % 2
    rewards = (actions[None] == targets[:, None]).mean(axis=-1) ** exponent  # [cue, vector]
    values = np.zeros(3)
    for _ in range(200):
        values = (rewards + discount * values.mean()).max(axis=1)
    expected = rewards + discount * values.mean()
    result = jax.vmap(lambda cue: jax.vmap(lambda v: env.optimal_q_value(cue, v, discount))(jnp.asarray(actions)))(
        jnp.arange(3)
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_reward_noise_and_next_cue():
    env = Levers(noise_std=0.5, exponent=2.0)
    state, first = env.reset((), KEY)
    assert first.observation.tolist() == np.eye(4)[int(state.cue)].tolist()
    half_right = jnp.where(
        jnp.arange(8) < 4, env.target_positions(state.cue), (env.target_positions(state.cue) + 1) % 3
    )
    after, timesteps = jax.vmap(lambda key: env.step(state, half_right, key))(jax.random.split(KEY, 4_000))
    assert float(timesteps.reward.mean()) == pytest.approx(0.25, abs=0.03)
    assert float(timesteps.reward.std()) == pytest.approx(0.5, abs=0.03)
    np.testing.assert_allclose(np.bincount(after.cue) / 4_000, 0.25, atol=0.03)
    assert float(TWELVE_LEVERS.expected_reward(jnp.int32(0), TWELVE_LEVERS.target_positions(jnp.int32(0)))) == 1.0
