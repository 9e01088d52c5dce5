"""States of a learner that a new run starts from, read from the checkpoints of other runs: all of a method, or parts.

- the whole method (:func:`load_initial_states`): of a run of the same method, with its optimizer's state where that
  fits;
- any part (:class:`~thespis.runs.state_addresses.From`): the subtree at an address of the learner's state, such as
  ``method.network.body`` or ``feedback``, of a run of any method. Names, shapes and dtypes below the address must be
  the same. What is no array, such as an activation function, is that of the new run.

No class of the other run is built: a checkpoint names its leaves itself.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.runs.checkpoint import CheckpointError, LoadedCheckpoint, hash_tree
from thespis.runs.state_addresses import (
    LEARNER_PATH,
    STATES,
    From,
    StateTable,
    subtree,
    table_of_checkpoint,
    table_of_shapes,
    to_address,
)
from thespis.runs.store import RunDirectory
from thespis.runtime.keys import seed_key
from thespis.training.assembly import METHOD_STATE_PATH, AssembledRun, method_state_shapes
from thespis.training.components import LearnerState, with_array_leaves

INITIAL_SOURCES = ("init_from", "init_parts")
"""Entries of run.json about where a run started from."""

OPTIMIZER_STATE = "opt_state"  # in the paths of the states of all optimizers


class InitialStates(NamedTuple):
    """States to start from: arrays ``[seed, ...]`` by address. What has none starts anew.

    ``sources`` are the entries ``init_from`` and ``init_parts`` of run.json.
    """

    leaves: dict[str, Any]
    sources: dict[str, Any]
    warnings: list[str]

    def fill(self, fresh: LearnerState) -> LearnerState:
        """The learner, with these states in place of its own."""
        flat, structure = jax.tree_util.tree_flatten_with_path({name: getattr(fresh, name) for name in STATES})
        named = [(to_address(jax.tree_util.keystr(where)), leaf) for where, leaf in flat]
        states = structure.unflatten([self.leaves.get(name, leaf) for name, leaf in named])
        return dataclasses.replace(fresh, **states)


def split_sources(init_from: Any) -> dict[str, Any]:
    """The entries of run.json for the argument ``init_from``: a run, a :class:`From`, or a list of these.

    Raises :class:`UserError` for several whole runs, and for anything else.
    """
    parts = [] if init_from is None else init_from if isinstance(init_from, list | tuple) else [init_from]
    runs = [str(part) for part in parts if isinstance(part, str | Path)]
    if len(runs) > 1:
        raise UserError(
            f'only one run can give the whole method, not {" and ".join(runs)}: name parts, From(RUN, "..")'
        )
    if unknown := [part for part in parts if not isinstance(part, str | Path | From)]:
        raise UserError(f'init_from has a {type(unknown[0]).__name__}: it is a run, or From(RUN, "method.critic")')
    entries = [part.to_config() for part in parts if isinstance(part, From)]
    return ({"init_from": {"run": runs[0]}} if runs else {}) | ({"init_parts": entries} if entries else {})


def read_initial_states(config: dict[str, Any], assembled: AssembledRun) -> InitialStates | None:
    """The states that a new run starts from, as its configuration says; ``None`` if all of it starts anew.

    Parts come after the whole method, in their order. Raises :class:`UserError` for what does not fit.
    """
    result = InitialStates({}, {}, [])
    if "init_from" in config:
        method = assembled.components.method
        args = (config["init_from"]["run"], method, config["method_name"], assembled.spec, config["seeds"])
        result = load_initial_states(*args)
    shapes = learner_shapes(assembled) if config.get("init_parts") else {}
    for entry in config.get("init_parts", ()):
        part = _load_part(From.from_config(entry), shapes, config["seeds"], entry.get("step"))
        sources = result.sources | {"init_parts": [*result.sources.get("init_parts", ()), part.sources]}
        result = InitialStates(result.leaves | part.leaves, sources, [*result.warnings, *part.warnings])
    return result if result.sources else None


def load_initial_states(
    path: str | Path, method: Method, method_name: str, spec: EnvSpec, seeds: list[int]
) -> InitialStates:
    """The states at the newest undamaged checkpoint of the run in ``path``, for a new run of ``method``.

    Everything that the method learns is taken: networks, normalizers and the optimizer's state. Where only the latter
    does not fit, the optimizer starts anew, with a warning. A run of one seed gives its state to all new seeds; others
    must have as many seeds, which are taken in order. No class of the run is built.

    Raises:
        UserError: if the run is one of another method, has no checkpoint or another number of seeds, or if its
            parameters do not fit: the message names both shapes.
    """
    run = RunDirectory.open(path)
    source_seeds = run.config["seeds"]
    if run.config["method_name"] != method_name:
        other = run.config["method_name"]
        raise UserError(
            f"--init-from {path} was trained by {other}, not by {method_name}: train {other}, or take the parts that "
            "fit (--init-part)"
        )
    check_seeds(f"--init-from {path}", len(source_seeds), len(seeds))
    shapes = method_state_shapes(method, spec, source_seeds)
    checkpoint, warnings = _load_fitting(run, shapes)
    states = checkpoint.tree
    source = {"run": str(path), "step": int(checkpoint.meta["step"]), "checkpoint": checkpoint.path.name}
    source |= {"seeds": source_seeds, "state_hash": hash_tree(states)}
    leaves = _named_leaves(states, "method", len(source_seeds), len(seeds))
    return InitialStates(leaves, {"init_from": source}, [*checkpoint.warnings, *warnings])


def check_seeds(owner: str, num_source: int, num_seeds: int) -> None:
    """Raise :class:`UserError` unless a run of ``num_source`` seeds can start one of ``num_seeds``."""
    if num_source not in (1, num_seeds):
        raise UserError(f"{owner} has {num_source} seeds and this run {num_seeds}: --seeds {num_source}")


def learner_shapes(assembled: AssembledRun) -> dict[str, PyTree]:
    """Shapes of the states of one seed, by the part's name; nothing is computed."""
    components, spec = with_array_leaves(assembled.components.without_data), assembled.spec

    def init(key: Any) -> dict[str, PyTree]:
        curriculum = () if assembled.loop.kind == "logged" else components.curriculum.init(spec, key)
        return {
            "method": components.method.init(spec, key),
            "feedback": components.feedback.init(spec, key),
            "curriculum": curriculum,
        }

    return jax.eval_shape(init, seed_key(0))


