"""Critic-RM: criticized answers, the critiques that agree with a label, and the joint loss, against plain Python."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import DIALOGUE_SPEC, KEY, MODEL, make_dialogues

from thespis.envs.text.task import TextEnv, pack_tokens
from thespis.learners.language.lm_agent import LMWithValueHead
from thespis.papers.critic_rm.envs import CriticizedAnswers
from thespis.papers.critic_rm.method import CriticRM, CriticRMState, LabelledPairs, implied_scores
from thespis.papers.deepseek_grm_spct.envs import GradedAnswers
from thespis.runtime.keys import indexed_keys, seed_key

TASK = CriticizedAnswers(GradedAnswers(habit=0.0, grade_noise=0.0))
SPEC = TASK.task_spec
DIGIT_TOKENS = (2, 3, 4, 5)
"""Tokens of the small model that are taken for the digits 0 to 3."""


def words(tokens):
    return " ".join(SPEC.vocabulary.words[i] for i in np.asarray(tokens).tolist() if i >= 0)


def random_scorer() -> LMWithValueHead:
    rng = np.random.default_rng(2)
    return LMWithValueHead(MODEL, jnp.asarray(rng.normal(size=32), "float32"), jnp.asarray(0.3))


def test_an_answer_is_rewarded_and_then_criticized():
    env = TextEnv(TASK)
    state, step = jax.jit(env.reset)(None, seed_key(3))
    query = [int(i) for i in words(step.observation).split()[:2]]
    answer = pack_tokens(4, SPEC.encode("0 2 4 <end>"))
    state, step = jax.jit(env.step)(state, answer, seed_key(0))
    grade = (0, 2, 4)[sum(query) % 3]
    assert (float(step.reward), bool(step.terminated)) == (grade / 4, False)
    said = jax.jit(env.demonstrator_action)(state, seed_key(0))
    name = ("truth", "warmth", "length")[sum(query) % 3]
    assert words(said) == f"{name} {grade} <end>"
    _, step = jax.jit(env.step)(state, said, seed_key(0))
    assert (float(step.reward), bool(step.terminated)) == (0.0, True)
    assert words(step.observation) == f"{query[0]} {query[1]} > 0 2 4 <end> > {name} {grade} <end>"


def test_the_score_of_a_critique_is_its_last_digit():
    texts = [list(text) for text in itertools.product((-1, 1, 2, 4, 5), repeat=3)]

    def expected(text):
        digits = [DIGIT_TOKENS.index(token) for token in text if token in DIGIT_TOKENS]
        return digits[-1] if digits else -1

    scores = implied_scores(jnp.asarray(texts), DIGIT_TOKENS)
    np.testing.assert_array_equal(scores, [expected(text) for text in texts])


@pytest.mark.parametrize("critiques", ["agreeing", "all"])
def test_critiques_are_kept_that_agree_with_the_label(critiques):
    rng, method = np.random.default_rng(0), CriticRM(critiques=critiques)
    returns = np.array([1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.25, 0.75])
    said = rng.choice(DIGIT_TOKENS, size=(5, 8, 1))
    texts = np.arange(8)[:, None]
    pairs = method.make_pairs(jnp.asarray(texts), jnp.asarray(returns), jnp.asarray(said), DIGIT_TOKENS)
    for i in range(4):
        better, worse = (2 * i, 2 * i + 1) if returns[2 * i] >= returns[2 * i + 1] else (2 * i + 1, 2 * i)
        np.testing.assert_array_equal(pairs.texts[i, :, 0], [better, worse])
        for k in range(5):
            np.testing.assert_array_equal(pairs.critiques[k, i, :, 0], said[k, [better, worse], 0])
            agrees = critiques == "all" or said[k, better, 0] > said[k, worse, 0]
            assert bool(pairs.keeps[k, i]) == (agrees and returns[better] > returns[worse])


def test_the_joint_loss_is_that_of_its_formula():
    dialogues = make_dialogues([8, 3, 5, 6], seed=1)
    texts = np.asarray(dialogues.text_before(1))
    assert (texts >= 0).sum(axis=1).tolist() == [5] * 4
    critiques = np.array([[2, 0], [7, 3], [0, -1], [4, 0]])
    scorer, method = random_scorer(), CriticRM(temperature=0.5)

    def features(tokens):
        return np.asarray(MODEL(jnp.asarray([tokens]), jnp.arange(len(tokens))[None])[0], "float64")

    def expected(reads_critique):
        rewards, losses = [], []
        for text, critique in zip(texts, critiques, strict=True):
            prompt, said = [t for t in text if t >= 0], [t for t in critique if t >= 0]
            read = features(prompt + said if reads_critique else prompt)[-1]
            rewards.append(read @ np.asarray(scorer.value_weight) / 32**0.5 + 0.3)
            logits = np.asarray(MODEL.logits(jnp.asarray(features(prompt + said), "float32"))) / 0.5
            log_probs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
            losses.append(-sum(log_probs[len(prompt) - 1 + i, token] for i, token in enumerate(said)))
        margins = np.array(rewards)[0::2] - np.array(rewards)[1::2]
        return 0.7 * np.mean(losses) + 0.2 * np.log1p(np.exp(-margins)).mean()

    for reads in ("critique", "answer"):
        loss, _ = jax.jit(
            lambda texts, critiques, reads=reads: dataclasses.replace(method, reads=reads).joint_loss(
                scorer, texts, critiques, jnp.asarray(0.7), jnp.asarray(0.2)
            )
        )(jnp.asarray(texts.reshape(2, 2, -1)), jnp.asarray(critiques.reshape(2, 2, -1)))
        assert float(loss) == pytest.approx(expected(reads == "critique"), abs=1e-4)


def test_the_weight_falls_from_critiques_to_rewards():
    method = CriticRM(critique_phase=0.2, num_gradient_steps=10)
    weights = [float(method.critique_weight(jnp.asarray(t))) for t in range(10)]
    np.testing.assert_allclose(weights, [1, 1, 1, *np.arange(7, 0, -1) / 8], atol=1e-6)
    scalar = dataclasses.replace(method, critiques="none", reads="answer")
    assert {float(scalar.critique_weight(jnp.asarray(t))) for t in range(10)} == {0.0}
    judge = dataclasses.replace(method, reads="score")
    assert {float(judge.critique_weight(jnp.asarray(t))) for t in range(10)} == {1.0}


def test_what_rewards_follow_from():
    scorer, texts = random_scorer(), make_dialogues([8, 3, 5, 6], seed=1).text_before(1)
    state = CriticRMState(scorer, MODEL, DIALOGUE_SPEC, DIGIT_TOKENS)

    def rewards(count=4, **settings):
        method = CriticRM(**settings)
        said = jax.jit(lambda key: method.sample_critiques(MODEL, state, texts, count, key))(KEY)
        return np.asarray(jax.jit(lambda key: method.rewards(state, texts, count, key))(KEY)), said

    scores, said = rewards(reads="score")
    np.testing.assert_allclose(scores, np.asarray(implied_scores(said, DIGIT_TOKENS)).mean(axis=0))
    read, said = rewards()
    parts = [rewards_of_one(scorer, texts, critique) for critique in np.asarray(said)]
    np.testing.assert_allclose(read, np.mean(parts, axis=0), atol=1e-5)
    alone, _ = rewards(reads="answer", critiques="none")
    np.testing.assert_allclose(alone, rewards_of_one(scorer, texts, np.full((4, 2), -1)), atol=1e-5)


def rewards_of_one(scorer: LMWithValueHead, texts: Any, critiques: np.ndarray) -> np.ndarray:
    """The head's value at the last token of each text and critique."""
    values = []
    for text, critique in zip(np.asarray(texts), critiques, strict=True):
        tokens = [t for t in [*text.tolist(), *critique.tolist()] if t >= 0]
        features = MODEL(jnp.asarray([tokens]), jnp.arange(len(tokens))[None])[0, -1]
        values.append(float(features @ scorer.value_weight / 32**0.5 + scorer.value_bias))
    return np.array(values)


