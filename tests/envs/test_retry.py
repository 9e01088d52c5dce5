"""Second tries: who reads what, when an episode ends, and what a reflection earns."""

import numpy as np
import pytest
from played_conversations import play

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.text.conversation import ConversationEnv, SoloConversationEnv
from thespis.envs.text.correction import Correction
from thespis.envs.text.countdown import Countdown
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.hidden_rule import HiddenRule
from thespis.envs.text.retry import RetryConversation
from thespis.training.demonstrations import sample_demonstrations


def retry_env(**settings):
    return ConversationEnv(RetryConversation(HiddenRule(), **settings))


def episode(env):
    """The prompt of the first episode, its right digit and a wrong one, and what is said of that."""
    prompt = play(env, [])[0][0]["actor"]
    digits = prompt.split()[:3]
    right = next(d for d in digits if play(env, [("actor", f"{d} <end>")])[1][1]["actor"] == 1)
    wrong = next(d for d in digits if d != right)
    return prompt, right, wrong, "more" if right > wrong else "less"


@pytest.mark.long
def test_a_failed_attempt_is_reflected_on_and_tried_again():
    env = retry_env()
    prompt, right, wrong, word = episode(env)
    responses = [("actor", f"{wrong} <end>"), ("reflector", "largest <end>"), ("actor", f"{right} <end>")]
    texts, rewards, speakers, steps = play(env, responses)
    report = f"{prompt.removesuffix(' >')} {wrong} {word} >"
    assert texts[0] == {"actor": prompt, "reflector": ""}
    assert texts[1] == {"actor": f"{prompt} {wrong} <end>", "reflector": report}
    assert texts[2] == {"actor": f"{prompt} {wrong} <end> largest >", "reflector": f"{report} largest <end>"}
    assert texts[3] == {"actor": f"{prompt} {wrong} <end> largest > {right} <end>", "reflector": texts[2]["reflector"]}
    assert speakers == [["actor"], ["reflector"], ["actor"], []]
    assert rewards[3] == {"actor": 1.0, "reflector": 1.0} and not any(any(r.values()) for r in rewards[:3])
    assert [bool(step.terminated) for step in steps] == [False, False, False, True]


def test_success_at_first_ends_the_episode_and_earns_the_reflector_nothing():
    env = retry_env()
    prompt, right, *_ = episode(env)
    texts, rewards, speakers, steps = play(env, [("actor", f"{right} <end>")])
    assert texts[1] == {"actor": f"{prompt} {right} <end>", "reflector": ""} and speakers[1] == []
    assert rewards[1] == {"actor": 1.0, "reflector": 0.0} and bool(steps[1].terminated)


@pytest.mark.long
def test_each_reflection_earns_the_gain_of_the_next_attempt():
    """With partial rewards: 0.5 for each step of a derivation that follows, and 1 for the right end."""
    task = Derivation(num_steps=2, base=10, step_reward=0.5)
    problem = play(ConversationEnv(RetryConversation(task)), [])[0][0]["actor"]
    start, *rest = problem.removesuffix(" >").split()
    first, last = (int(start) + (1 if rest[0] == "+" else -1) * int(rest[1])) % 10, 0
    last = (first + (1 if rest[2] == "+" else -1) * int(rest[3])) % 10
    half, none, right = (
        f"{first} {(last + 1) % 10}",
        f"{(first + 1) % 10} {last + 2 if last < 8 else 0}",
        f"{first} {last}",
    )
    responses = [
        ("actor", f"{half} <end>"),
        ("reflector", "right <end>"),
        ("actor", f"{none} <end>"),
        ("reflector", "step 1 <end>"),
        ("actor", f"{right} <end>"),
    ]
    for kind, expected in [("gain", [-0.5, 2.0]), ("outcome", [0.0, 2.0])]:
        env = ConversationEnv(RetryConversation(task, 2.0, kind, num_retries=2))
        texts, rewards, speakers, steps = play(env, responses)
        assert [r["reflector"] for r in rewards] == [0.0, 0.0, 0.0, expected[0], 0.0, expected[1]]
        assert [r["actor"] for r in rewards] == [0.0] * 5 + [2.0]
        assert speakers[-1] == [] and bool(steps[-1].terminated)
        seen = f"{problem.removesuffix(' >')} {half} > right <end> {problem.removesuffix(' >')} {none} > step 1 <end>"
        assert texts[-1]["reflector"] == seen


def test_the_last_attempt_ends_the_episode_without_success():
    env = retry_env()
    _, _, wrong, _ = episode(env)
    attempt = ("actor", f"{wrong} <end>")
    _, rewards, speakers, steps = play(env, [attempt, ("reflector", "first <end>"), attempt])
    assert rewards[3] == {"actor": 0.0, "reflector": 0.0} and bool(steps[3].terminated) and speakers[3] == []


