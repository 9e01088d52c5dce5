"""What the user has named or given: a single environment, a compiled world, or worlds side by side."""

from __future__ import annotations

import dataclasses
import pkgutil
from typing import Any

from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.records import EnvSpec
from thespis.envs import registry
from thespis.envs.host.gymnasium import World
from thespis.envs.host.making import declares, made, quiet_mujoco
from thespis.envs.libraries import TALKING

_ROWS = 8  # worlds side by side, where their number is ours to choose


@dataclasses.dataclass(frozen=True)
class Found:
    """The world under test: ``single`` for a Gymnasium environment, ``compiled`` for one in JAX, else neither.

    ``source`` is what the registry makes host worlds from; ``given`` says that the user's own object is used,
    which is not ours to close.
    """

    name: str
    kind: str
    source: Any
    given: bool
    single: Any = None
    compiled: Environment | None = None

    def worlds(self) -> HostEnvironment:
        """The world behind our host contract."""
        return registry.host(self.source, self._rows)

    @property
    def _rows(self) -> int:
        if isinstance(self.source, HostEnvironment):
            return self.source.n
        if self.single is not None:
            return 1 if self.given else 2
        return getattr(self.source, "num_envs", _ROWS)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits behind our adapter."""
        if self.compiled is not None:
            return self.compiled.spec
        worlds = self.worlds()
        try:
            return worlds.spec
        finally:
            if not self.given:
                worlds.close()


def find(env: Any) -> Found:
    """Resolve a name, an object, a class or a function. Raises ``UserError`` as the registry does."""
    entry = registry.resolve(env)
    if entry.kind == "compiled":
        return Found(entry.name, "compiled", env, not isinstance(env, str | type), compiled=registry.compiled(env))
    if not isinstance(env, str):
        return _of_object(entry.name, env)
    library, _, rest = entry.name.partition(":")
    if library in ("envpool", *TALKING):
        return Found(entry.name, "worlds side by side", env, False)
    if library == "gymnasium":
        return Found(entry.name, "Gymnasium", env, False, single=_registered(rest))
    return _of_object(entry.name, pkgutil.resolve_name(entry.name))


def _registered(name: str) -> Any:
    import gymnasium

    registry.host(f"gymnasium:{name}", 1).close()  # its errors are better than Gymnasium's
    with quiet_mujoco(name):
        return gymnasium.make(name, disable_env_checker=True)


def _of_object(name: str, env: Any) -> Found:
    import gymnasium

    if isinstance(env, type) and declares(env, "start", "step", "save", "load"):
        return Found(name, "worlds side by side", env, False)
    is_world = isinstance(env, World | gymnasium.vector.VectorEnv | HostEnvironment)
    if isinstance(env, type) or (callable(env) and not is_world):
        return _of_made(name, env, made(env), given=False)
    return _of_made(name, env, env, given=True)


def _of_made(name: str, source: Any, env: Any, *, given: bool) -> Found:
    import gymnasium

    if isinstance(env, HostEnvironment | gymnasium.vector.VectorEnv):
        return Found(name, "worlds side by side", env, True)
    if not isinstance(env, gymnasium.Env) and isinstance(env, Environment):
        return Found(name, "compiled", env, True, compiled=env)
    return Found(name, "Gymnasium", source, given, single=env)
