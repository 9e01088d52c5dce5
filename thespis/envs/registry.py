"""Environments by name. ``probe:constant``, ``gymnax:Pendulum-v1``, ``pgx:tic_tac_toe``, ``gymnasium:Ant-v5``,
``envpool:Ant-v5``, ``jaxmarl:SMAX/3m``, ``pettingzoo:mpe/simple_tag_v3``, ``openspiel:leduc_poker``,
``textarena:Mastermind-v0``, ``textworld:FILE``, ``my_module:MyEnv``; a bare name means gymnax where gymnax has it, else
Gymnasium.

An environment may also be given as an object, a class or a function that makes one. Nothing heavy is
imported before a world of that library is asked for.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import sys
from typing import Any, Literal

from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.errors import UserError
from thespis.envs.host.pettingzoo import is_many
from thespis.envs.host.scripts import Spelt
from thespis.envs.libraries import COMPILED, LIBRARIES, MANY, TALKING, installed, known, names, unknown

__all__ = ["Entry", "compiled", "has_many", "host", "names", "resolve"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a name stands for: which loop it needs, and its full name."""

    kind: Literal["compiled", "host"]
    name: str


def resolve(environment: Any) -> Entry:
    """The entry for a name, or for an environment given as an object, a class or a function.

    Raises:
        UserError: for an unknown name, with the nearest known ones, or a module that cannot be imported.
    """
    from thespis.envs.host.gymnasium import name_of

    if isinstance(environment, Spelt):
        return resolve(environment.world)
    if not isinstance(environment, str):
        return Entry(_kind(environment), name_of(environment))
    library, colon, rest = environment.partition(":")
    if not colon:
        return _bare(environment)
    if library not in LIBRARIES:
        return Entry(_kind(_load(environment)), environment)
    if not known(library, rest):
        raise unknown(environment)
    return Entry("compiled" if library in COMPILED else "host", environment)


def compiled(environment: Any) -> Environment:
    """The compiled world of this name; an object or a class of one is taken as it is.

    Raises:
        UserError: if the name is unknown or stands for a host world.
    """
    entry = resolve(environment)
    if entry.kind != "compiled":
        raise UserError(f"{entry.name} is not written in JAX and cannot be compiled; use the host loop")
    if not isinstance(environment, str):
        from thespis.envs.host.making import made

        return made(environment) if isinstance(environment, type) else environment
    library, _, rest = entry.name.partition(":")
    if library == "gymnax":
        from thespis.envs.compiled.gymnax import Gymnax

        return Gymnax(rest)
    if library == "pgx":
        from thespis.envs.games.naming import world

        return world(rest)
    if library == "jaxmarl":
        from thespis.envs.compiled.jaxmarl import JaxMarl

        return JaxMarl(rest)
    if library == "text":
        from thespis.envs.text.naming import world

        return world(rest)
    if library == "probe":
        from thespis.envs.probes.registry import PROBES

        return PROBES[rest].environment
    return compiled(_load(entry.name))


def host(environment: Any, n: int, *, threads: int = 1) -> HostEnvironment:
    """``n`` worlds on the host; a compiled world is put behind the host contract.

    ``environment`` may be a name, a Gymnasium environment (copied if ``n > 1``), a vector environment of
    ``n`` worlds, a class or function that makes an environment, or a :class:`HostEnvironment` of ``n``.
    ``threads`` threads step single environments (EnvPool picks its own number unless told more than one);
    results do not depend on their number.

    Raises:
        UserError: if the name is unknown, the environment cannot be made, or it does not have ``n`` worlds.
    """
    spelt = environment if isinstance(environment, Spelt) else Spelt(environment)
    environment, script = spelt.world, spelt.script
    if not isinstance(environment, type) and isinstance(environment, HostEnvironment):
        if environment.n != n:
            raise UserError(f"the environment has {environment.n} worlds and the run needs {n}")
        return environment
    if resolve(environment).kind == "compiled":
        from thespis.envs.host.compiled import AsHost

        return AsHost(compiled(environment), n)
    if not isinstance(environment, str):
        from thespis.envs.host.making import wrap

        return wrap(environment, n, threads=threads, script=script)
    library, _, rest = resolve(environment).name.partition(":")
    if library == "envpool":
        from thespis.envs.host.envpool import EnvPool

        return EnvPool(rest, n, threads=threads if threads > 1 else 0)
    if library == "gymnasium":
        from thespis.envs.host.making import named

        return named(rest, n, threads=threads, script=script)
    if library in TALKING:
        from thespis.envs.host.making import talking

        return talking(library, rest, n, script)
    if library == "pettingzoo":
        from thespis.envs.host import pettingzoo

        return pettingzoo.named(rest, n)
    if library == "openspiel":
        from thespis.envs.host import openspiel

        return openspiel.named(rest, n)
    return host(Spelt(_load(environment), script), n, threads=threads)


def has_many(environment: Any) -> bool:
    """Whether a world has many agents; that of a host world that a function makes cannot be known."""
    if environment is None:
        return False
    if resolve(environment).kind == "compiled":
        return bool(compiled(environment).spec.groups)
    if isinstance(environment, str):
        library = resolve(environment).name.partition(":")[0]
        return library in MANY or (library not in LIBRARIES and has_many(_load(environment)))
    made = not isinstance(environment, type) and isinstance(environment, HostEnvironment)
    return bool(environment.spec.groups) if made else is_many(environment)


def _kind(environment: Any) -> Literal["compiled", "host"]:
    import gymnasium

    from thespis.envs.host.making import declares

    if is_many(environment):
        return "host"
    gym = gymnasium.Env | gymnasium.vector.VectorEnv  # they have a ``spec`` too, of another kind
    if isinstance(environment, type):
        if issubclass(environment, gym):
            return "host"
        return "compiled" if declares(environment, "spec", "reset", "step") else "host"
    if isinstance(environment, gym | HostEnvironment):
        return "host"
    return "compiled" if isinstance(environment, Environment) else "host"


def _bare(name: str) -> Entry:
    if installed("gymnax") and known("gymnax", name):
        return Entry("compiled", f"gymnax:{name}")
    if known("gymnasium", name):
        return Entry("host", f"gymnasium:{name}")
    raise unknown(name)


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise unknown(path)
    if os.getcwd() not in sys.path:  # a console script does not have the user's directory on its path
        sys.path.append(os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and not f"{module}.".startswith(f"{error.name}."):
            raise UserError(f"{module} cannot be imported: {error}") from error
        raise UserError(
            f"unknown environment {path!r}: there is no module {module!r}; "
            f"use {', '.join(f'{library}:' for library in LIBRARIES)} or module:Class"
        ) from error
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError:
        near = difflib.get_close_matches(attribute, dir(found), 3, 0.5)
        raise UserError(
            f"module {module!r} has no {attribute!r}{'; nearest: ' + ', '.join(near) if near else ''}"
        ) from None
    return found
