"""Graded answers, the judgments that are demonstrated of them, and the scripted judge, against plain Python."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.envs.text.task import pack_tokens
from thespis.evidence.benches import trained_judges as bench
from thespis.papers.deepseek_grm_spct.envs import PRINCIPLES, GradedAnswers, GradedQuery
from thespis.runtime.keys import indexed_keys, seed_key

TASK = bench.TASK
SPEC = TASK.task_spec
RULES: Any = bench.REASONED_PAIRS.rules
COUNT = 800


def words(tokens):
    return " ".join(RULES.vocabulary.words[i] for i in np.asarray(tokens).tolist() if i >= 0)


def answer(*grades):
    return pack_tokens(SPEC.max_response_tokens, SPEC.encode(" ".join(map(str, grades))), SPEC.encode("<end>"))


def test_the_grade_that_counts_follows_from_the_query():
    answers = jnp.stack([answer(*grades) for grades in itertools.product((0, 2, 4, 7), repeat=3)])
    values = list(itertools.product((0, 2, 4, 0), repeat=3))  # 7 is no grade
    queries = list(itertools.product(range(4), repeat=2))
    step = jax.vmap(lambda digits, response: TASK.step(GradedQuery(digits, jnp.bool_(True)), response, seed_key(0))[1])
    for digits in queries[:5]:
        rewards = step(jnp.tile(jnp.array(digits), (len(answers), 1)), answers).reward
        np.testing.assert_allclose(rewards, [grades[sum(digits) % 3] / 4 for grades in values])
    assert float(TASK.step(GradedQuery(jnp.array([1, 1]), jnp.bool_(False)), answer(3), seed_key(0))[1].reward) == 0


def test_a_critique_is_a_principle_and_a_grade():
    state = GradedQuery(jnp.array([3, 1]), jnp.bool_(False))  # warmth counts

    def shares(task, state):
        said = jax.jit(jax.vmap(lambda key: task.demonstrator_critique(state, answer(3, 1, 4), key)))
        counts = collections.Counter(words(row) for row in np.asarray(said(indexed_keys(seed_key(0), COUNT))))
        return {text: number / COUNT for text, number in counts.items()}

    noisy = {f"warmth {grade} <end>": 0.02 + 0.9 * (grade == 1) for grade in range(5)}
    assert shares(TASK, state) == pytest.approx(noisy, abs=0.04)
    exact = GradedAnswers(grade_noise=0.0)
    assert shares(exact, state) == {"warmth 1 <end>": 1.0}
    assert shares(exact, dataclasses.replace(state, is_habitual=jnp.bool_(True))) == {"length 4 <end>": 1.0}
    read = {"warmth 3 <end>": (3, 1), "truth 0 <end>": (0, 0), "3 warmth <end>": (-1, -1), "length <end>": (-1, 2)}
    for text, (grade, principle) in read.items():
        tokens = pack_tokens(3, SPEC.encode(text))
        assert int(TASK.critique_judgment(tokens)) == grade and int(TASK.named_principle(tokens)) == principle


def judged(transcript, judgment):
    """The principles and grades of a judgment, and whether its verdict is right, from the texts alone."""
    a, b, _, *first, _, x, y, z, _ = transcript.split()
    answers = [[int(grade) for grade in first], [int(x), int(y), int(z)]]
    principle = (int(a) + int(b)) % 3
    named, grade, other, other_grade, verdict, _ = judgment.split()
    better = answers[1][principle] > answers[0][principle]
    is_tied = answers[1][principle] == answers[0][principle]
    is_right = is_tied or (verdict == "second") == better
    return named == other, PRINCIPLES.index(named) == principle, (int(grade), int(other_grade), verdict), is_right


def test_lessons_are_judgments_whose_verdict_is_right():
    """A verdict without a sample of its own principle is right in about half of the cases, whatever it is."""
    states, openings = jax.jit(jax.vmap(RULES.init))(indexed_keys(seed_key(0), COUNT))
    shares = {}
    for count in (1, 3):
        rules = dataclasses.replace(RULES, num_samples=count)
        respond = jax.jit(
            jax.vmap(lambda state, key, rules=rules: rules.demonstrator_response(state, jnp.int32(0), key))
        )
        lessons = respond(states, indexed_keys(seed_key(1), COUNT))
        rows = [
            judged(words(text), words(lesson))
            for text, lesson in zip(np.asarray(openings["judge"]), np.asarray(lessons), strict=True)
        ]
        assert all(same for same, *_ in rows)
        assert all((b > a) == (verdict == "second") for _, _, (a, b, verdict), _ in rows if a != b)
        shares[count] = np.mean([[row[1], row[3]] for row in rows], axis=0)
    assert shares[1][0] == pytest.approx(1 - TASK.habit * 11 / 16, abs=0.05)  # the length counts in 5 queries of 16
    assert shares[1][1] < 0.82 and shares[3][1] > 0.87
    assert 0.5 < shares[3][0] < 0.62  # wrong reasons remain, and prevail: their verdicts are right by chance


@pytest.mark.parametrize("principles", ["right", "habit"])
def test_the_scripted_judge(principles):
    _, openings = jax.jit(jax.vmap(RULES.init))(indexed_keys(seed_key(0), 200))
    judge = bench.ScriptedJudge(principles)
    view = View(openings["judge"], None, None)
    said = judge.act(judge.policy(jnp.zeros(()), Mode.SAMPLE), (), view, seed_key(0))[0]
    rows = [
        judged(words(text), words(judgment))
        for text, judgment in zip(np.asarray(openings["judge"]), np.asarray(said), strict=True)
    ]
    if principles == "right":
        assert all(is_right and named for _, named, _, is_right in rows)
    else:
        assert np.mean([named for _, named, *_ in rows]) < 0.5 and np.mean([row[3] for row in rows]) < 0.9
