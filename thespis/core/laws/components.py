"""Conformance checks: the laws of the contracts, for anyone's own methods, feedbacks, curricula and environments.

``check_method(MyMethod(), spec)`` returns nothing if all laws hold and raises
:class:`~thespis.core.laws.assertions.ContractViolation` with one line otherwise; ``check_feedback`` and
``check_curriculum`` do the same. Experience is random, made from the spec alone; ``check_environment`` and
``check_host_environment`` play random actions in an environment. Bits are compared on whatever device JAX runs on;
bitwise equality is promised for CPUs only.

``check_method_shapes`` is the part of ``check_method`` that needs no compilation: trees, shapes and dtypes, checked
while the functions are traced.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Curriculum, Feedback, Method, Mode, UsesLogProbs
from thespis.core.laws.assertions import (
    ContractViolation,
    assert_arrays,
    assert_close,
    assert_finite,
    assert_in_space,
    assert_law,
    assert_legal,
    assert_same_bits,
    assert_same_tree,
    assert_space_shapes,
    to_numpy,
)
from thespis.core.laws.environments import check_environment, check_host_environment
from thespis.core.laws.method_run import (
    NUM_FEWER_ROWS,
    NUM_ROWS,
    ActorOutput,
    MethodFunctions,
    MethodRunInputs,
    MethodRunResult,
    batch_shape,
    collect_batch,
    host_zeros,
    jit_functions,
    run_method,
    run_update,
)
from thespis.core.laws.random_samples import first_episode_mask, random_transitions, random_view, randomize_padding
from thespis.core.records import Batch, Critique, Draw, EnvSpec, EpisodeStats, Rewards, Transition, View
from thespis.core.spaces import Space, map_groups
from thespis.runtime.keys import fold, seed_key

__all__ = [
    "ContractViolation",
    "check_curriculum",
    "check_environment",
    "check_feedback",
    "check_host_environment",
    "check_method",
    "check_method_shapes",
]


def check_init(init: Callable[..., Any], root: Key[Array, ""], law: str) -> PyTree:
    """A fresh state from ``init``; a law violation if it returns something other than arrays."""
    try:
        return init(root)
    except TypeError as error:  # JAX's error for a string or a function that a compiled program returns
        assert_law("not a valid JAX type" not in str(error), law, str(error).splitlines()[0])
        raise


def check_feedback(feedback: Feedback, spec: EnvSpec, *, seed: int = 0, num_steps: int = 3, num_rows: int = 4) -> None:
    """Check all laws of a feedback on random experience ``[time, row]``."""
    root = seed_key(seed)
    state = check_init(jax.jit(lambda key: feedback.init(spec, key)), root, "a feedback's state holds arrays only")
    assert_same_bits(state, jax.jit(lambda key: feedback.init(spec, key))(root), "init is repeatable")
    rng = np.random.default_rng(seed)
    steps = random_transitions(spec, rng, num_steps, num_rows)
    mask = jnp.asarray(first_episode_mask(steps.done))
    batch, own_batch = Batch(steps, mask, (), jnp.zeros((), "int32")), None
    if feedback.feed is not None:
        own_time, own_rows = feedback.feed.batch_shape
        own_steps = random_transitions(spec, rng, own_time or num_steps, own_rows)
        own_mask = jnp.asarray(first_episode_mask(own_steps.done))
        own_batch = Batch(own_steps, own_mask, (), jnp.zeros((), "int32"))
    if isinstance(feedback, UsesLogProbs):
        batch, own_batch = _with_random_log_probs(batch, rng), own_batch and _with_random_log_probs(own_batch, rng)
    before = to_numpy(state)
    score: Callable[..., Any] = jax.jit(feedback.score)
    rewards = score(state, batch, root)
    assert_same_bits(before, to_numpy(state), "score writes nothing")
    assert_law(isinstance(rewards, Rewards), "score gives Rewards", f"not {type(rewards).__name__}")
    for name, values in {"total": rewards.total, **(rewards.channels or {})}.items():
        assert_same_tree(steps.reward, values, f"score gives one reward a step ({name})")
    if rewards.tokens is not None:
        shape = jnp.zeros(steps.action.shape)
        assert_same_tree(shape, rewards.tokens, "score gives one reward a token (tokens)")
    assert_finite(rewards, "rewards are finite")
    assert_same_bits(rewards, score(state, batch, root), "score is repeatable")

    update: Callable[..., Any] = jax.jit(feedback.update)
    key = fold(root, "update")
    new, report = update(state, batch, own_batch, key)
    assert_same_tree(state, new, "update keeps the state's tree, shapes and dtypes")
    assert_finite((new, report.metrics), "an updated state and its metrics are finite")
    assert_same_bits((new, report), update(state, batch, own_batch, key), "update is repeatable")
    padded = randomize_padding(spec, batch.steps, mask, rng)
    other = update(state, eqx.tree_at(lambda b: b.steps, batch, padded), own_batch, key)
    assert_same_bits((new, report), other, "padding past an episode's end changes no update")
    doubled = jax.tree.map(lambda x: jnp.stack([x, x]), (state, batch, own_batch))
    batched = jax.jit(jax.vmap(feedback.update, in_axes=(0, 0, 0, None)))(*doubled, key)
    assert_close(
        (new, report), jax.tree.map(lambda x: x[0], batched), "a seed in a batch does what it does alone", 1e-4
    )


def _with_random_log_probs(batch: Batch, rng: np.random.Generator) -> Batch:
    extras = {"log_prob": jnp.asarray(rng.normal(size=batch.mask.shape), "float32")}
    return dataclasses.replace(batch, steps=dataclasses.replace(batch.steps, extras=extras))


def check_curriculum(
    curriculum: Curriculum, spec: EnvSpec, *, seed: int = 0, num_steps: int = 3, num_rows: int = 4
) -> None:
    """Check all laws of a curriculum on random episode statistics ``[time, row]``."""
    root = seed_key(seed)
    state = check_init(jax.jit(lambda key: curriculum.init(spec, key)), root, "a curriculum's state holds arrays only")
    assert_same_bits(state, jax.jit(lambda key: curriculum.init(spec, key))(root), "init is repeatable")
    before = to_numpy(state)
    draw: Callable[..., Any] = jax.jit(curriculum.draw, static_argnums=2)
    drawn = draw(state, root, num_rows)
    assert_same_bits(before, to_numpy(state), "draw writes nothing")
    assert_law(isinstance(drawn, Draw), "draw gives a Draw", f"not {type(drawn).__name__}")
    expected = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_rows, *jnp.shape(x))), spec.params)
    assert_same_tree(expected, drawn.params, "draw gives the environment's parameters, one row an episode")
    for values, dtype in ((drawn.level, "int32"), (drawn.learns, "bool")):
        if values is not None:
            assert_same_tree(jnp.zeros(num_rows, dtype), values, "draw gives one level and one flag an episode")
    assert_same_bits(drawn, draw(state, root, num_rows), "draw is repeatable")
    assert_finite(drawn.params, "drawn parameters are finite")

    ended = jnp.arange(num_steps * num_rows).reshape(num_steps, num_rows) % 3 == 0
    of_steps = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_steps, *x.shape)), drawn)
    returns = jax.random.normal(fold(root, "returns"), ended.shape)
    agent_returns = {
        group.name: jnp.repeat(returns[..., None], group.num_agents, axis=-1) for group in spec.groups
    } or None
    outcomes = EpisodeStats(
        ended,
        returns,
        jnp.full(ended.shape, 5, "int32"),
        of_steps.params,
        agent_returns=agent_returns,
        level=of_steps.level,
    )
    rng = np.random.default_rng(seed)
    rollout = dataclasses.replace(
        random_transitions(spec, rng, num_steps, num_rows), learns=of_steps.learns, level=of_steps.level
    )
    values = jnp.asarray(rng.normal(size=(2, *ended.shape)), "float32")
    critique = Critique(value=values[0], advantage=values[1]) if curriculum.needs_critique else None
    seen = rollout, critique, outcomes
    update: Callable[..., Any] = jax.jit(curriculum.update)
    new, report = update(state, *seen, root)
    assert_same_tree(state, new, "update keeps the state's tree, shapes and dtypes")
    assert_finite((new, report.metrics), "an updated state and its metrics are finite")
    assert_same_bits((new, report), update(state, *seen, root), "update is repeatable")


def check_method(method: Method, spec: EnvSpec, *, seed: int | Key[Array, ""] = 0, tolerance: float = 1e-4) -> None:
    """Check all laws of a method on random experience of the shape that its feed asks for.

    ``seed`` may be a key of any implementation: one with a short hash is compiled sooner. ``tolerance`` is the largest
    difference where bits cannot be the same: one seed alone against the same seed in a batch of two, and a row
    in a smaller batch. Compiles two programs.
    """
    root, rng = seed_key(seed) if isinstance(seed, int) else seed, np.random.default_rng(0)
    traced = _trace_method(method, spec, root, rng)
    functions, inputs = traced.functions, traced.inputs
    second_functions = jit_functions(method, spec)
    _assert_same_program(functions.init.trace(root), second_functions.init.trace(root), "init is repeatable")
    update_args = traced.state, traced.batch, root
    _assert_same_program(
        functions.update.trace(*update_args), second_functions.update.trace(*update_args), "update is repeatable"
    )
    run_once: Callable[[MethodRunInputs], MethodRunResult] = jax.jit(functools.partial(run_method, method, functions))
    result = run_once(inputs)
    _check_values(spec, result, inputs.views)
    _check_repeats(result, run_once(inputs))
    _check_reported_critique(result)
    _check_rows(spec, result, inputs, run_once, rng)
    _check_restored(result, inputs, run_once)
    if not bool(np.all(result.batch.mask)):
        padded = inputs._replace(steps=randomize_padding(spec, inputs.steps, result.batch.mask, rng))
        other = run_once(padded)
        law = "padding past an episode's end changes no update"
        assert_same_bits((result.updated_state, result.report), (other.updated_state, other.report), law)
    _check_seeds(
        method, functions, result, inputs, run_once, random_transitions(spec, rng, *batch_shape(method)), tolerance
    )


def check_method_shapes(method: Method, spec: EnvSpec) -> None:
    """Check the laws of a method that can be checked without running it: nothing is compiled.

    State, policy, memory, actions, extras, critique and metrics must have the right trees, shapes and dtypes, and
    ``update`` must keep the state's.
    """
    _trace_method(method, spec, seed_key(0), np.random.default_rng(0))


class MethodTrace(NamedTuple):
    """Results of tracing a method: its functions, the inputs of a first run, and the shapes of a state and a batch."""

    functions: MethodFunctions
    inputs: MethodRunInputs
    state: PyTree
    batch: Batch


def _trace_method(method: Method, spec: EnvSpec, root: Key[Array, ""], rng: np.random.Generator) -> MethodTrace:
    functions = jit_functions(method, spec)
    state = check_init(functions.init.eval_shape, root, "a method's state holds arrays only")
    views, steps = (
        random_view(spec, rng, (NUM_ROWS,)),
        _end_first_row(random_transitions(spec, rng, *batch_shape(method))),
    )
    policies = {mode.value: _trace_act(method, functions, spec, state, mode, views, root) for mode in Mode}

    batch = jax.eval_shape(functools.partial(collect_batch, method, functions), state, steps, root)
    new, report = functions.update.eval_shape(state, batch, root)
    assert_same_tree(state, new, "update keeps the state's tree, shapes and dtypes")
    for name, value in report.metrics.items():
        assert_law(value.shape == (), "metrics are scalars", f"{name} has shape {list(value.shape)}")
    critique = functions.judge.eval_shape(
        state, jax.eval_shape(lambda b: jax.tree.map(lambda x: x[:, 0], b), batch.steps)
    )
    for name in ("value", "advantage", "spread"):
        leaf = getattr(critique, name)
        if leaf is not None:
            correct = leaf.shape == (batch.mask.shape[0],)
            assert_law(correct, "a critique has one number a step", f"{name} has shape {list(leaf.shape)}")
    inputs = MethodRunInputs(True, host_zeros(state), host_zeros(policies), root, fold(root, "act"), views, steps)
    return MethodTrace(functions, inputs, state, batch)


def _end_first_row(steps: Transition) -> Transition:
    """The same steps, but the first row's first step ends its episode: the rest of that window is padding."""
    if steps.reward.shape[0] == 1:
        return steps
    truncated, first = np.array(steps.truncated), np.array(steps.is_first)
    truncated[0, 0] = first[1, 0] = True
    return dataclasses.replace(steps, truncated=truncated, is_first=first)


