"""Environments by name: resolves a name, object, class or function, and makes compiled or host environments.

Names are ``thespis:maze``, ``probe:constant``, ``gymnax:Pendulum-v1``, ``pgx:tic_tac_toe``, ``gymnasium:Ant-v5``,
``envpool:Ant-v5``, ``jaxmarl:SMAX/3m``, ``pettingzoo:mpe/simple_tag_v3``, ``openspiel:leduc_poker``,
``textarena:Mastermind-v0``, ``textworld:FILE``, ``my_module:MyEnv``. A bare name means gymnax if gymnax has it,
otherwise Gymnasium, otherwise an installed package that has registered it (entry points ``thespis.envs``). Options of
the environment may follow: ``FrozenLake-v1?is_slippery=False`` (:mod:`thespis.envs.options`).

An environment may also be given as an object, or as a class or function that makes one. Heavy libraries are imported
only when one of their environments is needed.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.errors import UserError
from thespis.core.parts import ENVIRONMENT, Part, PartRegistry, load_part
from thespis.core.renames import renamed_class
from thespis.envs.host.formatters import TokenizedEnv
from thespis.envs.host.pettingzoo import is_pettingzoo_env
from thespis.envs.libraries import (
    COMPILED_LIBRARIES,
    FIXED_LIBRARIES,
    LIBRARIES,
    MULTI_AGENT_LIBRARIES,
    OWN_ENVS,
    TEXT_LIBRARIES,
    has_env,
    is_installed,
    list_envs,
    unknown_env_error,
)
from thespis.envs.options import add_options, split_options
from thespis.runs.trust import check_module, check_object
from thespis.runtime.user_modules import import_user_module

__all__ = [
    "EnvEntry",
    "fixed_num_envs",
    "import_env",
    "is_multi_agent",
    "list_envs",
    "make_compiled",
    "make_host",
    "resolve_env",
    "with_env_args",
]


REGISTRY = PartRegistry(ENVIRONMENT, {}, "thespis list envs")
"""Environments of installed distributions, by their entry points ``thespis.envs``."""


@dataclasses.dataclass(frozen=True)
class EnvEntry:
    """Registry entry: the training loop that the environment needs (compiled or host), and its full name."""

    kind: Literal["compiled", "host"]
    name: str


def resolve_env(environment: Any) -> EnvEntry:
    """Finds the entry for a name, or for an environment given as an object, a class or a function.

    Raises:
        UserError: for an unknown name (with the closest known ones), or a module that cannot be imported.
    """
    from thespis.envs.host.gymnasium import env_name

    if isinstance(environment, TokenizedEnv):
        return resolve_env(environment.env)
    if not isinstance(environment, str):
        return EnvEntry(_env_kind(environment), env_name(environment))
    library, colon, rest = environment.partition(":")
    if not colon:
        return _resolve_bare_name(environment)
    if library not in LIBRARIES:
        return EnvEntry(_env_kind(_import_env(environment)[0]), environment)
    if library == "gymnasium" and ":" in rest.partition("?")[0]:  # Gymnasium imports the module before the colon
        check_module(rest)
    if "?" in rest and library in FIXED_LIBRARIES:
        raise UserError(
            f"{environment}: environments of {library} take no options; leave out ?{rest.partition('?')[2]}"
        )
    if not has_env(library, rest):
        raise unknown_env_error(environment)
    return EnvEntry("compiled" if library in COMPILED_LIBRARIES else "host", environment)


def with_env_args(environment: Any, env_args: Mapping[str, Any] | Iterable[str] | None) -> Any:
    """The name of an environment with options in it: a mapping, or texts ``key=value``; without any, what was given.

    Raises:
        UserError: for an environment that is not given by name.
    """
    if not env_args:
        return environment
    if not isinstance(environment, str):
        raise UserError(
            "env_args are for an environment given by name; for your own, pass functools.partial(MyEnv, ...)"
        )
    return add_options(environment, env_args)


def make_compiled(environment: Any) -> Environment:
    """Makes the compiled environment of this name. An object is returned as it is; a class is called without arguments.

    Raises:
        UserError: if the name is unknown or the environment runs on the host only.
    """
    entry = resolve_env(environment)
    if entry.kind != "compiled":
        raise UserError(f"{entry.name} is not written in JAX and cannot be compiled; use the host loop")
    if not isinstance(environment, str):
        from thespis.envs.host.factory import call_factory

        return call_factory(environment) if isinstance(environment, type) else environment
    library, _, rest = entry.name.partition(":")
    if library == "gymnax":
        from thespis.envs.compiled.gymnax import Gymnax

        name, options = split_options(rest)
        return Gymnax(name, tuple(options.items()))
    if library == "pgx":
        from thespis.envs.games.factory import make_game_env

        return make_game_env(rest)
    if library == "jaxmarl":
        from thespis.envs.compiled.jaxmarl import JaxMarl

        return JaxMarl(rest)
    if library == "text":
        from thespis.envs.text.registry import make_text_env

        return make_text_env(rest)
    if library == "probe":
        from thespis.envs.probes.registry import PROBES

        return PROBES[rest].environment
    if library == "thespis":
        name, mark, options = rest.partition("?")
        return make_compiled(OWN_ENVS[name] + mark + options)
    target = import_env(entry.name)
    if not isinstance(target, functools.partial):
        return make_compiled(target)
    from thespis.envs.host.factory import call_factory

    return call_factory(target)


def make_host(environment: Any, num_envs: int, *, num_threads: int = 1, training: bool = False) -> HostEnvironment:
    """Makes a host vector environment of ``num_envs`` copies. A compiled environment is wrapped in the host contract.

    ``environment`` may be a name, a Gymnasium environment (copied if ``num_envs > 1``), a vector environment of
    ``num_envs`` sub-environments, a class or function that makes an environment, or a :class:`HostEnvironment` of
    ``num_envs``. ``num_threads`` threads step single environments (EnvPool chooses its own number unless this is more
    than one). Results do not depend on the number of threads. ``training``: with what only training changes (Atari
    games: rewards are clipped, and an episode ends with the loss of a life).

    Raises:
        UserError: if the name is unknown, the environment cannot be made, or it does not have ``num_envs`` copies.
    """
    tokenized = environment if isinstance(environment, TokenizedEnv) else TokenizedEnv(environment)
    environment, make_formatter = tokenized.env, tokenized.make_formatter
    if not isinstance(environment, type) and isinstance(environment, HostEnvironment):
        if environment.num_envs != num_envs:
            raise UserError(f"the environment has {environment.num_envs} sub-environments and the run needs {num_envs}")
        return environment
    if resolve_env(environment).kind == "compiled":
        from thespis.envs.host.wrapper import HostWrapper

        return HostWrapper(make_compiled(environment), num_envs)
    if not isinstance(environment, str):
        from thespis.envs.host.factory import wrap_env

        return wrap_env(environment, num_envs, num_threads=num_threads, make_formatter=make_formatter)
    library, _, rest = resolve_env(environment).name.partition(":")
    if library == "envpool":
        from thespis.envs.host.envpool import EnvPool

        return EnvPool(rest, num_envs, num_threads=num_threads if num_threads > 1 else 0)
    if library == "gymnasium":
        from thespis.envs.host.factory import make_gymnasium

        return make_gymnasium(rest, num_envs, num_threads=num_threads, make_formatter=make_formatter, training=training)
    if library in TEXT_LIBRARIES:
        from thespis.envs.host.factory import make_text_game

        return make_text_game(library, rest, num_envs, make_formatter)
    if library == "pettingzoo":
        from thespis.envs.host import pettingzoo

        return pettingzoo.make_env(rest, num_envs)
    if library == "openspiel":
        from thespis.envs.host import openspiel

        return openspiel.make_env(rest, num_envs)
    target = import_env(resolve_env(environment).name)
    return make_host(TokenizedEnv(target, make_formatter), num_envs, num_threads=num_threads)


def import_env(name: str) -> Any:
    """What ``module:attribute`` names; with options after a ``?``, a function that calls it with them.

    Raises:
        UserError: if it cannot be imported, or is an object, which takes no options.
    """
    target, options = _import_env(name)
    if not options:
        return target
    if not callable(target):
        base, _, text = name.partition("?")
        raise UserError(f"{base} is an object and takes no options: leave out ?{text}")
    return functools.partial(target, **options)


def fixed_num_envs(environment: Any) -> int | None:
    """The number of environments of a vector environment that was given as an object; ``None`` for all else."""
    import gymnasium

    environment = environment.env if isinstance(environment, TokenizedEnv) else environment
    is_object = not isinstance(environment, str | type)
    if is_object and isinstance(environment, HostEnvironment | gymnasium.vector.VectorEnv):
        return environment.num_envs
    return None


def is_multi_agent(environment: Any) -> bool:
    """Whether an environment has several agents.

    A host environment given as a function counts as single-agent: the function is not called to find out.
    """
    if environment is None:
        return False
    if resolve_env(environment).kind == "compiled":
        return bool(make_compiled(environment).spec.groups)
    if isinstance(environment, str):
        name = resolve_env(environment).name
        library = name.partition(":")[0]
        return library in MULTI_AGENT_LIBRARIES or (library not in LIBRARIES and is_multi_agent(_import_env(name)[0]))
    is_instance = not isinstance(environment, type) and isinstance(environment, HostEnvironment)
    return bool(environment.spec.groups) if is_instance else is_pettingzoo_env(environment)


def _env_kind(environment: Any) -> Literal["compiled", "host"]:
    import gymnasium

    from thespis.envs.host.factory import has_members

    if is_pettingzoo_env(environment):
        return "host"
    gym = gymnasium.Env | gymnasium.vector.VectorEnv  # these have a ``spec`` of another kind
    if isinstance(environment, type):
        if issubclass(environment, gym) or has_members(environment, "get_state", "set_state"):
            return "host"
        return "compiled" if has_members(environment, "spec", "reset", "step") else "host"
    if isinstance(environment, gym | HostEnvironment):
        return "host"
    return "compiled" if isinstance(environment, Environment) else "host"


def _resolve_bare_name(name: str) -> EnvEntry:
    part = REGISTRY.find(name.partition("?")[0])
    if is_installed("gymnax") and has_env("gymnax", name):
        _require_free(part, "gymnax")
        return EnvEntry("compiled", f"gymnax:{name}")
    if has_env("gymnasium", name):
        _require_free(part, "gymnasium")
        return EnvEntry("host", f"gymnasium:{name}")
    if part is None:
        raise unknown_env_error(name)
    options = name[len(part.name) :]
    return EnvEntry(_env_kind(load_part(part)), f"{part.path}{options}")


def _require_free(part: Part | None, library: str) -> None:
    """Raise :class:`UserError` if an installed distribution has registered a name that a library has too."""
    if part is not None:
        raise UserError(
            f"environment {part.name!r} is claimed by {library} and {part.package} ({part.path}): write "
            f"{library}:{part.name} or {part.path}"
        )


def named_object(name: str) -> Any:
    """The object that ``module:attribute`` names; ``None`` for the name of a library's environment.

    Raises:
        UserError: for a module that cannot be imported, or one without the attribute.
    """
    library, colon, _ = name.partition(":")
    return None if library in LIBRARIES or not colon else _import_env(name)[0]


def _import_env(name: str) -> tuple[Any, dict[str, Any]]:
    """The object that ``module:attribute?key=value`` names, and its options."""
    path, options = split_options(name)
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise unknown_env_error(path)
    check_module(path)
    try:
        target: Any = import_user_module(module)
    except ModuleNotFoundError as error:
        if error.name and not f"{module}.".startswith(f"{error.name}."):
            raise UserError(f"{module} cannot be imported: {error}") from error
        raise UserError(
            f"unknown environment {path!r}: there is no module {module!r}; "
            f"use {', '.join(f'{library}:' for library in LIBRARIES)} or module:Class"
        ) from error
    try:
        for part in attribute.split("."):
            target = getattr(target, part)
            check_object(path, target)
    except AttributeError:
        renamed = renamed_class(path)
        if renamed is not None and renamed.name not in (None, path):
            return _import_env(renamed.name)[0], options
        matches = difflib.get_close_matches(attribute, dir(target), 3, 0.5)
        raise UserError(
            f"module {module!r} has no {attribute!r}{'; nearest: ' + ', '.join(matches) if matches else ''}"
        ) from None
    return target, options
