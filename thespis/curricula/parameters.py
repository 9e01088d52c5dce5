"""Environment parameters by name: the dotted path of a leaf in ``spec.params``."""

from __future__ import annotations

import difflib

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from thespis.core.errors import UserError


def leaves_by_path(params: PyTree) -> dict[str, Array]:
    """Return every leaf by its dotted path, in the order in which JAX flattens them."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="."): jnp.asarray(leaf) for path, leaf in leaves}


def replace_leaves(params: PyTree, leaves: dict[str, Array]) -> PyTree:
    """Return the tree of ``params`` with its leaves replaced by those of :func:`leaves_by_path`."""
    return jax.tree.unflatten(jax.tree.structure(params), list(leaves.values()))


def require_parameter(env_name: str, fields: dict[str, Array], name: str) -> Array:
    """Return the leaf called ``name``. Raises ``UserError`` with the nearest name and all names if there is none."""
    if not fields:
        raise UserError(f"{env_name} has no parameters to vary; use the fixed curriculum")
    if name not in fields:
        matches = difflib.get_close_matches(name, fields, n=1)
        hint = f" (did you mean {matches[0]}?)" if matches else ""
        raise UserError(f"{env_name} has no parameter {name!r}{hint}; it has: {', '.join(fields)}")
    return fields[name]
