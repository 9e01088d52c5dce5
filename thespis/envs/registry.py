"""Environments by name. ``probe:constant``, ``gymnax:Pendulum-v1``, ``pgx:tic_tac_toe``, ``gymnasium:Ant-v5``,
``envpool:Ant-v5``, ``my_module:MyEnv``; a bare name means gymnax where gymnax has it, else Gymnasium.

An environment may also be given as an object, a class or a function that makes one. Nothing heavy is
imported before a world of that library is asked for.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import os
import sys
from typing import Any, Literal

from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.errors import UserError

_COMPILED = ("probe", "gymnax", "pgx", "jaxmarl")
_LIBRARIES = (*_COMPILED, "gymnasium", "envpool")


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

    if not isinstance(environment, str):
        return Entry(_kind(environment), name_of(environment))
    library, colon, rest = environment.partition(":")
    if not colon:
        return _bare(environment)
    if library not in _LIBRARIES:
        return Entry(_kind(_load(environment)), environment)
    if not _known(library, rest):
        raise _unknown(environment)
    return Entry("compiled" if library in _COMPILED else "host", environment)


def names() -> list[str]:
    """Full names of all worlds that can be had here, without those of the user's own modules.

    EnvPool's classic control and MuJoCo are listed; any other of its worlds can be named too.
    """
    from thespis.envs.compiled.gymnax import NAMES
    from thespis.envs.compiled.jaxmarl_worlds import NAMES as TEAMS
    from thespis.envs.games.pgx import NAMES as GAMES
    from thespis.envs.host.envpool import NAMES as POOLED
    from thespis.envs.probes import registry as probes

    found = [f"probe:{name}" for name in probes.PROBES]
    found += [f"gymnax:{name}" for name in NAMES] if _installed("gymnax") else []
    found += [f"pgx:{name}" for name in GAMES] if _installed("pgx") else []
    found += [f"jaxmarl:{name}" for name in TEAMS] if _installed("jaxmarl") else []
    found += [f"gymnasium:{name}" for name in _gymnasium_names()]
    found += [f"envpool:{name}" for name in POOLED] if _installed("envpool") else []
    return found


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
    if not isinstance(environment, type) and isinstance(environment, HostEnvironment):
        if environment.n != n:
            raise UserError(f"the environment has {environment.n} worlds and the run needs {n}")
        return environment
    if resolve(environment).kind == "compiled":
        from thespis.envs.host.compiled import AsHost

        return AsHost(compiled(environment), n)
    if not isinstance(environment, str):
        from thespis.envs.host.making import wrap

        return wrap(environment, n, threads=threads)
    library, _, rest = resolve(environment).name.partition(":")
    if library == "envpool":
        from thespis.envs.host.envpool import EnvPool

        return EnvPool(rest, n, threads=threads if threads > 1 else 0)
    if library == "gymnasium":
        from thespis.envs.host.making import named

        return named(rest, n, threads=threads)
    return host(_load(environment), n, threads=threads)


def has_many(environment: Any) -> bool:
    """Whether a world has many agents; that of a host world that is not yet made cannot be known."""
    if environment is None or resolve(environment).kind == "host":
        made = environment is not None and not isinstance(environment, str | type)
        return made and isinstance(environment, HostEnvironment) and bool(environment.spec.groups)
    return bool(compiled(environment).spec.groups)


def _kind(environment: Any) -> Literal["compiled", "host"]:
    import gymnasium

    from thespis.envs.host.making import declares

    gym = gymnasium.Env | gymnasium.vector.VectorEnv  # they have a ``spec`` too, of another kind
    if isinstance(environment, type):
        if issubclass(environment, gym):
            return "host"
        return "compiled" if declares(environment, "spec", "reset", "step") else "host"
    if isinstance(environment, gym | HostEnvironment):
        return "host"
    return "compiled" if isinstance(environment, Environment) else "host"


def _bare(name: str) -> Entry:
    if _installed("gymnax") and _known("gymnax", name):
        return Entry("compiled", f"gymnax:{name}")
    if _known("gymnasium", name):
        return Entry("host", f"gymnasium:{name}")
    raise _unknown(name)


def _known(library: str, name: str) -> bool:
    match library:
        case "gymnax":
            from thespis.envs.compiled.gymnax import NAMES

            registered = sys.modules.get("gymnax")  # the user's own, registered with gymnax in this process
            return name in NAMES or (registered is not None and name in registered.registered_envs)
        case "pgx":
            from thespis.envs.games.pgx import NAMES

            return name in NAMES
        case "jaxmarl":
            from thespis.envs.compiled.jaxmarl_worlds import known

            return known(name)
        case "gymnasium":
            import gymnasium

            plugin = ":" in name or "/" in name  # gymnasium.make imports it and decides
            return plugin or name in gymnasium.registry
        case "probe":
            from thespis.envs.probes.registry import PROBES

            return name in PROBES
    return True  # envpool takes seconds to import; its adapter checks the name


def _unknown(name: str) -> UserError:
    everything = names()
    short = {full.partition(":")[2]: full for full in reversed(everything)}
    near = difflib.get_close_matches(name, everything, 3, 0.5)
    near = near or [short[found] for found in difflib.get_close_matches(name, list(short), 3, 0.5)]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return UserError(f"unknown environment {name!r}; {hint}See: thespis list envs")


def _gymnasium_names() -> list[str]:
    import gymnasium

    latest: dict[str, Any] = {}
    for spec in gymnasium.registry.values():
        if spec.namespace is None and not spec.name.startswith("GymV") and _runnable(str(spec.entry_point)):
            held = latest.get(spec.name)
            latest[spec.name] = spec if held is None or (spec.version or 0) > (held.version or 0) else held
    return [spec.id for spec in latest.values()]


def _runnable(entry_point: str) -> bool:
    needs = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.box2d": "Box2D"}
    return all(_installed(module) for prefix, module in needs.items() if entry_point.startswith(prefix))


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise _unknown(path)
    if os.getcwd() not in sys.path:  # a console script does not have the user's directory on its path
        sys.path.append(os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and not f"{module}.".startswith(f"{error.name}."):
            raise UserError(f"{module} cannot be imported: {error}") from error
        raise UserError(
            f"unknown environment {path!r}: there is no module {module!r}; "
            f"use {', '.join(f'{library}:' for library in _LIBRARIES)} or module:Class"
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
