"""Conversation with a debate: who reads what, and what the seats earn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.envs.text.bandit import Bandit
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.debating import DebateConversation
from thespis.envs.text.derivation import Derivation
from thespis.evaluation.conversations import sample_seats
from thespis.evaluation.report_card import report_card
from thespis.runtime.keys import seed_key

TASK = Derivation(num_steps=1, base=3, demonstrator_noise=0.6)


def words(rules, tokens):
    return " ".join(rules.vocabulary.words[i] for i in np.asarray(tokens) if i >= 0)


def play(rules, spoken):
    """What each seat has read after a conversation in which these words are said, and its rewards."""
    env = ConversationEnv(rules)
    reset, step = jax.jit(lambda key: env.reset(None, key)), jax.jit(env.step)
    state, _ = reset(seed_key(2))
    earned = {}
    for seat, text in zip(rules.conversation_spec.schedule, spoken, strict=True):
        encoded = [rules.vocabulary.words.index(word) for word in text.split()]
        action = {name: -jnp.ones((1, space.max_length), "int32") for name, space in env.spec.action_space.spaces}
        action[seat] = action[seat].at[0, : len(encoded)].set(jnp.array(encoded))
        state, result = step(state, action, seed_key(1))
        earned = {name: outcome.reward[0] for name, outcome in result.agent_outcomes.items()}
    return {name: words(rules, text) for name, text in state.transcripts.items()}, earned, state


@pytest.mark.long
@pytest.mark.parametrize("judge_reads", ["all", "arguments"])
def test_debaters_read_each_other_and_the_judge_all_arguments(judge_reads):
    rules = DebateConversation(TASK, num_rounds=2, judge_reads=judge_reads)
    said = ["step 1 <end>", "right <end>", "1 1 <end>", "2 2 <end>", "second <end>"]
    read, earned, state = play(rules, said)
    opening = read["first"].partition(" >")[0]
    assert len(opening.split()) == 7 and read["second"].startswith(f"{opening} > first step 1 > right <end>")
    assert read["first"] == f"{opening} > step 1 <end> second right > 1 1 <end>"
    assert read["second"].endswith("right <end> first 1 1 > 2 2 <end>")
    debate = "first step 1 second right first 1 1 second 2 2 > second <end>"
    assert read["judge"] == (f"{opening} {debate}" if judge_reads == "all" else debate)
    assert earned["first"] == -1 and earned["second"] == 1
    rewards = state.inner.judged.rewards if state.inner.judged.is_first else state.inner.judged.rewards[::-1]
    assert earned["judge"] == (rewards[1] >= rewards[0])


@pytest.mark.long
def test_nobody_wins_without_a_verdict():
    _, earned, _ = play(DebateConversation(TASK), ["<end>", "<end>", "right <end>"])
    assert earned == {"first": 0, "second": 0, "judge": 0}


@pytest.mark.long
def test_the_script_argues_honestly_and_judges_rightly():
    env = ConversationEnv(DebateConversation(TASK))
    card = report_card(env, num_episodes=400)
    assert card.shares["verdicts that are right, of answers that differ"] == [1.0]
    assert card.returns["first"][0] == -card.returns["second"][0] and abs(card.returns["first"][0]) < 0.2
    assert card.returns["judge"] == [1.0]


@pytest.mark.long
def test_sample_conversations_name_their_speakers():
    env = ConversationEnv(DebateConversation(TASK))
    first, second = sample_seats(env, None, {}, 0)
    assert [turn["speaker"] for turn in first["turns"]] == ["first", "second", "judge"]
    assert first["turns"][0]["observation"].endswith(">") and "<end>" in first["turns"][0]["response"]
    assert first["turns"][1]["observation"].startswith(first["turns"][0]["observation"])
    assert {first["return"], second["return"]} <= {-1.0, 1.0} and first["turns"][0]["reward"] == first["return"]
    assert first["turns"][2]["reward"] == 1.0 and first != second


def test_what_cannot_be_debated_is_refused():
    with pytest.raises(ValueError, match="num_rounds=0"):
        DebateConversation(TASK, num_rounds=0)
    with pytest.raises(UserError, match="gives no critiques"):
        report_card(ConversationEnv(DebateConversation(Bandit())))
