"""Measure of self-correction: how many of its errors an agent undoes, as soon as it is told of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure, play_in


def undone_error_share(num_episodes: int = 100) -> Measure:
    """Share of the wrong choices in sampled dialogues that are undone at once; 0 where there are none.

    The run's environment must be a :class:`~thespis.papers.agent_r.envs.DailyMenu` in which choices can be undone.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        spec = env.task.task_spec
        result = play_in(run, env, num_episodes, Mode.SAMPLE, "undo", num_kept=num_episodes)
        no, undo = spec.encode_word("no"), spec.vocabulary.eos_tokens[0]
        counts = [
            np.sum([count_errors(x.view.observation, x.action[:, 0] == undo, no) for x in episodes], axis=0)
            for episodes in result.episodes
        ]
        return np.array([undone / max(errors, 1) for errors, undone in counts])

    return Measure("share of errors that are undone", shares, bounds=(0.0, 1.0))


def count_errors(
    observations: Int[np.ndarray, "turn length"], is_undo: np.ndarray, no_token: int
) -> Int[np.ndarray, " two"]:
    """Number of choices of a dialogue that are called wrong, and number of those that the next response undoes.

    A verdict is the third token from the end of what was said so far. After an undo it is the repeated one of an
    earlier choice.
    """
    lengths = (observations >= 0).sum(axis=1)
    verdicts = observations[np.arange(len(observations)), np.maximum(lengths - 3, 0)]
    is_error = (verdicts == no_token) & (lengths > 2) & ~np.concatenate([[False], is_undo[:-1]])
    return np.array([is_error.sum(), (is_error & is_undo).sum()])
