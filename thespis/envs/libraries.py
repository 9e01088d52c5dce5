"""Names of the supported environment libraries and of their environments, without importing heavy libraries."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from typing import Any

from thespis.core.errors import UserError
from thespis.core.parts import ENVIRONMENT, installed_parts

COMPILED_LIBRARIES = ("thespis", "probe", "gymnax", "pgx", "jaxmarl", "text")
MULTI_AGENT_LIBRARIES = ("pettingzoo", "openspiel")
TEXT_LIBRARIES = ("textarena", "textworld")
LIBRARIES = (*COMPILED_LIBRARIES, "gymnasium", "envpool", *MULTI_AGENT_LIBRARIES, *TEXT_LIBRARIES)
"""Prefixes of compiled libraries, of multi-agent host libraries, of text-game libraries, and of all libraries."""
FIXED_LIBRARIES = ("probe", "pgx", "openspiel", *TEXT_LIBRARIES)
"""Libraries whose environments take no options after a question mark (OpenSpiel has its own, in brackets)."""
OWN_ENVS = {"maze": "thespis.envs.compiled.maze:Maze"}
"""Modules and classes of environments with a name ``thespis:NAME``."""


def list_envs() -> list[str]:
    """Full names of all environments available in this installation, except those in the user's own modules.

    Of EnvPool only classic control and MuJoCo are listed, of OpenSpiel only some games; their other environments can be
    named too.
    """
    from thespis.envs.compiled.gymnax import ENV_NAMES
    from thespis.envs.compiled.jaxmarl_metadata import ENV_NAMES as TEAMS
    from thespis.envs.compiled.maze_levels import TEST_MAZE_NAMES
    from thespis.envs.games.pgx import GAME_NAMES as GAMES
    from thespis.envs.host import pettingzoo
    from thespis.envs.host.envpool import ENV_NAMES as POOLED
    from thespis.envs.host.openspiel import GAME_NAMES as SPIELS
    from thespis.envs.probes import registry as probes
    from thespis.envs.text.registry import ENV_NAMES as TEXTS

    names = [f"thespis:{name}" for name in OWN_ENVS] + [f"thespis:maze?level={name}" for name in TEST_MAZE_NAMES]
    names += [f"probe:{name}" for name in probes.PROBES]
    names += [f"gymnax:{name}" for name in ENV_NAMES] if is_installed("gymnax") else []
    names += [f"pgx:{name}" for name in GAMES] if is_installed("pgx") else []
    names += [f"jaxmarl:{name}" for name in TEAMS] if is_installed("jaxmarl") else []
    names += [f"text:{name}" for name in TEXTS]
    names += [f"gymnasium:{name}" for name in _gymnasium_names()]
    names += [f"envpool:{name}" for name in POOLED] if is_installed("envpool") else []
    names += [f"pettingzoo:{name}" for name in pettingzoo.list_envs()] if is_installed("pettingzoo") else []
    names += [f"openspiel:{name}" for name in SPIELS] if is_installed("pyspiel") else []
    return names


def has_env(library: str, name: str) -> bool:
    """Whether a library has an environment of this name; options after ``?`` are not checked.

    EnvPool and OpenSpiel check the name later, when the environment is made.
    """
    match library:
        case "gymnax":
            from thespis.envs.compiled.gymnax import ENV_NAMES

            registered = sys.modules.get("gymnax")  # by the user, in this process
            name = name.partition("?")[0]
            return name in ENV_NAMES or (registered is not None and name in registered.registered_envs)
        case "pgx":
            from thespis.envs.games.pgx import GAME_NAMES

            return name in GAME_NAMES
        case "jaxmarl":
            from thespis.envs.compiled import jaxmarl_metadata

            return jaxmarl_metadata.has_env(name)
        case "pettingzoo":
            from thespis.envs.host import pettingzoo

            return pettingzoo.has_env(name)
        case "gymnasium":
            import gymnasium

            name = name.partition("?")[0]
            plugin = ":" in name or "/" in name  # gymnasium.make imports it and decides
            return plugin or name in gymnasium.registry or _is_old_atari_name(name)
        case "thespis":
            return name.partition("?")[0] in OWN_ENVS
        case "probe":
            from thespis.envs.probes.registry import PROBES

            return name in PROBES
        case "text":
            from thespis.envs.text.registry import ENV_NAMES

            return name.partition("?")[0] in ENV_NAMES
    return True  # importing envpool takes seconds; the adapters of EnvPool and OpenSpiel check the name


def unknown_env_error(name: str) -> UserError:
    """UserError for an unknown environment name, with the closest known names."""
    names = [*list_envs(), *(part.name for part in installed_parts() if part.kind == ENVIRONMENT)]
    full_names = {full.partition(":")[2] or full: full for full in reversed(names)}
    matches = difflib.get_close_matches(name, names, 3, 0.5)
    matches = matches or [full_names[match] for match in difflib.get_close_matches(name, list(full_names), 3, 0.5)]
    hint = f"did you mean {' or '.join(matches)}? " if matches else ""
    return UserError(f"unknown environment {name!r}; {hint}See: thespis list envs")


def _is_old_atari_name(name: str) -> bool:
    """Whether ale-py registers the name, which does not say whose it is: ``BreakoutNoFrameskip-v4``."""
    import gymnasium

    if not name.endswith(("-v0", "-v4")) or not is_installed("ale_py"):
        return False
    import ale_py as ale_py  # registers its environments

    return name in gymnasium.registry


def _gymnasium_names() -> list[str]:
    import gymnasium

    latest: dict[str, Any] = {}
    for spec in gymnasium.registry.values():
        if spec.namespace is None and not spec.name.startswith("GymV") and _has_dependencies(str(spec.entry_point)):
            previous = latest.get(spec.name)
            latest[spec.name] = spec if previous is None or (spec.version or 0) > (previous.version or 0) else previous
    return [spec.id for spec in latest.values()]


def _has_dependencies(entry_point: str) -> bool:
    needs = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.box2d": "Box2D"}
    return all(is_installed(module) for prefix, module in needs.items() if entry_point.startswith(prefix))


def is_installed(module: str) -> bool:
    """Whether a module can be imported; it is not imported."""
    return importlib.util.find_spec(module) is not None
