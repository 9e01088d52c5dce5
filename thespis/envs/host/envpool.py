"""EnvPool (https://github.com/sail-sg/envpool), synchronous, through its Gymnasium interface.

EnvPool restarts a world at the step after its end and answers that step with a filler row. We restart ended
worlds at once by a partial reset instead, so that the row never happens.

Its one flag for an end by time is also raised for a world that ends naturally in the very last step allowed:
such an episode counts as truncated here.
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
from thespis.envs.host import values
from thespis.envs.spaces import from_gymnasium

NAMES = (
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
"""Classic control and MuJoCo, known without importing EnvPool (which takes two seconds)."""


class EnvPool:
    """``n`` worlds of EnvPool's ``name`` as a :class:`~thespis.core.contracts.HostEnvironment`.

    EnvPool takes seeds only when it makes its worlds, so :meth:`start` makes them. ``threads`` is the number
    of EnvPool's own threads (0: as many as it sees fit); results do not depend on it.

    Raises:
        UserError: if EnvPool is missing, does not know ``name``, or the world is for several players.
    """

    def __init__(self, name: str, n: int, *, threads: int = 0):
        self._name, self._n, self._threads = name, n, threads
        self._pool: Any = None
        made = _spec(name)
        if made.config.max_num_players != 1:
            raise UserError(f"envpool:{name} is for several players, which is not supported")
        with _quiet():
            observation, action = made.gymnasium_observation_space, made.gymnasium_action_space
        self._read = values.observation_reader(observation, (n,))
        self._write = values.action_writer(action, (n,))
        limit = made.config.max_episode_steps
        self._spec = EnvSpec(
            f"envpool:{name}",
            from_gymnasium(observation),
            from_gymnasium(action),
            time_limit=limit if 0 < limit < 2**31 - 1 else None,
        )
        self._observation = observation

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one world."""
        return self._spec

    @property
    def n(self) -> int:
        """How many worlds there are."""
        return self._n

    def start(self, seeds: list[int]) -> TimeStep:
        """Make the worlds anew, world ``i`` with ``seeds[i]``, and begin an episode in each."""
        import envpool

        if len(seeds) != self._n:
            raise UserError(f"{self._n} worlds need {self._n} seeds, not {len(seeds)}")
        self.close()
        with _quiet():
            self._pool = envpool.make_gymnasium(
                self._name, num_envs=self._n, seed=[int(seed) for seed in seeds], num_threads=self._threads
            )
            observation, info = self._pool.reset()
        no = np.zeros(self._n, bool)
        return TimeStep(self._read(_ordered(observation, info)), np.zeros(self._n, "float32"), no, no.copy())

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """What the actions led to, and the view to act on next; actions in the world's units."""
        actions = values.check_actions(self._spec.action, actions, self._n)
        observation, *rest, info = self._pool.step(self._write(actions))
        rewards, terminated, truncated = (_ordered(value, info) for value in rest)
        observation = self._read(_ordered(observation, info))
        step = TimeStep(observation, rewards.astype("float32"), terminated.astype(bool), truncated.astype(bool))
        ended = np.flatnonzero(np.logical_or(terminated, truncated))
        if not len(ended):
            return step, step.view
        fresh, info = self._pool.reset(ended.astype("int32"))
        read = values.observation_reader(self._observation, (len(ended),))
        rows = read(_ordered(fresh, info))
        return step, View(values.replace_rows(self._spec.observation, observation, ended, rows))

    def save(self) -> None:
        """``None``: EnvPool does not tell the state of its worlds."""

    def load(self, saved: dict[str, Any]) -> None:
        """Not possible; raises ``UserError``."""
        raise UserError("EnvPool's worlds cannot be put back to an earlier state")

    def close(self) -> None:
        """Release EnvPool's threads and worlds."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _spec(name: str) -> Any:
    try:
        import envpool
    except ImportError as error:
        raise missing_extra("envpool", "control") from error
    known = envpool.list_all_envs()
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.5)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise UserError(f"EnvPool has no world named {name!r}{hint}")
    with _quiet():
        return envpool.make_spec(name)


def _ordered(value: Any, info: dict) -> Any:
    """Rows by the index of their world (EnvPool says which row is whose)."""
    if isinstance(value, dict):
        return {name: _ordered(part, info) for name, part in value.items()}
    worlds = info["env_id"]
    return value if (worlds[1:] > worlds[:-1]).all() else value[np.argsort(worlds, kind="stable")]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting.*")
        yield
