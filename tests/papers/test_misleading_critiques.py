"""Answers from memory and critiques of them, against plain Python, and what an agent without errors gives up."""

from __future__ import annotations

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.learners.language.scripted_seat import ScriptedSeat
from thespis.papers.wafer_qa.envs import GROUNDED, IGNORANT, PARAMETRIC, SILENT, Recall, RecallState
from thespis.papers.wafer_qa.measures import bayes_examination, examine
from thespis.runtime.keys import indexed_keys, seed_key

TASK = Recall()
SPEC = TASK.task_spec


def words(tokens):
    return " ".join(SPEC.vocabulary.words[i] for i in np.asarray(tokens).tolist() if i >= 0)


def state_of(knowledge, misleads=False, is_informed=True, coin=False, recollections=(4, 4, 2), answer=-1):
    """An episode whose hidden answer is 4 and whose decoy is 2."""
    return RecallState(
        jnp.int32(4),
        jnp.int32(2),
        jnp.array(recollections),
        jnp.int32(knowledge),
        jnp.array(is_informed),
        jnp.array(misleads),
        jnp.array(coin),
        jnp.int32(answer),
        jnp.int32(answer >= 0),
    )


@pytest.mark.parametrize(
    ("knowledge", "settings", "of_right", "of_wrong"),
    [
        (SILENT, {}, "again >", "again >"),
        (IGNORANT, {"coin": True}, "no >", "no >"),
        (IGNORANT, {"coin": False}, "yes >", "yes >"),
        (IGNORANT, {"misleads": True}, "no >", "yes >"),
        (PARAMETRIC, {}, "yes >", "no 4 >"),
        (PARAMETRIC, {"is_informed": False}, "no 2 >", "no 2 >"),
        (GROUNDED, {}, "yes source >", "no 4 source >"),
        (GROUNDED, {"misleads": True}, "no 2 source >", "yes source >"),
    ],
)
def test_what_critics_say_of_right_and_wrong_answers(knowledge, settings, of_right, of_wrong):
    state = state_of(knowledge, **settings)
    assert [words(TASK.critique(state, jnp.int32(answer))) for answer in (4, 3)] == [of_right, of_wrong]


def test_the_second_answer_is_paid_and_the_first_one_if_it_counts():
    state, right = state_of(SILENT), jnp.asarray(SPEC.encode("4 <end>"))
    for task, known in ((TASK, [0.0, 1.0]), (dataclasses.replace(TASK, first_reward=0.5), [0.5, 1.0])):
        middle, first = task.step(state, right, seed_key(0))
        _, last = task.step(middle, right, seed_key(0))
        assert [float(first.reward), float(last.reward)] == known
        assert [bool(first.terminated), bool(last.terminated)] == [False, True]
    for answer in ("3 <end>", "yes <end>", "4 4", "<end> 4"):
        response = jnp.asarray(SPEC.encode(answer))
        middle, _ = TASK.step(state, response, seed_key(0))
        assert float(TASK.step(middle, response, seed_key(0))[1].reward) == 0


def test_episodes_have_the_declared_shares():
    count = 4_000
    task = Recall(misleading_share=0.3)
    states, openings = jax.jit(jax.vmap(task.init))(indexed_keys(seed_key(0), count))
    truth, recollections = np.asarray(states.truth), np.asarray(states.recollections)
    assert words(openings[0]) == " ".join(map(str, recollections[0].tolist())) + " >"
    np.testing.assert_allclose((recollections == truth[:, None]).mean(), 0.6, atol=0.02)
    assert (np.asarray(states.decoy) != truth).all()
    level = np.asarray(states.knowledge)
    np.testing.assert_allclose(np.bincount(level) / count, 0.25, atol=0.03)
    informed = np.asarray(states.is_informed)
    np.testing.assert_allclose(informed[level == GROUNDED].mean(), 0.95, atol=0.03)
    np.testing.assert_allclose(informed[level == PARAMETRIC].mean(), 0.75, atol=0.04)
    np.testing.assert_allclose(np.asarray(states.misleads).mean(), 0.3, atol=0.03)
    states, _ = jax.vmap(Recall(knowledge=IGNORANT).init)(indexed_keys(seed_key(0), 8))
    assert (np.asarray(states.knowledge) == 1).all()


