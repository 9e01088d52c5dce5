"""CEM planner and random play: returns in environments with a known optimum, and refused environments and settings."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_batches import quick_key

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.registry import make_compiled
from thespis.evaluation.cem_planner import CEMConfig, planner_returns, random_returns

KEY = quick_key(0)
SMALL = CEMConfig(horizon=6, discount=1.0, num_candidates=48, num_elites=6, num_iterations=6, noise_correlation=0.5)


def time_step(time, reward, terminated=False, truncated=False):
    return TimeStep(
        jnp.float32(time)[None], jnp.asarray(reward, "float32"), jnp.asarray(terminated), jnp.asarray(truncated)
    )


class Savings(eqx.Module):
    """Saving ``a`` costs ``a²`` at once; the sum of all savings is the reward of the last step.

    The optimum is ``a = 0.5`` in every step, with the return ``limit / 4``. With a horizon of 1, nothing is saved.
    """

    action: object = eqx.field(static=True, default=Box((1,), -1.0, 4.0))
    limit: int | None = eqx.field(static=True, default=6)

    @property
    def spec(self):
        return EnvSpec("savings", Box((1,)), self.action, time_limit=self.limit)

    def reset(self, params, key):
        return (jnp.int32(0), jnp.zeros(())), time_step(0, 0.0)

    def step(self, state, action, key):
        time, saved = state[0] + 1, state[1] + action[0]
        is_over = time >= self.limit
        return (time, saved), time_step(time, jnp.where(is_over, saved, 0.0) - action[0] ** 2, truncated=is_over)


class Bait(eqx.Module):
    """Staying (``a < 0``) pays 0.5 per step; leaving pays 1 and ends the episode. Later steps would pay 100."""

    natural: bool = eqx.field(static=True)

    @property
    def spec(self):
        return EnvSpec("bait", Box((1,)), Box((1,), -1.0, 1.0), time_limit=6)

    def reset(self, params, key):
        return (jnp.int32(0), jnp.zeros((), bool)), time_step(0, 0.0)

    def step(self, state, action, key):
        time, gone = state[0] + 1, state[1]
        leaves = gone | (action[0] >= 0)
        reward = jnp.where(gone, 100.0, jnp.where(leaves, 1.0, 0.5))
        ended = leaves & ~gone  # true in one step only: no later step of the episode may count
        truncated = (time == 6) | (ended & (not self.natural))
        return (time, leaves), time_step(time, reward, ended & self.natural, truncated)


class Walker(eqx.Module):
    """Starts at a random point and moves by actions and noise; the reward is minus the distance from 0."""

    @property
    def spec(self):
        return EnvSpec("walker", Box((2,)), Box((2,), -1.0, 1.0), time_limit=5)

    def reset(self, params, key):
        return (jnp.int32(0), jax.random.normal(key, (2,))), time_step(0, 0.0)

    def step(self, state, action, key):
        time, x = state[0] + 1, state[1] + action + 0.1 * jax.random.normal(key, (2,))
        return (time, x), time_step(time, -jnp.abs(x).sum(), truncated=time >= 5)


def test_the_optimal_sequence_is_found():
    returns = planner_returns(Savings(), 3, KEY, SMALL)
    assert returns.shape == (3,)
    np.testing.assert_allclose(returns, 6 / 4, atol=0.02)
    assert random_returns(Savings(), 3, KEY).max() < 0


def test_a_short_horizon_sees_no_late_reward():
    returns = planner_returns(Savings(), 2, KEY, CEMConfig(horizon=1, num_candidates=48, num_iterations=6))
    np.testing.assert_allclose(returns, 1 / 4, atol=0.02)  # the saving of the last step alone


@pytest.mark.parametrize("natural", [True, False])
def test_rewards_after_the_end_of_an_episode_do_not_count(natural):
    np.testing.assert_allclose(planner_returns(Bait(natural), 2, KEY, SMALL), 5 * 0.5 + 1)
    assert random_returns(Bait(natural), 20, KEY).max() <= 3.5


def test_an_episode_depends_on_the_key_and_its_index_only():
    fewer, more = (planner_returns(Walker(), n, KEY, SMALL) for n in (2, 3))
    np.testing.assert_allclose(fewer, more[:2], rtol=1e-5)
    assert len(set(more.tolist())) == 3
    assert (more > random_returns(Walker(), 3, KEY)).all()
    assert not np.allclose(more, planner_returns(Walker(), 3, quick_key(1), SMALL))


def test_a_pendulum_is_swung_up():
    env, config = (
        make_compiled("gymnax:Pendulum-v1"),
        CEMConfig(horizon=30, num_candidates=32, num_elites=6, num_iterations=3),
    )
    planned, random = planner_returns(env, 4, KEY, config), random_returns(env, 4, KEY)
    assert planned.mean() > -200
    assert random.mean() < -700


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Savings(Discrete(3)), "a box of floats"),
        (Savings(Box((1,), 0, 3, "int32")), "a box of floats"),
        (Savings(Box((1,), 0.0)), "bounded actions"),
        (Savings(limit=None), "no time limit"),
    ],
)
def test_unsupported_environments_are_refused(env, message):
    for returns in (planner_returns, random_returns):
        with pytest.raises(UserError, match=message):
            returns(env, 1, KEY)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": 0}, "horizon"),
        ({"num_candidates": 4, "num_elites": 5}, "candidates >= elites"),
        ({"noise_correlation": 1.0}, r"\[0, 1\)"),
        ({"discount": 0.0}, r"\(0, 1\]"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        CEMConfig(**settings)