def _trace_act(
    method: Method,
    functions: MethodFunctions,
    spec: EnvSpec,
    state: PyTree,
    mode: Mode,
    views: View,
    key: Key[Array, ""],
) -> PyTree:
    """The shapes of a mode's policy, after checking the shape laws of ``act``."""
    where = f"act ({mode.value})"

    def checked_policy(state: PyTree) -> PyTree:
        policy = method.policy(state, mode)
        assert_arrays(policy, "a policy holds arrays only")
        return policy

    policy = jax.eval_shape(checked_policy, state)
    size = [sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree)) for tree in (policy, state)]
    assert_law(size[0] <= size[1] + 64, "a policy is a slice of the state", f"{size[0]} bytes out of {size[1]}")
    memory = jax.eval_shape(lambda policy: method.init_memory(policy, NUM_ROWS), policy)
    action, after, extras = functions.act.eval_shape(policy, memory, views, key)

    def check_group(space: Space, axes: tuple[int, ...], action: PyTree) -> None:
        assert_space_shapes(space, action, (NUM_ROWS, *axes), f"{where} gives canonical actions of the space")

    map_groups(spec.groups, spec.action_space, check_group, action)
    assert_same_tree(memory, after, f"{where} keeps the memory's tree")
    for path, leaf in jax.tree_util.tree_leaves_with_path((after, extras)):
        path = jax.tree_util.keystr(path)
        assert_law(
            leaf.shape[:1] == (NUM_ROWS,), f"{where}: memory and extras have one row an environment", f"not so {path}"
        )
    return policy


