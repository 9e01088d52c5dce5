"""Texts written in spans: they earn what whole texts earn, and a critic reads each span before the next."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from played_conversations import play

from thespis.core.laws.components import check_environment
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.form import Form
from thespis.envs.text.pre_act import PreActConversation
from thespis.envs.text.review import BLAME, PRAISE, Review
from thespis.envs.text.spanwise import SpanwiseTask
from thespis.envs.text.task import TextEnv
from thespis.envs.text.writing import Writing
from thespis.evaluation.report_card import report_card
from thespis.runtime.keys import indexed_keys, seed_key

CHECKED = ConversationEnv(PreActConversation(SpanwiseTask(Review(grammar_reward=1.0)), max_proposals=6))


def tokens(task: SpanwiseTask, words: str) -> jax.Array:
    encoded = task.task_spec.encode(words)
    return jnp.pad(jnp.asarray(encoded), (0, task.task_spec.max_response_tokens - len(encoded)), constant_values=-1)


@pytest.mark.parametrize("span_words", [1, 3, 4, 20])
def test_spans_earn_what_the_whole_text_earns(span_words: int):
    whole = Review(grammar_reward=1.0)
    task = SpanwiseTask(whole, span_words)
    generator = np.random.default_rng(0)
    step = jax.jit(task.step)
    for number in range(12):
        state, _ = task.init(seed_key(number))
        words = whole.task_spec.vocabulary.words[4:]
        text = [words[i] for i in generator.integers(len(words), size=generator.integers(12))]
        if number % 2:  # the demonstrator's text, which is grammatical
            text = [task.task_spec.vocabulary.words[i] for i in state.demonstration.tolist() if i >= 0]
        whole_text = whole.task_spec.encode(" ".join([*text, "<end>"]))
        padded = jnp.pad(jnp.asarray(whole_text), (0, 12 - len(whole_text)), constant_values=-1)
        expected = whole.step(state.task_state, padded, seed_key(0))[1].reward
        rest, rewards, over = list(text), [], False
        while not over:
            span, rest = rest[:span_words], rest[span_words:]
            state, result = step(state, tokens(task, " ".join([*span, "<end>"])), seed_key(1))
            rewards, over = [*rewards, float(result.reward)], bool(result.terminated)
        assert not rest
        assert len(rewards) <= task.task_spec.max_turns
        assert rewards[:-1] == [0.0] * (len(rewards) - 1)
        assert rewards[-1] == pytest.approx(float(expected))


def test_a_span_with_a_bad_word_is_wrong():
    task = SpanwiseTask(Review(), 2)
    state, _ = task.init(seed_key(0))
    for word in ("was", *PRAISE, *BLAME):
        is_right = bool(task.is_right_action(state, tokens(task, f"food {word} <end>")))
        assert is_right == (word not in BLAME)
    state, _ = task.step(state, tokens(task, "food rude <end>"), seed_key(0))
    assert bool(task.is_right_action(state, tokens(task, "food was <end>")))  # what is written already does not count


def test_the_critic_reads_each_span_before_the_next_one():
    turns = [
        ("actor", "food was rude and <end>"),
        ("critic", "no <end>"),
        ("actor", "food was tasty and <end>"),
        ("critic", "yes <end>"),
        ("actor", "staff was kind <end>"),
        ("critic", "yes <end>"),
    ]
    texts, rewards, _, steps = play(CHECKED, turns)
    prompt = texts[0]["critic"]
    assert texts[1]["critic"] == f"{prompt} food was rude and >"
    assert texts[2]["actor"].endswith("food was rude and <end> no >")
    assert texts[3]["critic"].endswith("no <end> food was tasty and >")
    assert texts[4]["actor"].endswith("food was tasty and <end> >")
    assert [bool(step.terminated) for step in steps[1:]] == [False] * 5 + [True]
    assert [reward["critic"] for reward in rewards[1:]] == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    assert rewards[-1]["actor"] == 2.0  # two words of praise; a review of two clauses is not grammatical


@pytest.mark.parametrize("task", [Review(grammar_reward=1.0), Writing()])
def test_demonstrated_spans_are_the_demonstrators_text(task):
    spanwise = SpanwiseTask(task)
    step = jax.jit(spanwise.step)
    for key in indexed_keys(seed_key(3), 5):
        state, _ = spanwise.init(key)
        demonstration, over, result = state.demonstration, False, None
        while not over:
            state, result = step(state, spanwise.demonstrator_response(state, key), key)
            over = bool(result.terminated)
        assert state.written.tolist() == demonstration.tolist()


@pytest.mark.long
def test_exact_critiques_of_spans_help_and_random_ones_do_not():
    cards = {}
    for critic_noise in (0.0, 1.0):
        env = ConversationEnv(PreActConversation(SpanwiseTask(Review(), critic_noise=critic_noise), max_proposals=6))
        cards[critic_noise] = report_card(env, num_episodes=300).shares
    exact, random = (card["executed actions that are right"][0] for card in cards.values())
    proposals = cards[0.0]["proposals that are right"][0]
    assert exact > 0.85 > 0.75 > proposals
    assert random < exact - 0.1
    assert cards[0.0]["verdicts on proposals that are right"][0] == 1.0
    assert abs(cards[1.0]["verdicts on proposals that are right"][0] - 0.5) < 0.07


@pytest.mark.long
def test_the_laws_of_environments_hold():
    check_environment(TextEnv(SpanwiseTask(Review())))
    check_environment(CHECKED)


def test_what_cannot_be_written_in_spans_is_refused():
    with pytest.raises(ValueError, match="turns: only responses of a task of one turn"):
        SpanwiseTask(Form())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="marks no spans"):
        SpanwiseTask(Derivation())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="span_words=0"):
        SpanwiseTask(Review(), 0)
