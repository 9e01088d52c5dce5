"""Progress attribution: shares of the outcome against known outcomes, and returns that stay the environment's."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from small_dialogues import KEY, MODEL, make_dialogues

from thespis.feedback.progress_attribution import ProgressAttribution, ProgressAttributionState
from thespis.feedback.text_model import turn_scores
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import add_value_head


def returns_of(reward, dialogues: Dialogues) -> np.ndarray:
    """Return of each dialogue with these rewards."""
    return np.where(dialogues.alive, reward, 0.0).sum(axis=0)


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
