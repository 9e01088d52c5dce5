"""APC score: grades of responses by hand."""

import jax
import jax.numpy as jnp
import pytest

from thespis.envs.text.persona import TOPICS, PersonaState
from thespis.language.tokenizer import word_tokenizer
from thespis.papers.apc_score.envs import GRADES, GradedPersona

TASK = GradedPersona(num_topics=2)
TOKENIZER = word_tokenizer(TASK.task_spec.vocabulary.words)
FACTS = ["judge", "pen", "early", "rome", "fox", "boat"]


@pytest.mark.parametrize(
    ("response", "grade"),
    [
        ("<end>", 0),
        ("judge pen early", 0),
        ("work > <end>", 0),
        ("baker owl <end>", 2),
        ("judge drill <end>", 4),
        ("judge owl <end>", 4),
        ("judge pen owl <end>", 6),
        ("judge <end>", 6),
        ("rome <end>", 6),
        ("judge pen <end>", 8),
        ("judge pen early owl <end>", 6),
        ("judge pen early <end>", 10),
        ("judge pen early rome <end>", 10),
    ],
)
def test_grades_of_the_human_raters(response, grade):
    attributes = [values for topic in ("work", "home") for values in TOPICS[topic]]
    values = jnp.asarray([row.index(fact) for row, fact in zip(attributes, FACTS, strict=True)])
    encoded = TOKENIZER.encode(response)
    tokens = jnp.asarray([*encoded, *[-1] * (5 - len(encoded))])
    state = PersonaState(values, jnp.arange(6), jnp.asarray(0))
    assert GRADES[TASK.grade_index(state, tokens)] == grade
    assert TASK.step(state, tokens, jax.random.key(0))[1].reward == pytest.approx(grade / 10)
