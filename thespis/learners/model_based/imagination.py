"""Imagination: rollouts of a policy in a learned environment, and the buffer that keeps their steps."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import Draw, Transition
from thespis.envs.rollout import act_once, rollout_step, start_rollout
from thespis.learners.model_based.learned_env import LearnedEnv
from thespis.runs.ranges import AT_LEAST_0, AT_LEAST_1, in_range
from thespis.runtime.keys import fold, indexed_keys


class RolloutLength(eqx.Module):
    """Slot: number of steps of imagined rollouts, as a function of training progress."""

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """The largest number of steps."""

    @abc.abstractmethod
    def at(self, phase: Int[Array, ""]) -> Int[Array, ""]:
        """Number of steps after ``phase`` learning phases."""


class FixedRolloutLength(RolloutLength):
    """Rollouts of the same length throughout."""

    length: int = eqx.field(static=True, default=1, metadata=in_range(AT_LEAST_1))
    """Number of steps."""

    @property
    def longest(self) -> int:
        """The number of steps."""
        return self.length

    def at(self, phase: Int[Array, ""]) -> Int[Array, ""]:
        """The number of steps."""
        return jnp.asarray(self.length, "int32")


class LinearRolloutLength(RolloutLength):
    """Rollouts whose length grows linearly between two learning phases, rounded down.

    Source: Janner et al., 2019, appendix C. Defaults are those of Hopper.
    """

    min_length: int = eqx.field(static=True, default=1, metadata=in_range(AT_LEAST_1))
    """Number of steps at first."""
    max_length: int = eqx.field(static=True, default=15, metadata=in_range(AT_LEAST_1))
    """Number of steps at last."""
    start_phase: int = eqx.field(static=True, default=20_000, metadata=in_range(AT_LEAST_0))
    """Learning phases before the length grows; with one phase a step, environment steps since the first update."""
    end_phase: int = eqx.field(static=True, default=150_000, metadata=in_range(AT_LEAST_1))
    """Learning phases until the length is ``max_length``."""

    def __check_init__(self):
        """Refuse lengths that fall, and times in the wrong order."""
        if self.min_length > self.max_length or self.start_phase >= self.end_phase:
            raise UserError("a rollout length grows from min_length to max_length, between start_phase and end_phase")

    @property
    def longest(self) -> int:
        """The number of steps at last."""
        return self.max_length

    def at(self, phase: Int[Array, ""]) -> Int[Array, ""]:
        """The number of steps after ``phase`` learning phases."""
        grown = jnp.clip(phase - self.start_phase, 0, self.end_phase - self.start_phase)
        return self.min_length + grown * (self.max_length - self.min_length) // (self.end_phase - self.start_phase)


class ImaginedSteps(eqx.Module):
    """Ring buffer of imagined steps ``[row]``; ``num_written`` is the number of all steps ever written."""

    steps: Transition
    num_written: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """The largest number of steps."""
        return self.steps.reward.shape[0]

    def add(self, steps: Transition, mask: Bool[Array, " n"]) -> ImaginedSteps:
        """The buffer with those of the steps that are in ``mask`` added, in place of the oldest."""
        order = jnp.cumsum(mask, dtype="int32")
        rows = jnp.where(mask, (self.num_written + order - 1) % self.capacity, self.capacity)
        stored = jax.tree.map(lambda x, new: x.at[rows].set(new, mode="drop"), self.steps, steps)
        return ImaginedSteps(stored, self.num_written + order[-1])

    def sample(self, key: Key[Array, ""], n: int, num_newest: Int[Array, ""]) -> Transition:
        """Sample ``n`` of the newest ``num_newest`` steps, uniformly with replacement."""
        age = jax.random.randint(key, (n,), 0, jnp.maximum(self.num_available(num_newest), 1))
        return jax.tree.map(lambda x: x[(self.num_written - 1 - age) % self.capacity], self.steps)

    def num_available(self, num_newest: Int[Array, ""]) -> Int[Array, ""]:
        """How many of the newest ``num_newest`` steps there are."""
        return jnp.minimum(jnp.minimum(self.num_written, self.capacity), num_newest)


def init_imagined_steps(example: Transition, capacity: int) -> ImaginedSteps:
    """An empty buffer for steps like the example."""
    steps = jax.tree.map(lambda x: jnp.zeros((capacity, *jnp.shape(x)), jnp.result_type(x)), example)
    return ImaginedSteps(steps, jnp.zeros((), "int32"))


def imagine(
    method: Method,
    policy: PyTree,
    env: LearnedEnv,
    observations: Float[Array, "row *shape"],
    length: Int[Array, ""],
    buffer: ImaginedSteps,
    key: Key[Array, ""],
) -> ImaginedSteps:
    """The buffer with the steps of rollouts of ``length`` steps from the given observations.

    A rollout ends where an episode does.
    """
    count, space = observations.shape[0], env.spec.action_space

    def act(memory: Any, view: PyTree, is_first: Array, tick: Array) -> tuple[PyTree, PyTree, Any, PyTree]:
        return act_once(method, space, policy, memory, view, is_first, fold(key, "act", tick))

    def step(state: PyTree, action: PyTree, tick: Array) -> tuple[PyTree, Any]:
        return jax.vmap(env.step)(state, action, indexed_keys(fold(key, "step", tick), count))

    def tick(i: Array, carry: tuple[PyTree, Array, ImaginedSteps]) -> tuple[PyTree, Array, ImaginedSteps]:
        now, going, buffer = carry
        now, (steps, _) = rollout_step(act, step, None, now, i)
        return now, going & ~steps.done, buffer.add(steps, going)

    start = jax.vmap(env.start_at)(observations)
    now = start_rollout(*start, method.init_memory(policy, count), Draw(()))
    return jax.lax.fori_loop(0, length, tick, (now, jnp.ones(count, bool), buffer))[2]
