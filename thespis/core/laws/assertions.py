"""Assertions of the conformance checks; each failure is one line."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.spaces import (
    Box,
    Discrete,
    MultiDiscrete,
    Space,
    Text,
    map_space,
    space_dtype,
    space_shape,
    split_action_mask,
)


class ContractViolation(Exception):
    """A component violates its contract. The text is one line: the law, and where it was violated."""


def assert_law(condition: Any, law: str, detail: str = "") -> None:
    """Raise :class:`ContractViolation` unless ``condition`` is true."""
    if not condition:
        raise ContractViolation(f"{law}: {detail}" if detail else law)


def to_numpy(tree: PyTree) -> PyTree:
    """Copy a tree to numpy; random keys become their data."""
    return jax.tree.map(_leaf_to_numpy, tree)


def _leaf_to_numpy(x: Any) -> np.ndarray:
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.array(x)


def assert_same_tree(a: PyTree, b: PyTree, law: str) -> None:
    """Both trees have the same structure, and their leaves the same shapes and dtypes."""
    first, second = jax.tree.structure(a), jax.tree.structure(b)
    assert_law(first == second, law, f"the tree changes from {first} to {second}".replace("\n", " "))
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        kinds = [f"{v.dtype}{list(v.shape)}" for v in (x, y)]
        assert_law(kinds[0] == kinds[1], law, f"leaf {jax.tree_util.keystr(path)} is {kinds[0]} and then {kinds[1]}")


def assert_same_bits(a: PyTree, b: PyTree, law: str) -> None:
    """Both trees have bitwise equal leaves."""
    assert_same_tree(a, b, law)
    _assert_leaves(a, b, law, lambda x, y: x.tobytes() == y.tobytes())


def assert_close(a: PyTree, b: PyTree, law: str, tolerance: float) -> None:
    """Leaves differ by at most ``tolerance``, absolutely or relatively."""
    assert_same_tree(a, b, law)
    _assert_leaves(a, b, law, lambda x, y: np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True))


def _assert_leaves(a: PyTree, b: PyTree, law: str, agree: Any) -> None:
    values, others = jax.tree_util.tree_leaves_with_path(to_numpy(a)), jax.tree.leaves(to_numpy(b))
    for (path, x), y in zip(values, others, strict=True):
        if not agree(x, y):
            difference = np.max(np.abs(x.astype("float64") - y.astype("float64")))
            raise ContractViolation(f"{law}: leaf {jax.tree_util.keystr(path)} differs by {difference:.3g}")


def assert_finite(tree: PyTree, law: str) -> None:
    """No leaf has NaN or infinite entries."""
    for path, x in jax.tree_util.tree_leaves_with_path(to_numpy(tree)):
        assert_law(np.all(np.isfinite(x)), law, f"leaf {jax.tree_util.keystr(path)} is not finite")


def assert_arrays(tree: PyTree, law: str) -> None:
    """Every leaf is an array, so that the tree can be batched, saved and sent."""
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        array = isinstance(x, jax.Array | np.ndarray | jax.ShapeDtypeStruct)
        assert_law(array, law, f"leaf {jax.tree_util.keystr(path)} is a {type(x).__name__}")


def assert_space_shapes(space: Space, value: PyTree, batch: tuple[int, ...], law: str) -> None:
    """``value`` has the tree, shapes and dtypes of ``space``, with leading axes ``batch``."""
    assert_same_tree(map_space(lambda part: np.zeros(batch + space_shape(part), space_dtype(part)), space), value, law)


def assert_in_space(space: Space, value: PyTree, batch: tuple[int, ...], law: str, *, bounded: bool = True) -> None:
    """``value`` is an element of ``space``, leading axes ``batch``; ``bounded``: also within the bounds of boxes."""
    value = to_numpy(value)
    assert_space_shapes(space, value, batch, law)

    def leaf(part: Space, x: np.ndarray) -> None:
        match part:
            case Discrete():
                assert_law(
                    np.all((x >= 0) & (x < part.n)), law, f"{x.min()} to {x.max()} is not within 0 to {part.n - 1}"
                )
            case MultiDiscrete():
                assert_law(
                    np.all((x >= 0) & (x < np.asarray(part.nvec))), law, f"{x.tolist()} is not within {part.nvec}"
                )
            case Text():
                valid = (x >= -1) & (x < part.vocabulary.size)
                assert_law(
                    np.all(valid), law, f"{x.min()} to {x.max()} are not tokens below {part.vocabulary.size}, or -1"
                )
                assert_law(np.all((x[..., :-1] >= 0) | (x[..., 1:] < 0)), law, "a token follows the end of a text")
            case Box() if bounded:
                low, high = part.bounds()
                inside = np.all((x >= low) & (x <= high))
                assert_law(inside, law, f"{x.min()} to {x.max()} is not within {low.min()} to {high.max()}")
            case _:
                assert_law(np.all(np.isfinite(x)), law, "it is not finite")

    map_space(leaf, space, value)


def assert_legal(space: Space, action: PyTree, action_mask: PyTree, law: str) -> None:
    """Every choice of ``action[row]`` is allowed by ``action_mask[row]``."""

    def leaf(part: Space, chosen: np.ndarray, mask: Any) -> None:
        match part:
            case Discrete():
                ok = np.take_along_axis(np.asarray(mask), chosen[:, None], 1)
            case MultiDiscrete():
                pieces = [np.asarray(piece) for piece in split_action_mask(part, jnp.asarray(mask))]
                ok = np.stack([np.take_along_axis(m, chosen[:, i, None], 1) for i, m in enumerate(pieces)])
            case _:
                return
        assert_law(np.all(ok), law, "an illegal choice is taken")

    map_space(leaf, space, to_numpy(action), action_mask)
