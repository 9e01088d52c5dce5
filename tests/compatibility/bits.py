"""What a run had learnt, as a hash that does not depend on names, and as a few numbers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from thespis.runs import checkpoint, leaves

PART = "['carry'].learner"  # methods, feedback, curriculum and what they have stored, in every loop


def learnt(run: Path) -> list[np.ndarray]:
    """The leaves that the newest checkpoint of a run holds of its learner, in the order of the file."""
    path = checkpoint.listing(run / "checkpoints")[-1]
    with path.open("rb") as file:
        header = checkpoint._read_header(file, path)
        arrays = [entry for entry in header["leaves"] if entry["path"].startswith(PART) and entry["kind"] == "array"]
        like = {entry["path"]: leaves.empty(entry) for entry in arrays}
        return list(checkpoint._read_leaves(file, path, header["leaves"], like).values())


def digest(arrays: list[np.ndarray]) -> str:
    """A hash of shapes and bits, whatever the order of the arrays."""
    each = [f"{x.dtype} {x.shape} ".encode() + x.tobytes() for x in arrays]
    return hashlib.sha256("".join(sorted(hashlib.sha256(x).hexdigest() for x in each)).encode()).hexdigest()


def summary(arrays: list[np.ndarray]) -> list[list[float]]:
    """Size, mean and scatter of each array, sorted: what another processor comes to as well, nearly."""
    numbers = [np.asarray(x, float) for x in arrays if x.dtype.kind == "f"]
    return sorted([float(x.size), float(x.mean()), float(x.std())] for x in numbers if x.size)


def fingerprint() -> str:
    """A hash of what this processor and this XLA make of sums, products, convolutions and curves.

    Where it differs, so may the last bits of a run, and hashes of runs cannot be compared.
    """

    def numbers(key):
        x = jax.random.normal(key, (64, 48))
        picture = jax.random.normal(key, (2, 3, 12, 12))
        curves = [jnp.exp, jnp.log1p, jnp.tanh, jnp.sin, jax.nn.softmax, jax.scipy.special.erf, jnp.sqrt]
        seen = jax.lax.conv(picture, jax.random.normal(key, (4, 3, 3, 3)), (1, 1), "SAME")
        return [x @ x.T, x.sum(0), jnp.cumsum(x, 1), seen, *(f(jnp.abs(x)) for f in curves)]

    return digest([np.asarray(x) for x in jax.jit(numbers)(jax.random.key(0))])
