"""Bench of second tries: scripted reflectors, whose success with an actor that obeys is known by enumeration."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.envs.text.retry import ACTOR, REFLECTOR
from thespis.evaluation.retry_report import report_on_retries
from thespis.evidence.benches import second_tries as bench
from thespis.language.tokenizer import word_tokenizer
from thespis.learners.language.frozen_model import FrozenModel
from thespis.learners.multi_agent.cast import Cast

TOKENIZER = word_tokenizer(bench.TASK.task_spec.vocabulary.words)
RULES = {"first": lambda x: x[0], "last": lambda x: x[-1], "largest": max, "smallest": min}


def best_success():
    """How often the best hint is right, after random wrong answers: over all prompts, rules and wrong answers."""
    total, weight = 0.0, 0.0
    for digits in itertools.permutations(range(5), 3):
        chances = {}  # of the right digit, for what the reflector reads
        for rule in RULES.values():
            for answer in set(digits) - {rule(digits)}:
                counts = chances.setdefault((answer, rule(digits) > answer), {})
                counts[rule(digits)] = counts.get(rule(digits), 0) + 1
        total += sum(max(counts.values()) for counts in chances.values())
        weight += sum(sum(counts.values()) for counts in chances.values())
    return total / weight


@pytest.mark.long
@pytest.mark.parametrize(("hints", "expected"), [("best", best_success()), ("random", 5 / 12), ("none", 5 / 12)])
def test_success_of_scripted_reflectors(hints, expected):
    cast = Cast(
        {
            ACTOR: FrozenModel(model="blank", num_layers=1, hidden_size=32),
            REFLECTOR: bench.ScriptedReflector(hints),
        }
    )
    env = bench.SECOND_TRIES
    states = eqx.filter_jit(jax.vmap(lambda key: cast.init(env.spec, key)))(jax.random.split(jax.random.key(0), 2))
    report = report_on_retries(env, cast, states, 2_000, [ACTOR])
    assert best_success() == pytest.approx(5 / 6)
    assert (report.first_success == 0).all()
    np.testing.assert_allclose(report.retry_success, expected, atol=0.035)


def act(hints, *transcripts):
    tokens = [TOKENIZER.encode(text) for text in transcripts]
    rows = np.array([[*row, *[-1] * (12 - len(row))] for row in tokens])
    reflector = bench.ScriptedReflector(hints)
    view = View(jnp.asarray(rows), None, None)
    policy = reflector.policy(jnp.zeros(()), Mode.SAMPLE)
    return [TOKENIZER.decode(row) for row in np.asarray(reflector.act(policy, (), view, jax.random.key(0))[0])]


@pytest.mark.long
def test_hints_are_read_from_the_transcript():
    assert act("best", "4 2 3 2 more >")[0] in ("first <end>", "largest <end>")  # both pick 4
    assert act("best", "4 2 3 3 less >", "1 3 0 1 more >") == ["smallest <end>", "largest <end>"]
    assert act("none", "4 2 3 3 less >") == ["<end>"]
    assert {hint.removesuffix(" <end>") for hint in act("random", *["4 2 3 3 less >"] * 40)} == set(RULES)


def test_a_reflector_that_reads_no_answer_still_says_something():
    """An attempt without a digit: two rules of four pick the same digit, which is the best guess."""
    assert act("best", "4 2 3 >")[0] in ("first <end>", "largest <end>")
