"""Hash and summary of a run's learner state, independent of the names in the checkpoint."""

from __future__ import annotations

import hashlib
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import scipy
from numpy._core._multiarray_umath import __cpu_features__

from thespis.runs import checkpoint

PART = "['carry'].learner"  # states of method, feedback and curriculum, and stored data, in every loop


def learner_arrays(run: Path) -> list[np.ndarray]:
    """Arrays of the learner in the newest checkpoint of a run, in the order of the file."""
    path = checkpoint.list_checkpoints(run / "checkpoints")[-1]
    with path.open("rb") as file:
        header = checkpoint._read_header(file, path)
        arrays = [entry for entry in header["leaves"] if entry["path"].startswith(PART) and entry["kind"] == "array"]
        like = {entry["path"]: checkpoint.empty_array(entry) for entry in arrays}
        return list(checkpoint._read_leaves(file, path, header["leaves"], like).values())


def digest(arrays: list[np.ndarray]) -> str:
    """A hash of dtypes, shapes and bits that does not depend on the order of the arrays."""
    items = [f"{x.dtype} {x.shape} ".encode() + x.tobytes() for x in arrays]
    return hashlib.sha256("".join(sorted(hashlib.sha256(x).hexdigest() for x in items)).encode()).hexdigest()


def summary(arrays: list[np.ndarray]) -> list[list[float]]:
    """Size, mean and standard deviation of each array, sorted: nearly equal on other processors."""
    numbers = [np.asarray(x, float) for x in arrays if x.dtype.kind == "f"]
    return sorted([float(x.size), float(x.mean()), float(x.std())] for x in numbers if x.size)


def columns_by_size(rows: list[list[float]]) -> np.ndarray:
    """The rows of ``summary``, with means and deviations sorted separately among arrays of equal size.

    Nearly equal means may be in a different order on another processor, and their deviations with them.
    """
    table = np.array(rows)
    return np.stack([table[np.lexsort((column, table[:, 0])), i] for i, column in enumerate(table.T)], axis=1)


def fingerprint() -> str:
    """A hash of this processor's instruction sets, of library versions, and of sums and products computed with them.

    If it differs from the recorded one, the last bits of runs may differ too: hashes cannot be compared. LAPACK, which
    draws orthogonal weights, and NumPy, in which hosted environments compute, choose their code by instruction set.
    """

    def compute(key):
        x = jax.random.normal(key, (64, 48))
        picture = jax.random.normal(key, (2, 3, 12, 12))
        curves = [jnp.exp, jnp.log1p, jnp.tanh, jnp.sin, jax.nn.softmax, jax.scipy.special.erf, jnp.sqrt]
        convolved = jax.lax.conv(picture, jax.random.normal(key, (4, 3, 3, 3)), (1, 1), "SAME")
        return [x @ x.T, x.sum(0), jnp.cumsum(x, 1), convolved, jnp.linalg.qr(x)[0], *(f(jnp.abs(x)) for f in curves)]

    arrays = [np.asarray(x) for x in jax.jit(compute)(jax.random.key(0))]
    arrays += [f(arrays[0]) for f in (np.sin, np.tanh, np.linalg.eigvalsh)]
    sets = sorted(name for name, present in __cpu_features__.items() if present)
    machine = [jaxlib.__version__, np.__version__, scipy.__version__, *sets]
    return hashlib.sha256(" ".join([digest(arrays), *machine]).encode()).hexdigest()
