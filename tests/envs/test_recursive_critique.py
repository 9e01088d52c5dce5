"""Recursive critiques: who reads what, what each seat implies of the answer and earns, and the report on levels."""

import numpy as np
import pytest
from played_conversations import play

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.text.bandit import Bandit
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.maze import Maze
from thespis.envs.text.recursive_critique import RecursiveCritiqueConversation
from thespis.envs.text.registry import make_text_env
from thespis.evaluation.oversight_report import report_on_oversight
from thespis.evaluation.report_card import report_card

TASK = Derivation(num_steps=1, base=3, demonstrator_noise=0.6)
TWO = ConversationEnv(RecursiveCritiqueConversation(TASK))
SOLVED = ConversationEnv(RecursiveCritiqueConversation(TASK, levels=1, first_answer="solver", solver_reward="verdict"))


def is_right(text):
    """Whether the sum in what a critic reads, such as ``1 + 2 0``, is right."""
    start, sign, operand, value = text.split()[:4]
    return (int(start) + (-1 if sign == "-" else 1) * int(operand) - int(value)) % 3 == 0


def answered(right, env=TWO):
    """A seed with which the answer is right, or wrong, and what the first critic reads."""
    for seed in range(20):
        text = play(env, [], seed)[0][0]["critic1"]
        if is_right(text) == right:
            return seed, text
    raise AssertionError


def test_each_seat_reads_the_answer_and_all_critiques_before_its_turn():
    seed, text = answered(True)
    turns = [("critic1", "step 1 <end>"), ("critic2", "disagree <end>"), ("judge", "agree <end>")]
    texts, _, speakers, steps = play(TWO, turns, seed)
    read = text.removesuffix(" >")
    assert texts[0] == {"judge": "", "critic1": text, "critic2": ""}
    assert texts[1]["critic2"] == f"{read} critique step 1 >" and texts[1]["judge"] == ""
    assert texts[2]["judge"] == f"{read} critique step 1 critique disagree >"
    assert speakers == [["critic1"], ["critic2"], ["judge"], []]
    assert [bool(step.terminated) for step in steps] == [False, False, False, True]


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("critique", ["right", "step 1"])
@pytest.mark.parametrize("reply", ["agree", "disagree"])
@pytest.mark.parametrize("word", ["agree", "disagree"])
def test_who_disagrees_says_the_opposite_of_what_it_criticizes(right, critique, reply, word):
    seed, _ = answered(right)
    turns = [("critic1", f"{critique} <end>"), ("critic2", f"{reply} <end>"), ("judge", f"{word} <end>")]
    _, rewards, _, _ = play(TWO, turns, seed)
    first = critique == "right"
    second = first == (reply == "agree")
    last = second == (word == "agree")
    assert rewards[-1] == {"critic1": first == right, "critic2": second == right, "judge": last == right}
    assert all(set(reward.values()) == {0.0} for reward in rewards[:-1])


def test_what_says_neither_has_no_judgment_and_so_have_critiques_of_it():
    seed, _ = answered(True)
    turns = [("critic1", "1 1 <end>"), ("critic2", "agree <end>"), ("judge", "disagree <end>")]
    rewards = play(TWO, turns, seed)[1]
    assert rewards[-1] == {"critic1": 0, "critic2": 0, "judge": 0}
    turns = [("critic1", "right <end>"), ("critic2", "agree right <end>"), ("judge", "agree <end>")]
    assert play(TWO, turns, seed)[1][-1] == {"critic1": 1, "critic2": 0, "judge": 0}


def test_a_panel_reads_the_answer_alone_and_agrees_with_it_or_not():
    env = ConversationEnv(RecursiveCritiqueConversation(TASK, reads="answer"))
    seed, text = answered(False, env)
    turns = [("critic1", "right <end>"), ("critic2", "disagree <end>"), ("judge", "disagree <end>")]
    texts, rewards, _, _ = play(env, turns, seed)
    assert texts[2]["critic2"].startswith(text) and texts[2]["judge"] == text
    assert rewards[-1] == {"critic1": 0, "critic2": 1, "judge": 1}


def test_without_levels_the_judge_agrees_with_the_answer_or_not():
    env = ConversationEnv(RecursiveCritiqueConversation(TASK, levels=0, max_verdict_tokens=4))
    text = play(env, [])[0][0]["judge"]
    for words, judgment in (("agree", True), ("step 1 disagree", False), ("right agree", True)):
        assert play(env, [("judge", f"{words} <end>")])[1][-1] == {"judge": judgment == is_right(text)}


