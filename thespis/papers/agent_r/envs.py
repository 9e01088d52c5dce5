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
from jaxtyping import Array, Int, Key, PyTree

from thespis.envs.text.task import Task, TaskSpec, TaskStep, pack_tokens
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