def _assert_same_program(one: Any, other: Any, law: str) -> None:
    """Both traces have the same operations and the same constants."""
    texts = [re.sub(r" at 0x[0-9a-f]+", "", str(traced.jaxpr.jaxpr)) for traced in (one, other)]
    assert_law(texts[0] == texts[1], law, "tracing it twice gives two programs")
    assert_same_bits(list(one.jaxpr.consts), list(other.jaxpr.consts), law)


def _check_values(spec: EnvSpec, result: MethodRunResult, views: View) -> None:
    assert_finite(result.state, "a fresh state is finite")
    for mode, acted in result.actor_outputs.items():
        _check_actions(spec, acted.act_output[0], views.action_mask, f"act ({mode})")
        assert_finite(acted.act_output, f"act ({mode}) gives finite actions, memory and extras")
    assert_finite(result.critique, "a critique is finite")
    assert_finite(result.report.metrics, "metrics are finite")
    assert_finite(result.updated_state, "an updated state is finite")


def _check_actions(spec: EnvSpec, action: PyTree, legal: PyTree, where: str) -> None:
    """Check actions; every agent counts as a row of its own."""

    def flat(tree: PyTree, axes: tuple[int, ...]) -> PyTree:
        return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[1 + len(axes) :]), tree)

    def check_group(space: Space, axes: tuple[int, ...], action: PyTree, legal: PyTree) -> None:
        assert_in_space(
            space, action, (NUM_ROWS, *axes), f"{where} gives canonical actions of the space", bounded=False
        )
        if spec.has_action_mask:
            assert_legal(space, flat(action, axes), flat(legal, axes), f"{where} takes legal choices only")

    map_groups(spec.groups, spec.action_space, check_group, action, legal)


