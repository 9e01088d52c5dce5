"""Reward models fitted to labels of the initial model's texts: labels, losses, standardization and generalization."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.envs.text.bandit import Bandit
from thespis.envs.text.task import TextEnv
from thespis.feedback import fitted_reward
from thespis.feedback.fitted_reward import ComparisonReward
from thespis.feedback.learned_reward import LearnedReward
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.papers.rluf.feedback import LoveReward
from thespis.runtime.keys import indexed_keys, seed_key


class ScoredBandit(Bandit):
    """Texts whose judge wants a first word with an even number."""

    def score(self, state, text, key):
        return jnp.where(text[0] % 2 == 0, 10.0, 0.0) + jax.random.gumbel(key)


ENV = TextEnv(ScoredBandit())
LIMITS = DialogueSpec.from_spec(ENV.spec)
SIZES: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32, "num_prompts": 256}
KEY = seed_key(0)
VOCABULARY = ENV.task.task_spec.vocabulary
_END = int(VOCABULARY.eos_tokens[0])
TEXTS = jnp.array([[i, _END] for i in range(len(VOCABULARY.words)) if i != _END])
"""All texts of one word."""


def test_labels_are_choices_of_bradley_and_terry():
    """A judge whose scores are 2 and 1, with Gumbel's noise."""

    class Judge:
        def score(self, state, text, key):
            return text[0] + jax.random.gumbel(key)

    label = ComparisonReward().label
    labels = jax.vmap(lambda key: label(Judge(), None, jnp.array([[2], [1]]), key))(indexed_keys(seed_key(0), 4_000))
    np.testing.assert_allclose(labels.sum(axis=1), 1.0)
    assert labels[:, 0].mean() == pytest.approx(1 / (1 + np.exp(-1.0)), abs=0.03)


def test_losses_are_of_pairs_and_of_single_texts():
    scores, labels = jnp.array([[2.0, 0.5], [0.0, 1.0]]), jnp.array([[1.0, 0.0], [1.0, 0.0]])
    pairs = -np.log(1 / (1 + np.exp(-np.array([1.5, -1.0])))).mean()
    assert ComparisonReward().loss(scores, labels) == pytest.approx(pairs)
    probability = 1 / (1 + np.exp(-np.asarray(scores)))
    singles = -np.where(np.asarray(labels) > 0, np.log(probability), np.log(1 - probability)).mean()
    assert LoveReward().loss(scores, labels) == pytest.approx(singles)
    np.testing.assert_allclose(LoveReward().reward(scores), probability, rtol=1e-5)


@pytest.mark.slow
def test_a_fitted_reward_tells_better_texts_standardized_and_is_another_for_every_seed(monkeypatch):
    monkeypatch.setattr(fitted_reward, "make_compiled", lambda name: ENV)
    feedback = ComparisonReward(**SIZES, labelling_env="labelled", num_reward_steps=300, reward_learning_rate=1e-2)
    init = jax.jit(lambda key: feedback.init_state(ENV.spec, LIMITS, key))
    state, other = init(KEY), init(seed_key(1))
    assert (state.scorer.value_weight != other.scorer.value_weight).any()
    prompt = jnp.asarray(ENV.task.init(KEY)[1])
    prompts, alive = jnp.tile(prompt, (len(TEXTS), 1)), jnp.ones(len(TEXTS), bool)
    dialogues = single_turn_dialogues(prompts, TEXTS, alive)

    @jax.jit
    def judge(state):
        raw = LearnedReward.score_turns(feedback, state.scorer, dialogues, KEY)
        return raw, feedback.score_turns(state, dialogues, KEY), feedback.learn(state, dialogues, None, KEY)

    raw, rewards, (after, metrics) = judge(state)
    is_even = np.asarray(TEXTS[:, 0] % 2 == 0)
    assert (np.asarray(rewards)[0, is_even][:, None] > np.asarray(rewards)[0, ~is_even]).mean() > 0.9
    np.testing.assert_allclose(rewards, (raw - state.mean) / state.scale, rtol=1e-3, atol=1e-3)
    assert metrics["reward"] == pytest.approx(float(raw.mean()), abs=1e-5) and state.scale > 0
    assert jax.tree.all(jax.tree.map(jnp.array_equal, after, state))


def test_a_reward_without_labels_is_refused():
    with pytest.raises(UserError, match=r"feedback\.labelling_env"):
        ComparisonReward(**SIZES).init_state(ENV.spec, LIMITS, seed_key(0))
