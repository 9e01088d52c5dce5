"""Delayed rewards: the rewards of a text task, summed and paid at the end of the dialogue.

Returns stay the same, but no reward says any more which turn earned it: the task of return decomposition
(Arjona-Medina et al., 2019).
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.envs.text.task import Task, TaskSpec, TaskStep


class DelayedRewardState(eqx.Module):
    """State of one episode: that of the task, the number of finished turns, and the sum of rewards so far."""

    task_state: PyTree
    turn: Int[Array, "*episodes"]
    total: Float[Array, "*episodes"]


class DelayedReward(eqx.Module):
    """Text task whose rewards are summed and paid at the last turn."""

    task: Task

    @property
    def task_spec(self) -> TaskSpec:
        """The task's own specification."""
        return self.task.task_spec

    def init(self, key: Key[Array, ""]) -> tuple[DelayedRewardState, Int[Array, " opening"]]:
        """The task's initial state and first message."""
        state, message = self.task.init(key)
        return DelayedRewardState(state, jnp.zeros((), "int32"), jnp.zeros(())), message

    def step(
        self, state: DelayedRewardState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[DelayedRewardState, TaskStep]:
        """The task's step; its reward is 0, at the last turn the sum of all."""
        task_state, outcome = self.task.step(state.task_state, response, key)
        turn, total = state.turn + 1, state.total + outcome.reward
        is_last = outcome.terminated | (turn >= self.task_spec.max_turns)
        reward = jnp.where(is_last, total, 0.0)
        return DelayedRewardState(task_state, turn, total), TaskStep(outcome.message, reward, outcome.terminated)

    def demonstrator_response(self, state: DelayedRewardState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The response of the task's demonstrator."""
        return self.task.demonstrator_response(state.task_state, key)
