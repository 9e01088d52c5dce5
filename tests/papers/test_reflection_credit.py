"""Reflection credit against a computation row by row, and the hidden-rule task whose hints name a digit."""

from __future__ import annotations

import itertools
import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.hidden_rule import RULES, HiddenRule, HiddenRuleState
from thespis.envs.text.retry import RetryConversation
from thespis.evaluation.retry_report import report_on_retries
from thespis.evidence.benches.self_reflections import RANDOM_HINT_SUCCESS
from thespis.language.tokenizer import word_tokenizer
from thespis.learners.language.advantage_estimators import NoBaseline, TrajectoryReturn, TurnBatch
from thespis.learners.language.dialogues import SampledDialogues
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.papers.reflect_retry_reward.envs import AnswerHints
from thespis.papers.reflect_retry_reward.reflections import ReflectionCredit
from thespis.runtime.keys import seed_key

GROUP, GROUPS, LENGTH = 8, 5, 10
ROWS = GROUP * GROUPS
TASK = HiddenRule(base=5, demonstrator_noise=1.0)
TOKENIZER = word_tokenizer(TASK.task_spec.vocabulary.words)


def random_dialogues(seed):
    """Attempts of one token of two, reflections and retries; a third of the first attempts succeed."""
    rng = np.random.default_rng(seed)
    transcript = np.full((ROWS, LENGTH), -1)
    starts = np.zeros((4, ROWS), int)
    responses = np.full((3, ROWS, 2), -1)
    alive, reward = np.zeros((3, ROWS), bool), np.zeros((3, ROWS))
    for row in range(ROWS):
        tokens = [row // GROUP % 3, 9]  # some groups have the same prompt
        succeeds_first = rng.random() < 1 / 3
        for turn in range(1 if succeeds_first else 3):
            starts[turn, row] = len(tokens)
            response = [int(rng.integers(3, 5))]
            responses[turn, row, :1] = response
            tokens += [*response, 8]
            alive[turn, row] = True
        starts[max(alive[:, row].sum(), 1) :, row] = len(tokens)
        reward[alive[:, row].sum() - 1, row] = 1.0 if succeeds_first else float(rng.random() < 0.5)
        transcript[row, : len(tokens)] = tokens
    log_probs = rng.normal(size=responses.shape)
    fields = (transcript, starts, responses, alive, reward, np.zeros(ROWS, bool), log_probs)
    dtypes = {"i": "int32", "f": "float32", "b": "bool"}
    return SampledDialogues(*(jnp.asarray(x.astype(dtypes[x.dtype.kind])) for x in fields))


@pytest.mark.parametrize("same_attempt", [True, False])
@pytest.mark.parametrize("learn_retries", [True, False])
def test_advantages_of_reflections_row_by_row(same_attempt, learn_retries):
    dialogues = random_dialogues(seed=same_attempt)
    transform = ReflectionCredit(same_attempt=same_attempt, learn_retries=learn_retries)
    _, credited, metrics = jax.jit(lambda x: transform((), x, GROUP, seed_key(0)))(dialogues)
    turns = TurnBatch(credited.reward, credited.alive, credited.truncated, credited.response_mask, GROUP)
    advantages = np.asarray(TrajectoryReturn(NoBaseline())(turns, None).advantage)

    reflected = [row for row in range(ROWS) if dialogues.alive[1, row]]
    sizes = []
    for row in range(ROWS):
        learned = [1, 2] if learn_retries else [1]
        expected = np.zeros((3, 2))
        if row in reflected:
            peers = [
                other
                for other in reflected
                if other // GROUP == row // GROUP
                and (not same_attempt or dialogues.responses[0, other, 0] == dialogues.responses[0, row, 0])
            ]
            returns = [float(dialogues.reward[2, other]) for other in peers]
            std = statistics.stdev(returns) if len(returns) > 1 else 0.0
            expected[learned, 0] = (float(dialogues.reward[2, row]) - np.mean(returns)) / (std + 1e-4)
            sizes.append(len(peers))
        np.testing.assert_allclose(advantages[:, row], expected, atol=1e-5, err_msg=str(row))
        assert [t for t in range(3) if credited.alive[t, row]] == (learned if row in reflected else [])
    assert metrics["reflected"] == pytest.approx(len(reflected) / ROWS)
    assert metrics["compared"] == pytest.approx(np.mean(sizes))
    assert metrics["second_tries"] == pytest.approx(np.mean([dialogues.reward[2, row] for row in reflected]))
    assert len(set(sizes)) > 1 and np.abs(advantages).max() > 0.5


@pytest.mark.parametrize(("num_turns", "num_players"), [(5, 1), (3, 2)])
def test_other_dialogues_are_refused(num_turns, num_players):
    spec = DialogueSpec(30, 8, 2, num_turns, (1,), num_players=num_players)
    model = init_decoder(DecoderConfig(10, 8, 1, 1, 1, 8, 32), seed_key(0))
    with pytest.raises(UserError, match="self_reflection=True"):
        ReflectionCredit().init(model, spec, num_turns, seed_key(0))


def hint(key, **settings):
    """A demonstrated hint after the wrong answer 4, where the right one is 7."""
    state = HiddenRuleState(jnp.asarray([4, 2, 7]), jnp.asarray(RULES.index("largest")))
    return AnswerHints(**settings).demonstrator_critique(state, respond("4 <end>"), key)


def respond(words):
    tokens = TOKENIZER.encode(words)
    return jnp.asarray(np.pad(tokens, (0, 2 - len(tokens)), constant_values=-1))


@pytest.mark.parametrize(("noise", "shares"), [(0.0, {"7": 1.0}), (1.0, {"7": 0.5, "4": 0.25, "2": 0.25})])
def test_hints_name_the_digit_that_a_rule_picks(noise, shares):
    """Two of the four rules pick 7; a random hint that names no rule becomes the digit of a random one."""
    keys = jax.random.split(jax.random.key(0), 4_000)
    hints = jax.jit(jax.vmap(lambda key: hint(key, critic_noise=noise)))(keys)
    words = [TOKENIZER.decode(row) for row in np.asarray(hints)]
    assert {word.split()[-1] for word in words} == {"<end>"}
    digits = [word.split()[0] for word in words]
    assert {digit: digits.count(digit) / 4_000 for digit in set(digits)} == pytest.approx(shares, abs=0.06)


def test_the_demonstrator_repeats_the_hint():
    task = AnswerHints()
    state = HiddenRuleState(jnp.asarray([4, 2, 7]), jnp.asarray(0))
    keys = jax.random.split(jax.random.key(0), 100)
    for words, answers in [("2 <end>", {"2 <end>"}), ("<end>", {"4 <end>", "2 <end>", "7 <end>"})]:
        revise = jax.jit(jax.vmap(lambda k: task.demonstrator_revision(state, respond("4 <end>"), respond(words), k)))  # noqa: B023
        assert {TOKENIZER.decode(row) for row in np.asarray(revise(keys))} == answers


def test_success_after_random_hints_at_digits():
    task = AnswerHints(base=5, demonstrator_noise=1.0, critic_noise=1.0)
    env = ConversationEnv(RetryConversation(task, self_reflection=True, max_reflection_tokens=2))
    report = report_on_retries(env, num_episodes=1_000)
    assert report.first_success[0] == 0 and report.retry_success[0] == pytest.approx(RANDOM_HINT_SUCCESS, abs=0.06)


def test_random_hints_by_enumeration():
    """All orders of three digits, all wrong first answers in it, and all pairs of hidden and hinted rules."""
    is_right = []
    for digits in itertools.permutations(range(3)):
        picked = [digits[0], digits[-1], max(digits), min(digits)]
        is_right += [right == hinted for right in picked for x in digits if x != right for hinted in picked]
    assert np.mean(is_right) == pytest.approx(RANDOM_HINT_SUCCESS)
