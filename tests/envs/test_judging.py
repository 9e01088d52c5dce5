"""Conversation with a judge: pairs, orders, verdicts, rewards, and the report on judges whose worth is known."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.envs.text.bandit import Bandit
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.hidden_rule import HiddenRule
from thespis.envs.text.household import Household
from thespis.envs.text.judging import JudgedConversation
from thespis.envs.text.registry import make_text_env
from thespis.evaluation.judge_report import report_on_judge
from thespis.evaluation.report_card import report_card
from thespis.runtime.keys import indexed_keys, seed_key

TASK = Derivation(num_steps=2, base=3, demonstrator_noise=0.5)


def words(rules, tokens):
    return " ".join(rules.vocabulary.words[i] for i in np.asarray(tokens) if i >= 0)


def tokens(rules, text, length=8):
    encoded = [rules.vocabulary.words.index(word) for word in text.split()]
    return jnp.array(encoded + [-1] * (length - len(encoded)), "int32")


def draw(rules, count=200):
    return jax.jit(jax.vmap(rules.init))(indexed_keys(seed_key(0), count))


@pytest.mark.long
def test_the_judge_reads_the_task_and_two_answers_that_differ():
    rules = JudgedConversation(TASK)
    states, openings = draw(rules)
    assert ConversationEnv(rules).spec.name == "text:judged-derivation(num_steps=2, base=3, demonstrator_noise=0.5)"
    for i in range(20):
        text = words(rules, openings["judge"][i])
        problem, _, rest = text.partition(" first ")
        first, _, second = rest.removesuffix(" >").partition(" second ")
        answers = [words(rules, answer).removesuffix(" <end>") for answer in states.answers[i]]
        assert len(problem.split()) == 5 and [first, second] == answers[:: 1 if states.is_first[i] else -1]
    assert (states.rewards[:, 0] != states.rewards[:, 1]).mean() > 0.9
    assert 0.4 < states.is_first.mean() < 0.6
    other = draw(JudgedConversation(TASK, is_swapped=True))[0]
    assert (other.is_first != states.is_first).all() and (other.answers == states.answers).all()


@pytest.mark.parametrize("task", [TASK, HiddenRule(base=5)])  # which has the word first already
@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("first <end>", 0),
        ("second <end>", 1),
        ("first second <end>", 1),
        ("second first <end> second", 0),
        ("> <end>", -1),
        ("<end>", -1),
        ("first", -1),
    ],
)
def test_the_last_word_is_the_verdict(task, response, verdict):
    rules = JudgedConversation(task, max_verdict_tokens=8)
    assert rules.read_verdict(tokens(rules, response)) == verdict


@pytest.mark.long
def test_a_judge_earns_1_for_an_answer_that_is_not_worse():
    rules = JudgedConversation(TASK, max_verdict_tokens=8)
    states, _ = draw(rules)

    def earned(text):
        step = jax.vmap(lambda state: rules.step(state, jnp.int32(0), tokens(rules, text), seed_key(1)))
        return np.asarray(jax.jit(step)(states)[1].rewards["judge"])

    first = np.where(states.is_first, states.rewards[:, 0], states.rewards[:, 1])
    second = np.where(states.is_first, states.rewards[:, 1], states.rewards[:, 0])
    np.testing.assert_array_equal(earned("step 1 right first <end>"), first >= second)
    np.testing.assert_array_equal(earned("second <end>"), second >= first)
    assert (earned("right <end>") == 0).all()


@pytest.mark.long
def test_a_solver_answers_first_and_may_earn_the_verdict():
    rules = JudgedConversation(TASK, answers="solver", solver_reward="verdict")
    env = ConversationEnv(rules)
    assert [group.name for group in env.spec.groups] == ["solver", "judge"]
    state, step = jax.jit(rules.init)(seed_key(3))[0], jax.jit(rules.step)
    state, first = step(state, jnp.int32(0), tokens(rules, "0 0 <end>", 3), seed_key(1))
    assert words(rules, state.answers[0]) == "0 0 <end>" and not first.terminated
    text = words(rules, first.messages["judge"])
    assert ("first 0 0 second" in text) == bool(state.is_first) and first.rewards["judge"] == 0
    place = "first" if state.is_first else "second"
    _, last = step(state, jnp.int32(1), tokens(rules, f"{place} <end>", 3), seed_key(1))
    assert last.terminated and last.rewards["solver"] == 1
    card = report_card(env, num_episodes=400)
    assert card.shares["verdicts that are right, of answers that differ"] == [1.0]
    assert set(card.returns) == {"solver", "judge"} and len(card.shares) == 5


@pytest.mark.long
def test_an_exact_judge_is_right_in_every_vote_and_in_both_orders():
    exact = report_on_judge(make_text_env("judged-derivation?num_steps=2&base=3"), num_pairs=500, num_votes=3)
    assert (
        exact.accuracy == exact.majority_accuracy == exact.consistency == 1 == exact.consistent_accuracy
        and exact.undecided == 0
    )
    assert 0.42 < exact.first_share[0] < 0.58 and "100.0% of the verdicts are right" in exact.sentence


@pytest.mark.long
@pytest.mark.parametrize(
    ("noise", "votes", "accuracy", "majority", "consistency"),
    [
        (0.6, 3, 0.7, 0.784, 0.58),
        pytest.param(0.6, 5, 0.7, 0.837, 0.58, marks=pytest.mark.slow),
        pytest.param(1.0, 3, 0.5, 0.5, 0.5, marks=pytest.mark.slow),
    ],
)
def test_the_majority_of_noisy_votes_is_right_as_often_as_the_binomial_says(
    noise, votes, accuracy, majority, consistency
):
    """With 60% of random verdicts each vote is right with probability 0.7; its preference is kept with 0.7² + 0.3²."""
    env = ConversationEnv(JudgedConversation(TASK, judge_noise=noise))
    report = report_on_judge(env, num_pairs=3_000, num_votes=votes)
    assert report.accuracy[0] == pytest.approx(accuracy, abs=0.02)
    assert report.majority_accuracy[0] == pytest.approx(majority, abs=0.025)
    assert report.consistency[0] == pytest.approx(consistency, abs=0.03)
    probabilities = accuracy, 1 - accuracy
    assert report.consistent_accuracy[0] == pytest.approx(accuracy**2 / sum(p**2 for p in probabilities), abs=0.03)
    for count in range(1, votes + 1):
        right, wrong = (math.comb(votes, count) * p**count * (1 - p) ** (votes - count) for p in probabilities)
        share = right + wrong if 2 * count > votes else 0.0
        assert report.agreement[0, count - 1] == pytest.approx(share, abs=0.03)
        if share:
            assert report.agreed_accuracy[0, count - 1] == pytest.approx(right / share, abs=0.06)
    expected = np.abs(report.agreed_accuracy[0] - np.arange(1, votes + 1) / votes)[votes // 2 :]
    assert report.calibration_error[0] == pytest.approx(report.agreement[0, votes // 2 :] @ expected)


@pytest.mark.long
def test_demonstrated_reasons_are_critiques_of_both_answers():
    """Of one step: with more of them an answer can be right by two errors, and the critique calls it wrong."""
    task = Derivation(num_steps=1, base=3, demonstrator_noise=0.5)
    rules = JudgedConversation(task, max_verdict_tokens=8, demonstrates_reasons=True)
    states, _ = draw(rules, 100)
    respond = jax.jit(jax.vmap(lambda state, key: rules.demonstrator_response(state, jnp.int32(0), key)))
    rewards = np.where(states.is_first[:, None], states.rewards, states.rewards[:, ::-1])
    expected = {(1, 0): "right step 1 first <end>", (0, 1): "step 1 right second <end>"}
    spoken = [words(rules, response) for response in respond(states, indexed_keys(seed_key(1), 100))]
    pairs = [(text, expected[tuple(r)]) for text, r in zip(spoken, rewards.tolist(), strict=True) if r[0] != r[1]]
    assert len(pairs) > 80 and all(text == reasons for text, reasons in pairs)


def test_what_cannot_be_judged_is_refused():
    with pytest.raises(ValueError, match="only answers to a task of one turn"):
        JudgedConversation(Household())
    with pytest.raises(ValueError, match="no critiques to demonstrate"):
        JudgedConversation(Bandit(), demonstrates_reasons=True)
    with pytest.raises(UserError, match="no conversation with a judge"):
        report_on_judge(make_text_env("echo"))
    with pytest.raises(UserError, match="num_votes=0"):
        report_on_judge(ConversationEnv(JudgedConversation(TASK)), num_votes=0)
