"""Single Gymnasium environments, stepped one after another or by a few threads.

We call ``reset`` ourselves where an episode ends, so the true final observation is at hand and no filler
step exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep, View, time_step, view
from thespis.envs.host import snapshot, values
from thespis.envs.spaces import from_gymnasium


@runtime_checkable
class World(Protocol):
    """What we ask of a single environment: Gymnasium's interface, inherited or not."""

    observation_space: Any
    action_space: Any

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Start an episode."""
        ...

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict]:
        """``observation, reward, terminated, truncated, info``."""
        ...


class Gymnasium:
    """Single environments as one :class:`~thespis.core.contracts.HostEnvironment`.

    Legal masks are read from ``info["action_mask"]`` if an environment gives one at its reset. ``threads``
    threads share the environments; each is always stepped by one thread at a time, so results do not depend
    on their number.

    Raises:
        UserError: whenever an environment raises or answers what its spaces do not allow.
    """

    def __init__(self, envs: list[Any], *, name: str | None = None, threads: int = 1):
        first = envs[0]
        for env in envs:
            _check(env)
        self._envs = envs
        self._name = name or name_of(first)
        self._read = values.observation_reader(first.observation_space)
        self._write = values.action_writer(first.action_space)
        self._steps = 0
        self._pool = ThreadPoolExecutor(min(threads, len(envs))) if threads > 1 and len(envs) > 1 else None
        _, info = self._call(0, "reset", lambda: _pair(first.reset(seed=0)))
        spec = getattr(first, "spec", None)
        self._spec = EnvSpec(
            self._name,
            from_gymnasium(first.observation_space),
            from_gymnasium(first.action_space),
            legal="action_mask" in info,
            time_limit=spec.max_episode_steps if spec is not None else None,
        )

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one world."""
        return self._spec

    @property
    def n(self) -> int:
        """How many worlds there are."""
        return len(self._envs)

    def start(self, seeds: list[int]) -> TimeStep:
        """Begin a fresh episode in every world, world ``i`` seeded with ``seeds[i]``."""
        if len(seeds) != self.n:
            raise UserError(f"{self.n} worlds need {self.n} seeds, not {len(seeds)}")
        self._steps = 0
        began = self._stack(self._each(lambda i: self._reset(i, int(seeds[i]))))
        no = np.zeros(self.n, bool)
        return TimeStep(began.observation, np.zeros(self.n, "float32"), no, no.copy(), began.legal)

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """What the actions led to, and the view to act on next; actions in the world's units."""
        space = self._spec.action
        actions = values.check_actions(space, actions, self.n)
        self._steps += 1
        rows = self._each(lambda i: self._step(i, values.row(space, actions, i)))
        led, rewards, terminated, truncated, fresh = zip(*rows, strict=True)
        after = self._stack(list(led))
        ended = [i for i, row in enumerate(fresh) if row is not None]
        rewards, terminated, truncated = np.array(rewards, "float32"), np.array(terminated), np.array(truncated)
        step = time_step(after.observation, rewards, terminated, truncated, after.legal)
        if not ended:
            return step, after
        return step, self._stack([new or old for old, new in zip(led, fresh, strict=True)])

    def save(self) -> dict[str, Any] | None:
        """The state of every world as named arrays, or ``None`` if they are not of a kind we know."""
        return save_all(self._envs)

    def load(self, saved: dict[str, Any]) -> None:
        """Put the worlds back to where :meth:`save` found them."""
        load_all(self._envs, saved)

    def close(self) -> None:
        """Close the environments and end the threads."""
        for env in self._envs:
            env.close()
        if self._pool is not None:
            self._pool.shutdown()

    def _each(self, play: Callable[[int], Any]) -> list[Any]:
        return list(self._pool.map(play, range(self.n)) if self._pool else map(play, range(self.n)))

    def _reset(self, i: int, seed: int | None = None) -> tuple[Any, Any]:
        def play():
            observation, info = _pair(self._envs[i].reset(seed=seed))
            return self._read(observation), self._legal(info)

        return self._call(i, "reset", play)

    def _step(self, i: int, action: Any) -> tuple[tuple[Any, Any], float, bool, bool, tuple[Any, Any] | None]:
        def play():
            observation, reward, terminated, truncated, info = _five(self._envs[i].step(self._write(action)))
            ended = bool(terminated or truncated)
            led = self._read(observation), self._legal(info, ended)
            return led, _number(reward), bool(terminated), bool(truncated), ended

        *led, ended = self._call(i, "step", play)
        return (*led, self._reset(i) if ended else None)

    def _legal(self, info: dict, ended: bool = False) -> Any:
        if not self._spec.legal:
            return None
        return values.read_legal(self._spec.action, info.get("action_mask"), ended)

    def _stack(self, rows: list[tuple[Any, Any]]) -> View:
        observations, legal = zip(*rows, strict=True)
        masks = values.stack_legal(self._spec.action, list(legal)) if self._spec.legal else None
        return view(values.stack(self._spec.observation, list(observations)), masks)

    def _call(self, i: int, what: str, play: Callable[[], Any]) -> Any:
        try:
            return play()
        except UserError as error:
            raise UserError(f"{self._name}, environment {i}, {what} {self._steps}: {error}") from error
        except Exception as error:
            raise UserError(
                f"{self._name}, environment {i}, {what} {self._steps}, raised {type(error).__name__}: {error}"
            ) from error


