"""Rewards of attempts for progress: both stages against known numbers."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from small_dialogues import KEY, make_dialogues

from thespis.papers.score.attempt_progress import AttemptProgress


def test_the_progress_bonus_starts_in_the_second_stage():
    """Two attempts; after the end there is a reward in the arrays, which does not count."""
    feedback = AttemptProgress(num_stage1_updates=1, bonus_coef=10.0)
    reward = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [7, 7, 7, 7]], "float32")
    dialogues = dataclasses.replace(make_dialogues([3, 4, 5, 6]), reward=jax.device_put(reward))
    state = jnp.zeros((), "int32")
    first = np.where(dialogues.alive, feedback.score_turns(state, dialogues, KEY), 0.0)
    np.testing.assert_array_equal(first, [[0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
    state, metrics = feedback.learn(state, dialogues, None, KEY)
    second = np.where(dialogues.alive, feedback.score_turns(state, dialogues, KEY), 0.0)
    np.testing.assert_array_equal(second, [[1, 1, 0, 0], [1, -10, 11, 0], [0, 0, 0, 0]])
    assert state == 1 and np.isfinite(metrics["progress"])
