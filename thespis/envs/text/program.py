"""Program task: a computation in words, and a program for a stack machine that does it, judged by tests.

``x from 3 * it >`` says: take ``x``, subtract it from 3, multiply the result by itself. It is answered by
``x 3 swap - dup * <end>``. Arithmetic is modulo 10. A program that gives the right value on all tests earns 1, whatever
it looks like; one that finds too few values on the stack, or leaves another number of them than one, fails.

Instructions: ``x``, ``y`` and the digits put a value on the stack; ``+``, ``-``, ``*`` replace the two values on top,
``a b -`` by ``a - b``; ``dup`` repeats the value on top, ``swap`` exchanges two.

It is the smallest task of code review. A bug is *repairable* at a line if one other instruction there makes all tests
pass. That is found by trying all (:meth:`Program.bug_lines`), so it is known for programs of any author, not only for
those with planted bugs.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import DIGITS, RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

BASE = len(DIGITS)
INPUTS, OPERATIONS, REVERSED, REPEATED = ("x", "y"), ("+", "-", "*"), "from", "it"
INSTRUCTIONS = (*INPUTS, *OPERATIONS, "dup", "swap", *DIGITS)
"""The instructions of a program, by number."""
WORDS = (RESPONSE_CUE, "right", "line", REVERSED, REPEATED, *INSTRUCTIONS)
"""The vocabulary: words of a task and of verdicts, and the instructions."""
X, Y, PLUS, MINUS, TIMES, DUP, SWAP, ZERO = map(INSTRUCTIONS.index, (*INPUTS, *OPERATIONS, "dup", "swap", "0"))
PER_STEP = 3
"""Instructions that a step needs at most."""


class Computation(eqx.Module):
    """A computation: where it begins, and for each step an operation and an operand; and the inputs of its tests.

    ``start``, ``operands``: numbers of instructions; :data:`DUP` as an operand is ``it``, the value so far.
    ``operations``: 0 to 3 for ``+``, ``-``, ``*``, ``from``.
    """

    start: Int[Array, "*episodes"]
    operations: Int[Array, "*episodes step"]
    operands: Int[Array, "*episodes step"]
    inputs: Int[Array, "*episodes test 2"]

    @property
    def right_values(self) -> Int[Array, " test"]:
        """The value that is due on each test."""
        value = _operand(self.start, self.inputs, jnp.zeros(self.inputs.shape[0], "int32"))
        for i in range(self.operations.shape[0]):
            operand = _operand(self.operands[i], self.inputs, value)
            by_operation = jnp.stack([value + operand, value - operand, value * operand, operand - value])
            value = by_operation[self.operations[i]] % BASE
        return value


def _operand(word: Int[Array, ""], inputs: Int[Array, "test 2"], value: Int[Array, " test"]) -> Int[Array, " test"]:
    """The value of an operand on each test, where the value so far is ``value``."""
    constants = jnp.broadcast_to((word - ZERO).astype("int32"), value.shape)
    by_kind = jnp.stack([inputs[:, 0], inputs[:, 1], value, constants])
    return by_kind[jnp.select([word == X, word == Y, word == DUP], [0, 1, 2], 3)]


def run_program(
    program: Int[Array, " line"], inputs: Int[Array, "test 2"]
) -> tuple[Int[Array, " test"], Bool[Array, ""]]:
    """Run a program on each test: the value that it leaves, and whether it leaves one and never lacked any.

    ``program``: instructions by number, -1 after its end.
    """
    num_tests, num_lines = inputs.shape[0], program.shape[0]

    def execute(state, instruction):
        stack, height, is_valid = state
        top = jnp.take(stack, jnp.clip(height - 1, 0), axis=1)
        below = jnp.take(stack, jnp.clip(height - 2, 0), axis=1)
        is_value = (instruction == X) | (instruction == Y) | (instruction >= ZERO)
        is_operation = (instruction >= PLUS) & (instruction <= TIMES)
        pushed = jnp.where(instruction == DUP, top, _operand(instruction, inputs, top))
        result = jnp.stack([below + top, below - top, below * top])[jnp.clip(instruction - PLUS, 0, 2)] % BASE
        grows, swaps = is_value | (instruction == DUP), instruction == SWAP
        needed = jnp.where(is_value, 0, jnp.where(instruction == DUP, 1, 2))
        places = jnp.arange(num_lines + 1)
        new_stack = jnp.where((places == height) & grows, pushed[:, None], stack)
        lower = jnp.where(swaps, top, result)
        new_stack = jnp.where((places == height - 2) & (swaps | is_operation), lower[:, None], new_stack)
        new_stack = jnp.where((places == height - 1) & swaps, below[:, None], new_stack)
        runs = instruction >= 0
        new_height = height + grows.astype("int32") - is_operation.astype("int32")
        return (
            jnp.where(runs, new_stack, stack),
            jnp.where(runs, new_height, height),
            is_valid & (~runs | (height >= needed)),
        ), None

    start = (jnp.zeros((num_tests, num_lines + 1), "int32"), jnp.zeros((), "int32"), jnp.ones((), bool))
    (stack, height, is_valid), _ = jax.lax.scan(execute, start, program)
    return stack[:, 0], is_valid & (height == 1)


class Program(eqx.Module):
    """Program task: a computation in words, and a program for a stack machine that does it, judged by tests.

    ``num_steps``: steps of a computation, 1 to 3. ``num_tests``: tests of a program, inputs that are drawn with the
    task, of which few let wrong programs pass; 0 for all hundred, where finding bugs takes ten times as long.
    ``bugs``: where the demonstrator's random instructions are: in a ``demonstrator_noise`` share of the lines, or,
    ``planted``, at one line in a ``demonstrator_noise`` share of the programs, which then fail. ``critic_noise``: the
    share of its critiques that are random verdicts; the others name the first line at which a bug is repairable.
    ``critic_lies``: the share that says the opposite. ``revision_noise``: as ``demonstrator_noise``, of the lines that
    are written after a critique (``None``: the same).
    """

    num_steps: int = eqx.field(static=True, default=2)
    num_tests: int = eqx.field(static=True, default=10)
    bugs: Literal["scattered", "planted"] = eqx.field(static=True, default="scattered")
    demonstrator_noise: float = 0.1
    critic_noise: float = 0.0
    critic_lies: float = 0.0
    revision_noise: float | None = None

    def __check_init__(self):
        """Raise ``ValueError`` where a line has no number of one digit, and for a negative number of tests."""
        if not 1 <= self.num_steps <= 3:
            raise ValueError(f"num_steps={self.num_steps}: 1 to 3, as lines are named by a digit")
        if self.num_tests < 0:
            raise ValueError(f"num_tests={self.num_tests}: at least 1, or 0 for all hundred")

    @property
    def num_lines(self) -> int:
        """The most instructions that a program may have."""
        return 1 + PER_STEP * self.num_steps

    @property
    def task_spec(self) -> TaskSpec:
        """Words of computations and verdicts, and the instructions."""
        return TaskSpec(
            "text:program",
            word_vocabulary(WORDS),
            1,
            max_response_tokens=self.num_lines + 1,
            max_opening_tokens=2 * self.num_steps + 2,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[Computation, Int[Array, " opening"]]:
        """A random computation as the prompt: operands are ``x``, ``y``, ``it`` and digits, equally often."""
        count = self.num_steps
        kinds = jax.random.randint(fold(key, "operands"), (count,), 0, 4)
        digits = jax.random.randint(fold(key, "digits"), (count,), ZERO + 1, ZERO + BASE)
        inputs = jnp.asarray(np.stack(np.divmod(np.arange(BASE * BASE), BASE), axis=-1))
        if self.num_tests:
            inputs = jax.random.randint(fold(key, "inputs"), (self.num_tests, 2), 0, BASE)
        state = Computation(
            jax.random.randint(fold(key, "start"), (), X, Y + 1),
            jax.random.randint(fold(key, "operations"), (count,), 0, 4),
            jnp.where(kinds < 3, jnp.asarray([X, Y, DUP])[jnp.minimum(kinds, 2)], digits),
            inputs.astype("int32"),
        )
        spec, first = self.task_spec, self._first_token
        operations = jnp.asarray(spec.encode(" ".join((*OPERATIONS, REVERSED))))[state.operations]
        operands = jnp.where(state.operands == DUP, spec.encode_word(REPEATED), state.operands + first)
        steps = jnp.stack([operations, operands], axis=-1).reshape(-1)
        return state, pack_tokens(spec.max_opening_tokens, state.start + first, steps, spec.encode(RESPONSE_CUE))

    def step(
        self, state: Computation, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[Computation, TaskStep]:
        """The end, with 1 for a program that passes all tests."""
        reward = self.passes(state, self.read_program(response)).astype("float32")
        return state, TaskStep(-jnp.ones(1, "int32"), reward, jnp.ones((), bool))

    def passes(self, state: Computation, program: Int[Array, " line"]) -> Bool[Array, ""]:
        """Whether a program, instructions by number and -1 after its end, gives the right value on all tests."""
        values, is_valid = run_program(program, state.inputs)
        return is_valid & (values == state.right_values).all()

    def bug_lines(self, state: Computation, program: Int[Array, " line"]) -> Bool[Array, " line"]:
        """At which lines a bug is repairable: with one other instruction there, the program passes all tests.

        None of a program that passes. If a program that fails is not repairable at any line, the first one at which it
        departs from the program that :meth:`solution` gives.
        """
        repairable = self._passing_changes(state, program).any(axis=1) & (program >= 0)
        departs = jnp.argmax(program != self.solution(state)) == jnp.arange(self.num_lines)
        return ~self.passes(state, program) & jnp.where(repairable.any(), repairable, departs)

    def _passing_changes(self, state: Computation, program: Int[Array, " line"]) -> Bool[Array, "line instruction"]:
        """Whether the program passes all tests with each instruction at each line, in place of what is there."""

        def passes(line: Int[Array, ""], instruction: Int[Array, ""]) -> Bool[Array, ""]:
            return self.passes(state, program.at[line].set(instruction))

        lines, instructions = jnp.arange(self.num_lines), jnp.arange(len(INSTRUCTIONS))
        return jax.vmap(jax.vmap(passes, (None, 0)), (0, None))(lines, instructions)

    def solution(self, state: Computation) -> Int[Array, " line"]:
        """A program that passes, step by step as the task says; -1 after its end."""
        is_reversed = state.operations == 3
        operations = jnp.where(is_reversed, MINUS, PLUS + state.operations)
        steps = jnp.stack([state.operands, jnp.where(is_reversed, SWAP, -1), operations], axis=-1)
        return pack_tokens(self.num_lines, state.start, steps.reshape(-1))

    def demonstrator_response(self, state: Computation, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The solution, with bugs."""
        solution = self.solution(state)
        if self.bugs == "planted":
            is_buggy = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
            return self.write_program(jnp.where(is_buggy, self._with_bug(state, solution, fold(key, "bug")), solution))
        return self.write_program(_scattered(solution, 0, self.demonstrator_noise, key))

    def demonstrator_critique(
        self, state: Computation, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """``right``, or the first line at which a bug is repairable; at times any verdict, and at times a lie."""
        bugs = self.bug_lines(state, self.read_program(answer))
        line, some_line = jnp.argmax(bugs), jax.random.randint(fold(key, "line"), (), 0, self.num_lines)
        is_right = ~bugs.any()
        guesses_right = jax.random.bernoulli(fold(key, "guess"))
        is_random = jax.random.uniform(fold(key, "wander")) < self.critic_noise
        lies = jax.random.uniform(fold(key, "lies")) < self.critic_lies
        says_right = jnp.where(is_random, guesses_right, is_right) ^ lies
        return self._write_verdict(says_right, jnp.where(is_random | is_right, some_line, line))

    def critique_judgment(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """What a critique says of a program: 1 that it is right, 0 that a line is wrong, -1 if it is no verdict."""
        says_right, line = self._read_verdict(critique)
        return jnp.where(says_right, 1, jnp.where(line >= 0, 0, -1))

    def names_error(
        self, state: Computation, answer: Int[Array, " response"], critique: Int[Array, " critique"]
    ) -> Bool[Array, ""]:
        """Whether a verdict names a line at which a bug is repairable."""
        line = self._read_verdict(critique)[1]
        return (line >= 0) & self.bug_lines(state, self.read_program(answer))[jnp.maximum(line, 0)]

    def demonstrator_revision(
        self,
        state: Computation,
        answer: Int[Array, " response"],
        critique: Int[Array, " critique"],
        key: Key[Array, ""],
    ) -> Int[Array, " response"]:
        """The program as a verdict says: what is before the named line is kept, the rest written anew."""
        says_right, line = self._read_verdict(critique)
        program, solution = self.read_program(answer), self.solution(state)
        noise = self.demonstrator_noise if self.revision_noise is None else self.revision_noise
        first = jnp.where(line < 0, 0, line)
        lines = jnp.arange(self.num_lines)
        revised = jnp.where(lines < first, program, _scattered(solution, first, noise, key))
        return self.write_program(jnp.where(says_right, program, revised))

    @property
    def _first_token(self) -> int:
        """The token of the first instruction; the others follow."""
        return self.task_spec.encode_word(INSTRUCTIONS[0])

    def read_program(self, response: Int[Array, " response"]) -> Int[Array, " line"]:
        """The instructions of a response by number, -1 after its end; a word that is none leaves nothing to run."""
        words, length = cut_at_eos(self.task_spec, response)
        words = words[: self.num_lines]
        instructions = words - self._first_token
        is_program = ((words < 0) | (instructions >= 0)).all() & (length <= self.num_lines)
        return jnp.where((words >= 0) & is_program, instructions, -1)

    def write_program(self, program: Int[Array, " line"]) -> Int[Array, " response"]:
        """The response with these instructions."""
        words = jnp.where(program >= 0, program + self._first_token, -1)
        return pack_tokens(self.num_lines + 1, words, self.task_spec.encode(END))

    def _write_verdict(self, says_right: Bool[Array, ""], line: Int[Array, ""]) -> Int[Array, " 3"]:
        """``right``, or ``line`` and its number, from 0; and the end."""
        spec = self.task_spec
        names_line = jnp.stack([jnp.asarray(spec.encode_word("line")), line + spec.encode_word("0")])
        words = jnp.where(says_right, jnp.asarray([spec.encode_word("right"), -1]), names_line)
        return pack_tokens(3, words, spec.encode(END))

    def _read_verdict(self, critique: Int[Array, " critique"]) -> tuple[Bool[Array, ""], Int[Array, ""]]:
        """Whether a critique says that a program is right, and the line that it names; -1 if none."""
        spec = self.task_spec
        words, length = cut_at_eos(spec, critique)
        line = words[1] - spec.encode_word("0")
        names_line = (length == 2) & (words[0] == spec.encode_word("line")) & (line >= 0) & (line < self.num_lines)
        return (length == 1) & (words[0] == spec.encode_word("right")), jnp.where(names_line, line, -1)

    def _with_bug(self, state: Computation, program: Int[Array, " line"], key: Key[Array, ""]) -> Int[Array, " line"]:
        """A program that fails, with another instruction at one line."""
        fails = ~self._passing_changes(state, program) & (program >= 0)[:, None]
        line = jax.random.categorical(fold(key, "line"), jnp.where(fails.any(axis=1), 0.0, -jnp.inf))
        word = jax.random.categorical(fold(key, "word"), jnp.where(fails[line], 0.0, -jnp.inf))
        return program.at[line].set(word)


def _scattered(
    program: Int[Array, " line"], first: int | Int[Array, ""], share: float | Array, key: Key[Array, ""]
) -> Int[Array, " line"]:
    """A program with random instructions in a ``share`` of its lines from ``first`` on."""
    count = program.shape[0]
    is_random = jax.random.uniform(fold(key, "wander"), (count,)) < share
    words = jax.random.randint(fold(key, "words"), (count,), 0, len(INSTRUCTIONS))
    return jnp.where(is_random & (program >= 0) & (jnp.arange(count) >= first), words, program)
