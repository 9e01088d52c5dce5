"""The greedy policy of a training state as a program: observation (and memory) to action in the environment's units.

Observation normalizers are part of it. Policies whose action probabilities can be computed also return those, of play
without added exploration, so that a caller may sample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import HasActionProbs, Method, Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_view
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Text, leaf_spaces, unscale_action
from thespis.deployment.graph import Graph, GraphBuilder, Tensor, UnsupportedValue
from thespis.deployment.numpy_policy import flatten
from thespis.deployment.rules import UnsupportedOperation
from thespis.deployment.tracing import finish, trace
from thespis.runtime.keys import seed_key

NO_GAME_STATE = "it searches from the state of the game, which only the environment has"
RANDOM_MEMORY = "its memory holds a random key"


@dataclasses.dataclass(frozen=True)
class MemoryPart:
    """One array of a recurrent policy's memory: input and output of a step, and its value when an episode starts."""

    input: str
    output: str
    initial: np.ndarray


@dataclasses.dataclass(frozen=True)
class ExportedPolicy:
    """A policy's program. ``action`` has the nesting of the action space, with names of outputs as leaves.

    ``parameters``: all of the policy's arrays by path, also those that the program contains in another form.
    """

    graph: Graph
    memory: tuple[MemoryPart, ...]
    action: Any
    parameters: dict[str, np.ndarray]
    batch_size: int


class PolicyFunction:
    """The policy of one training state ``[]`` as a function of named arrays, with leading axis ``batch_size``."""

    def __init__(self, method: Method, state: PyTree, spec: EnvSpec, batch_size: int = 1):
        if any(isinstance(space, Text) for space in leaf_spaces(spec.action_space)):
            raise UserError(f"{method.name} writes text: export it as a checkpoint, without --format")
        self.method, self.spec, self.batch_size = method, spec, batch_size
        self.policy = jax.jit(lambda state: method.policy(state, Mode.EXPLOIT))(state)
        self.initial_memory = method.init_memory(self.policy, batch_size)
        self.view = random_view(spec, np.random.default_rng(0), (batch_size,))
        self.sampled_policy = self._sampled_policy(state)

    def _sampled_policy(self, state: PyTree) -> PyTree:
        """The policy with its own distribution; ``None`` if its action probabilities cannot be computed."""
        method = self.method
        if not isinstance(method, HasActionProbs):
            return None
        policy = jax.jit(lambda state: method.policy(state, Mode.SAMPLE))(state)
        try:
            jax.eval_shape(method.action_probs, policy, self.initial_memory, self.view)
        except UserError:  # the action is no single discrete choice
            return None
        return policy

    def act(self, policies: PyTree, memory: PyTree, view: View, key: Any) -> tuple[PyTree, PyTree, PyTree]:
        """Action in the environment's units, next memory, and action probabilities (or ``None``)."""
        policy, sampled = policies
        action, next_memory, _ = self.method.act(policy, memory, view, key)
        probs = None
        if sampled is not None and isinstance(self.method, HasActionProbs):
            probs = self.method.action_probs(sampled, memory, view)
        return unscale_action(self.spec.action_space, action), next_memory, probs

    @property
    def policies(self) -> PyTree:
        """Greedy and sampled policy."""
        return self.policy, self.sampled_policy


def export_policy(function: PolicyFunction) -> ExportedPolicy:
    """Convert a policy. Raises :class:`UserError`, with the reason, for one that has no such program."""
    leaves, structure = jax.tree.flatten(function.initial_memory)
    initial = {f"memory.{i}": leaf for i, leaf in enumerate(leaves)}
    frozen: set[str] = set()
    while True:
        builder, values = _trace(function, initial, structure, frozen)
        constant = {name for name in set(initial) - frozen if _is_passed_through(values[f"next_{name}"], name)}
        if not constant:
            break
        frozen |= constant  # never changed, such as exploration noise: a constant
    used = _used_memory(builder, values, set(initial) - frozen)
    results = {name: value for name, value in values.items() if name.removeprefix("next_") not in set(initial) - used}
    try:
        graph = finish(builder, results)
    except UnsupportedOperation as error:
        raise UserError(f"{function.method.name} cannot be exported: {error}") from error
    memory = tuple(MemoryPart(name, f"next_{name}", np.asarray(initial[name])) for name in initial if name in used)
    return ExportedPolicy(
        _without_unused_inputs(graph, used),
        memory,
        _template(function),
        {name: np.asarray(x) for name, x in _named_leaves(function.policy, "").items() if not _is_key(x)},
        function.batch_size,
    )


