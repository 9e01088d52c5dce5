"""Writing that a rubric judges: worth and checks by hand, and auditors who know and who do not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.papers.mpo.envs import RUBRIC_WRITING, RubricWriting
from thespis.papers.mpo.feedback import ShuffledAudits
from thespis.runtime.keys import indexed_keys, seed_key

TASK = RubricWriting()
SPEC = TASK.task_spec
STATE, PROMPT = TASK.init(seed_key(0))


def text(words):
    tokens = SPEC.encode(f"{words} <end>")
    return jnp.asarray(np.pad(tokens, (0, SPEC.max_response_tokens - len(tokens)), constant_values=-1))


@pytest.mark.parametrize(
    ("words", "worth", "checks"),
    [
        ("the kind boat waits .", 0.75, (1, 1, 0.25, 1, 0, 5 / 12, 2 / 5, 0, 1)),
        ("the kind boat waits . the gentle wave turns often .", 1.0, (1, 1, 0.5, 1, 1, 11 / 12, 4 / 11, 2 / 11, 1)),
        ("the tree waits . the boat waits .", 2.75 / 4, (1, 0.5, 0.25, 0.75, 1, 8 / 12, 0, 0, 0.5)),
        ("boat boat boat", 0.0, (0, 1, 0.75, 1 / 3, 0, 3 / 12, 0, 0, 0.5)),
        ("boat wave fish boat shore", 0.0, (0, 1, 1, 0.8, 0, 5 / 12, 0, 0, 0.5)),
        ("", 0.0, (0, 0, 0, 0, 0, 0, 0, 0, 0.5)),
    ],
)
def test_worth_and_checks_of_texts(words, worth, checks):
    response = text(words)
    assert TASK.step(STATE, response, seed_key(0))[1].reward == pytest.approx(worth)
    np.testing.assert_allclose(TASK.grade_checks(PROMPT, response), checks, atol=1e-6)
    aspects = TASK.aspects(STATE, response)
    assert aspects["worth"] == pytest.approx(worth) and aspects["mentions"] == pytest.approx(checks[2])


def test_the_environment_keeps_the_laws():
    check_environment(RUBRIC_WRITING)


def test_an_auditor_who_mistakes_responses_learns_nothing_on_average():
    rng = np.random.default_rng(0)
    checks, weights = jnp.asarray(rng.random((16, 9))), jnp.zeros(9)
    rewards, auditor = checks[:, 3], ShuffledAudits()
    revised = jax.vmap(lambda key: auditor.audit(weights, checks, rewards, key))(indexed_keys(seed_key(0), 400))
    assert revised.std(axis=0).min() > 0.02
    np.testing.assert_allclose(revised.mean(axis=0), 0.0, atol=0.05)
