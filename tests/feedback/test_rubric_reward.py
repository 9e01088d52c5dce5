"""Rubric rewards: points of last responses, revisions by regression against an independent one, and when they come."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.envs.text.bandit import Bandit
from thespis.envs.text.task import TextEnv
from thespis.feedback import rubric_reward
from thespis.feedback.rubric_reward import AuditedRubric, RubricReward, refit_weights
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.runtime.keys import seed_key


class CheckedBandit(Bandit):
    """Texts of one word that are checked for an even token and for the token's size."""

    check_names: ClassVar[tuple[str, ...]] = ("even", "size")

    def grade_checks(self, prompt, response):
        return jnp.stack([response[0] % 2 == 0, response[0] / 20.0]).astype("float32")


ENV = TextEnv(CheckedBandit())
LIMITS = DialogueSpec.from_spec(ENV.spec)
KEY = seed_key(0)
NUM_TEXTS = 16
WORDS = jnp.arange(2, 2 + NUM_TEXTS)
CHECKS = np.stack([np.asarray(WORDS) % 2 == 0, np.asarray(WORDS) / 20.0], axis=1).astype("float32")


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    monkeypatch.setattr(rubric_reward, "make_compiled", lambda name: TextEnv(Bandit()) if name == "plain" else ENV)


def dialogues(rewards):
    prompt = jnp.asarray(ENV.task.init(KEY)[1])
    texts = jnp.stack([WORDS, jnp.full(NUM_TEXTS, int(ENV.task.task_spec.vocabulary.eos_tokens[0]))], axis=1)
    spoken = single_turn_dialogues(jnp.tile(prompt, (NUM_TEXTS, 1)), texts, jnp.ones(NUM_TEXTS, bool))
    return type(spoken)(**{**vars(spoken), "reward": jnp.asarray(rewards, "float32")[None]})


def test_points_are_weighted_checks_of_the_last_response_and_a_fixed_rubric_stays():
    feedback = RubricReward(checked_env="checked", weights=(0.5, -2.0))
    state = feedback.init_state(ENV.spec, LIMITS, KEY)
    batch = dialogues(np.arange(NUM_TEXTS))
    points = CHECKS @ [0.5, -2.0]
    np.testing.assert_allclose(feedback.score_turns(state, batch, KEY)[0], points, rtol=1e-5)
    after, metrics = feedback.learn(state, batch, None, KEY)
    np.testing.assert_allclose(after.weights, state.weights)
    assert metrics["points"] == pytest.approx(points.mean(), rel=1e-5)
    assert metrics["agreement"] == pytest.approx(np.corrcoef(points, np.arange(NUM_TEXTS))[0, 1], abs=1e-5)
    assert feedback.learn(state, dialogues(np.ones(NUM_TEXTS)), None, KEY)[1]["agreement"] == 0.0


def test_weights_are_refitted_as_by_least_squares_with_rows_for_what_stays():
    rng = np.random.default_rng(0)
    checks, rewards, weights = rng.random((12, 4)), rng.random(12), rng.random(4)
    # the prior as further rows of an ordinary least-squares problem, whose last column is the constant
    rows = np.concatenate([np.c_[checks, np.ones(12)], np.c_[np.sqrt(0.7) * np.eye(4), np.zeros(4)]])
    targets = np.concatenate([rewards, np.sqrt(0.7) * weights])
    expected = np.linalg.lstsq(rows, targets, rcond=None)[0][:4]
    refitted = refit_weights(jnp.asarray(weights), jnp.asarray(checks), jnp.asarray(rewards), 0.7)
    np.testing.assert_allclose(refitted, expected, atol=1e-4)


def test_audits_come_in_intervals_and_find_what_a_text_is_worth():
    settings = {"checked_env": "checked", "weights": (0.5, 0.0), "audit_interval": 2, "num_audited": NUM_TEXTS}
    batch = dialogues(CHECKS @ [-1.0, 0.3])
    for feedback, num_revised in (
        (AuditedRubric(**settings, prior_strength=1e-3), 3),
        (AuditedRubric(**settings, prior_strength=1e-3, max_audits=1), 1),
    ):
        state, revised = feedback.init_state(ENV.spec, LIMITS, KEY), []
        for _ in range(6):
            after = feedback.learn(state, batch, None, KEY)[0]
            revised.append(bool((after.weights != state.weights).any()))
            state = after
        np.testing.assert_allclose(state.weights, [-1.0, 0.3], atol=0.01)
        assert revised == ([False, True] * 3 if num_revised == 3 else [False, True] + [False] * 4)


def test_an_auditor_with_errors_of_its_own_is_wrong_about_as_much():
    settings = {"checked_env": "checked", "weights": (0.0, 0.0), "num_audited": NUM_TEXTS, "audit_interval": 1}
    feedback = AuditedRubric(**settings, prior_strength=1e-3, audit_noise=1.0)
    state = feedback.init_state(ENV.spec, LIMITS, KEY)
    after = feedback.learn(state, dialogues(CHECKS @ [-1.0, 0.3]), None, KEY)[0]
    assert 0.05 < abs(after.weights[0] + 1.0) < 2.0


def test_rubrics_without_checks_or_weights_are_refused():
    with pytest.raises(UserError, match="checked_env"):
        RubricReward().init_state(ENV.spec, LIMITS, KEY)
    with pytest.raises(UserError, match="no checks"):
        RubricReward(checked_env="plain").init_state(ENV.spec, LIMITS, KEY)
    with pytest.raises(UserError, match="even, size"):
        RubricReward(checked_env="checked", weights=(1.0,)).init_state(ENV.spec, LIMITS, KEY)
    audited = AuditedRubric(checked_env="checked", weights=(1.0, 1.0), num_audited=NUM_TEXTS + 1)
    state = audited.init_state(ENV.spec, LIMITS, KEY)
    with pytest.raises(UserError, match="num_audited"):
        audited.learn(state, dialogues(np.ones(NUM_TEXTS)), None, KEY)
