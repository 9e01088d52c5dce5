"""EnvPool (https://github.com/sail-sg/envpool), synchronous, through its Gymnasium interface.

EnvPool resets an environment at the step after its end and returns a filler row for that step. Ended environments are
reset at once by a partial reset here instead, so that the row never happens.

EnvPool's flag for truncation is also set for an environment that terminates in the very last step allowed: such an
episode counts as truncated here.
"""

from __future__ import annotations

import contextlib
import difflib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.envs.host import conversion
from thespis.envs.options import split_options
from thespis.envs.space_conversion import from_gymnasium

ENV_NAMES = (
    "CartPole-v1",
    "Pendulum-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Acrobot-v1",
    "Ant-v5",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Humanoid-v5",
    "HumanoidStandup-v5",
    "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5",
    "Pusher-v5",
    "Reacher-v5",
    "Swimmer-v5",
    "Walker2d-v5",
)
"""Classic control and MuJoCo, listed without importing EnvPool (which takes two seconds)."""


class EnvPool:
    """Vector environment of EnvPool: ``num_envs`` copies of its environment ``name``, which may have options.

    It is a :class:`~thespis.core.contracts.HostEnvironment`. EnvPool takes seeds only when it creates its environments,
    so :meth:`reset` creates them. ``num_threads`` is the number of EnvPool's own threads (0: its default); results do
    not depend on it.

    Raises:
        UserError: if EnvPool is missing, does not know ``name``, or the environment is for several players.
    """

    def __init__(self, name: str, num_envs: int, *, num_threads: int = 0):
        full_name = name
        name, self._options = split_options(name)
        self._name, self._num_envs, self._threads = name, num_envs, num_threads
        self._pool: Any = None
        spec = _load_spec(name, self._options)
        if spec.config.max_num_players != 1:
            raise UserError(f"envpool:{name} is for several players, which is not supported")
        with _suppress_warnings():
            observation, action = spec.gymnasium_observation_space, spec.gymnasium_action_space
        self._read = conversion.observation_reader(observation, (num_envs,))
        self._write = conversion.action_writer(action, (num_envs,))
        limit = spec.config.max_episode_steps
        self._spec = EnvSpec(
            f"envpool:{full_name}",
            from_gymnasium(observation),
            from_gymnasium(action),
            time_limit=limit if 0 < limit < 2**31 - 1 else None,
        )
        self._observation = observation

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one environment."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return self._num_envs

    def reset(self, seeds: list[int]) -> TimeStep:
        """Create the environments anew, environment ``i`` with ``seeds[i]``, and start an episode in each."""
        import envpool

        conversion.check_seeds(seeds, self._num_envs)
        self.close()
        with _suppress_warnings():
            self._pool = envpool.make_gymnasium(
                self._name,
                num_envs=self._num_envs,
                seed=[int(seed) for seed in seeds],
                num_threads=self._threads,
                **self._options,
            )
            observation, info = self._pool.reset()
        false = np.zeros(self._num_envs, bool)
        return TimeStep(
            self._read(_sort_by_env_id(observation, info)), np.zeros(self._num_envs, "float32"), false, false.copy()
        )

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """The transitions that the actions lead to, and the next view to act on; actions in the environment's units."""
        actions = conversion.check_actions(self._spec.action_space, actions, self._num_envs)
        observation, *rest, info = self._pool.step(self._write(actions))
        rewards, terminated, truncated = (_sort_by_env_id(value, info) for value in rest)
        observation = self._read(_sort_by_env_id(observation, info))
        step = TimeStep(observation, rewards.astype("float32"), terminated.astype(bool), truncated.astype(bool))
        ended = np.flatnonzero(np.logical_or(terminated, truncated))
        if not len(ended):
            return step, step.view
        fresh, info = self._pool.reset(ended.astype("int32"))
        read = conversion.observation_reader(self._observation, (len(ended),))
        rows = read(_sort_by_env_id(fresh, info))
        return step, View(conversion.replace_rows(self._spec.observation_space, observation, ended, rows))

    def get_state(self) -> None:
        """``None``: EnvPool cannot save the state of its environments."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Not supported; raises ``UserError``."""
        raise UserError("EnvPool's environments cannot be restored to an earlier state")

    def close(self) -> None:
        """Release EnvPool's threads and environments."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _load_spec(name: str, options: dict[str, Any]) -> Any:
    try:
        import envpool
    except ImportError as error:
        raise missing_extra("envpool", "control") from error
    names = envpool.list_all_envs()
    if name not in names:
        similar = difflib.get_close_matches(name, names, 3, 0.5)
        hint = f"; nearest: {', '.join(similar)}" if similar else ""
        raise UserError(f"EnvPool has no environment named {name!r}{hint}")
    with _suppress_warnings():
        try:
            return envpool.make_spec(name, **options)
        except (AssertionError, TypeError, ValueError) as error:
            raise UserError(f"envpool:{name} cannot be made with {options}: {error}") from error


def _sort_by_env_id(value: Any, info: dict) -> Any:
    """Sort rows by the index of their environment (EnvPool reports which row belongs to which)."""
    if isinstance(value, dict):
        return {name: _sort_by_env_id(part, info) for name, part in value.items()}
    env_ids = info["env_id"]
    return value if (env_ids[1:] > env_ids[:-1]).all() else value[np.argsort(env_ids, kind="stable")]


@contextlib.contextmanager
def _suppress_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting.*")
        yield
