"""RTO's reward: the reward model of ``comparison-reward``, its comparisons for DPO, and payment at the end."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.laws.components import check_feedback
from thespis.envs.text.task import TextEnv
from thespis.feedback.dpo_reward import log_ratios
from thespis.feedback.fitted_reward import ComparisonReward
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.papers.dvpo.method import ComparedTexts, compare_texts
from thespis.papers.rluf.envs import ReactedWriting
from thespis.papers.rto.feedback import RTOReward, better_first
from thespis.runtime.keys import fold, seed_key

TASK = ReactedWriting(rationality=1e6)
RATIONAL = TextEnv(TASK)
RATIONAL_ENV = f"{__name__}:RATIONAL"
LIMITS = DialogueSpec.from_spec(RATIONAL.spec)
SIZES: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32, "num_pretrain_steps": 0}
FITTED: dict[str, Any] = {"labelling_env": RATIONAL_ENV, "num_prompts": 6, "num_reward_steps": 2}
REWARD = RTOReward(**SIZES, **FITTED, num_dpo_steps=60, dpo_learning_rate=1e-2, token_reward_coef=0.5)
LINES = ("the boat waits .", "sea", "the kind boat waits slowly . the gentle wave turns .")


def texts(*lines):
    """Dialogues of one prompt, and texts of words."""
    spec = TASK.task_spec
    tokens = [np.asarray(spec.encode(f"{line} <end>")) for line in lines]
    rows = np.stack([np.pad(t, (0, spec.max_response_tokens - len(t)), constant_values=-1) for t in tokens])
    prompt = jnp.asarray(spec.encode("write about sea >"))
    return single_turn_dialogues(jnp.tile(prompt, (len(lines), 1)), jnp.asarray(rows), jnp.ones(len(lines), bool))


@pytest.fixture(scope="module")
def state():
    return jax.jit(lambda: REWARD.init_state(RATIONAL.spec, LIMITS, seed_key(1)))()


def test_the_reward_model_is_that_of_comparison_reward(state):
    alone = ComparisonReward(**SIZES, **FITTED)
    scorer = jax.jit(lambda: alone.init_state(RATIONAL.spec, LIMITS, seed_key(1)))()
    dialogues = texts(*LINES)
    expected = np.asarray(alone.score_turns(scorer, dialogues, seed_key(0)))
    weighted = dataclasses.replace(REWARD, outcome_weight=2.0)
    total = np.asarray(weighted.score_turns(state, dialogues, seed_key(0)))
    earned = np.asarray(REWARD.score_tokens(state, dialogues, seed_key(0)))
    mask = np.asarray(dialogues.response_mask)
    np.testing.assert_allclose(total, 2.0 * expected + np.where(mask, earned, 0.0).sum(axis=-1), rtol=1e-4, atol=1e-5)
    assert np.abs(expected).max() > 0.01 and np.abs(earned[mask]).max() > 0.001


def test_dpo_learns_from_the_comparisons_of_the_reward_model(state):
    """After 60 steps DPO's model orders the pairs that are compared for the reward model as the judge does."""
    key = fold(seed_key(1), ComparisonReward.name)
    pairs = better_first(compare_texts(state.tokens.reference, RATIONAL_ENV, 6, 1.2, LIMITS, key))
    sums = np.asarray(log_ratios(state.tokens.model, state.tokens.reference, pairs).sum(axis=(0, 2)))
    assert (sums[0::2] > sums[1::2]).all()


def test_preferred_texts_come_first():
    compared = ComparedTexts(texts("sea", "the boat waits .", "the wave turns .", "wave"), jnp.array([0.0, 1, 1, 0]))
    expected = texts("the boat waits .", "sea", "the wave turns .", "wave")
    ordered = better_first(compared)
    for name in ("transcript", "responses"):
        np.testing.assert_array_equal(getattr(ordered, name), getattr(expected, name))


def test_payment_at_the_end_changes_no_sum(state):
    dialogues, late = texts(*LINES), dataclasses.replace(REWARD, payment="response")
    mask = np.asarray(dialogues.response_mask)
    dense, delayed = (np.asarray(x.score_tokens(state, dialogues, seed_key(0))) for x in (REWARD, late))
    sums = np.where(mask, dense, 0.0).sum(axis=-1)
    for row in range(len(LINES)):
        last = mask[0, row].sum() - 1
        assert delayed[0, row, last] == pytest.approx(sums[0, row], abs=1e-6)
        assert not np.delete(delayed[0, row], last).any()
    total, late_total = (np.asarray(x.score_turns(state, dialogues, seed_key(0))) for x in (REWARD, late))
    np.testing.assert_allclose(total, late_total, atol=1e-5)


@pytest.mark.laws
def test_laws():
    check_feedback(dataclasses.replace(REWARD, num_dpo_steps=2), RATIONAL.spec)
