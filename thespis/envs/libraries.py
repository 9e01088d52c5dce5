"""What is known of the libraries whose worlds have names, without importing them."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from typing import Any

from thespis.core.errors import UserError

COMPILED = ("probe", "gymnax", "pgx", "jaxmarl", "text")
MANY = ("pettingzoo", "openspiel")
TALKING = ("textarena", "textworld")
LIBRARIES = (*COMPILED, "gymnasium", "envpool", *MANY, *TALKING)
"""Those whose worlds are compiled, the others whose worlds have many agents, those of strings, and all."""


def names() -> list[str]:
    """Full names of all worlds that can be had here, without those of the user's own modules.

    EnvPool's classic control and MuJoCo and some of OpenSpiel's games are listed; any other of theirs can be named too.
    """
    from thespis.envs.compiled.gymnax import NAMES
    from thespis.envs.compiled.jaxmarl_worlds import NAMES as TEAMS
    from thespis.envs.games.pgx import NAMES as GAMES
    from thespis.envs.host import pettingzoo
    from thespis.envs.host.envpool import NAMES as POOLED
    from thespis.envs.host.openspiel import NAMES as SPIELS
    from thespis.envs.probes import registry as probes
    from thespis.envs.text.naming import NAMES as TEXTS

    found = [f"probe:{name}" for name in probes.PROBES]
    found += [f"gymnax:{name}" for name in NAMES] if installed("gymnax") else []
    found += [f"pgx:{name}" for name in GAMES] if installed("pgx") else []
    found += [f"jaxmarl:{name}" for name in TEAMS] if installed("jaxmarl") else []
    found += [f"text:{name}" for name in TEXTS]
    found += [f"gymnasium:{name}" for name in _gymnasium_names()]
    found += [f"envpool:{name}" for name in POOLED] if installed("envpool") else []
    found += [f"pettingzoo:{name}" for name in pettingzoo.names()] if installed("pettingzoo") else []
    found += [f"openspiel:{name}" for name in SPIELS] if installed("pyspiel") else []
    return found


def known(library: str, name: str) -> bool:
    """Whether a library has a world of this name."""
    match library:
        case "gymnax":
            from thespis.envs.compiled.gymnax import NAMES

            registered = sys.modules.get("gymnax")  # the user's own, registered with gymnax in this process
            return name in NAMES or (registered is not None and name in registered.registered_envs)
        case "pgx":
            from thespis.envs.games.pgx import NAMES

            return name in NAMES
        case "jaxmarl":
            from thespis.envs.compiled import jaxmarl_worlds

            return jaxmarl_worlds.known(name)
        case "pettingzoo":
            from thespis.envs.host import pettingzoo

            return pettingzoo.known(name)
        case "gymnasium":
            import gymnasium

            plugin = ":" in name or "/" in name  # gymnasium.make imports it and decides
            return plugin or name in gymnasium.registry
        case "probe":
            from thespis.envs.probes.registry import PROBES

            return name in PROBES
        case "text":
            from thespis.envs.text.naming import NAMES

            return name in NAMES
    return True  # envpool takes seconds to import; its adapter checks the name, and so does that of OpenSpiel


def unknown(name: str) -> UserError:
    """The error for a name that nothing has, with the nearest that something has."""
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
    return all(installed(module) for prefix, module in needs.items() if entry_point.startswith(prefix))


def installed(module: str) -> bool:
    """Whether a module can be imported."""
    return importlib.util.find_spec(module) is not None
