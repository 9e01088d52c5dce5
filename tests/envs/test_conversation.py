"""Conversations of several seats: who reads what, rewards by seat, and demonstrations of a solver and its critic."""

import dataclasses

import numpy as np
import pytest
from played_conversations import play

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.correction import Correction
from thespis.envs.text.countdown import Countdown
from thespis.envs.text.critique import CritiqueConversation
from thespis.envs.text.derivation import Derivation
from thespis.language.tokenizer import word_tokenizer
from thespis.training.demonstrations import sample_demonstrations

TASK = Derivation(num_steps=2)


def solution(problem):
    """The right values of ``4 + 7 - 2 >``."""
    start, *steps = problem.removesuffix(" >").split()
    values = [int(start)]
    for operation, digit in zip(steps[::2], steps[1::2], strict=True):
        values.append((values[-1] + (1 if operation == "+" else -1) * int(digit)) % 10)
    return values[1:]


def test_a_seat_reads_what_is_said_to_it_and_its_own_responses():
    env = ConversationEnv(CritiqueConversation(TASK))
    problem = play(env, [])[0][0]["solver"]
    first, last = solution(problem)
    wrong, right = f"{(first + 1) % 10} {(last + 1) % 10} <end>", f"{first} {last} <end>"
    texts, rewards, speakers, steps = play(env, [("solver", wrong), ("critic", "step 1 <end>"), ("solver", right)])
    assert texts[0] == {"solver": problem, "critic": ""}
    to_critic = f"{problem.removesuffix(' >')} {wrong.removesuffix(' <end>')} >"
    assert texts[1] == {"solver": f"{problem} {wrong}", "critic": to_critic}
    assert texts[2] == {"solver": f"{problem} {wrong} step 1 >", "critic": f"{to_critic} step 1 <end>"}
    assert texts[3]["solver"] == f"{problem} {wrong} step 1 > {right}"
    assert speakers == [["solver"], ["critic"], ["solver"], []]
    assert rewards[3] == {"solver": 1.0, "critic": 1.0} and not any(any(r.values()) for r in rewards[:3])
    assert [bool(step.terminated) for step in steps] == [False, False, False, True]


def test_a_response_that_is_cut_gets_an_end_and_counts_as_empty():
    env = ConversationEnv(CritiqueConversation(TASK))
    problem = play(env, [])[0][0]["solver"]
    texts, *_ = play(env, [("solver", "1 1 1"), ("critic", "step step step")])
    assert texts[1] == {"solver": f"{problem} 1 1 1 <end>", "critic": problem}
    assert texts[2] == {"solver": f"{problem} 1 1 1 <end> >", "critic": f"{problem} step step step <end>"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, (0.0, -1.0)), ({"critic_reward": "outcome"}, (0.0, 0.0)), ({"first_reward": 0.5}, (0.5, -1.0))],
)
def test_a_critique_that_spoils_a_right_answer_costs_the_critic(settings, expected):
    env = ConversationEnv(CritiqueConversation(TASK, **settings))
    first, last = solution(play(env, [])[0][0]["solver"])
    responses = [("solver", f"{first} {last} <end>"), ("critic", "step 2 <end>"), ("solver", f"{first} <end>")]
    rewards = play(env, responses)[1]
    assert tuple(sum(r[seat] for r in rewards) for seat in ("solver", "critic")) == expected


@pytest.mark.long
def test_demonstrations_of_solver_and_critic():
    """An exact critic lifts the scripted solver; each seat's dialogues hold its own responses."""
    env = ConversationEnv(CritiqueConversation(Derivation()))
    tokenizer = word_tokenizer(Derivation().task_spec.vocabulary.words)
    transcripts, _, responses, reward = sample_demonstrations(env, 500, group_name="critic")
    assert (np.asarray(responses >= 0).any(axis=2) == [[False], [True], [False]]).all()
    assert all(tokenizer.decode(row).endswith("<end>") for row in transcripts[:20])
    assert 0.7 < reward.sum(axis=0).mean() < 0.85
    _, _, responses, _ = sample_demonstrations(env, 500, group_name="solver")
    assert (np.asarray(responses >= 0).any(axis=2) == [[True], [False], [True]]).all()


