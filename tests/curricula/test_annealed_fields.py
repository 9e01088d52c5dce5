"""Parameter annealing: drawn parameters over training steps, alone and on top of domain randomization."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import ANY_ROLLOUT

from thespis.core.errors import UserError
from thespis.core.laws.components import check_curriculum
from thespis.core.records import EnvSpec, EpisodeStats
from thespis.core.spaces import Box
from thespis.curricula.annealing import ParameterAnnealing, hover_reward_annealing
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.papers.learning_to_fly.envs import Quadrotor

KEY = jax.random.key(0)
SPEC = EnvSpec("task", Box((3,)), Box((1,), -1.0, 1.0), params={"price": {"fuel": 2.0, "delay": 8.0}, "wind": 1.0})
GROWTHS = (("price.fuel", 1.5, 4.0), ("price.delay", 0.5, 3.0))


def state_after(curriculum, state, blocks, shape=(5, 2)):
    """The state after ``blocks`` blocks of steps."""
    params = curriculum.draw(state, KEY, shape[1]).params
    zeros = jnp.zeros(shape)
    stats = EpisodeStats(zeros > 0, zeros, zeros.astype("int32"), params)
    for _ in range(blocks):
        state, _ = curriculum.update(state, ANY_ROLLOUT, None, stats, KEY)
    return state


@pytest.mark.parametrize("base", [None, DomainRandomization((("wind", 0.0, 1.0), ("price.fuel", 1.0, 2.0)))])
def test_curriculum_laws(base):
    curriculum = ParameterAnnealing(GROWTHS, 20) if base is None else ParameterAnnealing(GROWTHS, 20, base)
    check_curriculum(curriculum, SPEC)
    assert curriculum.init(SPEC, KEY).num_steps.dtype == jnp.int32


def test_fields_are_scaled_at_intervals_up_to_their_bounds():
    curriculum = ParameterAnnealing(GROWTHS, 20)
    state, fuel, delay = curriculum.init(SPEC, KEY), [], []
    for _ in range(9):  # ten steps each
        params = curriculum.draw(state, KEY, 3).params
        fuel.append(float(params["price"]["fuel"][1]))
        delay.append(float(params["price"]["delay"][2]))
        np.testing.assert_array_equal(params["wind"], 1.0)
        state = state_after(curriculum, state, 1)
    np.testing.assert_allclose(fuel, [2, 2, 3, 3, 4, 4, 4, 4, 4])
    np.testing.assert_allclose(delay, [8, 8, 4, 4, 3, 3, 3, 3, 3])


def test_randomized_fields_are_scaled():
    base = DomainRandomization((("price.fuel", 1.0, 2.0), ("wind", 0.0, 1.0)))
    curriculum = ParameterAnnealing((("price.fuel", 2.0, 100.0),), 10, base)
    state = curriculum.init(SPEC, KEY)
    before, later = (curriculum.draw(s, KEY, 50).params for s in (state, state_after(curriculum, state, 2)))
    assert np.ptp(before["price"]["fuel"]) > 0.5
    np.testing.assert_allclose(later["price"]["fuel"], 4 * np.asarray(before["price"]["fuel"]), rtol=1e-6)
    np.testing.assert_array_equal(later["wind"], before["wind"])


def test_hover_schedule_matches_the_paper():
    curriculum, spec = hover_reward_annealing(), Quadrotor().spec
    state = curriculum.init(spec, KEY)
    late = jax.tree.map(lambda x: x + 250_000, state.num_steps)
    initial_reward, later_reward = (
        curriculum.draw(type(state)(steps, state.base_state), KEY, 1).params.reward for steps in (state.num_steps, late)
    )
    assert [float(w) for w in (initial_reward.position[0], initial_reward.velocity[0])] == pytest.approx([5.0, 0.01])
    weights = [
        float(w[0])
        for w in (
            later_reward.position,
            later_reward.velocity,
            later_reward.action,
            later_reward.attitude,
            later_reward.scale,
        )
    ]
    assert weights == pytest.approx([5 * 1.2**2, 0.01 * 1.4**2, 0.01 * 1.4**2, 5.0, 0.5])
    final_reward = curriculum.draw(type(state)(jnp.int32(10_000_000), state.base_state), KEY, 1).params.reward
    assert [float(w[0]) for w in (final_reward.position, final_reward.velocity, final_reward.action)] == [
        40.0,
        1.0,
        1.0,
    ]


@pytest.mark.parametrize(
    ("growths", "interval", "message"),
    [
        ((("price.fule", 2.0, 3.0),), 5, "did you mean price.fuel"),
        ((("wind", -1.0, 3.0),), 5, "positive factor"),
        ((), 5, "at least one field"),
        ((("wind", 2.0, 3.0),), 0, "at least one step"),
    ],
)
def test_invalid_settings_are_rejected(growths, interval, message):
    with pytest.raises(UserError, match=message):
        ParameterAnnealing(growths, interval).init(SPEC, KEY)
