"""The laws of the contracts, as checks that anyone can run on a part of their own.

``check_method(MyMethod(), spec)`` returns nothing if all laws hold and raises
:class:`~thespis.core.laws.LawBroken` with one line otherwise. Experience is made up from the spec, so no world is
needed; ``check_environment`` and ``check_host_environment`` play random actions in the world they are given. Bits are
compared on whatever device JAX runs on; the promise is made for CPUs.

``check_method_shapes`` is the part of ``check_method`` that needs no compilation: trees, shapes and dtypes, seen while
the functions are traced.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.agents import per_group
from thespis.core.conformance_life import (
    FEWER,
    ROWS,
    ActorOutput,
    Functions,
    Life,
    LifeResult,
    experience,
    functions_of,
    learn,
    live,
    nothing,
    shape_of_batch,
)
from thespis.core.conformance_parts import begun, check_curriculum, check_feedback
from thespis.core.conformance_worlds import check_environment, check_host_environment
from thespis.core.contracts import Method, Mode
from thespis.core.keys import fold, key_of
from thespis.core.laws import (
    LawBroken,
    allowed,
    arrays_only,
    as_numpy,
    close,
    finite,
    fits,
    hold,
    same_bits,
    same_tree,
    shaped,
)
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.samples import random_steps, random_view, with_other_padding
from thespis.core.spaces import Space

__all__ = [
    "LawBroken",
    "check_curriculum",
    "check_environment",
    "check_feedback",
    "check_host_environment",
    "check_method",
    "check_method_shapes",
]


def check_method(method: Method, spec: EnvSpec, *, seed: int | Key[Array, ""] = 0, tolerance: float = 1e-4) -> None:
    """All laws that concern a method, on made-up experience of the shape its feed asks for.

    ``seed`` may be a key of any implementation: one with a short hash is compiled sooner. ``tolerance`` is how far
    results may lie apart where bits cannot be the same: one seed alone against the same seed beside another, and a row
    in a smaller batch. Compiles two programs.
    """
    root, rng = key_of(seed) if isinstance(seed, int) else seed, np.random.default_rng(0)
    traced = _trace(method, spec, root, rng)
    functions, life = traced.functions, traced.life
    again = functions_of(method, spec)
    _same_program(functions.init.trace(root), again.init.trace(root), "init is repeatable")
    learning = traced.state, traced.batch, root
    _same_program(functions.update.trace(*learning), again.update.trace(*learning), "update is repeatable")
    live_once: Callable[[Life], LifeResult] = jax.jit(functools.partial(live, method, functions))
    lived = live_once(life)
    _check_values(spec, lived, life.views)
    _check_repeats(lived, live_once(life))
    _check_rows(spec, lived, life, live_once, rng)
    _check_restored(lived, life, live_once)
    if not bool(np.all(lived.batch.mask)):
        padded = life._replace(steps=with_other_padding(spec, life.steps, lived.batch.mask, rng))
        other = live_once(padded)
        law = "padding past an episode's end changes no update"
        same_bits((lived.new, lived.report), (other.new, other.report), law)
    _check_seeds(method, functions, lived, life, live_once, random_steps(spec, rng, *shape_of_batch(method)), tolerance)


def check_method_shapes(method: Method, spec: EnvSpec) -> None:
    """The laws of a method that can be seen without running it: nothing is compiled.

    State, policy, memory, actions, extras, critique and metrics have the trees, shapes and dtypes they should have, and
    ``update`` keeps the state's.
    """
    _trace(method, spec, key_of(0), np.random.default_rng(0))


class MethodTrace(NamedTuple):
    """What tracing found: the functions, what a first life is given, and the shapes of a state and a batch."""

    functions: Functions
    life: Life
    state: PyTree
    batch: Batch


def _trace(method: Method, spec: EnvSpec, root: Key[Array, ""], rng: np.random.Generator) -> MethodTrace:
    functions = functions_of(method, spec)
    state = begun(functions.init.eval_shape, root, "a method's state holds arrays only")
    views, steps = random_view(spec, rng, (ROWS,)), _with_an_end(random_steps(spec, rng, *shape_of_batch(method)))
    policies = {mode.value: _trace_acting(method, functions, spec, state, mode, views, root) for mode in Mode}

    batch = jax.eval_shape(functools.partial(experience, method, functions), state, steps, root)
    new, report = functions.update.eval_shape(state, batch, root)
    same_tree(state, new, "update keeps the state's tree, shapes and dtypes")
    for name, value in report.metrics.items():
        hold(value.shape == (), "metrics are scalars", f"{name} has shape {list(value.shape)}")
    critique = functions.judge.eval_shape(
        state, jax.eval_shape(lambda b: jax.tree.map(lambda x: x[:, 0], b), batch.steps)
    )
    for name in ("value", "advantage", "spread"):
        leaf = getattr(critique, name)
        if leaf is not None:
            good = leaf.shape == (batch.mask.shape[0],)
            hold(good, "a critique has one number a step", f"{name} has shape {list(leaf.shape)}")
    life = Life(True, nothing(state), nothing(policies), root, fold(root, "act"), views, steps)
    return MethodTrace(functions, life, state, batch)


def _with_an_end(steps: Transition) -> Transition:
    """The same steps, of which the first row's first one ends its episode: what follows in that window is padding."""
    if steps.reward.shape[0] == 1:
        return steps
    truncated, first = np.array(steps.truncated), np.array(steps.first)
    truncated[0, 0] = first[1, 0] = True
    return dataclasses.replace(steps, truncated=truncated, first=first)


