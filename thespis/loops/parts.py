"""What the compiled and the host loop share: acting, learning on a block, and tallies. All per seed; the loops vmap.

A **block** is the feed's number of ticks of all environments followed by its updates. Ticks and updates are
counted by the loop, alike for all seeds, and address every random key: ``fold(root, stream, tick)``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.agents import Group, per_group
from thespis.core.apart import together
from thespis.core.contracts import Curriculum, Feedback, Method, Mode
from thespis.core.keys import fold, key_of
from thespis.core.records import Batch, Each, EnvSpec, Outcomes, Report, Transition, View
from thespis.core.separate import separate
from thespis.core.spaces import Discrete, MultiDiscrete, legal_size, map_space, to_world, zeros
from thespis.data.stores import Store

Module = TypeVar("Module")


class Parts(eqx.Module):
    """What a run is made of. Leaves are the hyperparameters, as arrays, so that changing one recompiles nothing."""

    method: Method
    feedback: Feedback
    curriculum: Curriculum


def with_array_leaves(parts: Module) -> Module:
    """Parts, or one of them, whose numbers are float32 arrays."""
    return jax.tree.map(lambda x: jnp.asarray(x, "float32") if isinstance(x, float | int) else jnp.asarray(x), parts)


class Learner(eqx.Module):
    """All that learning may change, of one seed."""

    method: PyTree
    feedback: PyTree
    curriculum: PyTree
    store: PyTree


class Tally(eqx.Module):
    """Sums since the last report, of one seed."""

    metrics: dict[str, Float[Array, ""]]
    updates: Int[Array, ""]
    episodes: Int[Array, ""]
    returns: Float[Array, ""]
    lengths: Int[Array, ""]


def init_learner(parts: Parts, spec: EnvSpec, store: Store, envs: int, root: Key[Array, ""]):
    """A fresh learner of one seed, and an example of its tally."""
    method = parts.method.init(spec, fold(root, "method"))
    feedback = parts.feedback.init(spec, fold(root, "feedback"))
    curriculum = parts.curriculum.init(spec, fold(root, "curriculum"))
    example = example_transition(parts, spec, method)
    return Learner(method, feedback, curriculum, store.open(example, envs))


def example_transition(parts: Parts, spec: EnvSpec, method_state: PyTree) -> Transition:
    """One transition of zeros, with the extras that this method's ``act`` returns."""
    view = example_view(spec)
    policy = parts.method.policy(method_state, Mode.EXPLORE)
    rows = jax.tree.map(lambda x: x[None], view)
    shapes = jax.eval_shape(lambda p, v: parts.method.act(p, parts.method.begin(p, 1), v, key_of(0))[2], policy, rows)
    extras = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), shapes)
    no, number = jnp.zeros((), bool), jnp.zeros(())
    action = per_group(spec.groups, spec.action, zeros)
    privileged = None if spec.privileged is None else zeros(spec.privileged)
    each = {g.name: Each(jnp.zeros(g.count), jnp.zeros(g.count, bool)) for g in spec.groups} or None
    return Transition(view, action, number, no, no, view, no, extras, privileged, privileged, each)


def example_view(spec: EnvSpec) -> View:
    """One view of zeros in which everything is legal."""

    def masks(space, axes):
        def mask(part):
            return jnp.ones((*axes, legal_size(part)), bool) if isinstance(part, Discrete | MultiDiscrete) else None

        return map_space(mask, space)

    observation = per_group(spec.groups, spec.observation, zeros)
    legal = per_group(spec.groups, spec.action, masks) if spec.legal else None
    alive = {g.name: jnp.ones(g.count, bool) for g in spec.groups} or None
    return View(observation, legal, alive, spec.game.start(key_of(0)) if spec.searchable else None)


def kinds_of_rows(parts: Parts, spec: EnvSpec) -> tuple[Any, Any]:
    """How the leaves of one tick are put together: those of a transition, and those of its outcome."""

    def example(key):
        return example_transition(parts, spec, parts.method.init(spec, key))

    zero = jnp.zeros(1)
    outcomes = Outcomes(zero > 0, zero, zero.astype("int32"), ())
    return jax.tree.structure(jax.eval_shape(example, key_of(0))), jax.tree.structure(outcomes)


