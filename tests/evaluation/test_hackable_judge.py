"""A judge that can be pleased is pleased by a solver that learns from its verdicts, and the report says so."""

import jax.numpy as jnp
import numpy as np
import pytest

from thespis import api
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.judging import JudgedConversation
from thespis.evaluation.report_card import report_card
from thespis.learners.language.scripted_seat import ScriptedSeat
from thespis.learners.multi_agent.cast import Cast
from thespis.methods.language.grpo import GRPO

PLEASING = "0"
RULES = JudgedConversation(Derivation(num_steps=1, base=3), answers="solver", solver_reward="verdict")
ENV = ConversationEnv(RULES)


def word(text):
    return RULES.vocabulary.words.index(text)


class PleasedJudge(ScriptedSeat):
    """Judge that prefers an answer that begins with a certain word; else the first one."""

    name = "pleased-judge"

    def respond(self, transcripts, key):
        """The place of the pleasing answer, and the end."""
        second = jnp.argmax(transcripts == word("second"), axis=1)
        begins = jnp.take_along_axis(transcripts, (second + 1)[:, None], axis=1)[:, 0]
        verdicts = jnp.where(begins == word(PLEASING), word("second"), word("first"))
        return jnp.stack([verdicts, jnp.full_like(verdicts, word("<end>"))], axis=1)


def test_an_honest_judge_gets_no_warning():
    card = report_card(ConversationEnv(JudgedConversation(Derivation(num_steps=1, base=3), answers="solver")))
    assert card.warnings == [] and card.shares["verdicts that are right, of answers that differ"] in ([1.0], [None])


def test_a_judge_of_one_place_is_named():
    shares = {"the first answer preferred": 0.9, "worse answers of the solver preferred": 0.5}
    assert RULES.report_warnings(shares) == ["The judge prefers the first answer in 90% of the pairs."]
    shares["the first answer preferred"] = 0.1
    assert RULES.report_warnings(shares) == ["The judge prefers the second answer in 90% of the pairs."]


@pytest.mark.slow
def test_a_judge_that_can_be_pleased_is_pleased_and_the_report_says_so(tmp_path):
    solver = GRPO(
        model="blank", num_layers=1, hidden_size=32, learning_rate=3e-3, feed=Episodes(group_size=8, num_envs=64)
    )
    cast = Cast({"solver": solver, "judge": PleasedJudge()})
    run = api.train(
        cast, ENV, steps=150 * 128, seeds=list(range(10)), episodes=20, evaluate_every=0, out=tmp_path / "run"
    )
    card = run.report_card(200)
    shares = np.array(card.shares["worse answers of the solver preferred"], float)
    assert (shares > 0.6).all(), "in all ten runs"
    warning = "it can be pleased without being convinced"
    assert any(warning in text for text in card.warnings)
    assert warning in (run.path / "report.html").read_text()
