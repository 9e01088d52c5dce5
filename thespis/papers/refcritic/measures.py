"""Measures of a critic that names the wrong step, and whose verdicts choose among several answers before a vote."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.records import View
from thespis.envs.registry import make_compiled
from thespis.envs.text.conversation import ConversationEnv, pad_tokens
from thespis.envs.text.critique import CRITIC
from thespis.evaluation.critic_report import play_critiques
from thespis.evaluation.rollout import first_actions
from thespis.evidence.measures import Measure, once_per_run
from thespis.runtime.keys import fold, indexed_keys, seed_key

NUM_PLAYED, NUM_LISTS, NUM_ANSWERS = 1_000, 500, 8


def located_share() -> Measure:
    """Share of the critiques that call a wrong answer wrong which name the wrong step.

    0 where no wrong answer is called wrong. Of a thousand sampled conversations for each seed.
    """
    return Measure("share of the errors found that are located", _located, bounds=(0.0, 1.0))


def unlocated_share() -> Measure:
    """The share of these critiques that name another step: lower is better."""
    return Measure(
        "share of the errors found that are misplaced", lambda run: 1.0 - _located(run), False, bounds=(0.0, 1.0)
    )


def named_share() -> Measure:
    """Share of the wrong answers whose error is named, of a thousand sampled conversations for each seed."""
    return Measure("share of errors named", _named, bounds=(0.0, 1.0))


def _located(run: Any) -> Float[np.ndarray, " seed"]:
    """The share of critiques that name the wrong step, among those that call a wrong answer wrong."""
    error, named, num_steps = _named_steps(run)
    is_called_wrong = (error < num_steps) & (named >= 0) & (named < num_steps)
    return (is_called_wrong & (named == error)).sum(axis=1) / np.maximum(is_called_wrong.sum(axis=1), 1)


def _named(run: Any) -> Float[np.ndarray, " seed"]:
    """The share of wrong answers of which the critique names the wrong step."""
    error, named, num_steps = _named_steps(run)
    is_wrong = error < num_steps
    return (is_wrong & (named == error)).sum(axis=1) / np.maximum(is_wrong.sum(axis=1), 1)


@once_per_run
def _named_steps(run: Any) -> tuple[Int[np.ndarray, "seed episode"], Int[np.ndarray, "seed episode"], int]:
    """The first wrong step of each answer, the step that its critique names, and the number of steps."""
    env: Any = make_compiled(run.config["env"])
    task = env.rules.task
    states, _ = play_critiques(env, run.method, run.states, NUM_PLAYED)
    error = np.asarray(jax.vmap(jax.vmap(task.first_error))(states.task_state, states.answer))
    return error, np.asarray(jax.vmap(jax.vmap(task.named_step))(states.critique)), task.num_steps


def filtered_vote_accuracy() -> Measure:
    """Share of lists that are answered rightly by a vote among those of eight answers that the critic calls right.

    All eight vote where it calls none of them right. Ties go to the answer that was given first.
    """

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        return _votes(run)[0]

    return Measure("accuracy of the filtered vote", shares, bounds=(0.0, 1.0))


def vote_accuracy() -> Measure:
    """The same of all eight answers, whatever the critic says."""
    return Measure("accuracy of the vote without a filter", lambda run: _votes(run)[1], bounds=(0.0, 1.0))


@once_per_run
def _votes(run: Any) -> tuple[Float[np.ndarray, " seed"], Float[np.ndarray, " seed"]]:
    """Accuracy of the filtered and of the plain vote in a finished run, for each seed."""
    env: Any = make_compiled(run.config["env"])
    play = eqx.filter_jit(
        lambda states: jax.vmap(lambda state: judge_answers(env, run.method, state, NUM_LISTS, NUM_ANSWERS))(states)
    )
    answers, is_accepted, is_right = play(run.states)
    vote = jax.vmap(jax.vmap(vote_of_accepted))
    filtered, plain = vote(answers, is_accepted), vote(answers, jnp.ones_like(is_accepted))
    shares = [
        jnp.take_along_axis(is_right, chosen[..., None], axis=-1).mean(axis=(1, 2)) for chosen in (filtered, plain)
    ]
    return np.asarray(shares[0]), np.asarray(shares[1])


def judge_answers(
    env: ConversationEnv, method: Any, state: PyTree, num_tasks: int, num_answers: int, seed: int = 0
) -> tuple[Int[Array, "task answer token"], Bool[Array, "task answer"], Bool[Array, "task answer"]]:
    """Several answers of the demonstrator to each of some tasks, which the critic calls right, and which are.

    ``method`` and ``state``: a :class:`~thespis.learners.multi_agent.cast.Cast` with a critic, and its state.
    """
    rules: Any = env.rules
    key = fold(seed_key(seed), "votes")

    def draw(task_key: Key[Array, ""], answer_key: Key[Array, ""]) -> tuple[Any, Array]:
        task_state, opening = rules.task.init(task_key)
        answer = rules.task.demonstrator_response(task_state, answer_key)
        inner, openings = rules.init_from_answer(task_state, opening, answer, answer_key)
        return inner, openings[CRITIC]

    task_keys = jnp.repeat(indexed_keys(fold(key, "tasks"), num_tasks), num_answers, axis=0)
    inner, texts = jax.vmap(draw)(task_keys, indexed_keys(fold(key, "answers"), num_tasks * num_answers))
    spaces: Any = env.spec.observation_space
    length = dict(spaces.spaces)[CRITIC].max_length
    texts = jax.vmap(lambda text: pad_tokens(text, length))(texts)
    critic = method.methods[CRITIC]
    critiques = first_actions(critic, state.by_group[CRITIC], View(texts), fold(key, "critiques"))
    judgments = jax.vmap(lambda words: rules.task.critique_judgment(pad_tokens(words, rules.max_critique_tokens)))
    shape = (num_tasks, num_answers)
    is_right = inner.answer_reward >= 1.0
    answers = inner.answer.reshape(*shape, -1)
    return answers, (judgments(critiques) == 1).reshape(shape), is_right.reshape(shape)


def vote_of_accepted(answers: Int[Array, "answer token"], is_accepted: Bool[Array, " answer"]) -> Int[Array, ""]:
    """Index of the answer that most of the accepted ones are equal to; of all, where none is accepted."""
    votes = jnp.where(is_accepted.any(), is_accepted, True)
    is_equal = (answers[:, None] == answers[None]).all(axis=-1)
    return jnp.argmax((is_equal & votes[None]).sum(axis=1))
