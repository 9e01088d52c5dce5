"""Fixed set of tasks: a text task whose episodes begin in one of a few initial states, again and again.

So a training set of prompts is finite, as in most reinforcement learning of language models, and what was learned of a
task, or stored, is of use when it comes again.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
from jaxtyping import Array, Int, Key, PyTree

from thespis.envs.text.task import Task, TaskSpec, TaskStep
from thespis.runtime.keys import fold, seed_key


class FixedTasks(eqx.Module):
    """Fixed set of tasks: ``task`` with ``num_tasks`` initial states, of which each episode draws one uniformly.

    The set is always the same. Two of its members can be equal by chance.
    """

    task: Task
    num_tasks: int = eqx.field(static=True, default=128)

    @property
    def task_spec(self) -> TaskSpec:
        """The spec of the task, under a name that tells its fields."""
        spec = self.task.task_spec
        return dataclasses.replace(spec, name=f"{spec.name}-fixed")

    def init(self, key: Key[Array, ""]) -> tuple[PyTree, Int[Array, " opening"]]:
        """One of the initial states."""
        index = jax.random.randint(fold(key, "fixed"), (), 0, self.num_tasks)
        return self.task.init(fold(seed_key(0), "fixed", index))

    def step(self, state: PyTree, response: Int[Array, " response"], key: Key[Array, ""]) -> tuple[PyTree, TaskStep]:
        """The task's next state, and what the environment answers."""
        return self.task.step(state, response, key)

    def demonstrator_response(self, state: PyTree, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The response of the task's demonstrator."""
        return self.task.demonstrator_response(state, key)