def _trace_acting(
    method: Method, functions: Functions, spec: EnvSpec, state: PyTree, mode: Mode, views: View, key: Key[Array, ""]
) -> PyTree:
    """The shapes of the policy of a mode, after its laws of shape were checked."""
    where = f"act ({mode.value})"

    def sliced(state: PyTree) -> PyTree:
        policy = method.policy(state, mode)
        arrays_only(policy, "a policy holds arrays only")
        return policy

    policy = jax.eval_shape(sliced, state)
    size = [sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree)) for tree in (policy, state)]
    hold(size[0] <= size[1] + 64, "a policy is a slice of the state", f"{size[0]} bytes out of {size[1]}")
    memory = jax.eval_shape(lambda policy: method.begin(policy, ROWS), policy)
    action, after, extras = functions.act.eval_shape(policy, memory, views, key)

    def one(space: Space, axes: tuple[int, ...], action: PyTree) -> None:
        shaped(space, action, (ROWS, *axes), f"{where} gives canonical actions of the space")

    per_group(spec.groups, spec.action, one, action)
    same_tree(memory, after, f"{where} keeps the memory's tree")
    for path, leaf in jax.tree_util.tree_leaves_with_path((after, extras)):
        path = jax.tree_util.keystr(path)
        hold(leaf.shape[:1] == (ROWS,), f"{where}: memory and extras have one row an environment", f"not so {path}")
    return policy


def _same_program(one: Any, other: Any, law: str) -> None:
    """Both were traced to the same operations on the same constants."""
    texts = [re.sub(r" at 0x[0-9a-f]+", "", str(traced.jaxpr.jaxpr)) for traced in (one, other)]
    hold(texts[0] == texts[1], law, "tracing it twice gives two programs")
    same_bits(list(one.jaxpr.consts), list(other.jaxpr.consts), law)


def _check_values(spec: EnvSpec, lived: LifeResult, views: View) -> None:
    finite(lived.state, "a fresh state is finite")
    for mode, acted in lived.acted.items():
        _check_actions(spec, acted.chosen[0], views.legal, f"act ({mode})")
        finite(acted.chosen, f"act ({mode}) gives finite actions, memory and extras")
    finite(lived.critique, "a critique is finite")
    finite(lived.report.metrics, "metrics are finite")
    finite(lived.new, "an updated state is finite")


