import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import quick_key

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.registry import compiled
from thespis.evaluation.planner import CEM, planned_returns, random_returns

KEY = quick_key(0)
SMALL = CEM(horizon=6, discount=1.0, candidates=48, elites=6, iterations=6, correlation=0.5)


def answer(time, reward, terminated=False, truncated=False):
    return TimeStep(
        jnp.float32(time)[None], jnp.asarray(reward, "float32"), jnp.asarray(terminated), jnp.asarray(truncated)
    )


class Savings(eqx.Module):
    """Putting ``a`` aside costs ``a²`` at once; all that was put aside is paid out with the last step.

    The best is ``a = 0.5`` always, which earns ``limit / 4``; who does not look ahead saves nothing.
    """

    action: object = eqx.field(static=True, default=Box((1,), -1.0, 4.0))
    limit: int | None = eqx.field(static=True, default=6)

    @property
    def spec(self):
        return EnvSpec("savings", Box((1,)), self.action, time_limit=self.limit)

    def reset(self, params, key):
        return (jnp.int32(0), jnp.zeros(())), answer(0, 0.0)

    def step(self, state, action, key):
        time, saved = state[0] + 1, state[1] + action[0]
        over = time >= self.limit
        return (time, saved), answer(time, jnp.where(over, saved, 0.0) - action[0] ** 2, truncated=over)


class Bait(eqx.Module):
    """Staying (``a < 0``) earns 0.5 a step; leaving earns 1, ends the episode, and after it there is gold."""

    natural: bool = eqx.field(static=True)

    @property
    def spec(self):
        return EnvSpec("bait", Box((1,)), Box((1,), -1.0, 1.0), time_limit=6)

    def reset(self, params, key):
        return (jnp.int32(0), jnp.zeros((), bool)), answer(0, 0.0)

    def step(self, state, action, key):
        time, gone = state[0] + 1, state[1]
        leaves = gone | (action[0] >= 0)
        reward = jnp.where(gone, 100.0, jnp.where(leaves, 1.0, 0.5))
        ended = leaves & ~gone  # said once only: nobody should ask again
        truncated = (time == 6) | (ended & (not self.natural))
        return (time, leaves), answer(time, reward, ended & self.natural, truncated)


class Walker(eqx.Module):
    """Starts somewhere; every step is pushed by chance; reward is minus the distance from 0."""

    @property
    def spec(self):
        return EnvSpec("walker", Box((2,)), Box((2,), -1.0, 1.0), time_limit=5)

    def reset(self, params, key):
        return (jnp.int32(0), jax.random.normal(key, (2,))), answer(0, 0.0)

    def step(self, state, action, key):
        time, x = state[0] + 1, state[1] + action + 0.1 * jax.random.normal(key, (2,))
        return (time, x), answer(time, -jnp.abs(x).sum(), truncated=time >= 5)


def test_the_best_sequence_is_found():
    returns = planned_returns(Savings(), 3, KEY, SMALL)
    assert returns.shape == (3,)
    np.testing.assert_allclose(returns, 6 / 4, atol=0.02)
    assert random_returns(Savings(), 3, KEY).max() < 0


def test_a_short_horizon_sees_no_late_reward():
    blind = planned_returns(Savings(), 2, KEY, CEM(horizon=1, candidates=48, iterations=6))
    np.testing.assert_allclose(blind, 1 / 4, atol=0.02)  # the last step's own saving


@pytest.mark.parametrize("natural", [True, False])
def test_what_comes_after_an_episodes_end_counts_nothing(natural):
    np.testing.assert_allclose(planned_returns(Bait(natural), 2, KEY, SMALL), 5 * 0.5 + 1)
    assert random_returns(Bait(natural), 20, KEY).max() <= 3.5


def test_an_episode_depends_on_the_key_and_its_index_alone():
    two, three = (planned_returns(Walker(), n, KEY, SMALL) for n in (2, 3))
    np.testing.assert_allclose(two, three[:2], rtol=1e-5)
    assert len(set(three.tolist())) == 3
    assert (three > random_returns(Walker(), 3, KEY)).all()
    assert not np.allclose(three, planned_returns(Walker(), 3, quick_key(1), SMALL))


def test_a_pendulum_is_swung_up():
    world, settings = compiled("gymnax:Pendulum-v1"), CEM(horizon=30, candidates=32, elites=6, iterations=3)
    planned, at_random = planned_returns(world, 4, KEY, settings), random_returns(world, 4, KEY)
    assert planned.mean() > -200
    assert at_random.mean() < -700


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (Savings(Discrete(3)), "one box of floats"),
        (Savings(Box((1,), 0, 3, "int32")), "one box of floats"),
        (Savings(Box((1,), 0.0)), "bounded actions"),
        (Savings(limit=None), "no time limit"),
    ],
)
def test_worlds_that_cannot_be_planned_in(world, why):
    for returns in (planned_returns, random_returns):
        with pytest.raises(UserError, match=why):
            returns(world, 1, KEY)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"horizon": 0}, "horizon"),
        ({"candidates": 4, "elites": 5}, "candidates >= elites"),
        ({"correlation": 1.0}, r"\[0, 1\)"),
        ({"discount": 0.0}, r"\(0, 1\]"),
    ],
)
def test_settings_that_cannot_be_searched_with(settings, why):
    with pytest.raises(UserError, match=why):
        CEM(**settings)
