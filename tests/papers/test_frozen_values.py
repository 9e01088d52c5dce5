"""DVPO: values of prefixes, advantages by frozen values, and DPO on comparisons, against loops and enumeration."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import DialogueSpec
from thespis.data.feeds import Episodes
from thespis.envs.text.task import TextEnv
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.language.dialogues import SampledDialogues, single_turn_dialogues
from thespis.learners.language.lm_agent import add_value_head
from thespis.learners.language.model_init import ModelInit
from thespis.learners.language.preference_losses import ResponseScores, SigmoidLoss
from thespis.papers.dvpo.measures import num_array_bytes, resident_kibibytes
from thespis.papers.dvpo.method import (
    DVPO,
    ComparedTexts,
    ComparisonDPO,
    FrozenValueGAE,
    compare_texts,
    pair_rows,
    prefix_values,
)
from thespis.papers.rluf.envs import ReactedWriting
from thespis.runs.config import to_config
from thespis.runtime.keys import fold, seed_key

TASK = ReactedWriting(rationality=1e6)
RATIONAL = TextEnv(TASK)
RATIONAL_ENV = f"{__name__}:RATIONAL"
LIMITS = DialogueSpec.from_spec(RATIONAL.spec)
MODEL = ModelInit("blank", 1, 32, 0).init_from(RATIONAL.spec, seed_key(0))
BLANK: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32, "labelling_env": RATIONAL_ENV}
METHOD = DVPO(**BLANK, num_comparisons=6, num_value_steps=2, feed=Episodes(max_steps=1, num_envs=4))
SPEC = TASK.task_spec
PROMPT = jnp.asarray(SPEC.encode("write about sea >"))


def texts(*lines):
    """Dialogues of one prompt, and texts of words."""
    width = SPEC.max_response_tokens
    tokens = [np.asarray(SPEC.encode(f"{line} <end>")) for line in lines]
    rows = jnp.asarray(np.stack([np.pad(t, (0, width - len(t)), constant_values=-1) for t in tokens]))
    return single_turn_dialogues(jnp.tile(PROMPT, (len(lines), 1)), rows, jnp.ones(len(lines), bool))


@pytest.fixture(scope="module")
def state():
    return METHOD.init(RATIONAL.spec, seed_key(1))


def test_a_rational_judge_prefers_the_text_that_helps_more():
    compared = compare_texts(MODEL, RATIONAL_ENV, 16, 1.0, LIMITS, seed_key(3))
    labels = np.asarray(compared.is_preferred).reshape(-1, 2)
    prompt_state = TASK.init(seed_key(0))[0]
    helps = jax.vmap(lambda text: TASK.helpfulness(prompt_state, text))(compared.dialogues.responses[0])
    assert np.all(labels.sum(axis=1) == 1)
    for (first, second), (is_first, _) in zip(np.asarray(helps).reshape(-1, 2), labels, strict=True):
        assert first == second or is_first == (first > second)


def test_values_of_prefixes_become_mean_labels_of_the_texts_that_begin_so():
    """By enumeration of all texts with the same beginning; of two equal texts one is preferred and one is not."""
    lines = ["the boat waits .", "the tree waits .", "the boat waits .", "the tree turns .", "the boat sings .", "sea"]
    labels = (1.0, 0.0, 0.0, 1.0, 1.0, 0.0)
    compared = ComparedTexts(texts(*lines), jnp.array(labels))
    method = dataclasses.replace(METHOD, num_comparisons=3, num_value_steps=300, value_gae_lambda=1.0)
    method = dataclasses.replace(method, value_learning_rate=3e-3, value_batch_size=48)
    fitted = jax.jit(lambda: method.fit_values(add_value_head(MODEL, 32), compared, seed_key(2)))()
    values = np.asarray(prefix_values(fitted, compared.dialogues))[0]
    beginnings = [(*line.split(), "<end>") for line in lines]
    for row, words in enumerate(beginnings):
        for place in range(len(words) + 1):
            alike = [
                2 * label - 1 for label, other in zip(labels, beginnings, strict=True) if other[:place] == words[:place]
            ]
            assert values[row, place] == pytest.approx(np.mean(alike), abs=0.2)


def test_advantages_are_discounted_sums_of_changes_of_value(state):
    dialogues = texts("the boat waits .", "sea", "the kind boat waits slowly . the gentle wave turns .")
    sampled = SampledDialogues(**vars(dialogues), log_probs=jnp.zeros(dialogues.responses.shape))
    head = 0.3 * jax.random.normal(seed_key(5), (32,))
    state = dataclasses.replace(state, value_model=dataclasses.replace(state.value_model, value_weight=head))
    values = np.asarray(prefix_values(state.value_model, dialogues))[0]
    for gae_lambda in (1.0, 0.6):
        method = dataclasses.replace(METHOD, advantage_estimator=FrozenValueGAE(gae_lambda))
        advantages = np.asarray(method.estimate_advantages(state, sampled, 1)[1].advantage)[0]
        for row, count in enumerate(np.asarray(dialogues.response_mask[0].sum(axis=1))):
            changes = np.diff(values[row, : count + 1])
            expected = [sum(gae_lambda**k * x for k, x in enumerate(changes[t:])) for t in range(count)]
            np.testing.assert_allclose(advantages[row, :count], expected, atol=1e-5)
            if gae_lambda == 1.0:
                np.testing.assert_allclose(advantages[row, :count], values[row, count] - values[row, :count], atol=1e-5)


def test_the_loss_of_dpo_is_that_of_the_library():
    lines = ["the boat waits .", "the tree waits .", "sea", "the boat turns slowly ."]
    compared = ComparedTexts(texts(*lines), jnp.array([1.0, 0.0, 0.0, 1.0]))
    method = ComparisonDPO(**BLANK, num_comparisons=2, num_preference_steps=1, learning_rate=1e-2, beta=0.5)
    fitted = method.fit_policy(MODEL, compared, seed_key(4))
    rows = pair_rows(jax.random.randint(fold(seed_key(4), "rows", jnp.asarray(0)), (32,), 0, 2))
    sampled, order = compared.dialogues.take_rows(rows), jnp.array([0, 1, 3, 2])[rows]
    ordered = compared.dialogues.take_rows(order)

    def loss(model):
        log_probs, ref_log_probs = (ordered.response_log_probs(m, METHOD.sampler)[0] for m in (model, MODEL))
        scores = ResponseScores.from_dialogues(ordered, log_probs, ref_log_probs)
        chosen, rejected = (jax.tree.map(lambda x, i=i: x[i::2], scores) for i in range(2))
        return SigmoidLoss(0.5)(chosen, rejected).mean()

    assert sampled.alive.shape == ordered.alive.shape
    gradient = jax.grad(loss)(MODEL)
    moved = jax.tree.map(lambda new, old: new - old, fitted, MODEL)
    pairs = zip(jax.tree.leaves(moved), jax.tree.leaves(gradient), strict=True)
    sizes = [(np.asarray(step), np.asarray(slope)) for step, slope in pairs]
    agree = sum(np.sum((np.sign(step) == -np.sign(slope)) & (abs(slope) > 1e-5)) for step, slope in sizes)
    assert agree == sum(np.sum(abs(slope) > 1e-5) for _, slope in sizes) > 100  # Adam's first step: against each slope


def test_advantages_read_no_rewards(state):
    dialogues = texts("the boat waits .", "sea")
    sampled = SampledDialogues(**vars(dialogues), log_probs=jnp.zeros(dialogues.responses.shape))
    rewarded = dataclasses.replace(sampled, reward=jnp.array([[5.0, -3.0]]))
    first, second = (METHOD.estimate_advantages(state, rows, 1)[1].advantage for rows in (sampled, rewarded))
    np.testing.assert_array_equal(first, second)


def test_resident_arrays_are_those_of_method_and_feedback(state):
    run = types.SimpleNamespace(
        config={"seeds": [1, 2], "feedback": to_config(EnvironmentReward())},
        spec=RATIONAL.spec,
        states=jax.tree.map(lambda x: jnp.stack([x, x]), state),
    )
    policy, value = (num_array_bytes(part) for part in (MODEL, state.value_model))
    assert num_array_bytes({"a": jnp.zeros((2, 3)), "b": jnp.zeros(5, "int8")}) == 29
    counted = resident_kibibytes().compute(run)  # pyright: ignore[reportArgumentType]
    assert counted.shape == (2,) and counted[0] * 2**10 == pytest.approx(4 * policy + value, rel=0.01)
