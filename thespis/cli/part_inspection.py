"""Inspection of registered parts without importing them: first line of the docstring, and why a part is broken."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple

from thespis.core.parts import CURRICULUM, ENVIRONMENT, FEEDBACK, METHOD, Part
from thespis.core.slots import SLOTS
from thespis.runtime.user_modules import add_working_directory

KINDS = {METHOD, FEEDBACK, CURRICULUM, ENVIRONMENT, *(slot.partition(":")[2] for slot in SLOTS)}
"""Kinds of parts that something accepts."""


UNREADABLE = "(no Python source)"
"""Stands for the source of a module that is not written in Python, of which nothing is known."""


class PartInfo(NamedTuple):
    """What the source of a part says: its summary, and what is wrong with it (empty if nothing was found)."""

    summary: str
    problem: str = ""

    @property
    def text(self) -> str:
        """The summary, or the problem."""
        return f"broken: {self.problem}" if self.problem else self.summary


def inspect_part(part: Part) -> PartInfo:
    """Read the source of a part. What only an import can find out is not found."""
    if part.kind not in KINDS:
        kinds = f"{FEEDBACK}, {CURRICULUM} or the class of a slot"
        return PartInfo("", f"{part.kind!r} is no kind of part; the entry point's name begins with {kinds}")
    module, _, qualified = part.path.partition(":")
    if not qualified:
        return PartInfo("", f"{part.path!r} is not of the form module:Class")
    source, problem = _read_source(module)
    if source is None:
        return PartInfo("", problem)
    if source == UNREADABLE:
        return PartInfo("")
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return PartInfo("", f"{module}: {error.msg} in line {error.lineno}")
    if missing := [name for name in _required_libraries(tree) if not _is_installed(name)]:
        return PartInfo("", f"{module} needs {', '.join(dict.fromkeys(missing))}, which cannot be imported")
    return _find_definition(tree, module, qualified.partition(".")[0])


def env_kind_of(part: Part) -> str:
    """The kind of environment that a feedback says it is for, as far as its source shows: text, control, or any."""
    module, _, qualified = part.path.partition(":")
    return _declared_env_kind(module, qualified.partition(".")[0], frozenset()) or "any"


def _declared_env_kind(module: str, name: str, seen: frozenset[tuple[str, str]]) -> str:
    """The ``env_kind`` of a class, of what a function says it returns, or of a base; empty if none is found."""
    source, _ = _read_source(module)
    if source in (None, UNREADABLE) or (module, name) in seen:
        return ""
    seen |= {(module, name)}
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    following: list[str] = []
    for node in tree.body:
        match node:
            case ast.ClassDef() if node.name == name:
                for member in node.body:
                    match member:
                        case ast.AnnAssign(target=ast.Name(id="env_kind"), value=ast.Constant(value=str(kind))):
                            return kind
                        case ast.Assign(targets=[ast.Name(id="env_kind")], value=ast.Constant(value=str(kind))):
                            return kind
                following = [base.id for base in node.bases if isinstance(base, ast.Name)]
            case ast.FunctionDef(returns=ast.Name(id=returned)) if node.name == name:
                following = [returned]
            case ast.ImportFrom(module=str(origin), level=0):
                imported_names = [alias.name for alias in node.names if (alias.asname or alias.name) == name]
                if imported_names:
                    return _declared_env_kind(origin, imported_names[0], seen)
    kinds = (_declared_env_kind(module, other, seen) for other in following)
    return next((kind for kind in kinds if kind), "")


def _find_definition(tree: ast.Module, module: str, name: str) -> PartInfo:
    is_known = False
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() if node.name == name:
                return PartInfo((ast.get_docstring(node) or "").partition("\n")[0])
            case ast.Name(id=assigned, ctx=ast.Store()):
                is_known |= assigned == name
            case ast.alias():
                is_known |= (node.asname or node.name) in (name, "*")
            case ast.FunctionDef(name="__getattr__"):
                is_known = True
    return PartInfo("") if is_known else PartInfo("", f"{module} has no {name!r}")


def _read_source(module: str) -> tuple[str | None, str]:
    """The source of a module, or why there is none. Its parents are found and not imported."""
    add_working_directory()
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    for name in _parents(module):
        with contextlib.suppress(ImportError, ValueError):
            spec = PathFinder.find_spec(name, path) or (importlib.util.find_spec(name) if path is None else None)
        if spec is None:
            return None, f"there is no module {name!r}"
        path = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return UNREADABLE, ""
    try:
        return Path(spec.origin).read_text(encoding="utf-8"), ""
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{spec.origin} cannot be read ({error})"


def _parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    for i in range(len(parts)):
        yield ".".join(parts[: i + 1])


def _required_libraries(tree: ast.Module) -> Iterator[str]:
    """Top-level packages that a module imports at its top, outside of ``try`` and ``if``."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def _is_installed(name: str) -> bool:
    if name in sys.modules or name in sys.stdlib_module_names:
        return True
    with contextlib.suppress(ImportError, ValueError):
        return importlib.util.find_spec(name) is not None
    return False
