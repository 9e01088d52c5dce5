"""Exact measures of first answers: how likely the right one is, for every task there is."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evidence.measures import Measure, once_per_run
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.papers.critique_grpo.envs import WrongWraps

NUM_SAMPLES = 16
"""Answers of a group in which a task counts as unsolved if none is right."""


def first_answer_success() -> Measure:
    """Probability that a sampled first answer is right (pass@1), the mean over all tasks."""
    return Measure("success of first answers", lambda run: _success(run).mean(axis=1), bounds=(0.0, 1.0))


def wrap_success() -> Measure:
    """The same over the tasks with wraps."""
    return Measure("success of first answers with wraps", lambda run: _share(run, True), bounds=(0.0, 1.0))


def plain_success() -> Measure:
    """The same over the tasks without wraps."""
    return Measure("success of first answers without wraps", lambda run: _share(run, False), bounds=(0.0, 1.0))


def persistent_failure() -> Measure:
    """Expected share of the tasks without a right answer among sixteen: lower is better."""

    def failure(run: Any) -> Float[np.ndarray, " seed"]:
        return ((1.0 - _success(run)) ** NUM_SAMPLES).mean(axis=1)

    return Measure("tasks without a right answer among sixteen", failure, False, bounds=(0.0, 1.0))


def task_success(run: Any, states: PyTree) -> Float[np.ndarray, "seed task"]:
    """The probability of the right first answer to each task, for each seed's state."""
    task = _task(run)
    return np.asarray(eqx.filter_jit(jax.vmap(lambda state: right_probabilities(task, run.method, state)))(states))


@once_per_run
def _success(run: Any) -> Float[np.ndarray, "seed task"]:
    """The same after training."""
    return task_success(run, run.states)


def _share(run: Any, wraps: bool) -> Float[np.ndarray, " seed"]:
    """The mean probability of the right answer over the tasks with or without wraps."""
    task = _task(run)
    is_counted = np.asarray(jax.vmap(task.has_wraps)(task.all_chains())) == wraps
    return _success(run)[:, is_counted].mean(axis=1)


def _task(run: Any) -> WrongWraps:
    """The task of a run."""
    env: Any = make_compiled(run.config["env"])
    return env.task


def right_probabilities(task: WrongWraps, method: Any, state: Any) -> Float[Array, " task"]:
    """The probability with which a method samples the right values of each task in its first answer."""
    prompts = jax.vmap(task.opening)(task.all_chains())
    responses = jax.vmap(task.demonstration)(prompts)
    dialogues = single_turn_dialogues(prompts, responses, jnp.ones(len(prompts), bool))
    policy = method.policy(state, Mode.SAMPLE)
    log_probs = dialogues.response_log_probs(policy.model, policy.sampler)[0][0]
    return jnp.exp(log_probs[:, : task.num_steps].sum(axis=1))
