"""Report on a critic's verdicts: calibration and discrimination that are known, and a critic in numbers beside it."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.critique import CritiqueConversation
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.registry import make_text_env
from thespis.envs.text.task import TextEnv
from thespis.evaluation.report_card import report_card
from thespis.evaluation.verdict_report import report_on_verdicts
from thespis.feedback.text_feedback import TextFeedback
from thespis.methods.language.rm import RM

SETTINGS = {"num_steps": 1, "base": 4, "demonstrator_noise": 0.8}
"""Answers that are right with probability 0.2 + 0.8 / 4 = 0.4, and a critic's guess that is right in half of them."""


def env_of(**settings):
    return ConversationEnv(CritiqueConversation(Derivation(**SETTINGS | settings)))


def test_an_exact_critic_is_calibrated_and_a_liar_is_not():
    exact, liar = (report_on_verdicts(env_of(critic_lies=lies), num_answers=300) for lies in (0.0, 1.0))
    assert exact.accuracy == exact.majority_accuracy == exact.discrimination == [1.0]
    assert exact.calibration_error == exact.undecided == [0.0]
    assert liar.accuracy == liar.majority_accuracy == liar.discrimination == [0.0]
    assert liar.calibration_error == [1.0]
    assert "nan" not in exact.sentence and exact.agreement is None


def test_random_verdicts_have_the_calibration_of_a_coin():
    """A random verdict calls an answer right with probability 1 / 2, so of three votes k do in 1, 3, 3, 1 of eight
    cases; 0.4 of the answers are right, whatever the votes."""
    report = report_on_verdicts(env_of(critic_noise=1.0), num_answers=6_000, num_votes=3)
    gaps = [abs(0.4 - k / 3) for k in range(4)]
    np.testing.assert_allclose(report.calibration_error, np.dot(gaps, [1, 3, 3, 1]) / 8, atol=0.02)
    np.testing.assert_allclose(report.discrimination, 0.5, atol=0.025)
    np.testing.assert_allclose([report.accuracy, report.majority_accuracy], 0.5, atol=0.02)


def test_majorities_of_noisy_verdicts_are_right_as_the_binomial_says():
    """A verdict is right with probability 0.6 + 0.4 / 2 = 0.8; a majority of three with 0.8^3 + 3 * 0.8^2 * 0.2."""
    report = report_on_verdicts(env_of(critic_noise=0.4), num_answers=4_000, num_votes=3)
    np.testing.assert_allclose(report.accuracy, 0.8, atol=0.015)
    np.testing.assert_allclose(report.majority_accuracy, 0.896, atol=0.015)
    assert report.discrimination[0] > 0.85


class FirstDigit(TextFeedback):
    """Score of an answer by its first digit: a critic in numbers that is no better than chance."""

    name: ClassVar[str] = "first-digit"
    citations: ClassVar[tuple] = ()

    def score_turns(self, state, dialogues, key):
        return dialogues.responses[..., 0].astype("float32")


class ExactNumber(TextFeedback):
    """Score of an answer by the environment's own reward."""

    name: ClassVar[str] = "exact-number"
    citations: ClassVar[tuple] = ()

    def score_turns(self, state, dialogues, key):
        assert dialogues.transcript.shape[1] > 3
        return dialogues.reward + jnp.asarray(state)

    def init_state(self, spec, dialogue_spec, key):
        return 0.0


def test_words_agree_with_numbers_as_often_as_both_are_right():
    """Exact words and exact numbers agree; of a liar the opposite; numbers by chance agree in half of the pairs."""
    exact, liar = (
        report_on_verdicts(env_of(critic_lies=lies), num_answers=300, numbers=ExactNumber()) for lies in (0.0, 1.0)
    )
    assert exact.agreement == exact.number_discrimination == liar.number_discrimination == [1.0]
    assert liar.agreement == [0.0] and "in numbers" in liar.sentence
    by_chance = report_on_verdicts(env_of(), num_answers=3_000, numbers=FirstDigit())
    np.testing.assert_allclose([by_chance.agreement, by_chance.number_discrimination], 0.5, atol=0.05)


def test_answers_of_the_demonstrator_are_scored_as_well():
    rules = CritiqueConversation(Derivation(**SETTINGS), first_answer="demonstrator")
    report = report_on_verdicts(ConversationEnv(rules), num_answers=200, numbers=ExactNumber(), numbers_state=1.0)
    assert report.accuracy == report.agreement == report.number_discrimination == [1.0]


@pytest.mark.long
def test_a_reward_model_is_a_critic_in_numbers():
    """As a run's: the method's feedback with the state at its address, of the first seed."""
    method = RM(model="blank", num_layers=1, hidden_size=32)
    spec = TextEnv(Derivation(**SETTINGS)).spec
    states = jax.vmap(lambda key: method.init(spec, key))(jax.random.split(jax.random.key(0), 2))
    state = jax.tree.map(lambda x: x[0], states.scorers)
    report = report_on_verdicts(env_of(), num_answers=100, numbers=method.as_feedback(), numbers_state=state)
    assert 0.0 <= report.agreement[0] <= 1.0 and report.agreement == report.number_discrimination


def test_a_report_card_has_majorities_and_calibration():
    shares = report_card(env_of(critic_noise=0.4), num_episodes=500).shares
    assert shares["judgments that are right, majorities of 5"][0] > shares["judgments that are right"][0] + 0.05
    assert 0.0 < shares["calibration error of 5 judgments"][0] < 0.3


def test_other_environments_and_no_votes_are_refused():
    with pytest.raises(UserError, match="no conversation with a critic whose verdicts"):
        report_on_verdicts(make_text_env("kuhn-duel"))
    with pytest.raises(UserError, match="num_votes=0"):
        report_on_verdicts(env_of(), num_votes=0)
