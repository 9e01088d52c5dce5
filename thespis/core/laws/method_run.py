"""One run of a method on random experience, as one compiled program, for :mod:`thespis.core.laws.components`.

A run starts with ``init`` or continues from a given state, acts in every mode, calls ``judge``, and updates once. It is
compiled once and executed several times with one input changed; whatever must not depend on that input keeps its bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import Method, Mode, UsesStoredSteps
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.runtime.keys import fold

NUM_ROWS = 16
"""Parallel environments in the checks of ``act``."""
NUM_FEWER_ROWS = 2
"""Environments of a smaller batch, which must act as in the larger one."""


class MethodFunctions(NamedTuple):
    """A method's jitted functions, each traced once."""

    init: Callable[..., Any]
    act: Callable[..., Any]
    judge: Callable[..., Critique]
    update: Callable[..., Any]


class ActorOutput(NamedTuple):
    """One call of ``act``: the policy, the memory before, and actions, memory and extras after."""

    policy: PyTree
    memory: PyTree
    act_output: tuple[PyTree, PyTree, PyTree]


class RandomSteps(eqx.Module):
    """Stored steps ``[n]`` of a method that asks for them: those of its batch."""

    steps: Transition

    @property
    def size(self) -> Int[Array, ""]:
        """Number of steps in the batch, at least 1."""
        return jnp.asarray(self.steps.reward.shape[0], "int32")

    def take(self, indices: Int[Array, " n"]) -> Transition:
        """The steps with these numbers."""
        return jax.tree.map(lambda x: x[indices], self.steps)


class MethodRunResult(NamedTuple):
    """All results of one run."""

    state: PyTree
    actor_outputs: dict[str, ActorOutput]
    """By mode's value."""
    small_batch_output: tuple[PyTree, PyTree, PyTree]
    """``act`` in :attr:`Mode.EXPLORE` for the first rows by themselves."""
    batch: Batch
    critique: Critique
    """Of the batch's first row."""
    updated_state: PyTree
    report: Report


class MethodRunInputs(NamedTuple):
    """Inputs of one run."""

    from_init: Any
    """Whether to start from ``init``; otherwise from ``state`` and with ``policies``."""
    state: PyTree
    policies: dict[str, PyTree]
    key: Key[Array, ""]
    act_key: Key[Array, ""]
    views: View
    steps: Transition


def batch_shape(method: Method) -> tuple[int, int]:
    """Time steps and rows of the batches that the method's feed delivers."""
    return method.feed.batch_shape


def jit_functions(method: Method, spec: EnvSpec) -> MethodFunctions:
    """The method's functions, jitted anew at every call: nothing is reused from earlier traces."""
    return MethodFunctions(
        jax.jit(lambda key: method.init(spec, key)),
        jax.jit(lambda *args: method.act(*args)),
        jax.jit(lambda *args: method.judge(*args)),
        jax.jit(lambda *args: method.update(*args)),
    )


def run_method(method: Method, functions: MethodFunctions, inputs: MethodRunInputs) -> MethodRunResult:
    """The whole run; to be compiled."""
    key = inputs.key
    initial_state = functions.init(fold(key, "init"))
    state = _select(inputs.from_init, initial_state, inputs.state)
    outputs = {}
    for mode in Mode:
        policy = _select(inputs.from_init, method.policy(state, mode), inputs.policies[mode.value])
        memory = method.init_memory(policy, NUM_ROWS)
        outputs[mode.value] = ActorOutput(policy, memory, functions.act(policy, memory, inputs.views, inputs.act_key))
    policy, memory, _ = outputs[Mode.EXPLORE.value]
    first = jax.tree.map(lambda x: x[:NUM_FEWER_ROWS], (memory, inputs.views))
    small_batch_output = functions.act(policy, *first, inputs.act_key)
    batch = collect_batch(method, functions, state, inputs.steps, fold(key, "act"))
    critique = functions.judge(state, jax.tree.map(lambda x: x[:, 0], batch.steps))
    new, report = functions.update(state, batch, fold(key, "update"))
    return jax.tree.map(
        _strip_weak_type, MethodRunResult(state, outputs, small_batch_output, batch, critique, new, report)
    )


def run_update(method: Method, functions: MethodFunctions, steps: Transition, key: Key[Array, ""]) -> PyTree:
    """The training part of a run: init, experience and update."""
    state = functions.init(fold(key, "init"))
    batch = collect_batch(method, functions, state, steps, fold(key, "act"))
    return *functions.update(state, batch, fold(key, "update")), batch.steps.action


def collect_batch(
    method: Method, functions: MethodFunctions, state: PyTree, steps: Transition, key: Key[Array, ""]
) -> Batch:
    """A batch whose actions come from the method's own actor, on the views of ``steps``."""
    policy = method.policy(state, Mode.EXPLORE)
    initial_memory = method.init_memory(policy, steps.reward.shape[1])

    def tick(memory: Any, inputs: Any) -> Any:
        steps, time = inputs

        def clear(new: Array, old: Array) -> Array:
            return jnp.where(steps.is_first.reshape(steps.is_first.shape + (1,) * (new.ndim - 1)), new, old)

        fresh = method.init_memory(policy, steps.is_first.shape[0])
        memory = jax.tree.map(clear, fresh, memory)
        action, memory, extras = functions.act(policy, memory, steps.view, fold(key, "act", time))
        return memory, (action, extras)

    _, (action, extras) = jax.lax.scan(tick, initial_memory, (steps, jnp.arange(steps.reward.shape[0])))
    steps = dataclasses.replace(steps, action=action, extras=extras)
    stored = RandomSteps(jax.tree.map(_merge_axes, steps)) if isinstance(method, UsesStoredSteps) else None
    if method.feed.crosses_episodes:
        mask = jnp.ones(steps.reward.shape, bool)
        return Batch(steps, mask, initial_memory, jnp.zeros((), "int32"), stored=stored)
    mask = jnp.cumsum(steps.done, axis=0) - steps.done == 0
    return Batch(steps, mask, (), jnp.zeros((), "int32"), stored=stored)


def _merge_axes(x: Array) -> Array:
    return x.reshape(-1, *x.shape[2:])


def host_zeros(tree: PyTree) -> PyTree:
    """Zeros shaped as ``tree``, on the host: the unused state of a run that starts from ``init``."""

    def zeros(x: Any) -> Any:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            like = jax.eval_shape(jax.random.key_data, x)
            return jax.random.wrap_key_data(
                jax.device_put(np.zeros(like.shape, like.dtype)), impl=jax.random.key_impl(x)
            )
        return np.zeros(x.shape, x.dtype)

    return jax.tree.map(zeros, tree)


def _select(fresh: Any, new: PyTree, saved: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(fresh, a, b), new, saved)


def _strip_weak_type(x: Any) -> Any:
    """Remove JAX's weak type, as a loop or a checkpoint does."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x
    return jax.lax.convert_element_type(x, x.dtype)
