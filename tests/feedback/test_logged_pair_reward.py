"""Reward model of logged pairs: its loss against a sum over pairs, and what it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import KEY, MODEL

from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.learners.language.lm_agent import LMWithValueHead, add_value_head
from thespis.learners.language.turn_scores import turn_scores
from thespis.papers.dpo_vs_ppo_study.reward import LoggedPairReward, all_pairs_loss

PROMPTS = jnp.array([[1, 2], [3, 2], [1, 2], [3, 2], [1, 2], [1, 2]])
RESPONSES = jnp.array([[4, 5], [4, 5], [5, 6], [6, 4], [6, 6], [4, 6]])
RETURNS = jnp.array([0.5, 1.0, 2.0, 0.0, 0.5, -1.0])


def make_logged():
    dialogues = single_turn_dialogues(PROMPTS, RESPONSES, jnp.ones(6, bool))
    return dataclasses.replace(dialogues, reward=RETURNS[None])


def test_the_loss_is_that_of_all_pairs_with_equal_prompts_and_different_returns():
    rng = np.random.default_rng(0)
    scorer = LMWithValueHead(MODEL, *jax.device_put((rng.normal(size=32).astype("float32"), np.float32(0.3))))
    loss, rewards = jax.jit(
        lambda scorer: (all_pairs_loss(scorer, make_logged())[0], turn_scores(scorer, make_logged()))
    )(scorer)
    rewards, prompts = np.asarray(rewards, "float64")[0], np.asarray(PROMPTS)
    losses = [
        np.log1p(np.exp(rewards[j] - rewards[i]))
        for i in range(6)
        for j in range(6)
        if (prompts[i] == prompts[j]).all() and RETURNS[i] > RETURNS[j]
    ]
    assert len(losses) == 6
    assert float(loss) == pytest.approx(np.mean(losses), rel=1e-4)


def test_rewards_have_the_order_of_returns_after_training():
    feedback = LoggedPairReward(learning_rate=3e-3)
    model = jax.jit(lambda: add_value_head(MODEL, 32))()
    state = (model, jax.jit(feedback.optimizer.init)(model))
    learn = jax.jit(lambda state: feedback.learn(state, make_logged(), make_logged(), KEY))
    for _ in range(60):
        state, metrics = learn(state)
    assert float(metrics["accuracy"]) == 1.0
    rewards = np.asarray(jax.jit(lambda state: feedback.score_turns(state, make_logged(), KEY))(state))[0]
    assert rewards[2] > max(rewards[0], rewards[4]) and min(rewards[0], rewards[4]) > rewards[5]
    assert rewards[1] > rewards[3]