def save_all(envs: list[Any]) -> dict[str, np.ndarray] | None:
    """The states of several environments under names that begin with their index."""
    saved: dict[str, np.ndarray] = {}
    for i, env in enumerate(envs):
        one = snapshot.save(env)
        if one is None:
            return None
        saved |= {f"{i}/{name}": value for name, value in one.items()}
    return saved


def load_all(envs: list[Any], saved: dict[str, np.ndarray]) -> None:
    """Put environments back to the states from :func:`save_all`; they may be fresh ones."""
    for i, env in enumerate(envs):
        env.reset(seed=0)  # a fresh environment makes its generator and its order checks ready only here
        own = {name.partition("/")[2]: v for name, v in saved.items() if name.startswith(f"{i}/")}
        snapshot.load(env, own)


def name_of(environment: Any) -> str:
    """How an environment is called in errors and records: its registered id, or ``module:Class``."""
    spec = getattr(environment, "spec", None)
    if spec is not None and isinstance(getattr(spec, "id", None), str):
        return f"gymnasium:{spec.id}"
    named = environment if isinstance(getattr(environment, "__qualname__", None), str) else type(environment)
    return f"{named.__module__}:{named.__qualname__}"


def _check(env: Any) -> None:
    from gymnasium.wrappers import Autoreset

    if not isinstance(env, World):
        missing = [m for m in ("observation_space", "action_space", "reset", "step") if not hasattr(env, m)]
        raise UserError(f"{name_of(env)} is no Gymnasium environment: it lacks {', '.join(missing)}")
    if any(isinstance(layer, Autoreset) for layer in snapshot.layers(env)):
        raise UserError(f"{name_of(env)} hides its last observation; remove the Autoreset wrapper")


def _pair(answer: Any) -> tuple[Any, dict]:
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise UserError("reset must return (observation, info), as in Gymnasium")
    return answer


def _five(answer: Any) -> tuple[Any, Any, Any, Any, dict]:
    if not (isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], dict)):
        raise UserError("step must return (observation, reward, terminated, truncated, info), as in Gymnasium")
    return answer


def _number(reward: Any) -> float:
    try:
        number = reward if isinstance(reward, float) else float(np.asarray(reward).reshape(()))
    except (TypeError, ValueError):
        raise UserError(f"the reward must be one number, not {reward!r}") from None
    if not math.isfinite(number):
        raise UserError(f"the reward is {number}")
    return number
