"""Ideas against values by hand: dimensions, emphases, demonstrations, and rewards that follow the control word."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.core.records import Batch, Rewards, Transition, View
from thespis.envs.text.writing import WritingState
from thespis.papers.controllable_idea_proposer.envs import DIMENSIONS, IDEAS, Ideas, emphasis_weights
from thespis.papers.controllable_idea_proposer.feedback import EmphasizedReward
from thespis.papers.controllable_idea_proposer.measures import random_value
from thespis.runtime.keys import indexed_keys, seed_key

TASK = Ideas()
SPEC = TASK.task_spec
SEA = 0


def text(words):
    tokens = SPEC.encode(f"{words} <end>")
    return jnp.asarray(np.pad(tokens, (0, SPEC.max_response_tokens - len(tokens)), constant_values=-1))


@pytest.mark.parametrize(
    ("words", "grammar", "topic", "detail"),
    [
        ("the boat waits . the wave turns .", 1.0, 1.0, 0.0),
        ("the kind boat waits . the tree turns often .", 1.0, 0.5, 0.5),
        ("the kind house waits often . the grim tree turns slowly .", 1.0, 0.0, 1.0),
        ("the kind boat waits . wave turns .", 0.5, 1.0, 0.25),
        ("boat .", 0.0, 1.0, 0.0),
    ],
)
def test_dimensions_are_in_conflict(words, grammar, topic, detail):
    response = text(words)
    expected = grammar * np.array([1 - topic + detail, topic + 1 - detail, topic + detail]) / 2
    for i in range(3):
        state = WritingState(jnp.int32(SEA), jnp.int32(i))
        weights = np.where(np.arange(3) == i, 0.8, 0.1)
        np.testing.assert_allclose(emphasis_weights()[i], weights)
        np.testing.assert_allclose(TASK.dimensions(state, response), expected, rtol=1e-5)
        assert TASK.step(state, response, seed_key(0))[1].reward == pytest.approx(weights @ expected, abs=1e-6)
        alone = dataclasses.replace(TASK, objective=DIMENSIONS[i])
        assert alone.value(state, response) == pytest.approx(expected[i], abs=1e-6)
        aspects = TASK.aspects(state, response)
        assert aspects["asked"] == aspects[DIMENSIONS[i]] == pytest.approx(expected[i], abs=1e-6)
    assert TASK.dimensions(state, response)[:2].sum() == pytest.approx(grammar)


def test_prompts_name_the_emphasis():
    states, prompts = jax.vmap(TASK.init)(indexed_keys(seed_key(0), 200))
    words = [[SPEC.vocabulary.words[token] for token in prompt] for prompt in np.asarray(prompts)]
    assert all(prompt[4] == DIMENSIONS[i] for prompt, i in zip(words, np.asarray(states.reader), strict=True))
    assert {prompt[4] for prompt in words} == set(DIMENSIONS) and words[0][:2] == ["write", "about"]
    assert {int(Ideas(control="feasibility").init(key)[0].reader) for key in indexed_keys(seed_key(0), 8)} == {1}


def test_the_demonstrator_does_as_it_is_asked_or_anything():
    best = Ideas(demonstrator_noise=0.0)
    states, _ = jax.vmap(best.init)(indexed_keys(seed_key(0), 200))
    for task, least in ((best, 1.0), (TASK, 0.0)):
        texts = jax.vmap(task.demonstrator_response)(states, indexed_keys(seed_key(1), 200))
        aspects = jax.vmap(task.aspects)(states, texts)
        assert aspects["asked"].min() >= least - 1e-6
        np.testing.assert_allclose(aspects["novelty"] + aspects["feasibility"], 1.0, rtol=1e-5)
    assert aspects["asked"].mean() == pytest.approx(0.5, abs=0.06)


def test_value_of_random_texts():
    task = Ideas(demonstrator_noise=1.0)
    states, _ = jax.vmap(task.init)(indexed_keys(seed_key(0), 4_096))
    texts = jax.vmap(task.demonstrator_response)(states, indexed_keys(seed_key(1), 4_096))
    run: Any = SimpleNamespace(config={"seeds": (0, 1)})
    value = random_value().compute(run)
    np.testing.assert_allclose(value, jax.vmap(task.value)(states, texts).mean(), atol=0.01)


def test_rewards_are_weighted_as_the_control_word_asks(monkeypatch):
    _, prompts = jax.vmap(TASK.init)(indexed_keys(seed_key(0), 6))
    values = dict(zip(DIMENSIONS, (1.0, 2.0, 4.0), strict=True))
    feedback = EmphasizedReward()
    for part in feedback.parts:
        value = values[part.name]
        monkeypatch.setattr(type(part), "score", lambda self, s, b, k, value=value: Rewards(jnp.full((1, 6), value)))
    no, yes, view = jnp.zeros((1, 6), bool), jnp.ones((1, 6), bool), View(prompts[None])
    texts = jnp.full((1, 6, SPEC.max_response_tokens), -1)
    steps = Transition(view, texts, jnp.zeros((1, 6)), yes, no, view, yes, jnp.zeros(texts.shape))
    rewards = feedback.score(((), (), ()), Batch(steps, yes, (), jnp.int32(0)), seed_key(0))
    controls = [DIMENSIONS.index(SPEC.vocabulary.words[prompt[4]]) for prompt in np.asarray(prompts)]
    np.testing.assert_allclose(rewards.total[0], (emphasis_weights() @ [1.0, 2.0, 4.0])[controls], rtol=1e-5)
    assert rewards.channels is not None and set(rewards.channels) == set(DIMENSIONS)


def test_the_environment_keeps_the_laws():
    check_environment(IDEAS)
