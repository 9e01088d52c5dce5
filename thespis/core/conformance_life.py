"""One life of a method on made-up experience, as one compiled program, for the laws of :mod:`thespis.core.conformance`.

A life begins, or goes on from a state that it is given, acts in every mode, judges and updates once. It is compiled
once and lived several times, each time with one thing changed; what must not depend on that thing keeps its bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Method, Mode
from thespis.core.feeds import Episodes, LoggedEpisodes, Pairs, Rollouts
from thespis.core.keys import fold
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View

ROWS = 16
"""Environments that act side by side."""
FEWER = 2
"""Environments of a smaller batch, which must do what they do in the larger one."""


class Functions(NamedTuple):
    """The functions of a method, each of which is traced once."""

    init: Callable[..., Any]
    act: Callable[..., Any]
    judge: Callable[..., Critique]
    update: Callable[..., Any]


class ActorOutput(NamedTuple):
    """What an actor did: its policy, its memory before, and actions, memory and extras after."""

    policy: PyTree
    memory: PyTree
    chosen: tuple[PyTree, PyTree, PyTree]


class LifeResult(NamedTuple):
    """All that happens in one life."""

    state: PyTree
    acted: dict[str, ActorOutput]
    """By mode."""
    fewer: tuple[PyTree, PyTree, PyTree]
    """The first rows of :attr:`Mode.EXPLORE` by themselves."""
    batch: Batch
    critique: Critique
    """Of the first row."""
    new: PyTree
    report: Report


class Life(NamedTuple):
    """What one life is given."""

    fresh: Any
    """Whether it begins; otherwise it goes on from ``state`` and with ``policies``."""
    state: PyTree
    policies: dict[str, PyTree]
    key: Key[Array, ""]
    act_key: Key[Array, ""]
    views: View
    steps: Transition


def shape_of_batch(method: Method) -> tuple[int, int]:
    """Steps and rows of what the method's feed brings."""
    match method.feed:
        case Rollouts() as feed:
            return feed.length, feed.envs
        case Episodes() as feed:
            return feed.turns, feed.envs
        case LoggedEpisodes() | Pairs() as feed:
            return feed.turns, feed.rows
        case feed:
            return feed.length, feed.batch


def functions_of(method: Method, spec: EnvSpec) -> Functions:
    """The method's functions, new ones at every call: nothing is taken from what was traced before."""
    return Functions(
        jax.jit(lambda key: method.init(spec, key)),
        jax.jit(lambda *given: method.act(*given)),
        jax.jit(lambda *given: method.judge(*given)),
        jax.jit(lambda *given: method.update(*given)),
    )


def live(method: Method, functions: Functions, given: Life) -> LifeResult:
    """The whole life; to be compiled."""
    key = given.key
    begun = functions.init(fold(key, "init"))
    state = _chosen(given.fresh, begun, given.state)
    acted = {}
    for mode in Mode:
        policy = _chosen(given.fresh, method.policy(state, mode), given.policies[mode.value])
        memory = method.begin(policy, ROWS)
        acted[mode.value] = ActorOutput(policy, memory, functions.act(policy, memory, given.views, given.act_key))
    policy, memory, _ = acted[Mode.EXPLORE.value]
    first = jax.tree.map(lambda x: x[:FEWER], (memory, given.views))
    fewer = functions.act(policy, *first, given.act_key)
    batch = experience(method, functions, state, given.steps, fold(key, "act"))
    critique = functions.judge(state, jax.tree.map(lambda x: x[:, 0], batch.steps))
    new, report = functions.update(state, batch, fold(key, "update"))
    return jax.tree.map(_strong, LifeResult(state, acted, fewer, batch, critique, new, report))


def learn(method: Method, functions: Functions, steps: Transition, key: Key[Array, ""]) -> PyTree:
    """The part of a life that training consists of: beginning, experience and update."""
    state = functions.init(fold(key, "init"))
    batch = experience(method, functions, state, steps, fold(key, "act"))
    return *functions.update(state, batch, fold(key, "update")), batch.steps.action


def experience(method: Method, functions: Functions, state: PyTree, steps: Transition, key: Key[Array, ""]) -> Batch:
    """A batch in which the method's own actor acts on the views of ``steps``."""
    policy = method.policy(state, Mode.EXPLORE)
    begun = method.begin(policy, steps.reward.shape[1])

    def tick(memory: Any, inputs: Any) -> Any:
        steps, time = inputs

        def clear(new: Array, old: Array) -> Array:
            return jnp.where(steps.first.reshape(steps.first.shape + (1,) * (new.ndim - 1)), new, old)

        fresh = method.begin(policy, steps.first.shape[0])
        memory = jax.tree.map(clear, fresh, memory)
        action, memory, extras = functions.act(policy, memory, steps.view, fold(key, "act", time))
        return memory, (action, extras)

    _, (action, extras) = jax.lax.scan(tick, begun, (steps, jnp.arange(steps.reward.shape[0])))
    steps = dataclasses.replace(steps, action=action, extras=extras)
    if isinstance(method.feed, Rollouts):
        return Batch(steps, jnp.ones(steps.reward.shape, bool), begun, jnp.zeros((), "int32"))
    mask = jnp.cumsum(steps.ended, axis=0) - steps.ended == 0
    return Batch(steps, mask, (), jnp.zeros((), "int32"))


def nothing(tree: PyTree) -> PyTree:
    """Zeros shaped as ``tree``, on the host: what a life is given where it begins by itself."""

    def zeros(x: Any) -> Any:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            like = jax.eval_shape(jax.random.key_data, x)
            return jax.random.wrap_key_data(
                jax.device_put(np.zeros(like.shape, like.dtype)), impl=jax.random.key_impl(x)
            )
        return np.zeros(x.shape, x.dtype)

    return jax.tree.map(zeros, tree)


def _chosen(fresh: Any, begun: PyTree, given: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(fresh, a, b), begun, given)


def _strong(x: Any) -> Any:
    """Without JAX's weak type, which a loop or a checkpoint takes away as well."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x
    return jax.lax.convert_element_type(x, x.dtype)