def _check_repeats(result: MethodRunResult, again: MethodRunResult) -> None:
    """Two runs with the same inputs give the same bits."""
    assert_same_bits(result.state, again.state, "init is repeatable")
    for mode, acted in result.actor_outputs.items():
        assert_same_bits(acted, again.actor_outputs[mode], f"act ({mode}) is repeatable")
    assert_same_bits(result.critique, again.critique, "judge is repeatable")
    assert_same_bits((result.updated_state, result.report), (again.updated_state, again.report), "update is repeatable")


def _check_reported_critique(result: MethodRunResult) -> None:
    """A critique in the report, ``[time, row]``, is that of the state before the update."""
    law, reported = "a reported critique is that of judge", result.report.critique
    if reported is not None:
        assert_close(jax.tree.map(lambda x: x[..., 0], reported), result.critique, law, 1e-4)


def _check_rows(
    spec: EnvSpec,
    result: MethodRunResult,
    inputs: MethodRunInputs,
    run_once: Callable[[MethodRunInputs], MethodRunResult],
    rng: np.random.Generator,
) -> None:
    """An environment's actions depend on its own row only; greedy actions do not depend on the key."""
    mixed = jax.tree.map(lambda x, y: np.concatenate([x[:1], y[1:]]), inputs.views, random_view(spec, rng, (NUM_ROWS,)))
    other = run_once(inputs._replace(views=mixed))
    for mode, acted in result.actor_outputs.items():
        rows = _rows(acted, 1), _rows(other.actor_outputs[mode], 1)
        assert_same_bits(*rows, f"act ({mode}): rows do not see each other")
    law = f"act ({Mode.EXPLORE.value}): a row does not depend on how many there are"
    assert_close(_rows(result.actor_outputs[Mode.EXPLORE.value], NUM_FEWER_ROWS), result.small_batch_output, law, 1e-4)
    another = run_once(inputs._replace(act_key=fold(inputs.key, "another"))).actor_outputs[Mode.EXPLOIT.value]
    law = "act (greedy) does not depend on the key"
    assert_same_bits(result.actor_outputs[Mode.EXPLOIT.value].act_output[0], another.act_output[0], law)


