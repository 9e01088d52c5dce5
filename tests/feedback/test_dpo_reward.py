"""DPO's reward of tokens: the loss against its formula, what it learns from comparisons, and its clip."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import KEY, MODEL, make_dialogues
from synthetic_batches import quick_key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.core.laws.components import check_feedback
from thespis.envs.text.bandit import Bandit
from thespis.envs.text.task import TextEnv
from thespis.feedback.dpo_reward import DPOReward, DPORewardState, log_ratios
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.nets.decoder import init_decoder


class EvenBandit(Bandit):
    """Texts of one word, whose judge wants an even number."""

    def score(self, state, text, key):
        return jnp.where(text[0] % 2 == 0, 1.0, 0.0) + 0.1 * jax.random.gumbel(key)


ENV = TextEnv(EvenBandit())
SIZES: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32, "labelling_env": f"{__name__}:ENV"}
REWARD = DPOReward(**SIZES, num_prompts=8, num_dpo_steps=2, dpo_batch_size=4)
OTHER = jax.jit(init_decoder, static_argnums=0)(MODEL.config, quick_key(3))


def test_the_loss_of_pairs_is_that_of_summed_log_ratios():
    pairs, feedback = make_dialogues([8, 3, 4, 5]), DPOReward(beta=0.7)
    loss, log_probs = jax.jit(
        lambda a, b: (
            feedback.pair_loss(a, b, pairs),
            [pairs.response_log_probs(m, TemperatureSampler())[0] for m in (a, b)],
        )
    )(OTHER, MODEL)
    mask = np.asarray(pairs.response_mask)
    sums = np.where(mask, np.asarray(log_probs[0] - log_probs[1]), 0.0).sum(axis=(0, 2))
    expected = np.log1p(np.exp(-0.7 * (sums[[0, 2]] - sums[[1, 3]]))).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_tokens_earn_the_clipped_log_ratio():
    dialogues, feedback = make_dialogues([8, 3, 4]), DPOReward(token_reward_coef=0.5, token_reward_clip=0.1)
    state = DPORewardState(OTHER, MODEL)
    earned, ratio = jax.jit(
        lambda state: (feedback.score_tokens(state, dialogues, KEY), log_ratios(OTHER, MODEL, dialogues))
    )(state)
    mask = np.asarray(dialogues.response_mask)
    np.testing.assert_allclose(earned, np.clip(0.5 * np.asarray(ratio), -0.1, 0.1), atol=1e-6)
    assert np.abs(np.asarray(earned)[mask]).max() == pytest.approx(0.1) and (np.asarray(ratio)[~mask] == 0).all()


@pytest.mark.laws
def test_laws():
    check_feedback(REWARD, ENV.spec)


@pytest.mark.long
def test_words_that_comparisons_prefer_earn_more():
    feedback = dataclasses.replace(REWARD, num_prompts=256, num_dpo_steps=60, dpo_batch_size=32, token_reward_clip=9.0)
    feedback = dataclasses.replace(feedback, dpo_learning_rate=3e-3)
    spec, vocabulary = DialogueSpec.from_spec(ENV.spec), ENV.task.task_spec.vocabulary
    end = int(vocabulary.eos_tokens[0])
    texts = jnp.array([[i, end] for i in range(len(vocabulary.words)) if i != end])

    @jax.jit
    def earned(key):
        state = feedback.init_state(ENV.spec, spec, key)
        prompts = jnp.tile(ENV.task.init(key)[1], (len(texts), 1))
        dialogues = single_turn_dialogues(prompts, texts, jnp.ones(len(texts), bool))
        return feedback.score_tokens(state, dialogues, key)[0, :, 0]

    rewards, even = np.asarray(earned(quick_key(5))), np.asarray(texts[:, 0]) % 2 == 0
    assert rewards[even].min() > rewards[~even].max()


def test_comparisons_that_nobody_makes_are_refused():
    with pytest.raises(UserError, match=r"set feedback\.labelling_env"):
        DPOReward(model="blank").init_state(ENV.spec, DialogueSpec.from_spec(ENV.spec), KEY)
