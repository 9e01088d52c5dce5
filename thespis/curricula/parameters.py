"""Parameters of a world by name: the dotted path of a leaf in ``spec.params``."""

from __future__ import annotations

import difflib

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from thespis.core.errors import UserError


def by_path(params: PyTree) -> dict[str, Array]:
    """Every leaf by its dotted path, in the order JAX flattens them."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="."): jnp.asarray(leaf) for path, leaf in leaves}


def with_leaves(params: PyTree, named: dict[str, Array]) -> PyTree:
    """The tree of ``params`` with the leaves that :func:`by_path` named."""
    return jax.tree.unflatten(jax.tree.structure(params), list(named.values()))


def require_field(world: str, fields: dict[str, Array], name: str) -> Array:
    """The leaf called ``name``. Raises ``UserError`` with the nearest name, and all of them, if there is none."""
    if not fields:
        raise UserError(f"{world} has no parameters to vary; use the fixed curriculum")
    if name not in fields:
        near = difflib.get_close_matches(name, fields, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UserError(f"{world} has no parameter {name!r}{hint}; it has: {', '.join(fields)}")
    return fields[name]
