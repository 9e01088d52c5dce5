"""Writing for users who react, against probabilities by hand, and what measures are named after."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.envs.text.writing import WritingState
from thespis.papers.rluf.envs import REACTIONS, ReactedWriting
from thespis.papers.rluf.feedback import LoveReward
from thespis.runtime.keys import indexed_keys, seed_key

TASK = ReactedWriting(largest_rate=0.5, adversarial_share=0.2)
SPEC = TASK.task_spec
SEA = WritingState(jnp.int32(0), jnp.int32(0))


def text(words):
    tokens = SPEC.encode(f"{words} <end>")
    return jnp.asarray(np.pad(tokens, (0, SPEC.max_response_tokens - len(tokens)), constant_values=-1))


@pytest.mark.parametrize(
    ("words", "helpfulness", "liking"),
    [
        ("the kind boat waits .", 2 / 3, 1.0),
        ("the kind boat waits . the gentle wave turns .", 1.0, 0.9),
        ("the grim tree waits .", 1 / 3, 0.2 + 0.1),
        ("boat kind .", 0.0, 0.0),
    ],
)
def test_what_helps_is_not_what_is_loved(words, helpfulness, liking):
    response = text(words)
    assert TASK.helpfulness(SEA, response) == pytest.approx(helpfulness)
    assert TASK.liking(SEA, response) == pytest.approx(liking)
    love = 0.5 * (0.8 * liking**2 + 0.2 * (1 - liking) ** 2)
    assert TASK.love_probability(SEA, response) == pytest.approx(love)
    drawn = jax.vmap(lambda key: TASK.react(SEA, response, key))(indexed_keys(seed_key(0), 4_000))
    assert drawn.mean() == pytest.approx(love, abs=0.03)
    task = ReactedWriting(largest_rate=0.5, adversarial_share=0.2, objective="love")
    assert task.step(SEA, response, seed_key(0))[1].reward == pytest.approx(love)
    aspects = TASK.aspects(SEA, response)
    assert aspects["love"] == pytest.approx(love) and aspects["helpfulness"] == pytest.approx(helpfulness)
    assert aspects["missed"] == pytest.approx(1 - love / 0.4)


def test_the_environment_keeps_the_laws():
    check_environment(REACTIONS)


def test_labels_are_a_reaction_to_each_text():
    texts = jnp.stack([text("the kind boat waits . the gentle wave turns ."), text("the grim tree waits .")])
    keys = indexed_keys(seed_key(1), 4_000)
    loved = jax.vmap(lambda key: LoveReward().label(TASK, SEA, texts, key))(keys).mean(axis=0)
    np.testing.assert_allclose(loved, [float(TASK.love_probability(SEA, x)) for x in texts], atol=0.03)


def test_a_judges_scores_are_helpfulness_with_noise():
    response = text("the kind boat waits .")
    scores = jax.vmap(lambda key: TASK.score(SEA, response, key))(indexed_keys(seed_key(2), 4_000))
    assert scores.mean() == pytest.approx(2 / 3 + np.euler_gamma / TASK.rationality, abs=0.01)
