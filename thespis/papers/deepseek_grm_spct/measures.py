"""Measures of generative judges: verdicts, votes, both orders, and the principles that they name."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.records import View
from thespis.envs.registry import make_compiled
from thespis.envs.text.judging import JUDGE
from thespis.evaluation.conversations import report_keys
from thespis.evaluation.judge_report import JudgeReport, report_on_judge
from thespis.evaluation.rollout import first_actions
from thespis.evidence.measures import Measure, constant, once_per_run
from thespis.runtime.keys import fold, indexed_keys

NUM_PAIRS, NUM_VOTES = 1_000, 5


@once_per_run
def judge_report(run: Any) -> JudgeReport:
    """The report on a run's judge: each seed reads a thousand pairs of its own, five times and in the other order."""
    env = make_compiled(run.config["env"])
    return report_on_judge(env, run.method, run.states, NUM_PAIRS, NUM_VOTES, run.config["seeds"])


def judge_accuracy() -> Measure:
    """Share of single verdicts that are right."""
    return Measure("accuracy of one verdict", lambda run: judge_report(run).accuracy, bounds=(0.0, 1.0))


def vote_accuracy() -> Measure:
    """Share of the majorities of five verdicts that are right."""
    return Measure("accuracy of five votes", lambda run: judge_report(run).majority_accuracy, bounds=(0.0, 1.0))


def vote_gain() -> Measure:
    """How much more often the majority of five verdicts is right than one."""

    def gains(run: Any) -> Float[np.ndarray, " seed"]:
        return judge_report(run).majority_accuracy - judge_report(run).accuracy

    return Measure("gain of five votes over one", gains, bounds=(-1.0, 1.0))


def order_consistency() -> Measure:
    """Share of the pairs of which the same answer is preferred in both orders."""
    return Measure("consistency in both orders", lambda run: judge_report(run).consistency, bounds=(0.0, 1.0))


def verdict_error() -> Measure:
    """Share of single verdicts that are wrong."""

    def errors(run: Any) -> Float[np.ndarray, " seed"]:
        return 1.0 - judge_report(run).accuracy

    return Measure("share of verdicts that are wrong", errors, False, bounds=(0.0, 1.0))


def chance() -> Measure:
    """The accuracy of random verdicts, 1/2."""
    return constant("accuracy of random verdicts", 0.5, bounds=(0.0, 1.0))


def right_principles() -> Measure:
    """Share of judgments that begin with the principle by which answers to the query are rewarded."""

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        keys = report_keys("principles", run.states, run.config["seeds"])
        return np.asarray(_names_principle(env, run.method, run.states, keys)).mean(axis=1)

    return Measure("share of right principles", shares, bounds=(0.0, 1.0))


@eqx.filter_jit
def _names_principle(env: Any, method: Any, states: PyTree, keys: Key[Array, " seed"]) -> Bool[Array, "seed pair"]:
    """Whether each judgment of a thousand pairs names the right principle first."""
    task = env.rules.task

    def judge(state: PyTree, key: Key[Array, ""]) -> Bool[Array, " pair"]:
        env_state, step = jax.vmap(lambda key: env.reset(None, key))(indexed_keys(fold(key, "pairs"), NUM_PAIRS))
        action = first_actions(method, state, View(step.observation, None, step.alive), fold(key, "act"))
        named = jax.vmap(lambda response: task.named_principle(response[0]))(action[JUDGE])
        return named == jax.vmap(task.principle)(env_state.inner.task_state)

    return jax.vmap(judge)(states, keys)
