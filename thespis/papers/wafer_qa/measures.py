"""Measures of what critiques do to answers: which are right after them, given up and repaired."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.envs.registry import make_compiled
from thespis.envs.text.task import DialogueState, TextEnv
from thespis.evidence.measures import Measure, once_per_run
from thespis.papers.wafer_qa.envs import ANY, GROUNDED, Recall, RecallState
from thespis.runtime.keys import fold, indexed_keys, seed_key

NUM_QUESTIONS = 500
"""Questions of an examination, for each seed."""


@dataclasses.dataclass(frozen=True)
class Examination:
    """Shares of the questions of an examination, one for each seed.

    ``before`` and ``after``: answers that are right before and after the critique; ``abandoned``: right first answers
    that are given up for a wrong one; ``repaired``: wrong first answers that are followed by the right one.
    """

    before: Float[np.ndarray, " seed"]
    after: Float[np.ndarray, " seed"]
    abandoned: Float[np.ndarray, " seed"]
    repaired: Float[np.ndarray, " seed"]


def examine(method: Any, states: PyTree, task: Recall, num_questions: int = NUM_QUESTIONS) -> Examination:
    """Let the agents of a method answer the same questions of a task, by sampling. ``states``: ``[seed, ...]``."""
    env, key = TextEnv(dataclasses.replace(task, first_reward=1.0)), fold(seed_key(0), "examination")
    dialogues, first = jax.jit(jax.vmap(lambda key: env.reset(None, key)))(indexed_keys(key, num_questions))
    # What depends on the critics is part of the dialogues' states, so that one program plays all of them.
    same_env = TextEnv(Recall(num_answers=task.num_answers, first_reward=1.0))
    rights = np.asarray(_play(method, states, same_env, dialogues, first.observation, key))
    first, last = rights[:, 0], rights[:, 1]

    def share(of: np.ndarray, among: np.ndarray) -> np.ndarray:
        return (of & among).sum(axis=1) / np.maximum(among.sum(axis=1), 1)

    return Examination(first.mean(axis=1), last.mean(axis=1), share(~last, first), share(last, ~first))


@eqx.filter_jit
def _play(
    method: Any,
    states: PyTree,
    env: TextEnv,
    dialogues: DialogueState,
    observations: Int[Array, "question length"],
    key: Key[Array, ""],
) -> Bool[Array, "seed 2 question"]:
    """Whether the first and the second answers are right."""

    def play(state: PyTree) -> Bool[Array, "2 question"]:
        policy = method.policy(state, Mode.SAMPLE)
        memory = jax.lax.optimization_barrier(method.init_memory(policy, len(observations)))

        def answer(carry: Any, turn: Array) -> Any:
            dialogues, observations, memory = carry
            actions, memory, _ = method.act(policy, memory, View(observations), fold(key, "act", turn))
            dialogues, step = jax.vmap(lambda state, action: env.step(state, action, key))(dialogues, actions)
            return (dialogues, step.observation, memory), step.reward > 0.5

        return jax.lax.scan(answer, (dialogues, observations, memory), jnp.arange(2))[1]

    return jax.vmap(play)(states)


@once_per_run
def _examination(run: Any) -> Examination:
    """The examination of a run's environment."""
    env: Any = make_compiled(run.config["env"])
    return examine(run.method, run.states, env.examination)


def accuracy_after() -> Measure:
    """Share of the answers that are right after the critiques of the run's examination."""
    return Measure("accuracy after the critique", lambda run: _examination(run).after, bounds=(0.0, 1.0))


def abandoned_share() -> Measure:
    """Share of the right first answers that are given up after the critiques of the run's examination."""
    return Measure("share of right answers given up", lambda run: _examination(run).abandoned, bounds=(0.0, 1.0))


def accuracy_in(task: Recall, critics: str) -> Measure:
    """Share of the answers that are right after critiques of a task's critics, whatever the run's examination is."""
    name = f"accuracy after critiques of {critics}"
    return Measure(name, lambda run: examine(run.method, run.states, task).after, bounds=(0.0, 1.0))


def bayes_examination(trained: Recall, examined: Recall) -> tuple[float, float]:
    """The accuracy after the critique, and the share of right answers given up, of an agent that errs in nothing.

    Its first answer is the most frequent recollection; its second one the most likely answer by Bayes' rule, if critics
    were those of the ``trained`` task. They are those of the ``examined`` one. By enumeration of all episodes.
    """
    count = trained.num_answers
    axes = [np.arange(n) for n in (count, count, count, count, count - 1, GROUNDED + 1, 2, 2, 2)]
    truth, *recollections, step, level, informed, misleads, coin = (x.ravel() for x in np.meshgrid(*axes))
    recalled = np.stack(recollections, axis=1)
    frequency = (recalled[:, :, None] == recalled[:, None]).sum(axis=1)
    first = recalled[np.arange(len(recalled)), frequency.argmax(axis=1)]
    state = RecallState(
        *map(
            jnp.asarray, (truth, (truth + 1 + step) % count, recalled, level, informed == 1, misleads == 1, coin == 1)
        ),
        first_answer=jnp.asarray(first),
        turn=jnp.ones(len(truth), "int32"),
    )

    def weights(task: Recall) -> Float[np.ndarray, " episode"]:
        right = recalled == truth[:, None]
        weight = np.where(right, task.recall, (1 - task.recall) / (count - 1)).prod(axis=1)
        if task.knowledge != ANY:
            weight = weight * (level == task.knowledge)
        accuracy = np.where(level == GROUNDED, task.grounded_accuracy, task.parametric_accuracy)
        weight = weight * np.where(informed == 1, accuracy, 1 - accuracy)
        weight = weight * np.where(misleads == 1, task.misleading_share, 1 - task.misleading_share)
        return weight / weight.sum()

    critiques = np.asarray(jax.vmap(trained.critique)(state, jnp.asarray(first)))
    _, cases = np.unique(np.concatenate([recalled, critiques], axis=1), axis=0, return_inverse=True)
    posterior = np.zeros((cases.max() + 1, count))
    np.add.at(posterior, (cases.ravel(), truth), weights(trained))
    posterior[cases.ravel(), first] *= 1 + 1e-9  # the first answer stays where another is as likely
    is_right, was_right = posterior.argmax(axis=1)[cases.ravel()] == truth, first == truth
    weight = weights(examined)
    return float(weight @ is_right), float(weight @ (was_right & ~is_right) / (weight @ was_right))
