"""Construction of host environments from a registered name, an object, a class or a function."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.errors import UserError, missing_extra
from thespis.envs.host import atari, pettingzoo, snapshot
from thespis.envs.host.formatters import FormatterFactory
from thespis.envs.host.gymnasium import GymnasiumEnv, GymnasiumSyncEnv, env_name
from thespis.envs.host.pettingzoo import is_pettingzoo_env
from thespis.envs.host.state_encoding import StateMixin
from thespis.envs.host.text_env import GymnasiumTextEnv, StringEnv, StringVectorEnv, has_text_spaces
from thespis.envs.libraries import is_installed
from thespis.envs.options import split_options


def make_gymnasium(
    name: str,
    num_envs: int,
    *,
    num_threads: int = 1,
    make_formatter: FormatterFactory = None,
    training: bool = False,
) -> HostEnvironment:
    """Make ``num_envs`` environments registered with Gymnasium as ``name``, options after a ``?`` included.

    For text spaces ``make_formatter`` is used. Atari games are preprocessed
    (:class:`~thespis.envs.host.atari.AtariEnv`), unless the option ``preprocess`` is false.
    """
    if is_preprocessed(name):
        return atari.AtariEnv(*split_options(name), num_envs, num_threads=num_threads, training=training)
    with suppress_mujoco_warnings(name.partition("?")[0]):
        envs = [make_registered(name) for _ in range(num_envs)]
    if has_text_spaces(envs[0]):
        unused = iter(envs)

        def make_text_env() -> GymnasiumTextEnv:
            return GymnasiumTextEnv(next(unused, None) or make_registered(name))

        return StringVectorEnv(make_text_env, num_envs, f"gymnasium:{name}", make_formatter=make_formatter)
    return GymnasiumSyncEnv(envs, name=f"gymnasium:{name}", num_threads=num_threads)


def is_preprocessed(name: str) -> bool:
    """Whether Gymnasium's environment of this name is an Atari game that is preprocessed: without ``preprocess=False``.

    Such a game is a vector environment; others are made one by one.
    """
    base, options = split_options(name)
    return atari.is_atari(base) and bool(options.get("preprocess", True))


def make_registered(name: str, **more: Any) -> Any:
    """One environment registered with Gymnasium as ``name``, with the options in the name and ``more`` of them.

    Raises :class:`UserError` if it cannot be made.
    """
    import gymnasium

    base, options = split_options(name)
    if atari.is_atari(base):
        options.pop("preprocess", None)
    if base.startswith("gymnasium_robotics:") and not is_installed("gymnasium_robotics"):
        raise missing_extra("gymnasium-robotics", "robotics")
    try:
        return gymnasium.make(base, disable_env_checker=True, **options, **more)  # its checker only warns; ours raises
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"gymnasium:{name} cannot be made: {error}") from error
    except Exception as error:
        if not options:
            raise
        raise UserError(f"gymnasium:{base} cannot be made with {options}: {error}") from error


def make_text_game(library: str, name: str, num_envs: int, make_formatter: FormatterFactory) -> HostEnvironment:
    """Make ``num_envs`` environments of a library of text games.

    Raises :class:`UserError` if the library is not installed or has no such game.
    """
    if library == "textarena":
        from thespis.envs.host.textarena import TextArenaGame as kind
    else:
        from thespis.envs.host.textworld import TextWorldGame as kind
    return StringVectorEnv(lambda: kind(name), num_envs, f"{library}:{name}", make_formatter=make_formatter)


def wrap_env(
    environment: Any, num_envs: int, *, num_threads: int = 1, make_formatter: FormatterFactory = None
) -> HostEnvironment:
    """Make ``num_envs`` environments from an object, or from a class or function that makes one.

    A single environment is copied as often as needed; a vector environment must have ``num_envs`` environments and is
    not closed; a class with the interface of :class:`HostEnvironment` is called with ``num_envs``, and so is a function
    or class with an argument of this name, which makes a vector environment. ``make_formatter`` is used for
    environments that speak in strings.
    """
    import gymnasium

    if isinstance(environment, type) or _is_factory(environment):
        return _wrap_factory(environment, num_envs, num_threads, make_formatter)
    if isinstance(environment, gymnasium.vector.VectorEnv):
        from thespis.envs.host.vector import GymnasiumVectorEnv

        if environment.num_envs != num_envs:
            raise UserError(
                f"the vector environment has {environment.num_envs} sub-environments and the run needs {num_envs}"
            )
        return GymnasiumVectorEnv(environment, closes=False)
    try:
        copies = [copy.deepcopy(environment) for _ in range(num_envs - 1)]
    except Exception as error:
        raise UserError(
            f"{env_name(environment)} cannot be copied for {num_envs} environments: "
            f"pass its class or a function ({error})"
        ) from error
    envs = [environment, *copies]
    if isinstance(environment, StringEnv) and not isinstance(environment, GymnasiumEnv):
        return StringVectorEnv(
            lambda: copy.deepcopy(environment), num_envs, env_name(environment), make_formatter=make_formatter
        )
    if has_text_spaces(environment):
        return StringVectorEnv(
            lambda: GymnasiumTextEnv(copy.deepcopy(environment)),
            num_envs,
            env_name(environment),
            make_formatter=make_formatter,
        )
    return (
        pettingzoo.wrap_envs(envs, env_name(environment))
        if is_pettingzoo_env(environment)
        else GymnasiumSyncEnv(envs, num_threads=num_threads)
    )


def has_members(cls: type, *members: str) -> bool:
    """Whether a class has these members (``issubclass`` does not work for protocols with properties)."""
    return all(hasattr(cls, member) for member in members)


def call_factory(factory: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``factory`` and return its result; its errors become one :class:`UserError`."""
    try:
        return factory(*arguments)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{env_name(factory)} could not make an environment: {type(error).__name__}: {error}"
        ) from error