def _check_actions(spec: EnvSpec, action: PyTree, legal: PyTree, where: str) -> None:
    """Of every agent by itself, as if each were a row."""

    def flat(tree: PyTree, axes: tuple[int, ...]) -> PyTree:
        return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[1 + len(axes) :]), tree)

    def one(space: Space, axes: tuple[int, ...], action: PyTree, legal: PyTree) -> None:
        fits(space, action, (ROWS, *axes), f"{where} gives canonical actions of the space", bounded=False)
        if spec.legal:
            allowed(space, flat(action, axes), flat(legal, axes), f"{where} takes legal choices only")

    per_group(spec.groups, spec.action, one, action, legal)


def _check_repeats(lived: LifeResult, again: LifeResult) -> None:
    """The same life, lived twice."""
    same_bits(lived.state, again.state, "init is repeatable")
    for mode, acted in lived.acted.items():
        same_bits(acted, again.acted[mode], f"act ({mode}) is repeatable")
    same_bits(lived.critique, again.critique, "judge is repeatable")
    same_bits((lived.new, lived.report), (again.new, again.report), "update is repeatable")


def _check_rows(
    spec: EnvSpec, lived: LifeResult, life: Life, live_once: Callable[[Life], LifeResult], rng: np.random.Generator
) -> None:
    """What one environment does depends on nothing but itself; what is done greedily depends on no key."""
    mixed = jax.tree.map(lambda x, y: np.concatenate([x[:1], y[1:]]), life.views, random_view(spec, rng, (ROWS,)))
    other = live_once(life._replace(views=mixed))
    for mode, acted in lived.acted.items():
        rows = _rows(acted, 1), _rows(other.acted[mode], 1)
        same_bits(*rows, f"act ({mode}): rows do not see each other")
    law = f"act ({Mode.EXPLORE.value}): a row does not depend on how many there are"
    close(_rows(lived.acted[Mode.EXPLORE.value], FEWER), lived.fewer, law, 1e-4)
    another = live_once(life._replace(act_key=fold(life.key, "another"))).acted[Mode.EXPLOIT.value]
    law = "act (greedy) does not depend on the key"
    same_bits(lived.acted[Mode.EXPLOIT.value].chosen[0], another.chosen[0], law)


def _rows(acted: ActorOutput, count: int) -> PyTree:
    """The first ``count`` rows of what was chosen."""
    return jax.tree.map(lambda x: np.asarray(x)[:count], acted.chosen)


def _check_restored(lived: LifeResult, life: Life, live_once: Callable[[Life], LifeResult]) -> None:
    """What is saved and loaded, through numpy, goes on as if nothing had been."""
    going = life._replace(fresh=False, state=lived.new, policies={m: acted.policy for m, acted in lived.acted.items()})
    going_on = live_once(going)
    loaded = jax.tree.map(_restored, as_numpy((going.state, going.policies)), (going.state, going.policies))
    restored = live_once(going._replace(state=loaded[0], policies=loaded[1]))
    for mode, acted in lived.acted.items():
        same_bits(acted.chosen, restored.acted[mode].chosen, f"act ({mode}) needs nothing but the policy")
    law = "saving, loading and going on equals going on"
    same_bits((going_on.new, going_on.report), (restored.new, restored.report), law)


def _restored(value: Any, like: Any) -> Any:
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(value, impl=jax.random.key_impl(like))
    return value


def _check_seeds(
    method: Method,
    functions: Functions,
    lived: LifeResult,
    life: Life,
    live_once: Callable[[Life], LifeResult],
    steps: PyTree,
    tolerance: float,
) -> None:
    """Two seeds side by side do what each does alone: init, experience, update and the policy then."""
    other = life._replace(key=fold(life.key, "seeds"), steps=steps)
    keys = jnp.stack([life.key, other.key])
    both = jax.tree.map(lambda *x: np.stack(x), life.steps, steps)
    together = as_numpy(jax.jit(jax.vmap(functools.partial(learn, method, functions)))(both, keys))
    for i, alone in enumerate((lived, live_once(other))):
        one = jax.tree.map(lambda x, i=i: x[i], together)
        trained = as_numpy((alone.new, alone.report, alone.batch.steps.action))
        close(trained, one, "a seed beside others does what it does alone", tolerance)
