"""Persona task: natural language inference by hand, and what demonstrators say."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.text.persona import TOPICS, Persona, PersonaState, constraint_satisfaction
from thespis.envs.text.task import TextEnv
from thespis.language.tokenizer import word_tokenizer
from thespis.training.demonstrations import demonstration_returns

TASK = Persona()
TOKENIZER = word_tokenizer(TASK.task_spec.vocabulary.words)
FACTS = ["judge", "pen", "early", "rome", "fox", "boat", "chess", "tea", "jazz"]
ATTRIBUTES = [values for topic in list(TOPICS)[:3] for values in TOPICS[topic]]
VALUES = jnp.asarray([values.index(fact) for values, fact in zip(ATTRIBUTES, FACTS, strict=True)])


def encode(text):
    tokens = TOKENIZER.encode(text)
    return jnp.asarray([*tokens, *[-1] * (5 - len(tokens))])


@pytest.mark.parametrize(
    ("response", "entailed", "contradicted", "reward"),
    [
        ("judge pen early <end>", "judge pen early", "", 1.0),
        ("judge pen <end>", "judge pen", "", 2 / 3),
        ("judge baker pen <end>", "pen", "judge", 1 / 3),
        ("judge fox <end>", "judge fox", "", 1 / 3),
        ("judge owl oslo <end>", "judge", "rome fox", -1 / 3),
        ("pen pen pen pen <end>", "pen", "", 1 / 3),
        ("work > <end>", "", "", 0.0),
        ("judge pen early", "", "", 0.0),
        ("<end> judge", "", "", 0.0),
    ],
)
def test_entailment_and_faithfulness(response, entailed, contradicted, reward):
    labels = TASK.inference_labels(VALUES, encode(response))
    expected = [2 if fact in entailed.split() else 0 if fact in contradicted.split() else 1 for fact in FACTS]
    assert labels.tolist() == expected
    state = PersonaState(VALUES, jnp.arange(9), jnp.asarray(0))
    assert TASK.step(state, encode(response), jax.random.key(0))[1].reward == pytest.approx(reward)


@pytest.mark.parametrize("response", ["judge pen <end>", "judge baker owl <end>", "rome fox <end>", "<end>"])
def test_the_reward_is_the_apc_score_over_that_of_a_neutral_response(response):
    labels, relevance = TASK.inference_labels(VALUES, encode(response)), TASK.relevance(jnp.asarray(0)).astype(float)
    score = constraint_satisfaction(relevance, (labels == 2) * 1.0, (labels == 0) * 1.0).sum()
    state = PersonaState(VALUES, jnp.arange(9), jnp.asarray(0))
    reward = TASK.step(state, encode(response), jax.random.key(0))[1].reward
    assert reward == pytest.approx((score - (1 - relevance).sum()) / 3)


def test_constraint_satisfaction_is_a_mean_over_relevance():
    assert constraint_satisfaction(*jnp.asarray([0.25, 0.6, 0.1])) == pytest.approx(0.25 * 0.6 + 0.75 * 0.9)


def test_the_demonstrator_says_what_is_typical_as_often_as_its_noise():
    """With noise only first values are said; a third of the words are about another topic."""
    transcripts, _, responses, _ = demonstration_returns(
        TextEnv(dataclasses.replace(TASK, demonstrator_noise=1.0)), 600
    )
    typical = {values[0] for values in ATTRIBUTES}
    topics = {word: topic for topic in list(TOPICS)[:3] for values in TOPICS[topic] for word in values}
    others = []
    for transcript, response in zip(np.asarray(transcripts), np.asarray(responses[0]), strict=True):
        words, topic = TOKENIZER.decode(response).split()[:-1], TOKENIZER.decode(transcript).split()[9]
        assert set(words) <= typical
        others += [topics[word] != topic for word in words[:3]]
    assert np.mean(others) == pytest.approx(1 / 3, abs=0.04)


def test_settings_out_of_range():
    with pytest.raises(ValueError, match="num_topics=5: 2 to 4"):
        Persona(num_topics=5)
    with pytest.raises(ValueError, match="max_words=2: at least 3"):
        Persona(max_words=2)
