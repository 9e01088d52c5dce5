"""Registry of parts: names of methods, feedbacks, curricula, environments and members of slots, as ``module:Class``.

Thespis has tables of its own parts, and an installed distribution adds its parts by entry points, which are read
without importing it::

    [project.entry-points."thespis.methods"]
    my-method = "my_package:MyMethod"

    [project.entry-points."thespis.envs"]
    my-env = "my_package:MyEnv"

    [project.entry-points."thespis.parts"]
    "feedback.my-feedback" = "my_package:MyFeedback"
    "curriculum.my-curriculum" = "my_package:MyCurriculum"
    "ReplaySampler.my-sampler" = "my_package:MySampler"

The first word of a name among ``thespis.parts`` is the kind of part: ``feedback``, ``curriculum``, or the abstract
class of a slot, from which the part derives. Wherever a name is accepted, ``module:Class`` is too.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from thespis.core.errors import DISTRIBUTION, UserError
from thespis.runtime.user_modules import import_user_module

METHOD, FEEDBACK, CURRICULUM, ENVIRONMENT = "method", "feedback", "curriculum", "environment"
"""Kinds of parts that are no slot."""

_GROUPS = {"thespis.methods": METHOD, "thespis.envs": ENVIRONMENT, "thespis.parts": ""}


@dataclasses.dataclass(frozen=True)
class Part:
    """A registered part: its kind, its name, what it is (``module:Class``), and the distribution it belongs to."""

    kind: str
    name: str
    path: str
    package: str = DISTRIBUTION

    @property
    def is_own(self) -> bool:
        """Whether it is a part of Thespis itself."""
        return self.package == DISTRIBUTION


def installed_parts() -> tuple[Part, ...]:
    """The parts of all installed distributions besides Thespis, by their entry points. Nothing is imported.

    The working directory does not count as a place of installation: a directory that somebody else has made, such as
    that of a run, cannot register anything.
    """
    here = os.path.realpath(os.getcwd())
    return _installed_parts(tuple(path for path in sys.path if os.path.realpath(path) != here))


@functools.lru_cache(maxsize=8)
def _installed_parts(search_path: tuple[str, ...]) -> tuple[Part, ...]:
    from importlib.metadata import distributions  # takes longer than all else here

    parts: set[Part] = set()
    seen: set[str] = set()
    for distribution in distributions(path=list(search_path)):
        entries = [entry for entry in distribution.entry_points if entry.group in _GROUPS]
        package = (distribution.metadata["Name"] or "an unknown package") if entries else ""
        if entries and package not in seen:  # else it is hidden by the same one earlier on the path
            seen.add(package)
            parts |= {_part(entry.group, entry.name, entry.value, package) for entry in entries}
    return tuple(sorted(parts, key=lambda part: (part.kind, part.name, part.package)))


def _part(group: str, name: str, path: str, package: str) -> Part:
    kind = _GROUPS[group]
    if not kind:
        kind, dot, rest = name.partition(".")
        name = rest if dot else name
    return Part(kind, name, path.replace(" ", ""), package)


class PartRegistry:
    """All parts of one kind: those of a table, and those of installed distributions."""

    def __init__(self, kind: str, own: Mapping[str, str], listing: str, is_kind: Callable[[str], bool] | None = None):
        """``listing``: the command that lists them, for errors; ``is_kind``: kinds of entry points that fit."""
        self.kind, self._own, self._listing = kind, own, listing
        self._is_kind = is_kind or (lambda other: other == kind)

    def parts(self) -> list[Part]:
        """All parts by name, those of Thespis first; a name that several distributions claim occurs several times."""
        own = [Part(self.kind, name, path) for name, path in sorted(self._own.items())]
        return own + [part for part in installed_parts() if self._is_kind(part.kind)]

    def names(self) -> list[str]:
        """The names of all parts, each once."""
        return list(dict.fromkeys(part.name for part in self.parts()))

    def find(self, name: str) -> Part | None:
        """The part of that name; ``None`` if there is none.

        Raises:
            UserError: if several distributions claim the name.
        """
        found = [part for part in self.parts() if part.name == name]
        if len({part.path for part in found}) > 1:
            owners = " and ".join(f"{part.package} ({part.path})" for part in found)
            raise UserError(
                f"{self.kind} {name!r} is claimed by {owners}: uninstall one of them, or write module:Class"
            )
        return found[0] if found else None

    def load(self, name: str) -> Any:
        """What ``name`` stands for, or ``module:Class``, imported.

        Raises:
            UserError: for an unknown name (with the nearest ones), one that several distributions claim, and for
                what cannot be imported.
        """
        if (part := self.find(name)) is not None:
            return load_part(part)
        if ":" in name:
            return load_own_part(self.kind, name)
        raise self.unknown(name)

    def make(self, name: str) -> Any:
        """What ``name`` or ``module:Class`` stands for, made without arguments where it is a class or a function.

        Raises:
            UserError: as :meth:`load`, and for what needs arguments.
        """
        target = self.load(name)
        if not (isinstance(target, type) or inspect.isroutine(target)):
            return target
        try:
            inspect.signature(target).bind()
        except TypeError as error:
            raise UserError(
                f"{self.kind} {name} cannot be made by name ({error}): give its fields a default, or make it in Python"
            ) from None
        return target()

    def unknown(self, name: str) -> UserError:
        """The error for an unknown name, with the nearest ones."""
        near = difflib.get_close_matches(name, self.names(), n=3) or self.names()
        return UserError(
            f"unknown {self.kind} {name!r}; did you mean {', '.join(near)}? (or module:Class; {self._listing})"
        )


def load_part(part: Part) -> Any:
    """Import a registered part. Raises :class:`UserError`, in one line, for one that is broken."""
    module, _, qualified = part.path.partition(":")
    if part.is_own:
        return functools.reduce(getattr, qualified.split("."), importlib.import_module(module))
    try:
        return functools.reduce(getattr, qualified.split("."), import_user_module(module))
    except Exception as error:  # whatever the code of somebody else raises when it is imported
        reason = " ".join(str(error).split()) or "no reason is given"
        raise UserError(
            f"{part.kind} {part.name!r} of {part.package} is broken: {part.path} cannot be imported "
            f"({type(error).__name__}: {reason}); update or uninstall {part.package}"
        ) from error


def load_own_part(kind: str, path: str) -> Any:
    """Import ``module:Class`` that a user has named. What the module itself raises goes through.

    Raises:
        UserError: if there is no such module, or if it has no such attribute.
    """
    module, _, qualified = path.partition(":")
    if not module or not qualified:
        raise UserError(f"{kind} {path!r} is not of the form module:Class")
    try:
        value: Any = import_user_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise UserError(
                f"{kind} {path!r}: there is no module {module!r}; run the command in its folder, or set PYTHONPATH"
            ) from error
        raise UserError(f"{kind} {path!r}: {module} cannot be imported ({error})") from error
    for name in qualified.split("."):
        members = dir(value)
        if name not in members:
            near = difflib.get_close_matches(name, members, 3, 0.5)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UserError(f"{kind} {path!r}: {module} has no {qualified!r}{hint}")
        value = getattr(value, name)
    return value


def is_registered(path: str) -> bool:
    """Whether ``module:Class`` is what an installed distribution has registered, under that name or another.

    Only parts in the same top-level package are imported to find out.
    """
    top = path.partition(":")[0].partition(".")[0]
    parts = [part for part in installed_parts() if part.path.partition(":")[0].partition(".")[0] == top]
    if any(part.path == path for part in parts):
        return True
    for part in parts:
        try:
            value = load_part(part)
        except UserError:
            continue
        if isinstance(value, type) and f"{value.__module__}:{value.__qualname__}" == path:
            return True
    return False
