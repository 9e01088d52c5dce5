"""Tasks: every episode plays one of several given settings of the environment's parameters, chosen at random.

The tasks are numbered in the order given. Replay can keep a buffer for each of them
(:class:`~thespis.data.task_replay.TaskReplay`), and reports have the return of each.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Citation, Critique, Draw, EnvSpec, EpisodeStats, Report, Transition
from thespis.curricula.parameters import leaves_by_path, replace_leaves, require_parameter
from thespis.runtime.keys import indexed_keys


class TasksState(eqx.Module):
    """State: each task's parameters, and the mean return of its episodes when some last ended (0 before)."""

    params: PyTree[Array]
    returns: Float[Array, " task"]


class Tasks(eqx.Module):
    """Curriculum of given tasks, of which every episode plays one at random.

    A field of a nested tree of parameters is named by its path: ``pole.length``. A field that is an array gets the
    value in all its elements.
    """

    tasks: tuple[str, ...] = eqx.field(static=True, default=())
    """The parameters of each task, such as ``length=0.5&masspole=0.2``; all others keep their defaults."""

    name: ClassVar[str] = "tasks"
    citations: ClassVar[tuple[Citation, ...]] = ()
    needs_critique: ClassVar[bool] = False
    draws_per_rollout: ClassVar[bool] = False

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> TasksState:
        """The tasks' parameters. Raises ``UserError`` for an unknown parameter or a value that it cannot have."""
        if not self.tasks:
            raise UserError("the curriculum tasks needs tasks: --set curriculum.tasks='length=0.5,length=1.0'")
        params = jax.tree.map(jnp.asarray, spec.params)
        each = [_task_params(spec.name, params, task) for task in self.tasks]
        return TasksState(jax.tree.map(lambda *x: jnp.stack(x), *each), jnp.zeros(len(each)))

    def draw(self, state: TasksState, key: Key[Array, ""], n: int) -> Draw:
        """A random task for each of ``n`` episodes; the i-th does not depend on ``n``."""
        count = len(self.tasks)
        task = jax.vmap(lambda key: jax.random.randint(key, (), 0, count))(indexed_keys(key, n))
        return Draw(jax.tree.map(lambda x: x[task], state.params), task)

    def update(
        self,
        state: TasksState,
        rollout: Transition,
        critique: Critique | None,
        stats: EpisodeStats,
        key: Key[Array, ""],
    ) -> tuple[TasksState, Report]:
        """Keep and report each task's mean return, of the episodes of the last rollout in which any of it ended."""
        if stats.level is None:
            return state, Report({})
        numbers = jnp.arange(len(self.tasks))
        ended = (stats.done & (stats.level == numbers[:, None, None])).astype("float32")
        count, total = jnp.sum(ended, axis=(1, 2)), jnp.sum(ended * stats.returns, axis=(1, 2))
        returns = jnp.where(count > 0, total / jnp.maximum(count, 1), state.returns)
        metrics = {f"return_of_task_{i}": returns[i] for i in range(len(self.tasks))}
        return TasksState(state.params, returns), Report(metrics)


def _task_params(env_name: str, params: PyTree, task: str) -> PyTree:
    """The parameters with those that a text names replaced."""
    fields = leaves_by_path(params)
    for pair in task.split("&"):
        name, _, text = (part.strip() for part in pair.partition("="))
        try:
            value = float(text)
        except ValueError:
            raise UserError(f"cannot read the task {task!r}; write it as field=number&field=number") from None
        field = require_parameter(env_name, fields, name)
        if not jnp.issubdtype(field.dtype, jnp.number) or not -jnp.inf < value < jnp.inf:
            raise UserError(f"the parameter {name!r} of {env_name} is of type {field.dtype}: it cannot be {text}")
        if jnp.issubdtype(field.dtype, jnp.integer) and not value.is_integer():
            raise UserError(f"the parameter {name!r} of {env_name} is an integer: it cannot be {text}")
        fields[name] = jnp.full(field.shape, value, field.dtype)
    return replace_leaves(params, fields)
