"""The bench of exploration: what its measure counts, and that its hidden goal is hidden and its near one is not."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from thespis.evaluation.run import Run
from thespis.evidence.benches.exploration import TWO_GOALS, missed_goals


class ScoresOnlyRun(Run):
    """A run with the final scores of two seeds, and no files."""

    def __init__(self):
        self.path = "nowhere"

    @property
    def final_scores(self):
        return {"greedy": {"scores": [[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]]}}


def test_missed_goals_are_episodes_without_reward():
    np.testing.assert_allclose(missed_goals().compute(ScoresOnlyRun()), [0.5, 0.75])


def test_random_driving_reaches_the_near_goal_far_more_often():
    """Shares of episodes, by NumPy from whole episodes of uniformly random actions."""

    def episode(key):
        state, _ = TWO_GOALS.reset((), key)
        keys = jax.random.split(key, TWO_GOALS.time_limit)
        actions = jax.random.uniform(key, (TWO_GOALS.time_limit, 2), minval=-1.0, maxval=1.0)

        def step(state, data):
            state, timestep = TWO_GOALS.step(state, data[0], data[1])
            return state, timestep.reward

        return state.goal, jax.lax.scan(step, state, (actions, keys))[1]

    goals, rewards = map(np.asarray, jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 2_000)))
    reached = (rewards > 0).any(axis=1)
    hidden, near = (reached[goals == goal].mean() for goal in (0, 1))
    assert hidden < 0.05 < 0.15 < near
    assert reached.mean() == pytest.approx(0.1525, abs=0.04)  # random play in the record of the bench
