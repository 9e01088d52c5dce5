"""Worlds of PettingZoo, by name or your own: those whose agents act at once, and those in which one acts at a time.

A tick is a step of all agents who are there (``ParallelEnv``), or one agent's move (``AECEnv``). An agent that is
truncated by itself while others go on counts as gone; an episode whose last agents are truncated is truncated. Masks
are read from ``action_mask``, in the observation or in the info. The run reports the mean of the rewards of all agents
that there may be; one that is not there counts as 0.

PettingZoo's worlds do not tell their state: a world of your own may (``save_state`` and ``load_state``).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError, missing_extra
from thespis.envs.host.many import Many
from thespis.envs.host.pettingzoo_worlds import Given, InTurn, Together
from thespis.envs.options import options_in

_LIBRARIES = {"mpe": "mpe2", **{f: f"pettingzoo.{f}" for f in ("classic", "butterfly", "sisl", "atari")}}
_NEEDS = {
    "atari": "multi_agent_ale_py", "chess": "chess", "hanabi": "shimmy", "leduc": "rlcard", "multiwalker": "Box2D",
    "pistonball": "pymunk", "texas": "rlcard",
}  # fmt: skip
"""What else must be installed for a family, or for worlds whose names begin so."""


def names() -> list[str]:
    """Names of worlds that can be had here, read from the libraries' files: nothing is imported."""
    found = []
    for family, library in _LIBRARIES.items():
        for name in _files(library):
            needs = [module for start, module in _NEEDS.items() if start == family or name.startswith(start)]
            if all(map(importlib.util.find_spec, ("pygame", *needs))):
                found.append(f"{family}/{name}")
    return found


def known(name: str) -> bool:
    """Whether there is a world of this name, options aside; what it needs may still be missing."""
    family, _, world = name.partition("?")[0].partition("/")
    return family in _LIBRARIES and (world in _files(_LIBRARIES[family]) or not _installed(_LIBRARIES[family]))


def named(name: str, n: int) -> Many:
    """``n`` worlds of PettingZoo or MPE2, such as ``mpe/simple_spread_v3`` or ``classic/tictactoe_v3``.

    Options of the library's function follow a question mark: ``mpe/simple_spread_v3?N=5&max_cycles=50``.

    Raises:
        UserError: if a library is missing or does not take the options.
    """
    path, _, asked = name.partition("?")
    family, _, world = path.partition("/")
    options = options_in(f"pettingzoo:{name}", asked)
    for library in ("pettingzoo", _LIBRARIES[family].partition(".")[0]):
        if not _installed(library):
            raise missing_extra(library, "teams")
    try:
        make = _particles(world) if family == "mpe" else _registered(family, world)
        return worlds([make(**options) for _ in range(n)], f"pettingzoo:{name}")
    except ImportError as error:
        raise UserError(f"pettingzoo:{name} needs what is not installed: {error}") from error
    except (AssertionError, TypeError, ValueError) as error:
        raise UserError(f"pettingzoo:{name} cannot be made: {error}") from error


def _particles(world: str) -> Callable[..., Any]:
    return importlib.import_module(f"mpe2.{world}").parallel_env


def _registered(family: str, world: str) -> Callable[..., Any]:
    """What makes a world of PettingZoo's registry: all agents at once, where it can be played so."""
    import pettingzoo
    from pettingzoo.env_registry.exceptions import FailedToImport

    bare, _, version = world.rpartition("_v")
    full = f"{family}/{bare}-v{version}"
    kind = "parallel" if full in pettingzoo.parallel_registry else "aec"

    def make(**options: Any) -> Any:
        try:
            return pettingzoo.make(kind, full, **options)  # pyright: ignore
        except FailedToImport as error:
            raise UserError(f"pettingzoo:{family}/{world} needs what is not installed: {error.__cause__}") from error

    return make


def worlds(envs: list[Any], name: str) -> Many:
    """Environments with PettingZoo's interface as one of ours."""
    kind: Callable[[Given, str], Any] = InTurn if isinstance(envs[0], _bases()[0]) else Together
    return Many([kind(env, name) for env in envs])


def is_many(environment: Any) -> bool:
    """Whether a class or an object inherits from PettingZoo's; such a one has imported it."""
    bases = _bases()
    return issubclass(environment, bases) if isinstance(environment, type) else isinstance(environment, bases)


def _bases() -> tuple[type, ...]:
    module = sys.modules.get("pettingzoo")
    return (module.AECEnv, module.ParallelEnv) if module is not None else ()


def _installed(library: str) -> bool:
    return importlib.util.find_spec(library.partition(".")[0]) is not None


def _files(library: str) -> list[str]:
    """Worlds of a library, by their files."""
    top, _, below = library.partition(".")
    spec = importlib.util.find_spec(top)
    places = spec.submodule_search_locations if spec is not None else None
    return sorted(path.stem for place in places or () for path in (Path(place) / below).glob("*_v[0-9]*.py"))