def _is_factory(environment: Any) -> bool:
    import gymnasium

    return callable(environment) and not isinstance(environment, GymnasiumEnv | gymnasium.vector.VectorEnv)


def _is_vector_class(cls: type) -> bool:
    """Whether a class has the interface of :class:`HostEnvironment`, not that of a single environment with state."""
    import gymnasium

    single = issubclass(cls, gymnasium.Env | StateMixin) or hasattr(cls, "observation_space") or is_pettingzoo_env(cls)
    return has_members(cls, "reset", "step", "get_state", "set_state") and not single


def _own_vector_env(make: Callable[..., Any], environment: Any, n: int) -> HostEnvironment:
    """A vector environment that ``make`` has made, of ``n`` environments."""
    import gymnasium

    from thespis.envs.host.vector import GymnasiumVectorEnv

    if not isinstance(environment, HostEnvironment | gymnasium.vector.VectorEnv):
        raise UserError(f"{env_name(make)} takes num_envs and made {environment!r}, which is no vector environment")
    if environment.num_envs != n:
        raise UserError(f"{env_name(make)} was asked for {n} environments and made {environment.num_envs}")
    return GymnasiumVectorEnv(environment) if isinstance(environment, gymnasium.vector.VectorEnv) else environment


def _takes_num_envs(make: Callable[..., Any]) -> bool:
    """Whether a function or class makes a vector environment of as many environments as it is told."""
    try:
        return "num_envs" in inspect.signature(make).parameters
    except (TypeError, ValueError):  # built in: its arguments are not known
        return False


def _wrap_factory(make: Callable[..., Any], n: int, threads: int, script: FormatterFactory) -> HostEnvironment:
    import gymnasium

    made_by = make.func if isinstance(make, functools.partial) else make
    if isinstance(made_by, type) and _is_vector_class(made_by):
        return call_factory(make, n)
    if _takes_num_envs(make):
        return _own_vector_env(make, call_factory(functools.partial(make, num_envs=n)), n)
    first = call_factory(make)
    if isinstance(first, StringEnv) and not isinstance(first, GymnasiumEnv):
        return StringVectorEnv(lambda: call_factory(make), n, env_name(make), make_formatter=script)
    if has_text_spaces(first):
        return StringVectorEnv(lambda: GymnasiumTextEnv(call_factory(make)), n, env_name(make), make_formatter=script)
    if is_pettingzoo_env(first):
        return pettingzoo.wrap_envs([first, *(call_factory(make) for _ in range(n - 1))], env_name(make))
    if isinstance(first, GymnasiumEnv) and not isinstance(first, gymnasium.vector.VectorEnv):
        return GymnasiumSyncEnv([first, *(call_factory(make) for _ in range(n - 1))], num_threads=threads)
    if not isinstance(first, gymnasium.Env | GymnasiumEnv | HostEnvironment) and isinstance(first, Environment):
        from thespis.envs.host.wrapper import HostWrapper

        return HostWrapper(first, n)
    if _is_factory(first):
        raise UserError(f"{env_name(make)} made {first!r}, which is no environment")
    return wrap_env(first, n, num_threads=threads, make_formatter=script)


@contextlib.contextmanager
def suppress_mujoco_warnings(name: str) -> Iterator[None]:
    """Silence MuJoCo's warnings about Gymnasium's model files, which it would also write into the user's folder."""
    import gymnasium

    spec = gymnasium.registry.get(name)
    if spec is None or "mujoco" not in str(spec.entry_point):
        yield
        return
    try:
        mujoco = snapshot.import_mujoco()
    except ImportError as error:
        raise missing_extra("mujoco", "control") from error
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(handler)
