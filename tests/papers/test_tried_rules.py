"""Hidden rules found by trying: the demonstrator's lessons against brute force, and its success by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.text.conversation import SoloConversationEnv
from thespis.envs.text.hidden_rule import RULES, HiddenRuleState
from thespis.envs.text.retry import RetryConversation
from thespis.papers.reflexion.envs import TriedRules
from thespis.training.demonstrations import sample_demonstrations

TASK = TriedRules(num_digits=4, base=6)


def picks(digits):
    return [digits[0], digits[-1], max(digits), min(digits)]


def sign(x):
    return (x > 0) - (x < 0)


def possible(digits, right, tried):
    """Rules that would have been answered as the hidden one was."""
    return [all(sign(pick - t) == sign(right - t) for t in tried) for pick in picks(digits)]


def solved_by_try(digits, num_tries):
    """Probability of having solved a task after each number of tries, over hidden rules, by recursion."""

    def success(right, tried, tries):
        if not tries:
            return 0.0
        rules = [pick for pick, ok in zip(picks(digits), possible(digits, right, tried), strict=True) if ok]
        return np.mean([1.0 if pick == right else success(right, (*tried, pick), tries - 1) for pick in rules])

    return [np.mean([success(right, (), n) for right in picks(digits)]) for n in range(1, num_tries + 1)]


def write(digits):
    zero, end = TASK.task_spec.encode_word("0"), TASK.task_spec.encode_word("<end>")
    return jnp.asarray([[zero + d, end] if d is not None else [-1, -1] for d in digits], "int32")


def test_lessons_agree_with_all_failed_attempts():
    rng = np.random.default_rng(0)
    for _ in range(20):
        digits, rule = rng.permutation(6)[:4].tolist(), int(rng.integers(4))
        state, right = HiddenRuleState(jnp.asarray(digits), jnp.asarray(rule)), picks(digits)[rule]
        tried = [d for d in rng.permutation(6)[:2].tolist() if d != right]
        answers = write([*tried, None, None][:3])
        expected = possible(digits, right, tried)
        assert TASK.possible_rules(state, answers).tolist() == expected and expected[rule]
        keys = jax.random.split(jax.random.key(1), 40)
        lessons = jax.vmap(lambda key, state=state, answers=answers: TASK.demonstrator_reflection(state, answers, key))(
            keys
        )
        taught = {RULES[int(TASK.read_hint(lesson))] for lesson in lessons}
        assert taught == {name for name, ok in zip(RULES, expected, strict=True) if ok}


@pytest.mark.parametrize("memory", ["reflections", "attempts"])
def test_the_demonstrator_solves_as_many_as_by_enumeration(memory):
    """With either memory, as the answers are the same."""
    rules = RetryConversation(TASK, num_retries=2, self_reflection=True, max_reflection_tokens=2, memory=memory)
    *_, reward = sample_demonstrations(SoloConversationEnv(rules), 4_000)
    attempts = np.asarray(reward)[:: 2 if memory == "reflections" else 1]
    expected = np.mean([solved_by_try(order, 3) for order in itertools.permutations(range(4))], axis=0)
    np.testing.assert_allclose(np.cumsum(attempts.mean(axis=1)), expected, atol=0.025)
