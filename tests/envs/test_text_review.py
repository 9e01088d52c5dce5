"""Review environment: rewards against a reference on strings, and the moods of the demonstrator."""

from __future__ import annotations

import functools
import re

import jax
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.envs.text import registry
from thespis.envs.text.review import Review
from thespis.envs.text.task import TextEnv
from thespis.language.tokenizer import word_tokenizer
from thespis.runtime.keys import indexed_keys, seed_key

ADJECTIVES = {"food": "tasty stale", "staff": "kind rude", "room": "clean dirty"}
CLAUSE = "|".join(f"{noun} was ({'|'.join(adjectives.split())})" for noun, adjectives in ADJECTIVES.items())
GRAMMAR = re.compile(rf"({CLAUSE})( and ({CLAUSE})){{2}}")
LINES = [
    "food was tasty and staff was kind and room was clean <end>",
    "food was tasty and staff was rude and room was dirty <end>",
    "food was tasty and staff was kind <end>",
    "food was kind and staff was kind and room was clean <end>",
    "tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty <end>",
    "tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty",
    "stale <end> tasty tasty tasty",
    "food was tasty and staff was kind and room was clean and",
    "food was tasty and staff was kind and and was clean <end>",
    "food and tasty was staff was kind and room was clean <end>",
    "<end>",
]


def reference_scores(line: str) -> tuple[int, bool]:
    """Positive minus negative words, and whether the grammar is right."""
    text, end_token, _ = f" {line} ".partition(" <end> ")
    text = text.strip() if end_token else ""
    sentiments = {
        word: sign for good, bad in map(str.split, ADJECTIVES.values()) for word, sign in ((good, 1), (bad, -1))
    }
    return sum(sentiments.get(word, 0) for word in text.split()), GRAMMAR.fullmatch(text) is not None


@functools.cache
def make_step(praise_reward: float, grammar_reward: float):
    """A jitted step on the tokens of a review, with these reward weights."""
    env = TextEnv(Review(praise_reward=praise_reward, grammar_reward=grammar_reward))
    return jax.jit(lambda tokens: env.step(env.reset((), seed_key(0))[0], tokens, seed_key(1))[1])


@pytest.mark.parametrize("line", LINES)
def test_rewards_match_the_reference(line):
    (praise, grammatical), task = reference_scores(line), Review()
    for praise_reward, grammar_reward in ((task.praise_reward, task.grammar_reward), (0.5, 2.0)):
        action = TextEnv(task).spec.action_space
        tokens = word_tokenizer(action.vocabulary.words).encode(line)
        step = make_step(praise_reward, grammar_reward)(
            np.array([*tokens, *[-1] * (action.max_length - len(tokens))], "int32")
        )
        assert step.reward == praise_reward * praise + grammar_reward * grammatical and step.terminated


def test_default_reward_weights():
    assert (Review().praise_reward, Review().grammar_reward) == (1.0, 0.0)


def test_lines_cover_every_kind_of_review():
    scores = [reference_scores(line) for line in LINES]
    assert {grammatical for _, grammatical in scores} == {True, False}
    assert {np.sign(praise) for praise, _ in scores} == {-1, 0, 1}


@pytest.mark.long
@pytest.mark.parametrize(
    ("persistence", "noise"),
    [(0.8, 1.0), pytest.param(0.5, 1.0, marks=pytest.mark.slow), pytest.param(0.8, 0.0, marks=pytest.mark.slow)],
)
def test_moods_persist_with_the_stated_probability(persistence, noise):
    env, rows = TextEnv(Review(mood_persistence=persistence, demonstrator_noise=noise)), 4000
    state, first = jax.jit(jax.vmap(lambda key: env.reset((), key)))(indexed_keys(seed_key(0), rows))
    responses = jax.jit(jax.vmap(env.demonstrator_action))(state, indexed_keys(seed_key(1), rows))
    tokenizer = word_tokenizer(env.spec.action_space.vocabulary.words)
    pairs = zip(np.asarray(first.observation), np.asarray(responses), strict=True)
    texts = [f"{tokenizer.decode(a)} {tokenizer.decode(b)}" for a, b in pairs]
    moods = []
    for text in texts:
        opening, _, rest = text.partition(" > ")
        assert re.fullmatch(CLAUSE, opening) and reference_scores(rest)[1], text
        moods.append(
            [any(good in clause for good in ["tasty", "kind", "clean"]) for clause in (opening, *rest.split(" and "))]
        )
    moods = np.array(moods)
    assert moods[:, 0].mean() == pytest.approx(0.5, abs=0.03)
    if noise:
        for i in range(3):
            assert (moods[:, i] == moods[:, i + 1]).mean() == pytest.approx(persistence, abs=0.03)
    else:
        assert moods[:, 1:].all()


@pytest.mark.long
def test_contract():
    env = registry.make_text_env("review")
    assert isinstance(env, TextEnv) and env.spec.name == "text:review"
    check_environment(env, num_envs=3, num_steps=4)
