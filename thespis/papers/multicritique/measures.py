"""Measure of a critic that names wrong steps: how many of the errors it finds, at their place."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from thespis.envs.registry import make_compiled
from thespis.evaluation.critic_report import play_critiques
from thespis.evidence.measures import Measure, once_per_run

NUM_PLAYED = 1_000


def named_share() -> Measure:
    """Share of the wrong answers whose error is named, of a thousand sampled conversations for each seed."""
    return Measure("share of errors named", _named, bounds=(0.0, 1.0))


@once_per_run
def _named(run: Any) -> Float[np.ndarray, " seed"]:
    """The share of wrong answers of which the critique names the wrong step."""
    env: Any = make_compiled(run.config["env"])
    task = env.rules.task
    states, _ = play_critiques(env, run.method, run.states, NUM_PLAYED)
    error = np.asarray(jax.vmap(jax.vmap(task.first_error))(states.task_state, states.answer))
    named = np.asarray(jax.vmap(jax.vmap(task.named_step))(states.critique))
    is_wrong = error < task.num_steps
    return (is_wrong & (named == error)).sum(axis=1) / np.maximum(is_wrong.sum(axis=1), 1)
