"""Implicit process reward: rewards and loss against a plain decoder, and turns told apart by outcomes alone."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from plain_decoder import logits_of
from small_dialogues import KEY, MODEL, make_dialogues

from thespis.feedback.implicit_reward import ImplicitProcessReward, ImplicitRewardState

OTHER = jax.tree.map(lambda x: 1.3 * x, MODEL)


def log_prob(model, tokens, start: int, count: int) -> float:
    """Log-probability of the tokens from ``start`` on."""
    scores = np.asarray(jax.nn.log_softmax(logits_of(model, tokens)), "float64")
    return sum(scores[start + i - 1, int(tokens[start + i])] for i in range(count))


@pytest.mark.long
def test_rewards_and_loss_are_those_of_log_ratios():
    feedback = ImplicitProcessReward(beta=0.3, max_return=2.0)
    dialogues = make_dialogues([8, 3, 8])
    rewards = jax.jit(feedback.turn_rewards)(OTHER, MODEL, dialogues)
    expected = np.zeros((3, 3))
    for row in range(3):
        for turn, start in ((0, 2), (1, 5)):
            tokens = dialogues.transcript[row, : start + 2]
            ratio = log_prob(OTHER, tokens, start, 2) - log_prob(MODEL, tokens, start, 2)
            expected[turn, row] = 0.3 * ratio
    np.testing.assert_allclose(rewards, expected, atol=1e-4)
    assert np.abs(expected[:2]).min() > 1e-3
    p, outcome = 1 / (1 + np.exp(-expected.sum(axis=0))), np.array([0.5, 0.0, 0.5])  # returns of 1, 0 and 1 of 2
    loss, metrics = jax.jit(feedback.outcome_loss)(OTHER, MODEL, dialogues)
    entropy = -outcome * np.log(p) - (1 - outcome) * np.log(1 - p)
    assert float(loss) == pytest.approx(entropy.mean(), abs=1e-4) == float(metrics["implicit_loss"])


@pytest.mark.long
def test_outcomes_alone_teach_which_turn_matters():
    """Dialogues that start with token 8 succeed; what follows is the same in all."""
    feedback = ImplicitProcessReward(beta=0.5, learning_rate=3e-3, num_gradient_steps=20)
    dialogues = make_dialogues([8, 3, 8, 3, 8, 3, 4, 8])
    transcript, responses = np.array(dialogues.transcript), np.array(dialogues.responses)
    transcript[:, 3:8], responses[0, :, 1], responses[1] = 1, 1, 1
    dialogues = dataclasses.replace(
        dialogues, transcript=jax.device_put(transcript), responses=jax.device_put(responses)
    )
    state = ImplicitRewardState(MODEL, jax.jit(feedback.optimizer.init)(MODEL), MODEL)
    score = jax.jit(lambda state: feedback.score_turns(state, dialogues, KEY))
    learn = jax.jit(lambda state: feedback.learn(state, dialogues, None, KEY))
    np.testing.assert_array_equal(score(state), 0.0)
    for _ in range(6):
        state, metrics = learn(state)
    reward, success = np.asarray(score(state)), np.array(dialogues.transcript)[:, 2] == 8
    assert metrics["outcome_accuracy"] == 1.0 and metrics["implicit_loss"] < 0.3
    assert reward[0][success].min() > 0.5 + reward[0][~success].max()
    np.testing.assert_array_equal(reward[2], 0.0)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (state.reference, MODEL)), strict=True))
