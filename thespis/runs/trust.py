"""Trust in the code that a run names: which modules may be imported while a run directory is read.

A run.json names classes and environments, and whoever wrote it chose the names. While a run is read (:func:`reading`),
only these may be imported:

- what Thespis itself defines, and JAX's activation functions;
- everything in modules that the user has named: ``--trust MODULE``, the module of ``--env MODULE:NAME``, or the
  argument ``trust`` of :func:`thespis.load` and :func:`thespis.resume`; submodules are included;
- the parts that installed distributions have registered by entry points (:mod:`thespis.core.parts`): whoever installed
  such a distribution wants its parts to be named. Nothing else in their modules is included;
- classes of the user's own modules that the program has imported already. Their code runs in this process anyway, by
  the user's own choice, and building a class with other fields does what the user wrote. A file cannot bring this
  about: a module must have been imported before. Functions of these modules are not included, since a run could have
  any of them called, nor are modules of the standard library and of installed packages.

Outside of :func:`reading`, names come from the user, and nothing is refused.
"""

from __future__ import annotations

import contextlib
import inspect
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.core.parts import is_registered

Trust = frozenset[str] | None
"""Modules that may be imported, besides those that always may; ``None``: all."""

EVERYTHING: Trust = None
FUNCTION_MODULES = ("jax.nn", "jax.numpy", "jax._src.nn.functions")

_named: ContextVar[frozenset[str]] = ContextVar("named", default=frozenset())
_reading: ContextVar[Trust] = ContextVar("reading", default=EVERYTHING)


@contextlib.contextmanager
def trusting(modules: Iterable[str]) -> Iterator[None]:
    """Context in which runs may also name ``modules``; for a command and its flags."""
    token = _named.set(_named.get() | frozenset(modules))
    try:
        yield
    finally:
        _named.reset(token)


def named_modules() -> tuple[str, ...]:
    """The modules of :func:`trusting` here, sorted, to be passed to another process."""
    return tuple(sorted(_named.get()))


@contextlib.contextmanager
def reading(trust: Trust) -> Iterator[None]:
    """Context in which names come from a run, and only what ``trust`` includes may be imported."""
    token = _reading.set(trust)
    try:
        yield
    finally:
        _reading.reset(token)


def trust_in(modules: Iterable[str] | None) -> Trust:
    """The trust in a run that is opened here, for the user's argument ``trust``; ``None``: everything."""
    if modules is None:
        return EVERYTHING
    return frozenset(modules) | _named.get() | (_reading.get() or frozenset())


def check_module(name: str) -> None:
    """Raise :class:`UserError` if ``module:Name`` may not be imported now. Called before the import."""
    trust, module = _reading.get(), name.partition(":")[0]
    if trust is None or _is_within(module, {"thespis", *FUNCTION_MODULES} | trust) or _is_own(module):
        return
    if is_registered(name):
        return
    raise _refusal(name)


def check_object(name: str, value: Any) -> None:
    """Raise :class:`UserError` if ``value``, imported as ``module:Name``, may not be used now."""
    trust, module = _reading.get(), name.partition(":")[0]
    if trust is None or _is_within(module, trust):
        return
    is_code = isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__"))
    home = value.__module__ if is_code else module
    if _is_within(module, {"thespis"}):
        allowed = _is_within(home, {"thespis"}) and not inspect.ismodule(value)
    elif module in FUNCTION_MODULES:
        allowed = is_code and _is_within(home, {"jax"})
    else:
        allowed = isinstance(value, type) and home == module and _is_own(module)
    if not allowed and not is_registered(name):
        raise _refusal(name)


def foreign_modules(config: Any) -> list[str]:
    """Modules outside Thespis whose classes and functions a run.json names, sorted.

    Those of parts that an installed distribution has registered are left out.
    """
    names: set[str] = set()

    def walk(value: Any) -> None:
        match value:
            case dict():
                for key in ("class", "enum", "function"):
                    if isinstance(value.get(key), str) and ":" in value[key]:
                        names.add(value[key])
                for item in value.values():
                    walk(item)
            case list():
                for item in value:
                    walk(item)

    walk([config.get(part) for part in ("method", "feedback", "curriculum")])
    foreign = {name for name in names if not _is_within(name.partition(":")[0], {"thespis", *FUNCTION_MODULES})}
    return sorted({name.partition(":")[0] for name in foreign if not is_registered(name)})


def _is_within(module: str, allowed: Iterable[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def _is_own(module: str) -> bool:
    """Whether a module is imported and lies outside of Python's own folders and of those of installed packages."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return False
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed += [*site.getsitepackages(), site.getusersitepackages()]
    return not any(Path(file).resolve().is_relative_to(Path(folder).resolve()) for folder in installed)


def _refusal(name: str) -> UserError:
    module = name.partition(":")[0]
    return UserError(
        f"the run names {name}, which is no part of Thespis: if you trust its code, add --trust {module} "
        f'(in Python: trust=("{module}",))'
    )
