"""Undo wrapper for text tasks: the last response can be taken back, at the cost of a turn.

An empty response, ``<end>`` alone, restores the state before the last response and repeats the message of that time;
earned rewards stay. Only one response can be undone: where there is none, the environment repeats its last message. So
recognizing an error is worth something where it cannot be repaired otherwise, and a dialogue may go wrong, be taken
back, and continue like one that never went wrong. The demonstrator is that of the task and undoes nothing.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, Task, TaskSpec, TaskStep, TextEnv, pack_tokens
from thespis.runtime.keys import fold


class UndoSnapshot(eqx.Module):
    """Snapshot of a text task: its state, and the last message of the environment."""

    task_state: PyTree
    message: Int[Array, "*episodes message"]


class UndoState(eqx.Module):
    """State of one episode: the current snapshot, and the one before the last response.

    Both are equal where there is nothing to undo.
    """

    current: UndoSnapshot
    previous: UndoSnapshot


class UndoTask(eqx.Module):
    """Undo wrapper: ``task`` with an undo response. ``extra_turns``: turns that are added to those of the task."""

    task: Task
    extra_turns: int = eqx.field(static=True, default=0)

    @property
    def task_spec(self) -> TaskSpec:
        """The spec of the task; messages may be as long as its opening."""
        spec = self.task.task_spec
        message_tokens = max(spec.max_message_tokens, spec.max_opening_tokens)
        choices = (*spec.choices, "") if spec.choices else ()
        turns = spec.max_turns + self.extra_turns
        return dataclasses.replace(
            spec, name="text:take-back", max_turns=turns, max_message_tokens=message_tokens, choices=choices
        )

    def init(self, key: Key[Array, ""]) -> tuple[UndoState, Int[Array, " opening"]]:
        """Start an episode of the wrapped task."""
        task_state, opening = self.task.init(key)
        snapshot = UndoSnapshot(task_state, pack_tokens(self.task_spec.max_message_tokens, opening))
        return UndoState(snapshot, snapshot), opening

    def step(
        self, state: UndoState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[UndoState, TaskStep]:
        """Step the task, or restore the previous snapshot."""
        undo = response[0] == self.task_spec.vocabulary.eos_tokens[0]
        task_state, outcome = self.task.step(state.current.task_state, response, fold(key, "task"))
        next_snapshot = UndoSnapshot(task_state, pack_tokens(self.task_spec.max_message_tokens, outcome.message))
        current, previous = (
            jax.tree.map(lambda old, new: jnp.where(undo, old, new), state.previous, snapshot)
            for snapshot in (next_snapshot, state.current)
        )
        return UndoState(current, previous), TaskStep(
            current.message, jnp.where(undo, 0.0, outcome.reward), outcome.terminated & ~undo
        )

    def demonstrator_response(self, state: UndoState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The response of the task's demonstrator."""
        return self.task.demonstrator_response(state.current.task_state, key)


NUM_DISHES = 2
"""Dishes per course of the daily menu."""
SERVE = "serve"
"""The response after the last course of the daily menu, and the word that asks for it."""


class DailyMenuState(eqx.Module):
    """State of one episode: today's dish of each course, how many choices were right, and the number of choices."""

    todays_dishes: Int[Array, "*episodes course"]
    num_right: Int[Array, "*episodes"]
    turn: Int[Array, "*episodes"]


