"""Programs for a stack machine: bugs found by trying all repairs, planted bugs, verdicts and revisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from text_rules import Program as ProgramRules

from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.critique import CritiqueConversation
from thespis.envs.text.program import INSTRUCTIONS, Program
from thespis.evaluation.report_card import report_card
from thespis.language.tokenizer import word_tokenizer

TASK = Program()
TOKENIZER = word_tokenizer(TASK.task_spec.vocabulary.words)


def drawn(task, count):
    """States of so many tasks, and keys."""
    keys = jax.random.split(jax.random.key(0), count)
    return jax.jit(jax.vmap(task.init))(keys)[0], keys


def rules_of(task, states, i):
    return ProgramRules(task, jax.tree.map(lambda x: np.asarray(x)[i], states))


def text(response):
    return TOKENIZER.decode(np.asarray(response))


def tokens(words, length):
    encoded = TOKENIZER.encode(words)
    return jnp.asarray(encoded + [-1] * (length - len(encoded)), "int32")


def repairable_lines(rules, instructions):
    """Lines at which another instruction makes all tests pass, by trying all in plain Python."""
    changed = [
        [*instructions[:i], word, *instructions[i + 1 :]] for i in range(len(instructions)) for word in INSTRUCTIONS
    ]
    passed = np.asarray([rules.passes(program) for program in changed]).reshape(-1, len(INSTRUCTIONS))
    return passed.any(axis=1)


def test_bug_lines_are_those_that_one_other_instruction_repairs():
    """Against plain Python, for random programs of the demonstrator, of which some pass and some have several bugs."""
    task = Program(demonstrator_noise=0.3, num_tests=6)
    states, keys = drawn(task, 40)
    answers = jax.jit(jax.vmap(task.demonstrator_response))(states, keys)
    found_lines = jax.jit(jax.vmap(lambda state, answer: task.bug_lines(state, task.read_program(answer))))(
        states, answers
    )
    kinds = []
    for i, (answer, lines) in enumerate(zip(answers, np.asarray(found_lines), strict=True)):
        rules, instructions = rules_of(task, states, i), text(answer).removesuffix(" <end>").split()
        repairable = repairable_lines(rules, instructions)
        if rules.passes(instructions):
            assert not lines.any()
        elif repairable.any():
            assert lines[: len(instructions)].tolist() == repairable.tolist() and not lines[len(instructions) :].any()
        else:
            departs = [a != b for a, b in zip(instructions, rules.solution.split(), strict=True)]
            assert np.flatnonzero(lines).tolist() == [departs.index(True)]
        kinds.append((rules.passes(instructions), repairable.any()))
    assert set(kinds) == {(True, True), (False, True), (False, False)}


@pytest.mark.long
def test_planted_bugs_are_one_other_instruction_and_the_program_fails():
    task = Program(num_steps=3, bugs="planted", demonstrator_noise=0.6)
    states, keys = drawn(task, 500)
    answers = jax.jit(jax.vmap(task.demonstrator_response))(states, keys)
    num_changed = []
    for i, answer in enumerate(answers[:100]):
        rules, instructions = rules_of(task, states, i), text(answer).removesuffix(" <end>").split()
        num_changed.append(sum(a != b for a, b in zip(instructions, rules.solution.split(), strict=True)))
        assert rules.passes(instructions) == (num_changed[-1] == 0)
    assert set(num_changed) == {0, 1}
    rewards = jax.jit(jax.vmap(lambda state, answer, key: task.step(state, answer, key)[1].reward))(
        states, answers, keys
    )
    np.testing.assert_allclose(rewards.mean(), 0.4, atol=0.07)


@pytest.mark.parametrize(
    ("words", "judgment"),
    [("right <end>", 1), ("line 0 <end>", 0), ("line 6 <end>", 0)]
    + [(words, -1) for words in ("line 7 <end>", "line <end>", "right 3 <end>", "line 2", "<end>")],
)
def test_what_a_critique_says(words, judgment):
    assert TASK.critique_judgment(tokens(words, 3)) == judgment


@pytest.mark.long
def test_verdicts_are_exact_random_or_lies():
    def shares(**settings):
        task = Program(demonstrator_noise=0.3, **settings)
        states, keys = drawn(task, 1_000)

        def judged(state, key):
            answer = task.demonstrator_response(state, key)
            critique = task.demonstrator_critique(state, answer, key)
            says_right, is_right = task.critique_judgment(critique) == 1, task.passes(state, task.read_program(answer))
            return says_right == is_right, is_right, task.names_error(state, answer, critique)

        agrees, is_right, names = (np.asarray(x) for x in jax.jit(jax.vmap(judged))(states, keys))
        assert 0.1 < is_right.mean() < 0.8
        assert not names[is_right].any()
        return agrees.mean(), names[~is_right].mean()

    assert shares() == (1.0, 1.0)
    assert shares(critic_lies=1.0) == (0.0, 0.0)
    agrees, names = shares(critic_noise=1.0)
    assert abs(agrees - 0.5) < 0.06 and 0.04 < names < 0.13


@pytest.mark.long
def test_a_revision_keeps_what_is_before_the_named_line():
    task = Program(num_steps=2)
    states, keys = drawn(task, 30)
    answer, length = "dup swap + - * <end>", task.num_lines + 1
    revise = jax.jit(
        jax.vmap(
            lambda state, critique, key: task.demonstrator_revision(state, tokens(answer, length), critique, key),
            (0, None, 0),
        )
    )
    kept = revise(states, tokens("right <end>", 3), keys)
    assert {text(row) for row in kept} == {answer}
    rewritten = revise(states, tokens("line 2 <end>", 3), keys)
    assert {tuple(text(row).split()[:2]) for row in rewritten} == {("dup", "swap")}


@pytest.mark.long
def test_few_tests_let_wrong_programs_pass():
    """Of programs with one other instruction than the solution: with all hundred tests equal programs alone pass."""

    def share(num_tests):
        task, exact = Program(num_tests=num_tests, demonstrator_noise=0.3), Program(num_tests=0)
        states, keys = drawn(task, 2_000)
        answers = jax.vmap(task.demonstrator_response)(states, keys)
        passes = jax.vmap(lambda state, answer: task.passes(state, task.read_program(answer)))(states, answers)
        all_inputs = jax.vmap(exact.init)(keys)[0].inputs
        whole = jax.vmap(
            lambda state, inputs, answer: task.passes(
                type(state)(state.start, state.operations, state.operands, inputs), task.read_program(answer)
            )
        )(states, all_inputs, answers)
        assert not (whole & ~passes).any()
        return (passes & ~whole).sum() / (~whole).sum()

    assert share(0) == 0.0
    assert share(1) > 0.02 > 10 * share(10)


@pytest.mark.long
def test_what_critiques_are_worth():
    """With half of the programs right, exact verdicts repair the others; those of a liar do not."""
    rules = CritiqueConversation(Program(demonstrator_noise=0.12, revision_noise=0.0))
    shares = report_card(ConversationEnv(rules), num_episodes=200).shares
    assert 0.4 < shares["right before the critique"][0] < 0.7 and shares["right after the critique"][0] > 0.97
    assert shares["wrong answers whose first error is named"] == [1.0]
    assert shares["right answers called wrong (false alarms)"] == [0.0]
    liar = report_card(
        ConversationEnv(CritiqueConversation(Program(demonstrator_noise=0.12, revision_noise=0.12, critic_lies=1.0))),
        num_episodes=200,
    )
    assert liar.warnings and liar.shares["wrong answers repaired"] == [0.0]


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="1 to 3"):
        Program(num_steps=4)
    with pytest.raises(ValueError, match="at least 1, or 0"):
        Program(num_tests=-1)