def check_fit(part: From, source: StateTable, target: StateTable) -> None:
    """Raise :class:`UserError`, in one line, if a part of ``source`` does not fit into ``target``.

    The line names the first leaf that differs, with both shapes, or the addresses that exist.
    """
    check_seeds(source.owner, source.num_seeds, target.num_seeds)
    for table, address in ((source, part.path), (target, part.target)):
        if not table.below(address):
            raise UserError(f"{table.owner} has no state {address}: it has {table.nearest(address)}")
    there, here = source.below(part.path), target.below(part.target)
    for name in (*here, *(name for name in there if name not in here)):
        if there.get(name) != here.get(name):
            facts = [f"is {leaves[name]}" if name in leaves else "does not exist" for leaves in (there, here)]
            other = "" if part.path == part.target else f"{part.target}{name} "
            there_and_here = f"{part.path}{name} {facts[0]} there, and {other}{facts[1]} in {target.owner}"
            raise UserError(f"{part.path} of {source.owner} does not fit: {there_and_here}")


def open_source(part: From, shapes: dict[str, PyTree]) -> tuple[RunDirectory, StateTable]:
    """The run of a part, and the table of its newest checkpoint. Raises :class:`UserError` if there is none."""
    run = RunDirectory.open(part.run)
    wanted = [LEARNER_PATH + jax.tree_util.keystr(where) for where, _ in _leaves_below(shapes, part)]
    table = table_of_checkpoint(run.checkpoint_dir, str(part.run), len(run.config["seeds"]), wanted)
    if table is None:
        raise UserError(f"{part.run} has no checkpoint: train it first (thespis resume {part.run})")
    return run, table


def _leaves_below(shapes: dict[str, PyTree], part: From) -> list[Any]:
    """Paths and leaves of the new run's state; empty where the part is at another address in its own run."""
    states = {name: state for name, state in shapes.items() if part.path == part.target}
    return jax.tree_util.tree_leaves_with_path(LearnerState(**(dict.fromkeys(STATES, ()) | states), store=()))


def _load_part(part: From, shapes: dict[str, PyTree], seeds: list[int], step: int | None) -> InitialStates:
    """The states of one part, and its entry of ``init_parts`` as the sources.

    ``step``: where the source's checkpoint must be, if that is known.
    """
    run, source = open_source(part, shapes)
    check_fit(part, source, table_of_shapes("the new run", shapes, len(seeds)))
    num = source.num_seeds
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((num, *x.shape), x.dtype), subtree(shapes, part.target))
    try:
        checkpoint = run.load_checkpoint(like, source.prefix(part.path))
    except CheckpointError as error:
        raise UserError(f"{part.path} of {part.run} cannot be read: {error}") from error
    assert checkpoint is not None
    if step not in (None, checkpoint.meta["step"]):
        raise UserError(
            f"{part.run} ended at step {step}, and its newest undamaged checkpoint is of step "
            f"{checkpoint.meta['step']}: restore {run.checkpoint_dir}, or train the stages again"
        )
    entry = part.to_config() | {"step": int(checkpoint.meta["step"]), "checkpoint": checkpoint.path.name}
    entry |= {"seeds": run.config["seeds"], "state_hash": hash_tree(checkpoint.tree)}
    leaves = _named_leaves(checkpoint.tree, part.target, num, len(seeds))
    return InitialStates(leaves, entry, checkpoint.warnings)


def _named_leaves(states: PyTree, address: str, num_source: int, num_seeds: int) -> dict[str, Any]:
    """Leaves ``[seed, ...]`` by their addresses; those of a single seed are repeated for all."""
    if num_source < num_seeds:
        states = jax.tree.map(lambda x: jnp.repeat(x, num_seeds, axis=0), states)
    leaves = jax.tree_util.tree_leaves_with_path(states)
    named = [(to_address(jax.tree_util.keystr(where)), leaf) for where, leaf in leaves]
    return {f"{address}.{name}" if name else address: leaf for name, leaf in named}


def _load_fitting(run: RunDirectory, shapes: PyTree) -> tuple[LoadedCheckpoint, list[str]]:
    """The newest checkpoint's method states, without the optimizers' where these do not fit, and warnings about it."""
    try:
        checkpoint, warnings = run.load_checkpoint(shapes, METHOD_STATE_PATH), []
    except CheckpointError:
        rest = jax.tree_util.tree_map_with_path(_without_optimizer_state, shapes)
        try:
            checkpoint = run.load_checkpoint(rest, METHOD_STATE_PATH, ignored=OPTIMIZER_STATE)
        except CheckpointError as error:
            raise UserError(f"--init-from {run.path} does not fit: {error}") from error
        warnings = [f"the optimizer starts anew: its state in {run.path} does not fit"]
    if checkpoint is None:
        raise UserError(f"--init-from {run.path} has no checkpoint: train it first (thespis resume {run.path})")
    return checkpoint, warnings


def _without_optimizer_state(path: tuple[Any, ...], leaf: Any) -> Any:
    return None if OPTIMIZER_STATE in jax.tree_util.keystr(path) else leaf
