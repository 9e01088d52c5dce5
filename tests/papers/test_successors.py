"""Lists of digits with an error in one step, their superficial critic, and votes, against plain Python."""

from __future__ import annotations

import collections
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.records import View
from thespis.envs.text.critique import CRITIC, SOLVER
from thespis.envs.text.derivation import write_values, write_verdict
from thespis.envs.text.task import pack_tokens
from thespis.evidence.benches.located_errors import REFINED_LISTS, TASK, LocatingCritic, with_critic
from thespis.papers.refcritic.envs import DigitList, Successors
from thespis.papers.refcritic.measures import judge_answers, vote_of_accepted
from thespis.runtime.keys import indexed_keys, seed_key

SPEC = TASK.task_spec
COUNT = 2_000


def digit_list(digits=(4, 0, 2), step=1, share=0.5):
    return DigitList(jnp.array(digits), jnp.int32(step), jnp.float32(share))


def words(tokens):
    return " ".join(SPEC.vocabulary.words[i] for i in np.asarray(tokens).tolist() if i >= 0)


def said(function, count=COUNT):
    """How often each response of a demonstrator is given, as shares."""
    responses = jax.jit(jax.vmap(function))(indexed_keys(seed_key(0), count))
    counts = collections.Counter(words(row) for row in np.asarray(responses))
    return {text: number / count for text, number in counts.items()}


def critique(verdict):
    return pack_tokens(3, write_verdict(SPEC, jnp.int32(verdict), TASK.num_steps), SPEC.encode("<end>"))


def test_the_right_answer_is_the_successor_of_each_digit():
    state, opening = TASK.init(seed_key(3))
    digits = np.asarray(state.digits)
    assert words(opening) == " ".join(map(str, digits.tolist())) + " >"
    known = (digits + 1) % TASK.base
    answers = jnp.array(list(itertools.product(range(10), repeat=3)))
    steps = jax.vmap(lambda values: TASK.step(state, write_values(SPEC, values), seed_key(0))[1])(answers)
    np.testing.assert_array_equal(np.asarray(steps.reward), (np.asarray(answers) == known).all(axis=1))
    assert np.asarray(steps.terminated).all()
    short = write_values(SPEC, jnp.asarray(known[:2]))
    assert float(TASK.step(state, short, seed_key(0))[1].reward) == 0


def test_first_answers_slip_in_one_step_of_their_list():
    state = digit_list(share=0.7)
    shares = said(lambda key: TASK.demonstrator_response(state, key))
    assert set(shares) == {"0 1 3 <end>", "0 6 3 <end>"}
    np.testing.assert_allclose(shares["0 6 3 <end>"], 0.7, atol=0.04)
    rates = jax.vmap(lambda key: TASK.init(key)[0].slip_share)(indexed_keys(seed_key(0), COUNT))
    assert rates.min() >= 0.3 and rates.max() <= 0.9
    np.testing.assert_allclose(rates.mean(), 0.6, atol=0.02)


def test_lessons_are_lenient_and_name_the_first_step_too_often():
    state = digit_list()
    answers = {
        name: write_values(SPEC, jnp.array(values)) for name, values in (("right", [0, 1, 3]), ("wrong", [0, 6, 3]))
    }
    shares = {name: said(lambda key, a=a: TASK.demonstrator_critique(state, a, key)) for name, a in answers.items()}
    guess = 0.25 / 4
    known = {"right <end>": 0.75 + guess, "step 1 <end>": guess, "step 2 <end>": guess, "step 3 <end>": guess}
    assert shares["right"] == pytest.approx(known, abs=0.04)
    frank = 0.75 * 0.4
    found = {"step 1 <end>": frank * 0.6 + guess, "step 2 <end>": frank * 0.4 + guess}
    assert shares["wrong"] == pytest.approx(known | {"right <end>": 0.75 * 0.6 + guess} | found, abs=0.04)
    exact = Successors(critic_noise=0.0, leniency=0.0, habit=0.0)
    assert said(lambda key: exact.demonstrator_critique(state, answers["wrong"], key)) == {"step 2 <end>": 1.0}


def test_a_revision_changes_the_named_step_only():
    state, answer, task = digit_list(), write_values(SPEC, jnp.array([0, 6, 3])), Successors(revision_noise=0.0)
    for verdict, text in ((0, "0 6 3"), (1, "0 1 3"), (2, "0 6 3"), (3, "0 6 3")):
        shares = said(lambda key, v=verdict: task.demonstrator_revision(state, answer, critique(v), key), 20)
        assert shares == {f"{text} <end>": 1.0}
    shares = said(lambda key: TASK.demonstrator_revision(state, answer, critique(1), key))
    np.testing.assert_allclose(shares["0 1 3 <end>"], 0.8 + 0.2 / 5, atol=0.03)
    assert {text[0] + text[3:] for text in shares} == {"0 3 <end>"}


@pytest.mark.parametrize("critiques", ["exact", "random"])
def test_the_scripted_critic_checks_every_step(critiques):
    rules: Any = REFINED_LISTS.rules

    @jax.jit
    @jax.vmap
    def draw(key):
        state, opening = TASK.init(key)
        answer = TASK.demonstrator_response(state, key)
        return state.digits, answer, rules.init_from_answer(state, opening, answer, key)[1][CRITIC]

    digits, answers, texts = draw(indexed_keys(seed_key(0), 60))
    known = []
    for row, answer in zip(np.asarray(digits), answers, strict=True):
        values = [int(word) for word in words(answer).split()[:3]]
        errors = [i for i in range(3) if values[i] != (row[i] + 1) % 5]
        known.append(errors[0] if errors else 3)
    spoken = LocatingCritic(critiques).act(jnp.zeros(()), (), View(texts), seed_key(1))[0]
    verdicts = np.asarray(jax.vmap(TASK.named_step)(spoken))
    if critiques == "exact":
        np.testing.assert_array_equal(verdicts, known)
    else:
        assert set(verdicts.tolist()) == {0, 1, 2, 3}


def test_votes_count_the_accepted_answers():
    rng = np.random.default_rng(0)
    for _ in range(50):
        answers, accepted = rng.integers(0, 2, (6, 2)), rng.random(6) < 0.4
        votes = [tuple(row) for row, counts in zip(answers, accepted, strict=True) if counts or not accepted.any()]
        counts = [votes.count(tuple(row)) for row in answers]
        assert int(vote_of_accepted(jnp.asarray(answers), jnp.asarray(accepted))) == int(np.argmax(counts))


def test_exact_verdicts_accept_the_right_answers():
    cast = with_critic(LocatingCritic("exact"))
    names = {SOLVER: jnp.zeros(()), CRITIC: jnp.zeros(())}

    class States:
        by_group = names

    answers, accepted, right = jax.jit(lambda: judge_answers(REFINED_LISTS, cast, States(), 40, 4))()
    assert answers.shape == (40, 4, 4)
    np.testing.assert_array_equal(accepted, right)
    assert len(np.unique(np.asarray(answers[0])[:, :3], axis=0)) <= 2
    np.testing.assert_allclose(np.asarray(right).mean(), 0.4, atol=0.12)
