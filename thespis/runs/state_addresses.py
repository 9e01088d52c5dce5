"""Addresses in a learner's state: dotted names such as ``method.network.body``, of saved states and of new ones.

A checkpoint names its leaves as JAX does (``['carry'].learner.method.network.body.mlp.layers[0].weight``). The same
leaf's address is ``method.network.body.mlp.layers.0.weight``; the addresses of the nodes above it are its beginnings.
Reading a checkpoint's addresses needs none of the classes that the run was trained with.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from thespis.core import renames
from thespis.core.errors import UserError
from thespis.runs.checkpoint import describe_leaf, leaf_signature, read_entries

LEARNER_PATH = "['carry'].learner"
"""Where every loop's checkpoint stores the learner's state."""

STATES = ("method", "feedback", "curriculum")
"""The parts of a learner's state that have addresses; experience has none."""

NUM_SHOWN = 12  # addresses that an error lists


@dataclasses.dataclass(frozen=True)
class From:
    """A part of a finished run's learner state, to start a part of a new run with: ``From("runs/a", "method.critic")``.

    Raises:
        UserError: for addresses outside of method, feedback and curriculum.
    """

    run: str | Path
    """The run's directory."""
    path: str = "method"
    """The address of the part in that run."""
    to: str | None = None
    """The address in the new run; ``None``: the same."""

    def __post_init__(self) -> None:
        """Check the addresses; a path of a directory becomes a text, and an address that is the same ``None``."""
        object.__setattr__(self, "run", str(self.run))
        object.__setattr__(self, "to", None if self.to == self.path else self.to)
        for address in (self.path, self.target):
            if address.partition(".")[0] not in STATES or not all(address.split(".")):
                raise UserError(
                    f"{address!r} is no part of a learner: an address begins with {', '.join(STATES)}, such as "
                    "method.network.body"
                )

    @property
    def target(self) -> str:
        """The address in the new run."""
        return self.path if self.to is None else self.to

    def to_config(self) -> dict[str, str]:
        """The part as an entry of ``init_parts`` in run.json."""
        return {"to": self.target, "run": str(self.run), "from": self.path}

    @classmethod
    def from_config(cls, entry: dict[str, Any]) -> From:
        """The part that an entry of ``init_parts`` describes."""
        return cls(entry["run"], entry["from"], entry["to"])

    @classmethod
    def parse(cls, text: str) -> From:
        """Read ``PATH=RUN`` or ``PATH=RUN:PATH``: the address in the new run, the run, and the address there."""
        to, equals, source = text.partition("=")
        run, colon, path = source.rpartition(":")
        if not colon or path.partition(".")[0] not in STATES:
            run, path = source, to
        if not (to and equals and run):
            raise UserError(f"--init-part {text}: it is PATH=RUN or PATH=RUN:PATH, such as method.critic=runs/a")
        return cls(run, path, to)


def split_path(path: str) -> list[str]:
    """The steps of a leaf's path: ``.layers[0].weight`` has ``.layers``, ``[0]`` and ``.weight``."""
    return re.findall(r"\.[^.\[]+|\[[^\]]*\]", path)


def to_address(path: str) -> str:
    """The address of a leaf's path below the learner: ``.method.layers[0]`` becomes ``method.layers.0``."""
    return ".".join(step.strip(".[]'\"") for step in split_path(path))


def relative_to(address: str, parent: str) -> str | None:
    """What follows ``parent`` in an address, ``""`` for the same one; ``None`` for one that is not below it."""
    if address == parent:
        return ""
    return address.removeprefix(parent) if address.startswith(f"{parent}.") else None


class StateTable:
    """The leaves of a learner's state: the signature of each by its address, for one seed."""

    def __init__(self, owner: str, signatures: dict[str, str], num_seeds: int, paths: dict[str, str] | None = None):
        """``owner`` names the run in errors; ``paths`` are the leaves' paths in a checkpoint, by address."""
        self.owner, self.signatures, self.num_seeds, self._paths = owner, signatures, num_seeds, paths or {}

    def below(self, address: str) -> dict[str, str]:
        """Signatures of the leaves below an address, by what follows it."""
        rest = {relative_to(leaf, address): signature for leaf, signature in self.signatures.items()}
        return {name: signature for name, signature in rest.items() if name is not None}

    def prefix(self, address: str) -> str:
        """The path of an address in the checkpoint, to be given to :func:`thespis.runs.checkpoint.load`."""
        leaf = next(leaf for leaf in self._paths if relative_to(leaf, address) is not None)
        return LEARNER_PATH + "".join(split_path(self._paths[leaf])[: address.count(".") + 1])

    def nodes(self) -> list[str]:
        """All addresses, those of nodes above the leaves too, from the top down."""
        steps = [leaf.split(".") for leaf in self.signatures]
        nodes = {".".join(names[: i + 1]) for names in steps for i in range(len(names))}
        return sorted(nodes, key=lambda node: (node.count("."), node))

    def nearest(self, address: str) -> str:
        """The addresses that resemble an unknown one, or those below its known beginning, as text."""
        nodes = self.nodes()
        near = difflib.get_close_matches(address, nodes, 3, 0.7)
        parent = address
        while parent and parent not in nodes:
            parent = parent.rpartition(".")[0]
        depth = parent.count(".") + 1 if parent else 0
        inside = [n for n in nodes if n.count(".") == depth and (not parent or relative_to(n, parent))]
        shown = list(dict.fromkeys([*near, *inside]))
        more = f" and {len(shown) - NUM_SHOWN} more" if len(shown) > NUM_SHOWN else ""
        return ", ".join(shown[:NUM_SHOWN]) + more or "nothing"


def table_of_shapes(owner: str, states: dict[str, PyTree], num_seeds: int) -> StateTable:
    """The table of states of one seed, by the parts' names: arrays, or their shapes."""
    leaves = jax.tree_util.tree_leaves_with_path(states)
    paths = [(to_address(jax.tree_util.keystr(where)), leaf) for where, leaf in leaves]
    return StateTable(owner, {name: leaf_signature(describe_leaf(name, leaf)) for name, leaf in paths}, num_seeds)


def table_of_checkpoint(directory: Path, owner: str, num_seeds: int, wanted: Iterable[str] = ()) -> StateTable | None:
    """The table of the newest readable checkpoint in a directory; ``None`` if there is none.

    ``wanted``: paths of leaves as this version names them, by which names of earlier versions are translated.
    """
    entries = read_entries(directory)
    if not entries:
        return None
    stored = [entry["path"] for entry in entries]
    today = renames.renamed_paths(stored, list(wanted)) if wanted else stored
    signatures, paths = {}, {}
    for entry, path in zip(entries, today, strict=True):
        below = path.removeprefix(LEARNER_PATH)
        if below == path or split_path(below)[0].strip(".") not in STATES:
            continue
        address = to_address(below)
        signatures[address], paths[address] = _signature_of_one(entry), below
    return StateTable(owner, signatures, num_seeds, paths)


def _signature_of_one(entry: dict[str, Any]) -> str:
    """The signature of a stored leaf without its leading axis, which indexes seeds."""
    return leaf_signature(entry | {"shape": entry["shape"][1:]} if "shape" in entry else entry)


def subtree(tree: PyTree, address: str) -> PyTree:
    """The node or leaf at an address of a tree. The address must be one of those of its leaves, or a beginning."""
    for name in address.split("."):
        children, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node, root=tree: node is not root)
        tree = next(child for where, child in children if to_address(jax.tree_util.keystr(where)) == name)
    return tree
