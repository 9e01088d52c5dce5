"""Measure of what a training keeps in memory: parameters, optimizer states and frozen models, counted exactly."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from thespis.evidence.measures import Measure
from thespis.runs.config import from_config
from thespis.runtime.keys import seed_key


def resident_kibibytes() -> Measure:
    """Kibibytes of one seed's arrays in the states of method and feedback: lower is better.

    These are the parameters of all models, trained or frozen, and the states of their optimizers; activations,
    key-value caches and the batch are not counted.
    """

    def sizes(run: Any) -> Float[np.ndarray, " seed"]:
        num_seeds = len(run.config["seeds"])
        feedback: Any = from_config(run.config["feedback"])
        states = jax.eval_shape(lambda: feedback.init(run.spec, seed_key(0)))
        num_bytes = num_array_bytes(run.states) / num_seeds + num_array_bytes(states)
        return np.full(num_seeds, num_bytes / 2**10)

    return Measure("memory of parameters and optimizer states (KiB)", sizes, larger_is_better=False)


def num_array_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree."""
    leaves = (leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype"))
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
