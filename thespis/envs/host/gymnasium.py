"""Vector environment of single Gymnasium environments, stepped one after another or by a few threads.

It calls ``reset`` itself where an episode ends, so the true final observation is available and there is no filler step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep, View, make_time_step, make_view
from thespis.envs.host import conversion, snapshot
from thespis.envs.host.goals import find_goal_rewards
from thespis.envs.host.observation_checks import ObservationChecks
from thespis.envs.return_bounds import declared_bounds
from thespis.envs.space_conversion import from_gymnasium


@runtime_checkable
class GymnasiumEnv(Protocol):
    """Interface that a single environment must have: Gymnasium's, inherited or not."""

    observation_space: Any
    action_space: Any

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Start an episode and return its first observation."""
        ...

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict]:
        """``observation, reward, terminated, truncated, info``."""
        ...


class GymnasiumSyncEnv:
    """Vector environment of single Gymnasium environments, a :class:`~thespis.core.contracts.HostEnvironment`.

    Action masks are read from ``info["action_mask"]`` if an environment returns one at its reset. ``num_threads``
    threads share the environments; each environment is always stepped by one thread at a time, so results do not
    depend on the number of threads.

    Raises:
        UserError: whenever an environment raises or returns what its spaces do not allow.
    """

    def __init__(self, envs: list[Any], *, name: str | None = None, num_threads: int = 1):
        first = envs[0]
        for env in envs:
            _check_env(env)
        self._envs = envs
        self._name = name or env_name(first)
        self._read = conversion.observation_reader(first.observation_space)
        self._write = conversion.action_writer(first.action_space)
        self._steps = 0
        self._options: list[dict[str, Any]] | None = None
        self._checks = ObservationChecks(first, first.observation_space, self._name)
        self._pool = ThreadPoolExecutor(min(num_threads, len(envs))) if num_threads > 1 and len(envs) > 1 else None
        _, info = self._call_env(0, "reset", lambda: _check_reset_result(first.reset(seed=0)))
        spec = getattr(first, "spec", None)
        self._spec = EnvSpec(
            self._name,
            from_gymnasium(first.observation_space),
            from_gymnasium(first.action_space),
            has_action_mask="action_mask" in info,
            time_limit=spec.max_episode_steps if spec is not None else None,
            goal_relabeler=find_goal_rewards(first, self._name),
            params=declared_params(first, self._name),
            return_bounds=declared_bounds(first, self._name),
        )
        reason = snapshot.explain_unsaved(first)
        self._warnings = [f"{self._name}: {reason}"] if reason else []

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one environment."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return len(self._envs)

    def set_params(self, params: dict[str, np.ndarray]) -> None:
        """Options of the resets from now on: ``reset(options=...)`` with the ``i``-th of each parameter."""
        self._options = split_options(params, self.num_envs)

    def reset(self, seeds: list[int]) -> TimeStep:
        """Start an episode in every environment, environment ``i`` seeded with ``seeds[i]``."""
        conversion.check_seeds(seeds, self.num_envs)
        self._steps = 0
        view = self._stack(self._map_envs(lambda i: self._reset(i, int(seeds[i]))))
        false = np.zeros(self.num_envs, bool)
        return TimeStep(view.observation, np.zeros(self.num_envs, "float32"), false, false.copy(), view.action_mask)

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """The transitions that the actions lead to, and the next view to act on; actions in the environment's units."""
        space = self._spec.action_space
        actions = conversion.check_actions(space, actions, self.num_envs)
        self._steps += 1
        self._checks.count_step()
        rows = self._map_envs(lambda i: self._step(i, conversion.select_row(space, actions, i)))
        last_views, rewards, terminated, truncated, first_views = zip(*rows, strict=True)
        view = self._stack(list(last_views))
        ended = [i for i, row in enumerate(first_views) if row is not None]
        rewards, terminated, truncated = np.array(rewards, "float32"), np.array(terminated), np.array(truncated)
        step = make_time_step(view.observation, rewards, terminated, truncated, view.action_mask)
        if not ended:
            return step, view
        return step, self._stack([new or old for old, new in zip(last_views, first_views, strict=True)])

    def get_state(self) -> dict[str, Any] | None:
        """The state of every environment as named arrays, or ``None`` if one of them cannot be saved."""
        return get_env_states(self._envs)

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the environments from the state that :meth:`get_state` returned."""
        set_env_states(self._envs, state)

    def pop_warnings(self) -> list[str]:
        """Warnings about the environments since the last call, one line each."""
        warnings, self._warnings = self._warnings, []
        return warnings + self._checks.pop_warnings()

    def close(self) -> None:
        """Close the environments and stop the threads."""
        for env in self._envs:
            env.close()
        if self._pool is not None:
            self._pool.shutdown()

    def _map_envs(self, play: Callable[[int], Any]) -> list[Any]:
        return list(self._pool.map(play, range(self.num_envs)) if self._pool else map(play, range(self.num_envs)))

    def _reset(self, i: int, seed: int | None = None) -> tuple[Any, Any]:
        def play():
            options = {} if self._options is None else {"options": self._options[i]}
            observation, info = _check_reset_result(self._envs[i].reset(seed=seed, **options))
            converted = self._read(observation), self._action_mask(info)
            if self._checks.active:
                self._checks.check(observation)
            return converted

        return self._call_env(i, "reset", play)

    def _step(self, i: int, action: Any) -> tuple[tuple[Any, Any], float, bool, bool, tuple[Any, Any] | None]:
        def play():
            observation, reward, terminated, truncated, info = _check_step_result(
                self._envs[i].step(self._write(action))
            )
            ended = bool(terminated or truncated)
            result = self._read(observation), self._action_mask(info, ended)
            if self._checks.active:
                self._checks.check(observation)
            return result, _check_reward(reward), bool(terminated), bool(truncated), ended

        *result, ended = self._call_env(i, "step", play)
        return (*result, self._reset(i) if ended else None)

    def _action_mask(self, info: dict, ended: bool = False) -> Any:
        if not self._spec.has_action_mask:
            return None
        return conversion.read_action_mask(self._spec.action_space, info.get("action_mask"), ended)

    def _stack(self, rows: list[tuple[Any, Any]]) -> View:
        observations, action_masks = zip(*rows, strict=True)
        masks = (
            conversion.stack_action_masks(self._spec.action_space, list(action_masks))
            if self._spec.has_action_mask
            else None
        )
        return make_view(conversion.stack(self._spec.observation_space, list(observations)), masks)

    def _call_env(self, i: int, what: str, play: Callable[[], Any]) -> Any:
        try:
            return play()
        except UserError as error:
            raise UserError(f"{self._name}, environment {i}, {what} {self._steps}: {error}") from error
        except Exception as error:
            raise UserError(
                f"{self._name}, environment {i}, {what} {self._steps}, raised {type(error).__name__}: {error}"
            ) from error


def get_env_states(envs: list[Any]) -> dict[str, np.ndarray] | None:
    """Return the states of several environments, under names that begin with their index."""
    states: dict[str, np.ndarray] = {}
    for i, env in enumerate(envs):
        state = snapshot.get_env_state(env)
        if state is None:
            return None
        states |= {f"{i}/{name}": value for name, value in state.items()}
    return states


def set_env_states(envs: list[Any], states: dict[str, np.ndarray]) -> None:
    """Restore environments, which may be new ones, from the states that :func:`get_env_states` returned."""
    for i, env in enumerate(envs):
        env.reset(seed=0)  # a new environment creates its generator, and satisfies its order checks, only here
        env_state = {name.partition("/")[2]: v for name, v in states.items() if name.startswith(f"{i}/")}
        snapshot.set_env_state(env, env_state)


def env_name(environment: Any) -> str:
    """Return the name of an environment in errors and records: its registered id, or ``module:Class``."""
    spec = getattr(environment, "spec", None)
    if spec is not None and isinstance(getattr(spec, "id", None), str):
        return f"gymnasium:{spec.id}"
    environment = environment.func if isinstance(environment, functools.partial) else environment
    cls = environment if isinstance(getattr(environment, "__qualname__", None), str) else type(environment)
    return f"{cls.__module__}:{cls.__qualname__}"


@runtime_checkable
class DeclaresResetOptions(Protocol):
    """A Gymnasium environment whose ``reset(options=...)`` takes numbers that a curriculum may choose."""

    reset_options: dict[str, float]
    """The defaults by name."""


def declared_params(env: Any, name: str) -> Any:
    """The declared options of ``reset``, as the parameters of an episode; ``()`` if there are none.

    Raises:
        UserError: if one of them is no number.
    """
    inner = getattr(env, "unwrapped", env)
    if not isinstance(inner, DeclaresResetOptions) or not inner.reset_options:
        return ()
    return params_from_options(inner.reset_options, name)


def split_options(params: dict[str, np.ndarray], num_envs: int) -> list[dict[str, Any]]:
    """The options of each environment's reset, from parameters with an entry for each."""
    columns = {name: np.asarray(values) for name, values in params.items()}
    return [{name: column[i].item() for name, column in columns.items()} for i in range(num_envs)]


