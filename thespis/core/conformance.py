"""The laws of the contracts, as checks that anyone can run on a part of their own.

``check_method(MyMethod(), spec)`` returns nothing if all laws hold and raises
:class:`~thespis.core.laws.LawBroken` with one line otherwise. Experience is made up from the spec, so no world is
needed; ``check_environment`` and ``check_host_environment`` play random actions in the world they are given. Bits are
compared on whatever device JAX runs on; the promise is made for CPUs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.agents import per_group
from thespis.core.conformance_parts import begun, check_curriculum, check_feedback
from thespis.core.conformance_worlds import check_environment, check_host_environment
from thespis.core.contracts import Method, Mode
from thespis.core.feeds import Episodes, LoggedEpisodes, Pairs, Rollouts
from thespis.core.keys import fold, key_of
from thespis.core.laws import LawBroken, allowed, arrays_only, as_numpy, close, finite, fits, hold, same_bits, same_tree
from thespis.core.records import Batch, Critique, EnvSpec, Transition
from thespis.core.samples import random_steps, random_view, with_other_padding
from thespis.core.spaces import Space

__all__ = [
    "LawBroken", "check_curriculum", "check_environment", "check_feedback", "check_host_environment", "check_method",
]  # fmt: skip


def check_method(method: Method, spec: EnvSpec, *, seed: int = 0, tolerance: float = 1e-4) -> None:
    """All laws that concern a method, on made-up experience of the shape its feed asks for.

    ``tolerance`` is how far results may lie apart where bits cannot be the same: one seed alone against the
    same seed beside another, and a row in a smaller batch. Takes a few compilations.
    """
    root, rng = key_of(seed), np.random.default_rng(seed)
    programs = Programs(
        jax.jit(lambda key: method.init(spec, key)),
        jax.jit(lambda state, steps, key: _experience(method, state, steps, key)),
        jax.jit(method.update),
    )
    state = begun(programs.init, root, "a method's state holds arrays only")
    same_bits(state, jax.jit(lambda key: method.init(spec, key))(root), "init is repeatable")
    finite(state, "a fresh state is finite")
    for mode in Mode:
        _check_acting(method, spec, state, mode, root, rng)
    match method.feed:
        case Rollouts() as feed:
            shape = feed.length, feed.envs
        case Episodes() as feed:
            shape = feed.turns, feed.envs
        case LoggedEpisodes() | Pairs() as feed:
            shape = feed.turns, feed.rows
        case feed:
            shape = feed.length, feed.batch
    steps = [random_steps(spec, rng, *shape) for _ in range(2)]
    batch = programs.experience(state, steps[0], fold(root, "act"))
    _check_update(method, programs, state, batch, root)
    if not bool(jnp.all(batch.mask)):
        padded = eqx.tree_at(lambda b: b.steps, batch, with_other_padding(spec, batch.steps, batch.mask, rng))
        one, other = (programs.update(state, b, root) for b in (batch, padded))
        same_bits(one, other, "padding past an episode's end changes no update")
    _check_judging(method, state, batch)
    _check_seeds(programs, steps, root, tolerance)


class Programs(NamedTuple):
    """Compiled once and used by several checks: ``init``, ``experience`` and ``update``."""

    init: Callable[..., Any]
    experience: Callable[..., Any]
    update: Callable[..., Any]


def _check_acting(
    method: Method, spec: EnvSpec, state: PyTree, mode: Mode, root: Key[Array, ""], rng: np.random.Generator
) -> None:
    rows, where = 16, f"act ({mode.value})"
    policy = method.policy(state, mode)
    arrays_only(policy, "a policy holds arrays only")
    size = [sum(x.nbytes for x in jax.tree.leaves(as_numpy(tree))) for tree in (policy, state)]
    hold(size[0] <= size[1] + 64, "a policy is a slice of the state", f"{size[0]} bytes out of {size[1]}")
    views, others = (jax.tree.map(jnp.asarray, random_view(spec, rng, (rows,))) for _ in range(2))
    act: Callable[..., Any] = jax.jit(method.act)
    memory = method.begin(policy, rows)
    key = fold(root, "act")
    action, after, extras = chosen = act(policy, memory, views, key)

    _check_actions(spec, action, views.legal, rows, where)
    same_tree(memory, after, f"{where} keeps the memory's tree")
    for path, leaf in jax.tree_util.tree_leaves_with_path((after, extras)):
        path = jax.tree_util.keystr(path)
        hold(leaf.shape[:1] == (rows,), f"{where}: memory and extras have one row an environment", f"not so {path}")
    finite(chosen, f"{where} gives finite actions, memory and extras")
    same_bits(chosen, act(policy, memory, views, key), f"{where} is repeatable")
    saved = jax.tree.map(lambda x, like: _restored(x, like), as_numpy(policy), policy)
    same_bits(chosen, act(saved, memory, views, key), f"{where} needs nothing but the policy")

    mixed = jax.tree.map(lambda x, y: jnp.concatenate([x[:1], y[1:]]), views, others)
    first = _rows(act(policy, memory, mixed, key), 1)
    same_bits(_rows(chosen, 1), first, f"{where}: rows do not see each other")
    if mode is Mode.EXPLORE:
        fewer = act(policy, _rows(memory, 2), _rows(views, 2), key)
        close(_rows(chosen, 2), fewer, f"{where}: a row does not depend on how many there are", 1e-4)
    if mode is Mode.EXPLOIT:
        again = act(policy, memory, views, fold(root, "another"))
        same_bits(action, again[0], "act (greedy) does not depend on the key")


def _check_actions(spec: EnvSpec, action: PyTree, legal: PyTree, rows: int, where: str) -> None:
    """Of every agent by itself, as if each were a row."""

    def flat(tree: PyTree, axes: tuple[int, ...]) -> PyTree:
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[1 + len(axes) :]), tree)

    def one(space: Space, axes: tuple[int, ...], action: PyTree, legal: PyTree) -> None:
        fits(space, action, (rows, *axes), f"{where} gives canonical actions of the space", bounded=False)
        if spec.legal:
            allowed(space, flat(action, axes), flat(legal, axes), f"{where} takes legal choices only")

    per_group(spec.groups, spec.action, one, action, legal)


def _rows(tree: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda x: x[:count], tree)


def _restored(value: Any, like: Any) -> Any:
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(value), impl=jax.random.key_impl(like))
    return jnp.asarray(value)


def _experience(method: Method, state: PyTree, steps: Transition, key: Key[Array, ""]) -> Batch:
    """A batch in which the method's own actor acts on the views of ``steps``."""
    policy = method.policy(state, Mode.EXPLORE)
    begun = method.begin(policy, steps.reward.shape[1])

    def tick(memory: Any, inputs: Any) -> Any:
        action, memory, extras = _tick(method, policy, memory, inputs[0], fold(key, "act", inputs[1]))
        return memory, (action, extras)

    _, (action, extras) = jax.lax.scan(tick, begun, (steps, jnp.arange(steps.reward.shape[0])))
    steps = dataclasses.replace(steps, action=action, extras=extras)
    if isinstance(method.feed, Rollouts):
        return Batch(steps, jnp.ones(steps.reward.shape, bool), begun, jnp.zeros((), "int32"))
    mask = jnp.cumsum(steps.ended, axis=0) - steps.ended == 0
    return Batch(steps, mask, (), jnp.zeros((), "int32"))


