"""Report on a critic: scripted solvers and critics whose worth is known."""

import equinox as eqx
import jax
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.critique import CritiqueConversation
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.registry import make_text_env
from thespis.evaluation.critic_report import play_critiques, report_on_critic
from thespis.evaluation.report_card import ReportCard, report_card
from thespis.learners.language.frozen_model import FrozenModel
from thespis.learners.multi_agent.cast import Cast
from thespis.methods.language.grpo import GRPO


def scripted_report(**settings):
    return report_on_critic(ConversationEnv(CritiqueConversation(Derivation(**settings))), num_episodes=2_000)


def test_an_exact_critic_repairs_and_spoils_nothing():
    """Of four steps each is wrong with probability 0.18; a revision errs anew in the steps that it derives."""
    report = scripted_report(demonstrator_noise=0.2)
    np.testing.assert_allclose(report.first_accuracy, 0.1 + 0.9 * 0.8**4, atol=0.035)
    assert report.spoiled[0] == pytest.approx(0.0, abs=0.03)  # right answers with two errors that cancel
    assert report.lift[0] > 0.25
    right, wrong = report.first_accuracy[0], 1 - report.first_accuracy[0]
    assert report.final_accuracy[0] == pytest.approx(right * (1 - report.spoiled[0]) + wrong * report.repaired[0])
    assert "repairs" in report.sentence and "nan" not in report.sentence


def test_a_random_critic_spoils_right_answers():
    report = scripted_report(demonstrator_noise=0.2, critic_noise=1.0)
    assert abs(report.lift[0]) < 0.06 and report.spoiled[0] > 0.2


def test_a_solver_that_never_errs_has_nothing_to_repair():
    report = scripted_report(demonstrator_noise=0.0)
    assert report.first_accuracy[0] == report.final_accuracy[0] == 1 and np.isnan(report.repaired[0])


@pytest.mark.slow
def test_an_exact_critic_in_the_place_of_a_models():
    """A model that knows nothing solves nothing, whoever criticizes it; as a critic it does not help the script."""
    env = ConversationEnv(CritiqueConversation(Derivation(num_steps=2)))
    blank = {"model": "blank", "num_layers": 1, "hidden_size": 32}
    cast = Cast({"solver": FrozenModel(**blank), "critic": GRPO(**blank, feed=Episodes(3, 4, num_envs=8))})
    states = eqx.filter_jit(jax.vmap(lambda key: cast.init(env.spec, key)))(jax.random.split(jax.random.key(0), 2))
    report = report_on_critic(env, cast, states, 100, scripted=["critic"])
    assert report.first_accuracy.shape == (2,) and report.final_accuracy.max() < 0.1
    report = report_on_critic(env, cast, states, 200, scripted=["solver"])
    assert report.first_accuracy.min() > 0.5 and report.lift.max() < 0.1


def test_other_environments_are_refused():
    with pytest.raises(UserError, match="no conversation of a solver and a critic"):
        report_on_critic(make_text_env("kuhn-duel"))


@pytest.mark.long
def test_judgments_are_right_as_often_as_the_critic_is_exact():
    """Of one step: a random verdict is right for every second answer; a revision without errors repairs them all."""
    settings = {"num_steps": 1, "base": 4, "demonstrator_noise": 0.8, "revision_noise": 0.0}
    exact, noisy = scripted_report(**settings), scripted_report(**settings, critic_noise=0.6)
    assert exact.judgment_accuracy[0] == exact.final_accuracy[0] == 1.0
    assert exact.first_accuracy[0] == pytest.approx(0.25 + 0.75 * 0.2, abs=0.035)
    assert noisy.judgment_accuracy[0] == pytest.approx(0.4 + 0.6 / 2, abs=0.035)
    assert "rightly whether they are right" in noisy.sentence


class UnreadCritiques(eqx.Module):
    """Derivations of a task that does not say what a critique means."""

    task: Derivation

    def __getattr__(self, name):
        if name == "critique_judgment":
            raise AttributeError(name)
        return getattr(self.task, name)


def test_judgments_that_cannot_be_read_have_no_accuracy():
    report = report_on_critic(ConversationEnv(CritiqueConversation(UnreadCritiques(Derivation(num_steps=1)))))
    assert np.isnan(report.judgment_accuracy).all() and "rightly" not in report.sentence and report.lift[0] > 0


@pytest.mark.long
def test_played_conversations_are_those_of_the_report():
    env = ConversationEnv(CritiqueConversation(Derivation(), first_answer="demonstrator"))
    inner, rewards = play_critiques(env, num_episodes=300)
    report = report_on_critic(env, num_episodes=300)
    assert inner.answer.shape == (1, 300, 5) and rewards.shape == (1, 300)
    assert report.first_accuracy[0] == pytest.approx(np.asarray(inner.answer_reward).mean())
    assert report.final_accuracy[0] == pytest.approx(np.asarray(rewards).mean())


@pytest.mark.parametrize("seed", range(10))
def test_a_lying_critic_is_found_in_every_run(seed):
    """Its judgments are wrong, and the solver that believes it spoils right answers and repairs none."""
    settings = {"num_steps": 1, "base": 4, "demonstrator_noise": 0.6, "revision_noise": 0.0}
    cards = [
        report_card(ConversationEnv(CritiqueConversation(Derivation(**settings, critic_lies=lies))), seeds=[seed])
        for lies in (0.0, 1.0)
    ]
    honest, liar = (card.shares for card in cards)
    assert cards[0].warnings == []
    assert [text.partition(":")[0] for text in cards[1].warnings] == ["The critic lies"]
    assert honest["judgments that are right"] == [1.0] and liar["judgments that are right"] == [0.0]
    assert honest["wrong answers called wrong (recall)"] == honest["answers called wrong that are (precision)"] == [1.0]
    assert liar["wrong answers called wrong (recall)"] == [0.0]
    assert liar["right answers called wrong (false alarms)"] == [1.0]
    assert honest["wrong answers whose first error is named"] == [1.0]
    assert honest["right answers spoiled"] == [0.0] and liar["wrong answers repaired"] == [0.0]


@pytest.mark.long
def test_a_share_of_episodes_that_never_occur_is_unknown():
    env = ConversationEnv(CritiqueConversation(Derivation(num_steps=1, demonstrator_noise=0.0)))
    card = report_card(env, num_episodes=50)
    assert card.shares["wrong answers repaired"] == [None]
    rows = {name: (mean, interval) for name, mean, interval, _ in card.rows()}
    assert rows["wrong answers repaired"] == (None, None) and rows["right before the critique"] == (1.0, None)
    assert ReportCard.from_json(card.to_json()) == card and rows["return of the solver"][0] == 1.0