def params_from_options(options: dict[str, float], name: str) -> dict[str, np.ndarray]:
    """Options of ``reset`` as the parameters of an episode. Raises ``UserError`` if one of them is no number."""
    params = {}
    for option, value in options.items():
        array = np.asarray(value)
        if array.shape or array.dtype.kind not in "iuf":
            raise UserError(f"{name} declares reset_options with {option}={value!r}, which is no number")
        params[option] = array.astype("int32" if array.dtype.kind in "iu" else "float32")
    return params


def _check_env(env: Any) -> None:
    from gymnasium.wrappers import Autoreset

    if not isinstance(env, GymnasiumEnv):
        missing = [m for m in ("observation_space", "action_space", "reset", "step") if not hasattr(env, m)]
        raise UserError(f"{env_name(env)} is no Gymnasium environment: it lacks {', '.join(missing)}")
    if any(isinstance(layer, Autoreset) for layer in snapshot.wrapper_chain(env)):
        raise UserError(f"{env_name(env)} hides its last observation; remove the Autoreset wrapper")


def _check_reset_result(answer: Any) -> tuple[Any, dict]:
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise UserError("reset must return (observation, info), as in Gymnasium")
    return answer


def _check_step_result(answer: Any) -> tuple[Any, Any, Any, Any, dict]:
    if not (isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], dict)):
        raise UserError("step must return (observation, reward, terminated, truncated, info), as in Gymnasium")
    return answer


def _check_reward(reward: Any) -> float:
    try:
        number = reward if isinstance(reward, float) else float(np.asarray(reward).reshape(()))
    except (TypeError, ValueError):
        raise UserError(f"the reward must be one number, not {reward!r}") from None
    if not math.isfinite(number):
        raise UserError(f"the reward is {number}")
    return number
