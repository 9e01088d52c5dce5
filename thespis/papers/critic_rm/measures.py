"""Measures of reward models on new pairs of answers, and of the critiques that they say before."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.envs.registry import make_compiled
from thespis.evaluation.conversations import report_keys
from thespis.evidence.measures import Measure, constant, once_per_run
from thespis.papers.critic_rm.method import CriticRM, CriticRMState
from thespis.runtime.keys import fold, indexed_keys

NUM_PAIRS, NUM_CRITIQUES = 600, 4


@dataclasses.dataclass(frozen=True)
class RewardModelReport:
    """Shares of new pairs whose better answer has the larger reward, by one critique and by the mean of several.

    ``log_loss``: the mean Bradley-Terry loss of the pairs, by the mean of several critiques. ``right_principles``:
    critiques that begin with the principle that counts. One number for each seed.
    """

    accuracy: Float[np.ndarray, " seed"]
    mean_accuracy: Float[np.ndarray, " seed"]
    log_loss: Float[np.ndarray, " seed"]
    right_principles: Float[np.ndarray, " seed"]


@once_per_run
def reward_model_report(run: Any) -> RewardModelReport:
    """The report on a run's reward model: each seed reads new pairs of its own, of demonstrated answers."""
    env = make_compiled(run.config["env"])
    keys = report_keys("reward model", run.states, run.config["seeds"])
    rewards, labels, is_right = _read_pairs(env, run.method, run.states, keys)
    margins = np.asarray(rewards[..., 0] - rewards[..., 1]) * np.sign(np.asarray(labels))[:, None]
    differs = np.asarray(labels) != 0
    shares = (margins > 0) + 0.5 * (margins == 0)
    single, mean = (
        np.asarray([row[i][mask].mean() for row, mask in zip(shares, differs, strict=True)]) for i in (0, 1)
    )
    losses = np.asarray([np.logaddexp(0.0, -m[1][mask]).mean() for m, mask in zip(margins, differs, strict=True)])
    return RewardModelReport(single, mean, losses, np.asarray(is_right).mean(axis=1))


@eqx.filter_jit
def _read_pairs(
    env: Any, method: CriticRM, states: PyTree, keys: Key[Array, " seed"]
) -> tuple[Float[Array, "seed 2 pair 2"], Float[Array, "seed pair"], Bool[Array, "seed row"]]:
    """Rewards by one and by several critiques of two answers, how much better the first is, and right principles."""
    task = env.task.graded

    def answer_twice(key: Key[Array, ""]) -> tuple[Int[Array, "2 length"], Float[Array, " 2"], Int[Array, ""]]:
        state, _ = env.reset(None, fold(key, "query"))

        def answer(key: Key[Array, ""]) -> tuple[Int[Array, " length"], Float[Array, ""]]:
            step = env.step(state, env.demonstrator_action(state, key), key)[1]
            return step.observation, step.reward

        return *jax.vmap(answer)(indexed_keys(key, 2)), task.principle(state.task_state.query)

    def read(state: CriticRMState, key: Key[Array, ""]) -> Any:
        texts, values, principles = jax.vmap(answer_twice)(indexed_keys(fold(key, "pairs"), NUM_PAIRS))
        rows = texts.reshape(2 * NUM_PAIRS, -1)
        rewards = [
            method.rewards(state, rows, count, fold(key, "critiques", count)).reshape(-1, 2)
            for count in (1, NUM_CRITIQUES)
        ]
        critic = state.initial_model if method.critiques == "none" else state.scorer.model
        critiques = method.sample_critiques(critic, state, rows, 1, fold(key, "principles"))[0]
        is_right = jax.vmap(task.named_principle)(critiques) == jnp.repeat(principles, 2)
        return jnp.stack(rewards), values[:, 0] - values[:, 1], is_right

    return jax.lax.map(lambda pair: read(*pair), (states, keys))


def pair_accuracy() -> Measure:
    """Share of new pairs whose better answer has the larger reward, each after one critique."""
    return Measure("accuracy on new pairs", lambda run: reward_model_report(run).accuracy, bounds=(0.0, 1.0))


def mean_critique_accuracy() -> Measure:
    """The same by the mean reward after four critiques of each answer."""
    return Measure(
        "accuracy on new pairs, mean of four critiques",
        lambda run: reward_model_report(run).mean_accuracy,
        bounds=(0.0, 1.0),
    )


def pair_loss() -> Measure:
    """Bradley-Terry loss of new pairs."""
    return Measure("Bradley-Terry loss of new pairs", lambda run: reward_model_report(run).log_loss, False)


def pair_error() -> Measure:
    """Share of new pairs whose better answer has no larger reward."""

    def errors(run: Any) -> Float[np.ndarray, " seed"]:
        return 1.0 - reward_model_report(run).accuracy

    return Measure("share of new pairs misjudged", errors, False, bounds=(0.0, 1.0))


def right_principles() -> Measure:
    """Share of critiques that name the principle by which answers to the query are rewarded."""
    return Measure(
        "share of right principles", lambda run: reward_model_report(run).right_principles, bounds=(0.0, 1.0)
    )


def chance() -> Measure:
    """The accuracy of random rewards, 1/2."""
    return constant("accuracy of random rewards", 0.5, bounds=(0.0, 1.0))
