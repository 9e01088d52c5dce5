"""A critic before the action: who reads what, which proposals are executed, and what both earn."""

import pytest
from played_conversations import play

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.form import Form
from thespis.envs.text.pre_act import PreActConversation
from thespis.envs.text.registry import make_text_env
from thespis.evaluation.report_card import report_card

WHOLE = ConversationEnv(PreActConversation(Form(), suggestion_reward=0.5, outcome_reward=2.0))


def wanted(env):
    """The values that the first form wants."""
    return play(env, [])[0][0]["actor"].removeprefix("want ").removesuffix(" ask item >").split()


def earned(rewards, seat):
    return [reward[seat] for reward in rewards[1:]]


def test_what_the_critic_approves_is_executed():
    item, *_ = wanted(WHOLE)
    texts, rewards, speakers, _ = play(WHOLE, [("actor", f"{item} <end>"), ("critic", "yes <end>")])
    prompt = texts[0]["actor"]
    assert texts[0]["critic"] == prompt.removesuffix(" >")
    assert texts[1] == {"actor": f"{prompt} {item} <end>", "critic": f"{texts[0]['critic']} {item} >"}
    assert texts[2]["actor"] == f"{prompt} {item} <end> ask delivery >"
    assert texts[2]["critic"] == f"{texts[1]['critic']} yes <end>"
    assert speakers == [["actor"], ["critic"], ["actor"]]
    assert earned(rewards, "critic") == [0.0, 1.0] and earned(rewards, "actor") == [0.0, 0.0]


def test_after_an_objection_nothing_has_happened_and_the_actor_proposes_again():
    item, *_ = wanted(WHOLE)
    turns = [
        ("actor", "erase <end>"),
        ("critic", f"no {item} <end>"),
        ("actor", f"{item} <end>"),
        ("critic", "yes <end>"),
    ]
    texts, rewards, _, steps = play(WHOLE, turns)
    prompt = texts[0]["actor"]
    assert texts[2]["actor"] == f"{prompt} erase <end> no {item} >"
    assert texts[3]["critic"].endswith(f"erase > no {item} <end> {item} >")
    assert texts[4]["actor"].endswith(f"{item} <end> ask delivery >")
    assert earned(rewards, "critic") == [0.0, 1.0, 0.5, 1.0]
    assert not any(bool(step.terminated) for step in steps)


def test_objections_to_what_is_right_cost_the_critic_what_goes_wrong_after_them():
    item, *_ = wanted(WHOLE)
    turns = [("actor", f"{item} <end>"), ("critic", "no erase <end>"), ("actor", "erase <end>"), ("critic", "no <end>")]
    _, rewards, speakers, steps = play(WHOLE, turns)
    assert earned(rewards, "critic") == [0.0, 0.0, -0.5, 1.0]
    assert bool(steps[-1].terminated) and speakers[-1] == []  # after one objection in a row it is executed


def test_more_objections_in_a_row_if_they_are_allowed():
    env = ConversationEnv(PreActConversation(Form(), max_objections=2))
    turns = [("actor", "erase <end>"), ("critic", "no <end>")] * 2
    assert not bool(play(env, turns)[3][-1].terminated)
    assert bool(play(env, turns + turns[:2])[3][-1].terminated)
    never = ConversationEnv(PreActConversation(Form(), max_objections=0))
    assert bool(play(never, turns[:2])[3][-1].terminated)


def test_a_critique_that_says_neither_lets_the_action_pass_and_is_no_right_verdict():
    _, rewards, _, steps = play(WHOLE, [("actor", "erase <end>"), ("critic", "undo <end>")])
    assert bool(steps[-1].terminated) and earned(rewards, "critic") == [0.0, 0.0]


def test_both_earn_what_the_task_pays_when_the_action_is_executed():
    turns = [
        turn for word in [*wanted(WHOLE), "send"] for turn in (("actor", f"{word} <end>"), ("critic", "yes <end>"))
    ]
    _, rewards, _, steps = play(WHOLE, turns)
    assert earned(rewards, "actor")[-2:] == [0.0, 1.0] and earned(rewards, "critic")[-1] == 1.0 + 2.0
    assert bool(steps[-1].terminated)


def test_proposals_are_limited():
    env = ConversationEnv(PreActConversation(Form(), max_proposals=3))
    turns = [("actor", "ask <end>"), ("critic", "no <end>")] * 3
    _, _, speakers, steps = play(env, turns)
    assert [bool(step.terminated) for step in steps[1:]] == [False] * 5 + [True] and speakers[-1] == []


def test_an_exact_critic_prevents_every_mistake_and_a_random_one_does_not():
    def card(**settings):
        env = ConversationEnv(PreActConversation(Form(demonstrator_noise=0.4, **settings), max_proposals=20))
        shares = report_card(env, num_episodes=300)
        return {name: values[0] or 0.0 for name, values in shares.shares.items()}, shares.warnings

    (shares, warnings), (random, _) = card(), card(critic_noise=1.0)
    assert shares["episodes that succeed"] == shares["executed actions that are right"] == 1.0
    assert shares["verdicts on proposals that are right"] == 1.0
    assert shares["wrong proposals rejected (recall)"] == 1.0
    assert shares["right proposals rejected (false alarms)"] == 0.0
    assert shares["rejected proposals that are wrong (precision)"] == 1.0
    assert shares["rejected wrong proposals that are right the next time"] == 1.0
    assert 0.6 < shares["proposals that are right"] < 0.85 and not warnings
    assert random["episodes that succeed"] < 0.5
    assert 0.4 < random["verdicts on proposals that are right"] < 0.6


def test_a_lying_critic_is_found():
    rules = PreActConversation(Form())
    assert rules.report_warnings(
        {
            "proposals that are right": 0.7,
            "executed actions that are right": 0.5,
            "verdicts on proposals that are right": 0.1,
        }
    ) == [
        "The critic lies: 10% of its verdicts are right, fewer than those of a coin.",
        "Critiques do harm: 70% of the proposals are right, and 50% of the actions.",
    ]


def test_tasks_must_know_which_actions_are_right():
    with pytest.raises(ValueError, match="does not say which actions are right"):
        PreActConversation(Derivation())
    with pytest.raises(ValueError, match="at least 0"):
        PreActConversation(Form(), max_objections=-1)


def test_names_options_and_contract():
    env = make_text_env("checked-form?max_turns=8&max_objections=2")
    assert env.spec.name == "text:checked-form(max_turns=8)(max_objections=2)"
    check_environment(make_text_env("checked-form?max_turns=3"), num_envs=2, num_steps=7)
    with pytest.raises(UserError, match="no setting 'wrong'"):
        make_text_env("checked-form?wrong=1")
