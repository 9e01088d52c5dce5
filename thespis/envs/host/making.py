"""Host worlds from a registered name, an object, a class or a function."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.errors import UserError, missing_extra
from thespis.envs.host import pettingzoo, snapshot
from thespis.envs.host.gymnasium import Gymnasium, World, name_of
from thespis.envs.host.pettingzoo import is_many
from thespis.envs.host.scripts import Other
from thespis.envs.host.text_spaces import Strings, of_strings
from thespis.envs.host.texts import Texts, TextWorld


def named(name: str, n: int, *, threads: int = 1, script: Other = None) -> HostEnvironment:
    """``n`` environments registered with Gymnasium as ``name``; ``script``: of one of strings."""
    import gymnasium

    try:
        with quiet_mujoco(name):  # Gymnasium's checker only warns; ours raises
            envs = [gymnasium.make(name, disable_env_checker=True) for _ in range(n)]
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"gymnasium:{name} cannot be made: {error}") from error
    if of_strings(envs[0]):
        made_already = iter(envs)

        def strings() -> Strings:
            return Strings(next(made_already, None) or gymnasium.make(name, disable_env_checker=True))

        return Texts(strings, n, f"gymnasium:{name}", script=script)
    return Gymnasium(envs, name=f"gymnasium:{name}", threads=threads)


def talking(library: str, name: str, n: int, script: Other) -> HostEnvironment:
    """``n`` worlds of a library of text games. Raises :class:`UserError` if it is not installed or has no such game."""
    if library == "textarena":
        from thespis.envs.host.text_arena import TextArena as kind
    else:
        from thespis.envs.host.text_world import TextWorld as kind
    return Texts(lambda: kind(name), n, f"{library}:{name}", script=script)


def wrap(environment: Any, n: int, *, threads: int = 1, script: Other = None) -> HostEnvironment:
    """``n`` worlds from an object, or from a class or function that makes one; ``script``: of one of strings.

    An environment is copied for more than one world; a vector environment must have ``n`` worlds; a class of
    our own contract is called with ``n``.
    """
    import gymnasium

    if isinstance(environment, type) or _is_function(environment):
        return _from_factory(environment, n, threads, script)
    if isinstance(environment, gymnasium.vector.VectorEnv):
        from thespis.envs.host.vector import Vector

        if environment.num_envs != n:
            raise UserError(f"the vector environment has {environment.num_envs} worlds and the run needs {n}")
        return Vector(environment)
    try:
        copies = [copy.deepcopy(environment) for _ in range(n - 1)]
    except Exception as error:
        raise UserError(
            f"{name_of(environment)} cannot be copied for {n} worlds; give its class or a function ({error})"
        ) from error
    envs = [environment, *copies]
    if isinstance(environment, TextWorld) and not isinstance(environment, World):
        return Texts(lambda: copy.deepcopy(environment), n, name_of(environment), script=script)
    if of_strings(environment):
        return Texts(lambda: Strings(copy.deepcopy(environment)), n, name_of(environment), script=script)
    return pettingzoo.worlds(envs, name_of(environment)) if is_many(environment) else Gymnasium(envs, threads=threads)


def declares(cls: type, *members: str) -> bool:
    """Whether a class has these members: protocols with properties cannot be asked by ``issubclass``."""
    return all(hasattr(cls, member) for member in members)


def made(make: Callable[..., Any], *arguments: Any) -> Any:
    """What ``make`` returns; its errors become one :class:`UserError`."""
    try:
        return make(*arguments)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name_of(make)} could not make an environment: {type(error).__name__}: {error}") from error


def _is_function(environment: Any) -> bool:
    import gymnasium

    return callable(environment) and not isinstance(environment, World | gymnasium.vector.VectorEnv)


def _from_factory(make: Callable[..., Any], n: int, threads: int, script: Other) -> HostEnvironment:
    import gymnasium

    if isinstance(make, type) and declares(make, "start", "step", "save", "load"):
        return made(make, n)
    first = made(make)
    if isinstance(first, TextWorld) and not isinstance(first, World):
        return Texts(lambda: made(make), n, name_of(make), script=script)
    if of_strings(first):
        return Texts(lambda: Strings(made(make)), n, name_of(make), script=script)
    if is_many(first):
        return pettingzoo.worlds([first, *(made(make) for _ in range(n - 1))], name_of(make))
    if isinstance(first, World) and not isinstance(first, gymnasium.vector.VectorEnv):
        return Gymnasium([first, *(made(make) for _ in range(n - 1))], threads=threads)
    if not isinstance(first, gymnasium.Env | World | HostEnvironment) and isinstance(first, Environment):
        from thespis.envs.host.compiled import AsHost

        return AsHost(first, n)
    if _is_function(first):
        raise UserError(f"{name_of(make)} made {first!r}, which is no environment")
    return wrap(first, n, threads=threads, script=script)


@contextlib.contextmanager
def quiet_mujoco(name: str) -> Iterator[None]:
    """No remarks of MuJoCo on Gymnasium's model files, which it would also write into the user's folder."""
    import gymnasium

    spec = gymnasium.registry.get(name)
    if spec is None or "mujoco" not in str(spec.entry_point):
        yield
        return
    try:
        mujoco = snapshot.mujoco()
    except ImportError as error:
        raise missing_extra("mujoco", "control") from error
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