def _trace(
    function: PolicyFunction, initial: dict[str, Any], structure: Any, frozen: set[str]
) -> tuple[GraphBuilder, dict[str, Any]]:
    """One conversion, with the memory in ``frozen`` as a constant."""
    greedy, sampled = _named_leaves(function.policy, ""), _named_leaves(function.sampled_policy, "sampled.")
    parameters = greedy | sampled | {name: initial[name] for name in frozen} | {"random.key": seed_key(0)}
    view_leaves, opaque = _view_inputs(function.view)
    inputs = view_leaves | {name: x for name, x in initial.items() if name not in frozen}
    opaque |= {name: RANDOM_MEMORY for name, x in inputs.items() if _is_key(x)}

    def run(parameters: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        policies = tuple(
            jax.tree.unflatten(jax.tree.structure(policy), [parameters[name] for name in names])
            for policy, names in ((function.policy, greedy), (function.sampled_policy, sampled))
        )
        memory = structure.unflatten([(parameters | inputs)[name] for name in initial])
        view = jax.tree.unflatten(jax.tree.structure(function.view), [inputs[name] for name in view_leaves])
        action, memory, probs = function.act(policies, memory, view, parameters["random.key"])
        return flatten({"action": action, "action_probs": probs}) | {
            f"next_memory.{i}": leaf for i, leaf in enumerate(jax.tree.leaves(memory))
        }

    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in inputs.items()}
    return trace(run, parameters, shapes, opaque)


def _view_inputs(view: View) -> tuple[dict[str, Any], dict[str, str]]:
    """Leaves of a view by name, in JAX's order, and those that are not available where a policy is deployed."""
    names = {
        "observation": view.observation,
        "action_mask": view.action_mask,
        "alive": view.alive,
    }
    leaves = flatten(names)
    states = {f"game_state.{i}": leaf for i, leaf in enumerate(jax.tree.leaves(view.game_state))}
    assert [id(x) for x in jax.tree.leaves(view)] == [id(x) for x in (leaves | states).values()]
    return leaves | states, dict.fromkeys(states, NO_GAME_STATE)


def named_view(view: View) -> dict[str, Any]:
    """The arrays of a view under their names as inputs."""
    return flatten({"observation": view.observation, "action_mask": view.action_mask, "alive": view.alive})


def _named_leaves(tree: PyTree, prefix: str) -> dict[str, Any]:
    """Arrays of a policy by path, in JAX's order."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        prefix + (jax.tree_util.keystr(path, simple=True, separator=".") or "policy"): jnp.asarray(leaf)
        for path, leaf in leaves
    }


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_passed_through(value: Any, name: str) -> bool:
    return isinstance(value, Tensor) and value.name == name


def _used_memory(builder: GraphBuilder, values: dict[str, Any], names: set[str]) -> set[str]:
    """The parts of the memory on which an action depends, now or later."""
    used: set[str] = set()
    wanted = [name for name in values if not name.startswith("next_memory.")]
    while wanted:
        supported = {name: values[name] for name in wanted if not isinstance(values[name], UnsupportedValue)}
        reached = builder.inputs_of(supported) & names
        wanted = [f"next_{name}" for name in reached - used]
        used |= reached
    return used


def _without_unused_inputs(graph: Graph, memory: set[str]) -> Graph:
    """The graph without inputs that no result needs, such as a mask that is ignored."""
    names = {name for node in graph.nodes for name in node.inputs} | {tensor.name for tensor in graph.results.values()}
    return dataclasses.replace(graph, inputs=tuple(tensor for tensor in graph.inputs if tensor.name in names | memory))


def _template(function: PolicyFunction) -> Any:
    """The nesting of an action with its outputs' names; tuples as lists."""
    key = seed_key(0)
    action, _, _ = jax.eval_shape(function.act, function.policies, function.initial_memory, function.view, key)

    def walk(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {key: walk(part, f"{name}.{key}") for key, part in value.items()}
        if isinstance(value, tuple):
            return [walk(part, f"{name}.{i}") for i, part in enumerate(value)]
        return name

    return walk(action, "action")


def reference(function: PolicyFunction) -> Callable[[View, PyTree, Any], tuple[dict[str, Any], PyTree]]:
    """The original policy, compiled: ``(view, memory, key)`` to named outputs and memory."""

    @jax.jit
    def run(policies: PyTree, view: View, memory: PyTree, key: Any) -> tuple[dict[str, Any], PyTree]:
        action, memory, probs = function.act(policies, memory, view, key)
        return flatten({"action": action, "action_probs": probs}), memory

    return lambda view, memory, key: run(function.policies, view, memory, key)