def test_a_solver_earns_what_the_judge_believes_and_critics_what_it_sides_with():
    text = play(SOLVED, [])[0][0]["solver"]
    answer = next(value for value in "012" if is_right(f"{text.removesuffix(' >')} {value}"))
    turns = [("solver", f"{answer} <end>"), ("critic1", "step 1 <end>"), ("judge", "agree <end>")]
    texts, rewards, _, _ = play(SOLVED, turns)
    assert texts[1]["critic1"] == f"{text.removesuffix(' >')} {answer} >"
    assert rewards[-1] == {"judge": 0, "critic1": 0, "solver": 0}
    env = ConversationEnv(RecursiveCritiqueConversation(TASK, levels=1, first_answer="solver", critic_reward="verdict"))
    assert play(env, turns)[1][-1] == {"judge": 0, "critic1": 1, "solver": 1}


@pytest.mark.long
def test_the_script_is_right_at_every_level_and_its_noise_is_where_it_is_set():
    for env in (TWO, ConversationEnv(RecursiveCritiqueConversation(TASK, levels=3, first_answer="solver"))):
        card = report_card(env, num_episodes=200)
        assert card.shares["verdicts that are right"] == [1.0] and not card.warnings
        assert 0.2 < card.shares["answers that are right"][0] < 0.9
    lenient = make_text_env("recursive-derivation?num_steps=1&base=3&critic_lies=1&levels=1")
    card = report_card(lenient, num_episodes=200)
    assert card.shares["judgments of critic1 that are right"] == [0.0]
    assert card.shares["wrong judgments of the last critic mended"] == [1.0]
    assert "critic1 lies" in card.warnings[0]
    careless = make_text_env("recursive-derivation?num_steps=1&base=3&judge_noise=1")
    assert "would do better to believe" in report_card(careless, num_episodes=200).warnings[-1]


@pytest.mark.long
def test_levels_are_compared_on_the_same_answers():
    noisy = ConversationEnv(RecursiveCritiqueConversation(TASK, levels=0, judge_noise=0.6))
    report = report_on_oversight(noisy, num_answers=400, num_votes=15)
    assert abs(report.accuracy[0] - 0.7) < 0.03 and report.majority_accuracy[0] > 0.88
    assert np.array_equal(report.accuracy, report.level_accuracy[:, 0])
    assert report.tokens[0] == pytest.approx(7)  # a sum and its value, the cue, a word and the end
    panel = ConversationEnv(RecursiveCritiqueConversation(TASK, reads="answer", reply_noise=0.6, judge_noise=0.6))
    report = report_on_oversight(panel, num_answers=400, num_votes=3)
    assert np.allclose(report.level_accuracy[0], [1.0, 0.7, 0.7], atol=0.04)
    assert abs(report.panel_accuracy[0] - (1 - 0.3**2)) < 0.03
    assert "majorities of all seats" in report.sentence and "level by level" in report.sentence


def test_replies_can_be_critiques_of_the_answer():
    env = ConversationEnv(RecursiveCritiqueConversation(TASK, replies="critique"))
    seed, text = answered(False, env)
    turns = [("critic1", "right <end>"), ("critic2", "step 1 <end>"), ("judge", "right <end>")]
    texts, rewards, _, _ = play(env, turns, seed)
    assert texts[2]["judge"] == f"{text.removesuffix(' >')} critique right critique step 1 >"
    assert rewards[-1] == {"critic1": 0, "critic2": 1, "judge": 0}
    assert report_card(env, num_episodes=100).shares["verdicts that are right"] == [1.0]


def test_reasons_come_before_the_word_that_follows_from_them():
    rules = RecursiveCritiqueConversation(
        TASK, levels=0, max_verdict_tokens=4, max_critique_tokens=4, demonstrates_reasons=True
    )
    env = ConversationEnv(rules)
    assert report_card(env, num_episodes=100).shares["verdicts that are right"] == [1.0]


@pytest.mark.parametrize("name", ["recursive-derivation?levels=1", "recursive-derivation?first_answer=solver"])
def test_it_is_an_environment(name):
    check_environment(make_text_env(name), num_envs=2, num_steps=7)


def test_what_cannot_be_criticized_is_refused():
    with pytest.raises(ValueError, match="levels=-1"):
        RecursiveCritiqueConversation(TASK, levels=-1)
    with pytest.raises(ValueError, match="turns"):
        RecursiveCritiqueConversation(Maze())
    with pytest.raises(ValueError, match="has no critiques of answers"):
        RecursiveCritiqueConversation(Bandit())
    with pytest.raises(UserError, match="no conversation of recursive critiques"):
        report_on_oversight(SOLVED)
    with pytest.raises(UserError, match="num_votes=0"):
        report_on_oversight(TWO, num_votes=0)
