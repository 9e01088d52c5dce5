"""Hidden-rule task: what a failed attempt says of the rule, and how often each hint is right."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.text.hidden_rule import RULES, HiddenRule, HiddenRuleState
from thespis.language.tokenizer import word_tokenizer

TASK = HiddenRule(base=5)
TOKENIZER = word_tokenizer(TASK.task_spec.vocabulary.words)


def digit_of(rule, digits):
    """The digit that a rule picks, in words."""
    return {"first": digits[0], "last": digits[-1], "largest": max(digits), "smallest": min(digits)}[rule]


def respond(words):
    tokens = TOKENIZER.encode(words)
    return jnp.asarray(np.pad(tokens, (0, 2 - len(tokens)), constant_values=-1))


@pytest.mark.parametrize(
    ("rule", "answer", "feedback"),
    [
        ("largest", "4 <end>", "more"),
        ("smallest", "4 <end>", "less"),
        ("first", "0 <end>", "more"),
        ("last", "7 <end>", ""),
        ("last", "7", ""),
        ("last", "more <end>", ""),
    ],
)
def test_feedback_says_whether_the_right_digit_is_larger(rule, answer, feedback):
    state = HiddenRuleState(jnp.asarray([4, 2, 7]), jnp.asarray(RULES.index(rule)))
    assert TOKENIZER.decode(np.asarray(HiddenRule().attempt_feedback(state, respond(answer)))) == feedback


def test_accuracies_of_hints_by_enumeration():
    """For all prompts of three digits of five, all wrong answers of the prompt and both replies."""
    accuracies = jax.jit(TASK.hint_accuracies)
    for digits in itertools.permutations(range(5), 3):
        for answer, word in itertools.product(digits, ("more", "less")):
            agrees = {"more": lambda x, y: x > y, "less": lambda x, y: x < y}[word]
            possible = [digit_of(rule, digits) for rule in RULES if agrees(digit_of(rule, digits), answer)]
            expected = [np.mean([digit_of(rule, digits) == right for right in possible or [-1]]) for rule in RULES]
            result = accuracies(jnp.asarray(digits), jnp.asarray(answer), jnp.asarray(TOKENIZER.encode(word)[0]))
            np.testing.assert_allclose(result, expected, rtol=1e-6, err_msg=f"{digits} {answer} {word}")


def test_without_feedback_hints_are_guesses():
    accuracies = TASK.hint_accuracies(jnp.asarray([0, 3, 1]), jnp.asarray(-1), jnp.asarray(-1))
    np.testing.assert_allclose(accuracies, [0.5, 0.25, 0.25, 0.5])  # 0 is the first and the smallest


@pytest.mark.long
def test_a_noisy_demonstrator_gives_another_digit_of_the_prompt():
    task = HiddenRule(num_digits=4, demonstrator_noise=0.3)

    @jax.jit
    @jax.vmap
    def answers(key):
        state, _ = task.init(key)
        digit = task.read_answer(task.demonstrator_response(state, key))
        return digit == task.picked_digits(state.digits)[state.rule], (digit == state.digits).any()

    is_right, is_in_prompt = map(np.asarray, answers(jax.random.split(jax.random.key(0), 4_000)))
    assert is_right.mean() == pytest.approx(0.7, abs=0.02) and is_in_prompt.all()


def test_hints_name_the_hidden_rule_and_at_times_any_or_none():
    task = HiddenRule(critic_noise=0.5)
    state = HiddenRuleState(jnp.asarray([4, 2, 7]), jnp.asarray(2))
    keys = jax.random.split(jax.random.key(0), 4_000)
    critique = jax.jit(jax.vmap(lambda key: task.read_hint(task.demonstrator_critique(state, respond("4 <end>"), key))))
    shares = np.bincount(np.asarray(critique(keys)) + 1, minlength=5) / 4_000
    np.testing.assert_allclose(shares, [0.1, 0.1, 0.1, 0.6, 0.1], atol=0.02)


@pytest.mark.parametrize(("hint", "answers"), [("last <end>", {7}), ("<end>", {4, 2, 7}), ("last", {4, 2, 7})])
def test_the_demonstrator_obeys_hints_and_guesses_without(hint, answers):
    state = HiddenRuleState(jnp.asarray([4, 2, 7]), jnp.asarray(0))
    keys, task = jax.random.split(jax.random.key(0), 100), HiddenRule()
    revise = jax.jit(jax.vmap(lambda k: task.demonstrator_revision(state, respond("4 <end>"), respond(hint), k)))
    assert {int(TOKENIZER.decode(row).split()[0]) for row in np.asarray(revise(keys))} == answers


@pytest.mark.parametrize("settings", [{"num_digits": 1}, {"num_digits": 6, "base": 5}, {"base": 11}])
def test_digits_of_a_prompt_differ(settings):
    with pytest.raises(ValueError, match="2 or more digits"):
        HiddenRule(**settings)