@pytest.mark.long
def test_one_model_reflects_on_its_own_attempt():
    env = retry_env(self_reflection=True)
    prompt, right, wrong, word = episode(env)
    responses = [("actor", f"{wrong} <end>"), ("actor", "largest <end>"), ("actor", f"{right} <end>")]
    texts, rewards, speakers, _ = play(env, responses)
    transcript = f"{prompt} {wrong} <end> {word} > largest <end> > {right} <end>"
    assert [group.name for group in env.spec.groups] == ["actor"] and texts[3] == {"actor": transcript}
    assert [r["actor"] for r in rewards] == [0.0, 0.0, 0.0, 1.0] and speakers == [["actor"]] * 3 + [[]]
    assert play(env, responses[:1])[0][1]["actor"] == f"{prompt} {wrong} <end> {word} >"


@pytest.mark.long
def test_raw_attempts_are_told_to_the_actor_who_tries_again_at_once():
    env = retry_env(memory="attempts", num_retries=2)
    prompt, right, wrong, word = episode(env)
    attempt = ("actor", f"{wrong} <end>")
    texts, rewards, speakers, _ = play(env, [attempt, attempt, ("actor", f"{right} <end>")])
    transcript = f"{prompt} {wrong} <end> {word} > {wrong} <end> {word} > {right} <end>"
    assert [group.name for group in env.spec.groups] == ["actor"] and texts[3] == {"actor": transcript}
    assert [r["actor"] for r in rewards] == [0.0, 0.0, 0.0, 1.0] and speakers == [["actor"]] * 3 + [[]]
    assert not play(env, [attempt] * 2)[3][-1].terminated and play(env, [attempt] * 3)[3][-1].terminated


@pytest.mark.long
@pytest.mark.parametrize("memory", ["reflections", pytest.param("attempts", marks=pytest.mark.slow)])
def test_a_conversation_of_one_seat_is_an_environment_of_one_agent(memory):
    """The same dialogues as in the environment of groups, by the same demonstrator."""
    rules = RetryConversation(HiddenRule(critic_noise=0.5), num_retries=2, self_reflection=True, memory=memory)
    solo = SoloConversationEnv(rules)
    check_environment(solo, num_envs=3, num_steps=7)
    for ours, theirs in zip(
        sample_demonstrations(solo, 50), sample_demonstrations(ConversationEnv(rules), 50), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_a_conversation_of_several_seats_needs_a_cast():
    with pytest.raises(ValueError, match="actor and reflector needs"):
        SoloConversationEnv(RetryConversation(HiddenRule()))


@pytest.mark.long
def test_a_reflection_that_is_cut_counts_as_empty():
    env = retry_env(max_reflection_tokens=2)
    prompt, _, wrong, word = episode(env)
    texts, *_ = play(env, [("actor", f"{wrong} <end>"), ("reflector", "largest largest")])
    assert texts[2]["actor"] == f"{prompt} {wrong} <end> >"
    assert texts[2]["reflector"] == f"{prompt.removesuffix(' >')} {wrong} {word} > largest largest <end>"


@pytest.mark.long
@pytest.mark.parametrize("settings", [{"self_reflection": False}, {"self_reflection": True}, {"memory": "attempts"}])
def test_second_tries_keep_the_contract_of_environments(settings):
    env = retry_env(num_retries=2, **settings)
    check_environment(env, num_envs=3, num_steps=7)


@pytest.mark.long
def test_demonstrations_of_actor_and_reflector():
    """A hint of the hidden rule makes every second try succeed; only failures are reflected on."""
    env = ConversationEnv(RetryConversation(HiddenRule(demonstrator_noise=0.6), max_reflection_tokens=2))
    _, _, responses, reward = sample_demonstrations(env, 500, group_name="reflector")
    turns = np.asarray(responses >= 0).any(axis=2)
    assert not turns[[0, 2]].any() and 0.55 < turns[1].mean() < 0.65
    assert (np.asarray(reward).sum(axis=0) == 1).all()
    _, _, responses, _ = sample_demonstrations(env, 500, group_name="actor")
    assert (np.asarray(responses >= 0).any(axis=2)[2] == turns[1]).all()


def test_only_tasks_of_one_turn_can_be_tried_again():
    with pytest.raises(ValueError, match="up to 2 turns"):
        RetryConversation(Correction())
    with pytest.raises(ValueError, match="num_retries=0"):
        RetryConversation(HiddenRule(), num_retries=0)


@pytest.mark.long
def test_a_demonstrator_that_does_not_reflect_is_refused():
    env = ConversationEnv(RetryConversation(Countdown(max_turns=1)))
    with pytest.raises(UserError, match="does not reflect"):
        sample_demonstrations(env, 2)


def test_the_name_tells_the_settings():
    assert retry_env().spec.name == "text:retried-hidden-rule"
    assert retry_env(num_retries=2).spec.name == "text:retried-hidden-rule(num_retries=2)"