def test_demonstrations_answer_by_memory_and_follow_half_of_what_is_named():
    task = dataclasses.replace(TASK, demonstrator_noise=0.0)

    def said(state):
        keys = indexed_keys(seed_key(0), 1_000)
        responses = jax.jit(jax.vmap(lambda key: task.demonstrator_response(state, key)))(keys)
        return collections.Counter(words(row) for row in np.asarray(responses))

    assert said(state_of(GROUNDED, recollections=(2, 4, 4))) == {"4 <end>": 1_000}
    assert said(state_of(GROUNDED, recollections=(2, 4, 1))) == {"2 <end>": 1_000}
    assert said(state_of(GROUNDED, answer=4)) == said(state_of(IGNORANT, coin=True, answer=4)) == {"4 <end>": 1_000}
    followed = said(state_of(PARAMETRIC, answer=3))
    assert set(followed) == {"3 <end>", "4 <end>"} and abs(followed["4 <end>"] - 500) < 60


def test_the_most_likely_answers_by_hand():
    """Alone the most frequent recollection is right as often as the binomial and the ties say."""
    silent = Recall(knowledge=SILENT)
    alone = 0.6**3 + 3 * 0.6**2 * 0.4 + 3 * 0.6 * 0.4**2 * (3 / 4) / 3
    assert bayes_examination(TASK, silent) == pytest.approx((alone, 0.0))
    # After a source three equal recollections are kept, and two are not: what is left of the right answers is 0.6 ** 3.
    misled = bayes_examination(TASK, Recall(knowledge=GROUNDED, misleading_share=1.0))
    assert misled == pytest.approx((0.6**3, 1 - 0.6**3 / alone))
    wary = Recall(misleading_share=0.5)
    assert bayes_examination(wary, Recall(knowledge=GROUNDED, misleading_share=1.0))[0] > 0.6


class Believer(ScriptedSeat):
    """Agent that answers by its first recollection, and believes every critic that names another answer."""

    believes: bool = True
    name = "believer"

    def respond(self, transcripts, key):
        """``4 <end>`` after ``4 4 2 >``, and the digit that is named after ``4 4 2 > 4 <end> no 2 source >``."""
        zero, end = SPEC.encode_word("0"), SPEC.encode_word("<end>")
        names = (transcripts[:, 6] == SPEC.encode_word("no")) & (transcripts[:, 7] >= zero)
        answers = jnp.where(names & self.believes, transcripts[:, 7], transcripts[:, 0])
        return jnp.stack([answers, jnp.full_like(answers, end)], axis=1)


@pytest.mark.slow
def test_examinations_count_what_is_given_up_and_repaired():
    """Who believes all critics follows liars from every right answer, and informed critics from every wrong one."""
    states = jnp.zeros(2)
    liars = Recall(knowledge=GROUNDED, misleading_share=1.0)
    fooled, firm = (examine(Believer(believes), states, liars) for believes in (True, False))
    assert fooled.abandoned.tolist() == [1.0, 1.0] and fooled.repaired.tolist() == fooled.after.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(fooled.before, 0.6, atol=0.06)
    assert firm.abandoned.tolist() == [0.0, 0.0] and firm.after.tolist() == fooled.before.tolist()
    helped = examine(Believer(), states, Recall(knowledge=GROUNDED, grounded_accuracy=1.0))
    assert helped.after.tolist() == helped.repaired.tolist() == [1.0, 1.0]
    erring = examine(Believer(), states, Recall(knowledge=PARAMETRIC, parametric_accuracy=0.75))
    np.testing.assert_allclose(erring.after, 0.75, atol=0.06)
