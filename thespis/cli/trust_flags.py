"""Flags that a command needs to read a run that names code outside of Thespis."""

from __future__ import annotations

from typing import Any

from thespis.core.parts import is_registered
from thespis.envs.libraries import LIBRARIES
from thespis.runs.trust import foreign_modules


def env_module(env: str | None) -> str | None:
    """The module outside Thespis and the libraries that it supports that an environment's name imports, or ``None``."""
    name = (env or "").partition("?")[0].removeprefix("gymnasium:")  # which may be followed by a module
    module, colon, _ = name.partition(":")
    is_foreign = colon and module not in (*LIBRARIES, "object") and not f"{module}.".startswith("thespis.")
    return module if is_foreign and not is_registered(name) else None


def trust_flags(config: dict[str, Any]) -> str:
    """`` --trust MODULE`` for every module outside Thespis that a run.json names, to be appended to a command."""
    modules = set(foreign_modules(config))
    module = env_module(config.get("env"))
    return "".join(f" --trust {name}" for name in sorted(modules | ({module} if module else set())))