@pytest.mark.parametrize("reads", ["critique", "answer"])
def test_rewards_are_learned_from_labelled_pairs_alone(reads):
    """The better answers begin with another word; a pair without a label, or without kept critiques, says nothing."""
    method = CriticRM(
        reads=reads,
        critiques="all" if reads == "critique" else "none",
        num_gradient_steps=40,
        batch_size=8,
        learning_rate=3e-3,
        critique_phase=0.0,
    )
    rng = np.random.default_rng(3)
    texts = rng.integers(1, 8, (6, 2, 5))
    texts[:, 0, 2], texts[:, 1, 2] = 8, 3
    texts[5, :, 2] = (3, 8)  # not labelled
    keeps = np.ones((4, 6), bool)
    keeps[:, 5] = False
    critiques = rng.integers(1, 8, (4, 6, 2, 2))
    pairs = LabelledPairs(jnp.asarray(texts), jnp.asarray(critiques), jnp.asarray(keeps))
    scorer, metrics = jax.jit(lambda key: method.fit(random_scorer(), pairs, key))(KEY)
    assert float(metrics["accuracy"]) > 0.7
    fitted = CriticRMState(scorer, MODEL, DIALOGUE_SPEC, DIGIT_TOKENS)
    rows = jnp.asarray(np.concatenate([texts[:5].reshape(10, 5), texts[5]]))
    padded = jnp.pad(rows, ((0, 0), (0, 7)), constant_values=-1)
    values = np.asarray(jax.jit(lambda key: method.rewards(fitted, padded, 4, key))(KEY)).reshape(-1, 2)
    assert (values[:5, 0] > values[:5, 1]).sum() >= 4 and values[5, 1] > values[5, 0]
    none = LabelledPairs(pairs.texts, pairs.critiques, jnp.zeros_like(pairs.keeps))
    same, _ = jax.jit(lambda key: method.fit(random_scorer(), none, key))(KEY)
    for new, old in zip(jax.tree.leaves(same), jax.tree.leaves(random_scorer()), strict=True):
        np.testing.assert_array_equal(new, old)


def test_teachers_criticize_out_of_habit():
    habitual = TextEnv(CriticizedAnswers(GradedAnswers(habit=1.0)))

    @jax.vmap
    def critique(key):
        state, _ = habitual.reset(None, key)
        state, _ = habitual.step(state, pack_tokens(4, SPEC.encode("0 2 4 <end>")), key)
        return habitual.demonstrator_action(state, key)

    said = [words(row).split()[0] for row in np.asarray(jax.jit(critique)(indexed_keys(seed_key(0), 20)))]
    assert set(said) == {"length"}
