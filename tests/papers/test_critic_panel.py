"""Panel of critics with blind spots, what is made of their critiques, and revisers, against enumeration in Python."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.text.critique import CRITIC, SOLVER
from thespis.envs.text.derivation import write_values, write_verdict
from thespis.envs.text.task import pack_tokens
from thespis.papers.multicritique.envs import AGGREGATED, VALIDATED, CriticPanel, most_frequent
from thespis.papers.multicritique.method import CritiqueDPO
from thespis.papers.refcritic.envs import DigitList
from thespis.runtime.keys import indexed_keys, seed_key

TASK = CriticPanel()
SPEC, NUM_STEPS, RIGHT = TASK.task_spec, TASK.num_steps, TASK.num_steps
COUNT = 4_000
LIST = DigitList(jnp.array([4, 0, 2]), jnp.int32(0), jnp.float32(0.5))
SUCCESSORS = np.array([0, 1, 3])


def answer(error):
    """The right answer to the list, with a slip in a step."""
    values = SUCCESSORS.copy()
    if error < NUM_STEPS:
        values[error] += TASK.base
    return write_values(SPEC, jnp.asarray(values))


def critique(verdict):
    return pack_tokens(3, write_verdict(SPEC, jnp.int32(verdict), NUM_STEPS), SPEC.encode("<end>"))


def verdict_shares(task, critic, error):
    """Probability of each verdict of one critic, by the description."""
    overlooked = task.leniency if error in task.blind_steps[critic] else 0.0
    shares = np.full(NUM_STEPS + 1, task.critic_noise / (NUM_STEPS + 1))
    shares[error] += (1 - task.critic_noise) * (1 - overlooked)
    shares[RIGHT] += (1 - task.critic_noise) * overlooked
    return shares


def counted(verdicts, kept):
    """The most frequent verdict that is kept, the smallest of those that tie; right if none is."""
    votes = [sum(1 for v, k in zip(verdicts, kept, strict=True) if k and v == verdict) for verdict in range(RIGHT + 1)]
    return votes.index(max(votes)) if any(kept) else RIGHT


def lesson_shares(task, error):
    """Probability of each lesson, by enumeration of all verdicts and all mistakes of the judge."""
    shares = np.zeros(NUM_STEPS + 1)
    critics = [verdict_shares(task, i, error) for i in range(3)]
    for verdicts in itertools.product(range(RIGHT + 1), repeat=3):
        chance = np.prod([critics[i][v] for i, v in enumerate(verdicts)])
        if task.lessons == "critic":
            shares[verdicts[task.critic]] += chance
        elif task.lessons == "pool":
            for verdict in verdicts:
                shares[verdict] += chance / 3
        elif task.lessons == "vote":
            shares[counted(verdicts, [True] * 3)] += chance
        else:
            for mistakes in itertools.product((False, True), repeat=3):
                kept = [v < RIGHT and (v == error) != wrong for v, wrong in zip(verdicts, mistakes, strict=True)]
                of_judge = np.prod([task.judge_noise if wrong else 1 - task.judge_noise for wrong in mistakes])
                shares[counted(verdicts, kept)] += chance * of_judge
    return shares


@pytest.mark.parametrize(
    "settings",
    [
        {"lessons": "critic", "critic": 1},
        {"lessons": "critic", "critic": 2},
        {"lessons": "pool"},
        {"lessons": "vote"},
        {},
        {"judge_noise": 0.0, "critic_noise": 0.4},
    ],
    ids=str,
)
def test_lessons_are_as_frequent_as_by_enumeration(settings):
    task = CriticPanel(**settings)

    @jax.jit
    def drawn(answers):
        keys = indexed_keys(seed_key(0), COUNT)
        said = jax.vmap(lambda text: jax.vmap(lambda key: task.demonstrator_critique(LIST, text, key))(keys))(answers)
        return jax.vmap(jax.vmap(task.named_step))(said)

    named = np.asarray(drawn(jnp.stack([answer(error) for error in range(RIGHT + 1)])))
    for error in range(RIGHT + 1):
        shares = np.bincount(named[error], minlength=RIGHT + 1) / COUNT
        np.testing.assert_allclose(shares, lesson_shares(task, error), atol=0.035)


def test_most_frequent_is_counted_as_in_python():
    count = jax.jit(most_frequent, static_argnums=2)
    for verdicts in itertools.product(range(RIGHT + 1), repeat=3):
        for kept in itertools.product((False, True), repeat=3):
            known = counted(verdicts, kept)
            assert int(count(jnp.array(verdicts), jnp.array(kept), NUM_STEPS)) == known


def test_a_judge_without_errors_keeps_what_one_critic_alone_has_found():
    task = CriticPanel(critic_noise=0.0, leniency=1.0, judge_noise=0.0)
    vote = CriticPanel(critic_noise=0.0, leniency=1.0, lessons="vote")
    said = [int(x.named_step(x.demonstrator_critique(LIST, answer(1), seed_key(0)))) for x in (task, vote)]
    assert said == [1, RIGHT]


def test_a_critique_earns_the_mean_of_the_revisions():
    rules: Any = VALIDATED.rules
    task, opening = rules.task, LIST.digits + SPEC.encode_word("0")

    @jax.jit
    def earned(verdict_words, keys):
        state, _ = rules.init_from_answer(LIST, opening, answer(1), seed_key(0))

        def play(key):
            after, first = rules.step(state, jnp.int32(0), verdict_words, key)
            _, second = rules.step(after, jnp.int32(1), answer(RIGHT), key)
            return first.rewards[CRITIC], second.rewards[CRITIC], second.rewards[SOLVER]

        return jax.vmap(play)(keys)

    keys = indexed_keys(seed_key(1), COUNT)
    for verdict in range(RIGHT + 1):
        of_critique, after, of_solver = (np.asarray(x) for x in earned(critique(verdict), keys))
        chances = [1 - noise * (1 - 1 / task.base) for noise in rules.reviser_noises]
        known = np.mean(chances) if verdict == 1 else 0.0
        assert abs(of_critique.mean() - known) < 0.02
        np.testing.assert_allclose(np.round(3 * of_critique) / 3, of_critique, atol=1e-6)
        np.testing.assert_array_equal(after, 0.0)
        np.testing.assert_array_equal(of_solver, 1.0)


def test_lessons_are_those_of_the_critics_seat_and_differ_between_seeds():
    method = CritiqueDPO(expert_env="thespis.papers.multicritique.envs:AGGREGATED", num_demonstrations=64)
    (text, starts, responses), other = (method.expert_dialogues(seed_key(i)) for i in range(2))
    assert (np.asarray(text) != np.asarray(other[0])).any()
    rules: Any = AGGREGATED.rules
    named = np.asarray(jax.vmap(rules.task.named_step)(responses[0]))
    assert ((named >= 0) & (named <= RIGHT)).all() and len(np.unique(named)) == RIGHT + 1
    assert (np.asarray(responses[1]) == -1).all()
    for row in range(4):
        start, length = int(starts[0, row]), int((responses[0, row] >= 0).sum())
        np.testing.assert_array_equal(text[row, start : start + length], responses[0, row, :length])
