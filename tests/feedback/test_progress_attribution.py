"""Progress attribution: shares of the outcome against known outcomes, and returns that stay the environment's."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import DIALOGUE_SPEC, KEY, MODEL, make_dialogues

from thespis.core.errors import UserError
from thespis.feedback.progress_attribution import ProgressAttribution, ProgressAttributionState
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import add_value_head
from thespis.learners.language.turn_scores import turn_scores
from thespis.papers.spa_rl.envs import MENU


def returns_of(reward, dialogues: Dialogues) -> np.ndarray:
    """Return of each dialogue with these rewards."""
    return np.where(dialogues.alive, reward, 0.0).sum(axis=0)


@pytest.mark.long
def test_turns_are_rewarded_with_estimated_progress():
    """Dialogues whose first response starts with token 8 succeed: its reward is higher; rewards sum to the outcome."""
    feedback = ProgressAttribution(num_warmup_batches=1, num_gradient_steps=40)
    dialogues = make_dialogues([8, 2, 8, 2, 8, 2, 2, 8])
    transcript = np.array(dialogues.transcript)
    transcript[:, 3:8] = 1  # all else is equal
    dialogues = dataclasses.replace(dialogues, transcript=jax.device_put(transcript))
    returns = returns_of(dialogues.reward, dialogues)

    @jax.jit
    def init():
        estimator = add_value_head(MODEL, 32)
        return ProgressAttributionState(estimator, feedback.optimizer.init(estimator), jnp.zeros((), "int32"))

    state, score = init(), jax.jit(lambda state: feedback.score_turns(state, dialogues, KEY))
    learn = jax.jit(lambda state: feedback.learn(state, dialogues, None, KEY))
    np.testing.assert_array_equal(score(state), dialogues.reward)
    for _ in range(12):
        state, metrics = learn(state)
    reward, shares = np.asarray(score(state)), np.asarray(jax.jit(turn_scores)(state.estimator, dialogues))
    np.testing.assert_allclose(returns_of(reward, dialogues), returns, atol=1e-5)
    np.testing.assert_allclose(shares.sum(axis=0), returns, atol=0.15)
    np.testing.assert_allclose(reward[0], shares[0], atol=0.1)
    success = returns > 0
    assert reward[0][success].min() > 0.2 + reward[0][~success].max()
    assert float(metrics["attribution_loss"]) < 0.02


@pytest.mark.long
def test_buffer_holds_the_latest_dialogues_and_the_warm_up_can_be_without_rewards():
    """The estimator learns from dialogues of earlier batches: here from those that succeed after one that fails."""
    feedback = ProgressAttribution(
        num_warmup_batches=2, num_gradient_steps=60, buffer_size=4, batch_size=16, warmup_outcome=False
    )
    sampled = [make_dialogues([8, 8]), make_dialogues([2, 2]), make_dialogues([8, 2])]
    batches = [Dialogues(*(getattr(x, field.name) for field in dataclasses.fields(Dialogues))) for x in sampled]

    @jax.jit
    def init():
        estimator = add_value_head(MODEL, 32)
        replay = Dialogues.empty(4, DIALOGUE_SPEC, DIALOGUE_SPEC.max_turns)
        return ProgressAttributionState(estimator, feedback.optimizer.init(estimator), jnp.zeros((), "int32"), replay)

    learn = jax.jit(lambda state, dialogues: feedback.learn(state, dialogues, None, KEY)[0])
    score = jax.jit(lambda state, dialogues: feedback.score_turns(state, dialogues, KEY))
    state = init()
    for i, batch in enumerate(batches):
        rewards = np.asarray(score(state, batch))
        assert rewards.any() == (i >= 2)
        state = learn(state, batch)
    stored = np.asarray(state.replay.returns)
    np.testing.assert_array_equal(stored, np.concatenate([np.asarray(b.returns) for b in (batches[2], batches[1])]))
    shares = np.asarray(jax.jit(turn_scores)(state.estimator, batches[0])).sum(axis=0)
    failing = np.asarray(jax.jit(turn_scores)(state.estimator, batches[1])).sum(axis=0)
    assert shares.min() > failing.max() + 0.3


def test_refused_responses_are_penalized():
    """With an estimator of zeros the rewards are the penalties, and the outcome at the end."""
    feedback = ProgressAttribution(num_warmup_batches=0, refusal_penalty=0.5, refusal_word="no")
    dialogues = make_dialogues([8, 2, 8])
    transcript = np.array(dialogues.transcript)
    transcript[transcript == 7] = 6
    transcript[1, 4], transcript[2, 3], transcript[2, 7] = 7, 7, 7  # replies stand at 4 and 7, 3 is in a response
    dialogues = dataclasses.replace(dialogues, transcript=jax.device_put(transcript))
    estimator = add_value_head(MODEL, 32)
    state = ProgressAttributionState(estimator, (), jnp.zeros((), "int32"), (), jnp.asarray(7, "int32"))
    reward = np.asarray(jax.jit(lambda state: feedback.score_turns(state, dialogues, KEY))(state))
    np.testing.assert_allclose(reward[:2], [[0.0, -0.5, 0.0], [1.0, 0.0, 0.5]])


def test_the_refusal_is_a_word_of_the_environment():
    spec = MENU.spec
    state = eqx.filter_eval_shape(
        lambda: ProgressAttribution(model="blank", num_layers=1, hidden_size=32, refusal_word="no").init(spec, KEY)
    )
    assert state.refusal_token.shape == ()
    with pytest.raises(UserError, match="has no word 'never'"):
        ProgressAttribution(model="blank", num_layers=1, hidden_size=32, refusal_word="never").init(spec, KEY)