def where(flag: Bool[Array, " row"], yes: PyTree, no: PyTree) -> PyTree:
    """Row-wise choice between two trees with leading axis ``row``."""

    def leaf(a, b):
        return jnp.where(flag.reshape(flag.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, yes, no)


def act(parts: Parts, spec: EnvSpec, policy: PyTree, memory: Any, view: View, first: Array, key: Key[Array, ""]):
    """One tick of acting: ``(world's action, canonical action, memory, extras)``; fresh episodes, fresh memory."""

    @separate
    def tick(method, policy, memory, view, first, key):
        memory = where(first, method.begin(policy, first.shape[0]), memory)
        action, memory, extras = method.act(policy, memory, view, key)
        return to_world(spec.action, action), action, memory, extras

    return tick(parts.method, policy, memory, view, first, key)


def learn(
    parts: Parts,
    store: Store,
    learner: Learner,
    tally: Tally,
    steps: Transition,
    memory: Any,
    outcomes: Outcomes,
    root: Key[Array, ""],
    ticks: Int[Array, ""],
    updates: Int[Array, ""],
    *,
    train: bool,
) -> tuple[Learner, Tally]:
    """Store a block ``[time, env]`` collected after ``ticks`` ticks; if ``train``, make the feed's updates."""
    room, outcomes = store.add(learner.store, steps, ticks), store.counted(outcomes)
    written = ticks + steps.reward.shape[0]
    teach = separate(lambda curriculum, *args: curriculum.update(*args))
    lesson_key = fold(root, "curriculum", ticks)
    policy = parts.method.policy(learner.method, Mode.EXPLORE)
    told = dataclasses.replace(outcomes, policy=policy)
    curriculum, lesson = teach(parts.curriculum, learner.curriculum, told, lesson_key)
    learner = Learner(learner.method, learner.feedback, curriculum, room)
    tally = separate(count_episodes)(tally, outcomes)
    if not train:
        return learner, tally

    def update(carry, index):
        method, feedback, tally = carry
        batch = store.batch(room, steps, memory, written, index, fold(root, "batch", index))
        keys = fold(root, "update", index), fold(root, "feedback", index)
        method, feedback, report, signal = separate(improve)(parts, method, feedback, batch, *keys)
        return (method, feedback, count_metrics(tally, report, signal, lesson)), None

    indices = updates + jnp.arange(store.feed.updates)
    (method, feedback, tally), _ = jax.lax.scan(update, (learner.method, learner.feedback, tally), indices)
    return Learner(method, feedback, curriculum, room), tally


def improve(parts: Parts, method: PyTree, feedback: PyTree, batch: Batch, method_key: Array, feedback_key: Array):
    """One update of method and feedback: ``(method, feedback, report, signal)``. The method sees scored rewards."""
    scored = eqx.tree_at(lambda b: b.steps.reward, batch, parts.feedback.score(feedback, batch.steps))
    method, report = parts.method.update(method, scored, method_key)
    feedback, signal = parts.feedback.update(feedback, batch, feedback_key)
    return method, feedback, report, signal


def learnt(learner: Learner) -> Learner:
    """A learner whose numbers JAX takes, but for the store, which stays where it lies."""
    method, feedback, curriculum = together((learner.method, learner.feedback, learner.curriculum))
    return Learner(method, feedback, curriculum, learner.store)


def collected_metrics(report: Report, signal: Report, lesson: Report) -> dict[str, Array]:
    """Metrics of method, feedback and curriculum under one roof."""
    named = {f"feedback_{k}": v for k, v in signal.metrics.items()}
    named |= {f"curriculum_{k}": v for k, v in lesson.metrics.items()}
    return dict(report.metrics) | named


def count_metrics(tally: Tally, report: Report, signal: Report, lesson: Report) -> Tally:
    """The tally with one update added."""
    metrics = collected_metrics(report, signal, lesson)
    sums = {k: tally.metrics[k] + metrics[k] for k in tally.metrics}
    return Tally(sums, tally.updates + 1, tally.episodes, tally.returns, tally.lengths)


def count_episodes(tally: Tally, outcomes: Outcomes) -> Tally:
    """The tally with the episodes that ended in a block added."""
    ended = outcomes.ended
    return Tally(
        tally.metrics,
        tally.updates,
        tally.episodes + jnp.sum(ended, dtype="int32"),
        tally.returns + jnp.sum(jnp.where(ended, outcomes.returns, 0.0)),
        tally.lengths + jnp.sum(jnp.where(ended, outcomes.lengths, 0), dtype="int32"),
    )


def empty_tally(names: tuple[str, ...]) -> Tally:
    """A tally of zeros of one seed."""
    zero = jnp.zeros((), "int32")
    return Tally({name: jnp.zeros(()) for name in names}, zero, zero, jnp.zeros(()), zero)


def metric_names(parts: Parts, spec: EnvSpec, store: Store, envs: int) -> tuple[str, ...]:
    """The names of all metrics of a run, found by tracing one update without running it."""

    def trace(root):
        learner = init_learner(parts, spec, store, envs, root)
        ticks = store.feed.ticks
        example = example_transition(parts, spec, learner.method)
        steps = jax.tree.map(lambda x: jnp.zeros((ticks, envs, *x.shape), x.dtype), example)
        memory = parts.method.begin(parts.method.policy(learner.method, Mode.EXPLORE), envs)
        zero = jnp.zeros((), "int32")
        batch = store.batch(learner.store, steps, memory, zero + ticks, zero, root)
        _, report = parts.method.update(learner.method, batch, root)
        _, signal = parts.feedback.update(learner.feedback, batch, root)
        outcomes = no_outcomes(parts, spec.groups, learner, ticks, envs, root)
        _, lesson = parts.curriculum.update(learner.curriculum, outcomes, root)
        return collected_metrics(report, signal, lesson)

    return tuple(jax.eval_shape(trace, key_of(0)))


def no_outcomes(
    parts: Parts, groups: tuple[Group, ...], learner: Learner, ticks: int, envs: int, root: Key[Array, ""]
) -> Outcomes:
    """Outcomes of a block in which nothing ended, for shapes."""
    params = parts.curriculum.draw(learner.curriculum, root, envs)
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (ticks, *x.shape)), params)
    shape = (ticks, envs)
    policy = parts.method.policy(learner.method, Mode.EXPLORE)
    each = {group.name: jnp.zeros((*shape, group.count)) for group in groups} or None
    return Outcomes(jnp.zeros(shape, bool), jnp.zeros(shape), jnp.zeros(shape, "int32"), params, policy, each)
