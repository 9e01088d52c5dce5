"""Texts with a misspelled word, critiques that quote it, a scripted proofreader, and the measure at equal cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.evaluation.oversight_report import report_on_oversight
from thespis.evidence.benches import recursive_critiques as bench
from thespis.learners.multi_agent.cast import Cast
from thespis.papers.recursive_self_critiquing.envs import ProofreadingTask, Text
from thespis.runtime.keys import indexed_keys, seed_key

TASK = ProofreadingTask(num_words=3, num_pairs=4)
SPEC = TASK.task_spec
STATE = Text(jnp.array([2, 0, 3]), jnp.int32(1), jnp.float32(0.5))
RIGHT, WRONG = "word2 word0 word3 <end>", "word2 wrod0 word3 <end>"


def encode(text):
    return jnp.array(SPEC.encode(text))


def words(tokens):
    return " ".join(SPEC.vocabulary.words[i] for i in np.asarray(tokens).tolist() if i >= 0)


def said(function, count=2_000):
    """The share of each response of a demonstrator."""
    rows = jax.jit(jax.vmap(function))(indexed_keys(seed_key(0), count))
    texts, counts = np.unique([words(row) for row in np.asarray(rows)], return_counts=True)
    return dict(zip(texts.tolist(), counts / count, strict=True))


def test_a_text_of_right_length_without_a_misspelled_word_is_right():
    for text, right in {RIGHT: 1, WRONG: 0, "word2 word0 <end>": 0, "word2 word0 right <end>": 0}.items():
        answer = jnp.pad(encode(text), (0, 4 - len(encode(text))), constant_values=-1)
        assert float(TASK.step(STATE, answer, seed_key(0))[1].reward) == right


def test_half_of_the_texts_have_an_error_and_the_revision_mends_what_is_quoted():
    assert said(lambda key: TASK.demonstrator_response(STATE, key)) == pytest.approx({RIGHT: 0.5, WRONG: 0.5}, abs=0.04)
    critique = TASK.demonstrator_critique(STATE, encode(WRONG), seed_key(0))
    assert words(critique) == "wrong wrod0 <end>" and bool(TASK.names_error(STATE, encode(WRONG), critique))
    assert words(TASK.demonstrator_revision(STATE, encode(WRONG), critique, seed_key(0))) == RIGHT
    misplaced = encode("wrong word3 <end>")
    assert not bool(TASK.names_error(STATE, encode(WRONG), misplaced))
    assert words(TASK.demonstrator_revision(STATE, encode(WRONG), misplaced, seed_key(0))) == WRONG


def test_random_critiques_are_right_or_blame_any_word():
    task = ProofreadingTask(num_words=3, num_pairs=4, critic_noise=0.5)
    known = {"right <end>": 0.25, "wrong word2 <end>": 0.25 / 3, "wrong wrod0 <end>": 0.5 + 0.25 / 3}
    known["wrong word3 <end>"] = 0.25 / 3
    shares = said(lambda key: task.demonstrator_critique(STATE, encode(WRONG), key))
    assert shares == pytest.approx(known, abs=0.04)
    for text, judgment in {"right <end>": 1, "wrong word3 <end>": 0, "word3 wrong <end>": -1}.items():
        assert int(task.critique_judgment(jnp.pad(encode(text), (0, 3 - len(encode(text))), constant_values=-1))) == (
            judgment
        )


def test_the_scripted_proofreader_knows_every_word_or_guesses():
    def accuracy(script):
        cast = Cast({"judge": script})
        states = jax.vmap(lambda key: cast.init(bench.JUDGED.spec, key))(indexed_keys(seed_key(0), 1))
        return report_on_oversight(bench.JUDGED, cast, states, num_answers=400, num_votes=1).accuracy[0]

    assert accuracy(bench.ScriptedProofreader()) == 1.0
    assert abs(accuracy(bench.ScriptedProofreader("random")) - 0.5) < 0.1


def test_a_taught_seat_learns_the_words_of_its_own_lessons():
    cast = Cast({"judge": bench.taught("judge", bench.JUDGED_ENV, amount=2)})
    states = jax.vmap(lambda key: cast.init(bench.JUDGED.spec, key))(indexed_keys(seed_key(0), 2))
    report = report_on_oversight(bench.JUDGED, cast, states, num_answers=300, num_votes=1)
    assert report.accuracy.min() > 0.6 and report.accuracy[0] != report.accuracy[1]
