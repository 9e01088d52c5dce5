"""Gymnasium's vector environments, in any autoreset mode, without filler steps.

``SAME_STEP`` gives the true last observation in ``info["final_obs"]``. In ``NEXT_STEP`` and ``DISABLED`` we
restart ended worlds ourselves by ``reset(options={"reset_mask": ...})``, so that the step which would only
restart them never happens. All modes give the very same transitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.envs.host import values
from thespis.envs.host.gymnasium import load_all, save_all
from thespis.envs.spaces import from_gymnasium


class Vector:
    """A ``gymnasium.vector.VectorEnv`` as a :class:`~thespis.core.contracts.HostEnvironment`.

    Raises:
        UserError: if a ``NEXT_STEP`` environment cannot restart single worlds, or whenever it raises or
            answers what its spaces do not allow.
    """

    def __init__(self, env: Any):
        from gymnasium.vector import AutoresetMode

        self._env = env
        self._steps = 0
        self._same_step = _mode(env) is AutoresetMode.SAME_STEP
        lead = (env.num_envs,)
        self._read = values.observation_reader(env.single_observation_space, lead)
        self._read_one = values.observation_reader(env.single_observation_space, what="final_obs")
        self._write = values.action_writer(env.single_action_space, lead)
        _, info = self._call("reset", lambda: env.reset(seed=0))
        spec = env.spec or _first_spec(env)
        self._spec = EnvSpec(
            f"gymnasium:{spec.id}" if spec else f"{type(env).__module__}:{type(env).__qualname__}",
            from_gymnasium(env.single_observation_space),
            from_gymnasium(env.single_action_space),
            legal="action_mask" in info,
            time_limit=spec.max_episode_steps if spec else None,
        )

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one world."""
        return self._spec

    @property
    def n(self) -> int:
        """How many worlds there are."""
        return self._env.num_envs

    def start(self, seeds: list[int]) -> TimeStep:
        """Begin a fresh episode in every world, world ``i`` seeded with ``seeds[i]``."""
        self._steps = 0
        no = np.zeros(self.n, bool)

        def play():
            observation, info = self._env.reset(seed=[int(seed) for seed in seeds])
            return self._read(observation), self._legal(info, no)

        observation, legal = self._call("reset", play)
        return TimeStep(observation, np.zeros(self.n, "float32"), no, no.copy(), legal)

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """What the actions led to, and the view to act on next; actions in the world's units."""
        actions = values.check_actions(self._spec.action, actions, self.n)
        self._steps += 1
        return self._call("step", lambda: self._step(self._write(actions)))

    def _step(self, actions: Any) -> tuple[TimeStep, View]:
        observation, rewards, terminated, truncated, info = self._env.step(actions)
        flags = np.array(terminated, bool), np.array(truncated, bool)
        rewards = np.array(rewards, "float32")
        if not np.isfinite(rewards).all():
            raise UserError(f"a reward is not finite: {rewards}")
        observation, ended = self._read(observation), flags[0] | flags[1]
        legal = self._legal(info, np.zeros(self.n, bool) if self._same_step else ended)
        if not ended.any():
            return TimeStep(observation, rewards, *flags, legal), View(observation, legal)
        if self._same_step:
            final = self._final(observation, legal, info, ended)
            return TimeStep(final.observation, rewards, *flags, final.legal), View(observation, legal)
        fresh, fresh_info = self._env.reset(options={"reset_mask": ended.copy()})
        view = self._merge(View(observation, legal), self._read(fresh), fresh_info, ended)
        return TimeStep(observation, rewards, *flags, legal), view

    def _merge(self, view: View, fresh: Any, info: dict, ended: np.ndarray) -> View:
        """``view`` with the rows of ended worlds taken from what their reset gave."""
        where = np.flatnonzero(ended)
        space, choices = self._spec.observation, self._spec.action
        observation = values.replace_rows(space, view.observation, where, values.row(space, fresh, where))
        if not self._spec.legal:
            return View(observation)
        rows = [values.read_legal(choices, _row(info.get("action_mask"), i)) for i in where]
        return View(observation, values.replace_legal(choices, view.legal, where, rows))

    def _final(self, observation: Any, legal: Any, info: dict, ended: np.ndarray) -> View:
        """The true last observations, where ``observation`` already shows the next episode's first."""
        if "final_obs" not in info:
            raise UserError('the vector environment restarts in the same step and gives no info["final_obs"]')
        where, space, choices = np.flatnonzero(ended), self._spec.observation, self._spec.action
        rows = values.stack(space, [self._read_one(info["final_obs"][i]) for i in where])
        observation = values.replace_rows(space, observation, where, rows)
        if not self._spec.legal:
            return View(observation)
        masks = info.get("final_info", {}).get("action_mask")
        lasts = [values.read_legal(choices, _row(masks, i), ended=True) for i in where]
        return View(observation, values.replace_legal(choices, legal, where, lasts))

    def _legal(self, info: dict, ended: np.ndarray) -> Any:
        if not self._spec.legal:
            return None
        masks, choices = info.get("action_mask"), self._spec.action
        return values.stack_legal(
            choices, [values.read_legal(choices, _row(masks, i), bool(ended[i])) for i in range(self.n)]
        )

    def save(self) -> dict[str, Any] | None:
        """The state of every world as named arrays, or ``None`` if they are not of a kind we know."""
        from gymnasium.vector import SyncVectorEnv

        return save_all(self._env.envs) if type(self._env) is SyncVectorEnv else None

    def load(self, saved: dict[str, Any]) -> None:
        """Put the worlds back to where :meth:`save` found them."""
        self._env.reset(seed=0)
        load_all(self._env.envs, saved)

    def close(self) -> None:
        """Close the environments and their processes."""
        self._env.close()

    def _call(self, what: str, play: Callable[[], Any]) -> Any:
        try:
            return play()
        except UserError as error:
            raise UserError(f"{self._env}, {what} {self._steps}: {error}") from error
        except Exception as error:
            raise UserError(f"{self._env} raised in {what} {self._steps}: {type(error).__name__}: {error}") from error


def _mode(env: Any) -> Any:
    """The autoreset mode; Gymnasium's own classes know it better than their shared ``metadata``."""
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    inner = env.unwrapped
    if isinstance(inner, SyncVectorEnv | AsyncVectorEnv):
        return inner.autoreset_mode
    mode = env.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise UserError(f'{env} does not say how it restarts: set metadata["autoreset_mode"]')
    if mode is AutoresetMode.NEXT_STEP:
        raise UserError(
            f"{env} restarts ended worlds by a step of their own, which would put filler rows into the data; "
            "use autoreset_mode SAME_STEP, or a SyncVectorEnv of single environments"
        )
    return mode


def _first_spec(env: Any) -> Any:
    from gymnasium.vector import SyncVectorEnv

    inner = env.unwrapped
    return inner.envs[0].spec if isinstance(inner, SyncVectorEnv) else None


def _row(masks: Any, i: Any) -> Any:
    """Entry ``i`` of an info that the vector environment has gathered, its parts included."""
    if isinstance(masks, dict):
        return {name: _row(value, i) for name, value in masks.items() if not name.startswith("_")}
    return None if masks is None else masks[i]