def _rows(output: ActorOutput, count: int) -> PyTree:
    """The first ``count`` rows of an actor's output."""
    return jax.tree.map(lambda x: np.asarray(x)[:count], output.act_output)


def _check_restored(
    result: MethodRunResult, inputs: MethodRunInputs, run_once: Callable[[MethodRunInputs], MethodRunResult]
) -> None:
    """A run from a state that was saved and loaded (through numpy) equals the run from the original state."""
    continued_inputs = inputs._replace(
        from_init=False,
        state=result.updated_state,
        policies={m: acted.policy for m, acted in result.actor_outputs.items()},
    )
    continued = run_once(continued_inputs)
    loaded = jax.tree.map(
        _rewrap_key,
        to_numpy((continued_inputs.state, continued_inputs.policies)),
        (continued_inputs.state, continued_inputs.policies),
    )
    restored = run_once(continued_inputs._replace(state=loaded[0], policies=loaded[1]))
    for mode, acted in result.actor_outputs.items():
        assert_same_bits(
            acted.act_output, restored.actor_outputs[mode].act_output, f"act ({mode}) needs nothing but the policy"
        )
    law = "saving, loading and going on equals going on"
    assert_same_bits((continued.updated_state, continued.report), (restored.updated_state, restored.report), law)


def _rewrap_key(value: Any, like: Any) -> Any:
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(value, impl=jax.random.key_impl(like))
    return value


def _check_seeds(
    method: Method,
    functions: MethodFunctions,
    result: MethodRunResult,
    inputs: MethodRunInputs,
    run_once: Callable[[MethodRunInputs], MethodRunResult],
    steps: PyTree,
    tolerance: float,
) -> None:
    """Two seeds vmapped together give what each gives alone: init, experience, update and the updated policy."""
    other = inputs._replace(key=fold(inputs.key, "seeds"), steps=steps)
    keys = jnp.stack([inputs.key, other.key])
    both = jax.tree.map(lambda *x: np.stack(x), inputs.steps, steps)
    together = to_numpy(jax.jit(jax.vmap(functools.partial(run_update, method, functions)))(both, keys))
    for i, alone in enumerate((result, run_once(other))):
        single = jax.tree.map(lambda x, i=i: x[i], together)
        trained = to_numpy((alone.updated_state, alone.report, alone.batch.steps.action))
        assert_close(trained, single, "a seed in a batch does what it does alone", tolerance)
