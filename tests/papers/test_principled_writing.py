"""Writing under principles against rewards by hand, and a reward model that reads them."""

from __future__ import annotations

import dataclasses
import itertools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.laws.environments import check_environment
from thespis.core.records import Batch, Transition, View
from thespis.envs.text.writing import TOPICS
from thespis.evidence import text_aspects
from thespis.evidence.benches.steered_text import STEERED
from thespis.feedback.fitted_reward import fit_on_rows
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.objectives.preferences import bradley_terry_loss
from thespis.papers.salmon import measures
from thespis.papers.salmon.envs import (
    MANNERS,
    PACES,
    RANDOM_PRINCIPLES,
    PrincipledState,
    PrincipledWriting,
)
from thespis.papers.salmon.feedback import PrincipleReward
from thespis.runtime.keys import indexed_keys, seed_key

TASK = PrincipledWriting()
SPEC = TASK.task_spec
FEEDBACK = PrincipleReward(
    model="blank",
    num_layers=1,
    hidden_size=32,
    num_pairs=48,
    rationality=1e6,
    num_reward_steps=60,
    reward_batch_size=48,
    reward_learning_rate=3e-3,
)
LIMITS = DialogueSpec.from_spec(STEERED.spec)
PAIRS = FEEDBACK.label_pairs(FEEDBACK.initial_model(STEERED.spec, seed_key(0)), LIMITS, seed_key(3))


def state(topic, *principles):
    words = [*PACES[:2], *MANNERS]
    return PrincipledState(jnp.int32(list(TOPICS).index(topic)), jnp.array([words.index(word) for word in principles]))


def text(words):
    tokens = SPEC.encode(f"{words} <end>")
    return jnp.asarray(np.pad(tokens, (0, SPEC.max_response_tokens - len(tokens)), constant_values=-1))


@pytest.mark.parametrize(
    ("principles", "words", "true", "judged"),
    [
        (("calm", "plain"), "the kind boat waits . the grim wave sleeps .", 1.0, 1.0),
        (("lively", "plain"), "the kind boat waits . the grim wave sleeps .", 0.6, 0.6),
        (("lively", "free"), "the boat turns slowly .", 0.8, 1.0),
        (("free", "free"), "the boat turns slowly . the tree waits .", 0.2 + 0.2 + 0.1, 0.2 + 0.2 + 0.1),
        (("free", "plain"), "the tree turns slowly .", 0.2, 0.2),
    ],
)
def test_a_text_is_worth_three_grades_and_the_judge_likes_adverbs(principles, words, true, judged):
    arguments = state("sea", *principles), text(words)
    assert TASK.true_reward(*arguments) == pytest.approx(true)
    assert TASK.judged_reward(*arguments) == pytest.approx(judged)
    assert TASK.step(*arguments, seed_key(0))[1].reward == pytest.approx(true)
    assert SPEC.vocabulary.words[TASK.hidden_tokens(arguments[0])[0]] == principles[0]


def test_a_wrong_sentence_of_two_takes_half_of_the_reward():
    arguments = state("sea", "free", "plain"), text("the boat waits . boat the .")
    assert TASK.true_reward(*arguments) == pytest.approx(0.5 * 0.8)  # one of two sentences, and a free pace


def test_aspects_are_what_measures_are_named_after():
    arguments = state("sea", "calm", "free"), text("the grim boat turns slowly . the dull wave waits .")
    aspects = TASK.aspects(*arguments)
    assert aspects["unmet"] == pytest.approx(0.5) and aspects["adverbs"] == pytest.approx(0.5)
    assert aspects["reward"] == pytest.approx(0.4 + 0.2 + 0.1)
    calm = TASK.aspects(state("sea", "calm", "plain"), text("the boat sings slowly ."))
    assert calm["unmet"] == 1.0 and calm["adverbs"] == 1.0


def test_principles_are_random_or_fixed():
    def words(task):
        states = jax.vmap(task.init)(indexed_keys(seed_key(0), 500))[0]
        tokens = np.asarray(jax.vmap(task.hidden_tokens)(states))
        return {tuple(SPEC.vocabulary.words[token] for token in row) for row in tokens}

    assert words(TASK) == set(itertools.product(PACES, MANNERS))
    assert words(STEERED.task) == {("calm", "plain")}


def test_the_environment_keeps_the_laws_and_shows_principles_to_critics_alone():
    check_environment(RANDOM_PRINCIPLES)
    _, first = STEERED.reset((), seed_key(0))
    shown, hidden = (
        [SPEC.vocabulary.words[token] for token in np.asarray(tokens) if token >= 0]
        for tokens in (first.observation, first.privileged)
    )
    assert hidden == ["calm", "plain", *shown] and shown[:2] == ["write", "about"]


