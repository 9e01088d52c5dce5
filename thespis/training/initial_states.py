"""Initial parameters of a run from the checkpoint of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.runs.checkpoint import CheckpointError, LoadedCheckpoint, hash_tree
from thespis.runs.store import RunDirectory
from thespis.training.assembly import METHOD_STATE_PATH, method_state_shapes

OPTIMIZER_STATE = "opt_state"  # in the paths of the states of all optimizers


class InitialStates(NamedTuple):
    """States of a method to start from, leaves ``[seed, ...]``; ``None`` stands for what starts anew.

    ``source`` is the entry ``init_from`` of run.json.
    """

    states: PyTree
    source: dict[str, Any]
    warnings: list[str]

    def fill(self, fresh: PyTree) -> PyTree:
        """The states, with those of ``fresh`` where something starts anew."""
        return eqx.combine(self.states, fresh)


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
        raise UserError(f"--init-from {path} was trained by {other}, not by {method_name}: train {other}")
    if len(source_seeds) not in (1, len(seeds)):
        raise UserError(
            f"--init-from {path} has {len(source_seeds)} seeds and this run {len(seeds)}: --seeds {len(source_seeds)}"
        )
    shapes = method_state_shapes(method, spec, source_seeds)
    checkpoint, warnings = _load_fitting(run, shapes)
    states = checkpoint.tree
    source = {"run": str(path), "step": int(checkpoint.meta["step"]), "checkpoint": checkpoint.path.name}
    source |= {"seeds": source_seeds, "state_hash": hash_tree(states)}
    if len(source_seeds) < len(seeds):
        states = jax.tree.map(lambda x: jnp.repeat(x, len(seeds), axis=0), states)
    return InitialStates(states, source, [*checkpoint.warnings, *warnings])


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