def _tick(method: Method, policy: PyTree, memory: Any, steps: Transition, key: Key[Array, ""]) -> Any:
    fresh = method.begin(policy, steps.first.shape[0])

    def clear(new: Array, old: Array) -> Array:
        return jnp.where(steps.first.reshape(steps.first.shape + (1,) * (new.ndim - 1)), new, old)

    memory = jax.tree.map(clear, fresh, memory)
    return method.act(policy, memory, steps.view, key)


def _check_update(method: Method, programs: Programs, state: PyTree, batch: Batch, root: Key[Array, ""]) -> None:
    key, update = fold(root, "update"), programs.update
    texts = [jax.jit(lambda *args: method.update(*args)).lower(state, batch, key).as_text() for _ in range(2)]
    law = "update is repeatable"
    hold(texts[0] == texts[1], law, "tracing it twice gives two programs")
    new, report = update(state, batch, key)
    same_tree(state, new, "update keeps the state's tree, shapes and dtypes")
    same_bits((new, report), update(state, batch, key), law)
    for name, value in report.metrics.items():
        hold(value.shape == (), "metrics are scalars", f"{name} has shape {list(value.shape)}")
    finite(report.metrics, "metrics are finite")
    finite(new, "an updated state is finite")
    restored = jax.tree.map(_restored, as_numpy(new), new)
    following = fold(root, "update", 1)
    law = "saving, loading and going on equals going on"
    same_bits(update(new, batch, following), update(restored, batch, following), law)


def _check_judging(method: Method, state: PyTree, batch: Batch) -> None:
    time = batch.mask.shape[0]
    episode = jax.tree.map(lambda x: x[:, 0], batch.steps)
    before = as_numpy(state)
    judge: Callable[..., Critique] = jax.jit(method.judge)
    opinion = judge(state, episode)
    same_bits(before, as_numpy(state), "judge writes nothing")
    for name in ("value", "advantage", "spread"):
        leaf = getattr(opinion, name)
        if leaf is not None:
            hold(leaf.shape == (time,), "a critique has one number a step", f"{name} has shape {list(leaf.shape)}")
    finite(opinion, "a critique is finite")
    same_bits(opinion, judge(state, episode), "judge is repeatable")


def _check_seeds(programs: Programs, steps: list[Transition], root: Key[Array, ""], tolerance: float) -> None:
    """Two seeds side by side do what each does alone: init, experience, update and the policy then."""

    def life(init: Callable[..., Any], experience: Callable[..., Any], update: Callable[..., Any], *given: Any) -> Any:
        steps, key = given
        state = init(fold(key, "init"))
        batch = experience(state, steps, fold(key, "act"))
        state, report = update(state, batch, fold(key, "update"))
        return state, report, batch.steps.action

    keys = jax.random.split(fold(root, "seeds"), 2)
    both = jax.tree.map(lambda *x: jnp.stack(x), *steps)
    together = jax.jit(jax.vmap(lambda *given: life(*programs, *given)))(both, keys)
    for i in range(2):
        one = jax.tree.map(lambda x, i=i: x[i], together)
        close(life(*programs, steps[i], keys[i]), one, "a seed beside others does what it does alone", tolerance)