class DailyMenu(eqx.Module):
    """Daily menu task: choose the right one of two dishes in each of ``num_courses`` courses (at most 26), and serve.

    ``a >`` is answered by one of two dishes, such as ``a2 <end>``, then by ``yes b >`` or ``no b >``: whether it was
    right, and the next course. After the last one, ``yes serve >`` or ``no serve >`` is answered by anything, such as
    ``serve <end>``, which ends the dialogue and earns 1 if all choices were right. The right dish is usually the same
    one in all dialogues, but a share ``change_rate`` of all dishes is the other one today, which cannot be known before
    it is tried. The demonstrator chooses the usual dish, except in a share ``demonstrator_noise`` of its choices, which
    are random.
    """

    num_courses: int = eqx.field(static=True, default=3)
    change_rate: float = 0.2
    demonstrator_noise: float = 1.0

    @property
    def usual_dishes(self) -> Int[np.ndarray, " course"]:
        """The usual dish of each course, 0 or 1."""
        return np.random.default_rng(0).integers(0, NUM_DISHES, self.num_courses)

    @property
    def task_spec(self) -> TaskSpec:
        """Verdicts, courses (a letter) and the last response, dishes (a course and a number), and the response cue."""
        courses = [chr(ord("a") + i) for i in range(self.num_courses)]
        dishes = [f"{course}{number + 1}" for course in courses for number in range(NUM_DISHES)]
        words = word_vocabulary((RESPONSE_CUE, "yes", "no", *courses, SERVE, *dishes))
        return TaskSpec("text:daily-menu", words, self.num_courses + 1, 2, max_opening_tokens=2, max_message_tokens=3)

    def init(self, key: Key[Array, ""]) -> tuple[DailyMenuState, Int[Array, " opening"]]:
        """Start of a dialogue: today's dishes are drawn."""
        changes = jax.random.bernoulli(fold(key, "changes"), self.change_rate, (self.num_courses,))
        dishes = (jnp.asarray(self.usual_dishes, "int32") + changes) % NUM_DISHES
        zero = jnp.zeros((), "int32")
        return DailyMenuState(dishes, zero, zero), self._prompt(zero)[:2]

    def step(
        self, state: DailyMenuState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[DailyMenuState, TaskStep]:
        """Say whether the dish is today's, and ask for the next course; or end the dialogue with its score."""
        done, spec = state.turn >= self.num_courses, self.task_spec
        course = jnp.minimum(state.turn, self.num_courses - 1)
        right = (response == self._response(course, state.todays_dishes[course])).all() & ~done
        state = DailyMenuState(state.todays_dishes, state.num_right + right, state.turn + 1)
        verdict = jnp.where(right, spec.encode_word("yes"), spec.encode_word("no"))
        message = jnp.where(done, -1, self._prompt(state.turn, verdict))
        return state, TaskStep(message, (done & (state.num_right == self.num_courses)).astype("float32"), done)

    def demonstrator_response(self, state: DailyMenuState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The usual dish, or any of the course; ``serve`` after the last one."""
        spec, course = self.task_spec, jnp.minimum(state.turn, self.num_courses - 1)
        is_noise = jax.random.uniform(fold(key, "noise")) < self.demonstrator_noise
        random_dish = jax.random.randint(fold(key, "dish"), (), 0, NUM_DISHES, "int32")
        dish = jnp.where(is_noise, random_dish, jnp.asarray(self.usual_dishes, "int32")[course])
        serve = jnp.asarray(spec.encode(f"{SERVE} {END}"))
        return jnp.where(state.turn >= self.num_courses, serve, self._response(course, dish))

    def _response(self, course: Int[Array, ""], dish: Int[Array, ""]) -> Int[Array, " response"]:
        spec = self.task_spec
        token = spec.encode_word("a1") + NUM_DISHES * course + dish
        return jnp.stack([token, jnp.full((), spec.vocabulary.eos_tokens[0])]).astype("int32")

    def _prompt(self, turn: Int[Array, ""], verdict: Int[Array, ""] | int = -1) -> Int[Array, " message"]:
        spec = self.task_spec
        course = spec.encode_word("a") + jnp.minimum(turn, self.num_courses)
        return pack_tokens(3, verdict, course, spec.encode(RESPONSE_CUE))


DAILY_MENU = TextEnv(UndoTask(DailyMenu(), extra_turns=6))
"""Three courses, of whose right dishes a fifth cannot be known; a choice can be undone at the cost of a turn."""