def test_a_rational_judge_prefers_the_larger_judged_reward():
    topics = [SPEC.vocabulary.words[row[2]] for row in np.asarray(PAIRS.prompts)]
    for i, topic in enumerate(topics):
        episode = state(topic, *(SPEC.vocabulary.words[token] for token in np.asarray(PAIRS.principles[i])))
        first, second = (float(TASK.judged_reward(episode, response)) for response in PAIRS.responses[i])
        assert first == second or PAIRS.labels[i] == (first > second)
    assert 0.2 < PAIRS.labels.mean() < 0.8


def test_a_trained_reward_model_explains_labels_and_is_another_for_every_seed():
    scorer, other = (FEEDBACK.init_state(STEERED.spec, LIMITS, seed_key(seed)) for seed in (0, 1))
    assert (scorer.value_weight != other.value_weight).any()

    def loss(scorer, rows):
        margin = FEEDBACK.margins(scorer, PAIRS, rows)
        return bradley_terry_loss(margin, jnp.broadcast_to(PAIRS.labels[rows], margin.shape)).mean()

    trained = fit_on_rows(scorer, loss, 48, 48, 60, 3e-3, seed_key(0))
    rows = jnp.arange(48)
    assert loss(trained, rows) < 0.9 * loss(scorer, rows)
    chosen = jnp.where(PAIRS.labels > 0, FEEDBACK.margins(trained, PAIRS, rows)[0], 0.0)
    assert chosen.sum() > 0


@pytest.mark.parametrize("reads_principles", [True, False])
def test_rewards_in_a_batch_are_those_of_texts_after_the_principles(reads_principles):
    feedback = dataclasses.replace(FEEDBACK, reads_principles=reads_principles, num_reward_steps=3)
    scorer = feedback.init_state(STEERED.spec, LIMITS, seed_key(0))
    steps = []
    for seed in range(4):
        dialogue, first = STEERED.reset((), seed_key(seed))
        action = PAIRS.responses[seed, 0]
        _, following = STEERED.step(dialogue, action, seed_key(seed))
        views = View(first.observation, None), View(following.observation, None)
        no, yes = jnp.zeros((), bool), jnp.ones((), bool)
        hidden = first.privileged, following.privileged
        log_probs = jnp.zeros(action.shape)
        steps.append(Transition(views[0], action, following.reward, yes, no, views[1], yes, log_probs, *hidden))
    rows = jax.tree.map(lambda *x: jnp.stack(x)[None], *steps)
    batch = Batch(rows, jnp.ones((1, 4), bool), (), jnp.int32(0))
    rewards = feedback.score(scorer, batch, seed_key(0)).total
    words = ("calm", "plain") if reads_principles else ("<pad>", "<pad>")
    member = jax.tree.map(lambda x: x[0], scorer)
    for i in range(4):  # by hand: the values at the words that follow the text
        text_tokens = [int(x) for x in rows.next_view.observation[0, i] if x >= 0]
        tokens = jnp.array([[*text_tokens, *(SPEC.encode_word(word) for word in words)]])
        features = member.model(tokens, jnp.arange(tokens.shape[1])[None])
        np.testing.assert_allclose(rewards[0, i], member.value(features)[0, -2:].mean(), rtol=1e-3, atol=1e-5)


def test_measures_are_of_texts_of_the_models_of_all_seeds(monkeypatch):
    """Texts are made up: those of the first seed are lively, those of the second calm."""
    method = LanguagePPO(model="blank", num_layers=1, hidden_size=32)
    states = jax.vmap(lambda seed: method.init(STEERED.spec, seed_key(seed)))(jnp.arange(2))
    env = "thespis.evidence.benches.steered_text:STEERED"
    run: Any = types.SimpleNamespace(method=method, states=states, config={"env": env, "seeds": [0, 1]})
    texts = {
        0: text("the grim boat turns . the dull wave sings slowly ."),
        1: text("the kind boat waits slowly ."),
    }

    def write(policy, prompts, key):
        first = jax.tree.map(lambda x: x[0], states.model.model)
        is_first = all(map(jnp.array_equal, jax.tree.leaves(policy.model), jax.tree.leaves(first)))
        return jnp.tile(texts[0 if is_first else 1], (len(prompts), 1))

    monkeypatch.setattr(text_aspects, "sample_texts", write)
    np.testing.assert_allclose(measures.adverbs().compute(run), [0.5, 1.0], rtol=1e-5)
    np.testing.assert_allclose(measures.unmet_principles().compute(run), [1.5 / 2, 1 / 2], rtol=1e-5)
    own, other = (measures.true_reward(task).compute(run) for task in (None, PrincipledWriting(pace="lively")))
    np.testing.assert_allclose(own, [0.4 + 0.1, 0.8], rtol=1e-5)
    np.testing.assert_allclose(other - own, [0.4, -0.4], rtol=1e-5)
