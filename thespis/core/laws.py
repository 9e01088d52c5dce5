"""Saying that a law holds, or in one line that it does not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, Text, dtype_of, map_space, shape_of, split_legal


class LawBroken(Exception):
    """A part breaks its contract. The text is one line: the law, and where it was broken."""


def hold(condition: Any, law: str, found: str = "") -> None:
    """Raise :class:`LawBroken` unless ``condition`` is true."""
    if not condition:
        raise LawBroken(f"{law}: {found}" if found else law)


def as_numpy(tree: PyTree) -> PyTree:
    """A copy of a tree on the host; random keys become their data."""
    return jax.tree.map(_numpy, tree)


def _numpy(x: Any) -> np.ndarray:
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.array(x)


def same_tree(a: PyTree, b: PyTree, law: str) -> None:
    """Both trees have one structure, and their leaves one shape and dtype each."""
    first, second = jax.tree.structure(a), jax.tree.structure(b)
    hold(first == second, law, f"the tree changes from {first} to {second}".replace("\n", " "))
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        kinds = [f"{v.dtype}{list(v.shape)}" for v in (x, y)]
        hold(kinds[0] == kinds[1], law, f"leaf {jax.tree_util.keystr(path)} is {kinds[0]} and then {kinds[1]}")


def same_bits(a: PyTree, b: PyTree, law: str) -> None:
    """Both trees hold the same bits."""
    same_tree(a, b, law)
    _compare(a, b, law, lambda x, y: x.tobytes() == y.tobytes())


def close(a: PyTree, b: PyTree, law: str, tolerance: float) -> None:
    """Leaves differ by at most ``tolerance``, or that share of the larger one."""
    same_tree(a, b, law)
    _compare(a, b, law, lambda x, y: np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True))


def _compare(a: PyTree, b: PyTree, law: str, agree: Any) -> None:
    values, others = jax.tree_util.tree_leaves_with_path(as_numpy(a)), jax.tree.leaves(as_numpy(b))
    for (path, x), y in zip(values, others, strict=True):
        if not agree(x, y):
            apart = np.max(np.abs(x.astype("float64") - y.astype("float64")))
            raise LawBroken(f"{law}: leaf {jax.tree_util.keystr(path)} differs by {apart:.3g}")


def finite(tree: PyTree, law: str) -> None:
    """No NaN and no infinity anywhere."""
    for path, x in jax.tree_util.tree_leaves_with_path(as_numpy(tree)):
        hold(np.all(np.isfinite(x)), law, f"leaf {jax.tree_util.keystr(path)} is not finite")


def arrays_only(tree: PyTree, law: str) -> None:
    """Every leaf is an array, so that the tree can be batched, saved and sent."""
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        array = isinstance(x, jax.Array | np.ndarray | jax.ShapeDtypeStruct)
        hold(array, law, f"leaf {jax.tree_util.keystr(path)} is a {type(x).__name__}")


def shaped(space: Space, value: PyTree, batch: tuple[int, ...], law: str) -> None:
    """``value`` has the tree, shapes and dtypes of ``space``, with leading axes ``batch``."""
    same_tree(map_space(lambda part: np.zeros(batch + shape_of(part), dtype_of(part)), space), value, law)


def fits(space: Space, value: PyTree, batch: tuple[int, ...], law: str, *, bounded: bool = True) -> None:
    """``value`` is of ``space``, with leading axes ``batch``; ``bounded`` holds boxes to their bounds."""
    value = as_numpy(value)
    shaped(space, value, batch, law)

    def leaf(part: Space, x: np.ndarray) -> None:
        match part:
            case Discrete():
                hold(np.all((x >= 0) & (x < part.n)), law, f"{x.min()} to {x.max()} is not within 0 to {part.n - 1}")
            case MultiDiscrete():
                hold(np.all((x >= 0) & (x < np.asarray(part.nvec))), law, f"{x.tolist()} is not within {part.nvec}")
            case Text():
                ids = (x >= -1) & (x < part.vocabulary.size)
                hold(np.all(ids), law, f"{x.min()} to {x.max()} are not ids below {part.vocabulary.size}, or -1")
                hold(np.all((x[..., :-1] >= 0) | (x[..., 1:] < 0)), law, "an id stands behind the end of a text")
            case Box() if bounded:
                low, high = part.bounds()
                inside = np.all((x >= low) & (x <= high))
                hold(inside, law, f"{x.min()} to {x.max()} is not within {low.min()} to {high.max()}")
            case _:
                hold(np.all(np.isfinite(x)), law, "it is not finite")

    map_space(leaf, space, value)


def allowed(space: Space, action: PyTree, legal: PyTree, law: str) -> None:
    """Every choice of ``action[row]`` is one that ``legal[row]`` allows."""

    def leaf(part: Space, chosen: np.ndarray, mask: Any) -> None:
        match part:
            case Discrete():
                ok = np.take_along_axis(np.asarray(mask), chosen[:, None], 1)
            case MultiDiscrete():
                pieces = [np.asarray(piece) for piece in split_legal(part, jnp.asarray(mask))]
                ok = np.stack([np.take_along_axis(m, chosen[:, i, None], 1) for i, m in enumerate(pieces)])
            case _:
                return
        hold(np.all(ok), law, "an illegal choice is taken")

    map_space(leaf, space, as_numpy(action), legal)