@pytest.mark.long
def test_conversations_keep_the_contract_of_environments():
    check_environment(ConversationEnv(CritiqueConversation(TASK, first_reward=0.5)), num_envs=3, num_steps=7)


def test_only_answers_to_tasks_of_one_turn_can_be_criticized():
    with pytest.raises(ValueError, match="up to 2 turns"):
        CritiqueConversation(Correction())


def test_a_demonstrator_without_critiques_is_refused():
    env = ConversationEnv(CritiqueConversation(Countdown(max_turns=1), max_critique_tokens=4))
    with pytest.raises(UserError, match="gives no critiques"):
        sample_demonstrations(env, 2)


def test_the_name_tells_the_settings():
    assert ConversationEnv(CritiqueConversation(Derivation())).spec.name == "text:critiqued-derivation"
    changed = CritiqueConversation(Derivation(base=4), critic_reward="outcome")
    assert ConversationEnv(changed).spec.name == "text:critiqued-derivation(base=4)(critic_reward='outcome')"


ANSWERED = CritiqueConversation(TASK, first_answer="demonstrator", critic_reward="outcome", judgment_reward=0.5)


def test_the_demonstrator_can_give_the_first_answer():
    """Seats read what they read where the solver has answered so, and a group has one answer."""
    env, whole = ConversationEnv(ANSWERED), ConversationEnv(CritiqueConversation(TASK))
    texts, _, speakers, steps = play(env, [("critic", "step 1 <end>"), ("solver", "1 2 <end>")])
    problem, _, answer = texts[0]["solver"].partition(" > ")
    assert speakers == [["critic"], ["solver"], []] and bool(steps[-1].terminated)
    expected = play(whole, [("solver", answer), ("critic", "step 1 <end>"), ("solver", "1 2 <end>")])[0]
    assert problem == expected[0]["solver"].removesuffix(" >"), "equal seeds have equal tasks"
    assert texts == expected[1:]
    assert play(env, [])[0] == texts[:1] != play(env, [], seed=1)[0]


@pytest.mark.parametrize("seed", range(6))
def test_the_critic_earns_its_judgment_and_the_refinement(seed):
    """By hand: a judgment is compared with the last value, a refinement with the right one."""
    env = ConversationEnv(dataclasses.replace(ANSWERED, refinement_reward=2.0))
    problem, _, answer = play(env, [], seed)[0][0]["solver"].partition(" > ")
    is_right = int(answer.split()[1]) == solution(problem)[-1]
    last = f"0 {solution(problem)[-1]} <end>"
    for critique, judged in (("right", is_right), ("step 1", not is_right), ("step 2", not is_right), ("again", False)):
        for revision, earned in ((last, 2.0), ("step <end>", 0.0)):
            rewards = play(env, [("critic", f"{critique} <end>"), ("solver", revision)], seed)[1]
            assert [r["critic"] for r in rewards] == [0.0, 0.5 * judged, earned]


@pytest.mark.long
def test_a_first_answer_of_the_demonstrator_keeps_the_contract():
    check_environment(ConversationEnv(ANSWERED), num_envs=3, num_steps=5)
    _, _, responses, _ = sample_demonstrations(ConversationEnv(ANSWERED), 50, group_name="solver")
    assert (np.asarray(responses >= 0).any(axis=2) == [[False], [True]]).all()


def test_judgments_are_rewarded_where_they_can_be_read():
    with pytest.raises(ValueError, match="does not say what a critique's judgment is"):
        CritiqueConversation(Countdown(max_turns=1), judgment_reward=1.0)
