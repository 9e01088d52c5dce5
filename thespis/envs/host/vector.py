"""Gymnasium vector environments, in any autoreset mode, without filler steps.

``SAME_STEP`` provides the true last observation in ``info["final_obs"]``. In ``NEXT_STEP`` and ``DISABLED`` ended
environments are reset here, by ``reset(options={"reset_mask": ...})``, so that the step which would only reset them
never happens. All modes yield exactly the same transitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.envs.host import conversion
from thespis.envs.host.goals import find_goal_rewards
from thespis.envs.host.gymnasium import (
    declared_params,
    get_env_states,
    params_from_options,
    set_env_states,
    split_options,
)
from thespis.envs.host.observation_checks import ObservationChecks
from thespis.envs.space_conversion import from_gymnasium


class GymnasiumVectorEnv:
    """Adapter for a ``gymnasium.vector.VectorEnv``, a :class:`~thespis.core.contracts.HostEnvironment`.

    ``closes``: whether :meth:`close` closes it; false for one that belongs to the user.

    Raises:
        UserError: if a ``NEXT_STEP`` environment cannot reset single environments, or whenever it raises or
            returns what its spaces do not allow.
    """

    def __init__(self, env: Any, *, closes: bool = True):
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        self._env, self._closes = env, closes
        self._steps = 0
        self._same_step = _autoreset_mode(env) is AutoresetMode.SAME_STEP
        lead = (env.num_envs,)
        self._read = conversion.observation_reader(env.single_observation_space, lead)
        self._read_one = conversion.observation_reader(env.single_observation_space, label="final_obs")
        self._write = conversion.action_writer(env.single_action_space, lead)
        _, info = self._call_env("reset", lambda: env.reset(seed=0))
        spec = env.spec or _first_spec(env)
        name = f"gymnasium:{spec.id}" if spec else f"{type(env).__module__}:{type(env).__qualname__}"
        example = env.unwrapped.envs[0] if type(env.unwrapped) is SyncVectorEnv else env
        self._checks = ObservationChecks(example, env.single_observation_space, name)
        self._options: list[dict[str, Any]] | None = None
        self._spec = EnvSpec(
            name,
            from_gymnasium(env.single_observation_space),
            from_gymnasium(env.single_action_space),
            has_action_mask="action_mask" in info,
            time_limit=spec.max_episode_steps if spec else None,
            goal_relabeler=find_goal_rewards(example, name),
            params=() if self._same_step else _declared_params(env, name),
        )

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one environment."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return self._env.num_envs

    def set_params(self, params: dict[str, np.ndarray]) -> None:
        """Options of the resets from now on: ``reset(options=...)`` with the ``i``-th of each parameter.

        Environments that reset in the same step as their last have no parameters, as they reset by themselves.
        """
        self._options = split_options(params, self.num_envs)

    def reset(self, seeds: list[int]) -> TimeStep:
        """Start an episode in every environment, environment ``i`` seeded with ``seeds[i]``."""
        self._steps = 0
        false = np.zeros(self.num_envs, bool)

        def play():
            reset_seeds = [int(seed) for seed in seeds]
            if self._options is None:
                observation, info = self._env.reset(seed=reset_seeds)
            else:
                observation, info = self._reset_with_options(np.ones(self.num_envs, bool), reset_seeds)
            return self._read(observation), self._action_mask(info, false)

        observation, action_mask = self._call_env("reset", play)
        return TimeStep(observation, np.zeros(self.num_envs, "float32"), false, false.copy(), action_mask)

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """The transitions that the actions lead to, and the next view to act on; actions in the environment's units."""
        actions = conversion.check_actions(self._spec.action_space, actions, self.num_envs)
        self._steps += 1
        return self._call_env("step", lambda: self._step(self._write(actions)))

    def _step(self, actions: Any) -> tuple[TimeStep, View]:
        observation, rewards, terminated, truncated, info = self._env.step(actions)
        if self._checks.active:
            self._checks.count_step()
            self._checks.check(observation)
        flags = np.array(terminated, bool), np.array(truncated, bool)
        rewards = np.array(rewards, "float32")
        if not np.isfinite(rewards).all():
            raise UserError(f"a reward is not finite: {rewards}")
        observation, ended = self._read(observation), flags[0] | flags[1]
        action_mask = self._action_mask(info, np.zeros(self.num_envs, bool) if self._same_step else ended)
        if not ended.any():
            return TimeStep(observation, rewards, *flags, action_mask), View(observation, action_mask)
        if self._same_step:
            final_view = self._final_view(observation, action_mask, info, ended)
            return TimeStep(final_view.observation, rewards, *flags, final_view.action_mask), View(
                observation, action_mask
            )
        if self._options is None:
            fresh, fresh_info = self._env.reset(options={"reset_mask": ended.copy()})
        else:
            fresh, fresh_info = self._reset_with_options(ended, None)
        view = self._merge_reset(View(observation, action_mask), self._read(fresh), fresh_info, ended)
        return TimeStep(observation, rewards, *flags, action_mask), view

    def _reset_with_options(self, ended: np.ndarray, seeds: list[int] | None) -> tuple[Any, dict[str, Any]]:
        """Reset the environments one after another, each with its own options: the observations, and their infos."""
        assert self._options is not None
        info: dict[str, Any] = {}
        observation: Any = None
        for i in np.flatnonzero(ended):
            mask = np.arange(self.num_envs) == i
            observation, own = self._env.reset(seed=seeds, options={"reset_mask": mask} | self._options[i])
            info = _merge_infos(info, own, int(i))
        return observation, info

    def _merge_reset(self, view: View, fresh: Any, info: dict, ended: np.ndarray) -> View:
        """``view`` with the rows of ended environments replaced by the results of their reset."""
        indices = np.flatnonzero(ended)
        space, action_space = self._spec.observation_space, self._spec.action_space
        observation = conversion.replace_rows(
            space, view.observation, indices, conversion.select_row(space, fresh, indices)
        )
        if not self._spec.has_action_mask:
            return View(observation)
        rows = [conversion.read_action_mask(action_space, _info_row(info.get("action_mask"), i)) for i in indices]
        return View(observation, conversion.replace_action_masks(action_space, view.action_mask, indices, rows))

    def _final_view(self, observation: Any, legal: Any, info: dict, ended: np.ndarray) -> View:
        """The true last observations, where ``observation`` already has the next episode's first."""
        if "final_obs" not in info:
            raise UserError('the vector environment resets in the same step but provides no info["final_obs"]')
        indices, space, action_space = np.flatnonzero(ended), self._spec.observation_space, self._spec.action_space
        rows = conversion.stack(space, [self._read_one(info["final_obs"][i]) for i in indices])
        observation = conversion.replace_rows(space, observation, indices, rows)
        if not self._spec.has_action_mask:
            return View(observation)
        masks = info.get("final_info", {}).get("action_mask")
        final_masks = [conversion.read_action_mask(action_space, _info_row(masks, i), done=True) for i in indices]
        return View(observation, conversion.replace_action_masks(action_space, legal, indices, final_masks))

    def _action_mask(self, info: dict, ended: np.ndarray) -> Any:
        if not self._spec.has_action_mask:
            return None
        masks, action_space = info.get("action_mask"), self._spec.action_space
        return conversion.stack_action_masks(
            action_space,
            [
                conversion.read_action_mask(action_space, _info_row(masks, i), bool(ended[i]))
                for i in range(self.num_envs)
            ],
        )

    def get_state(self) -> dict[str, Any] | None:
        """The state of every environment as named arrays, or ``None`` if one of them cannot be saved."""
        from gymnasium.vector import SyncVectorEnv

        return get_env_states(self._env.envs) if type(self._env) is SyncVectorEnv else None

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the environments from the state that :meth:`get_state` returned."""
        self._env.reset(seed=0)
        set_env_states(self._env.envs, state)

    def pop_warnings(self) -> list[str]:
        """Warnings about the environments since the last call, one line each."""
        return self._checks.pop_warnings()

    def close(self) -> None:
        """Close the environments and their processes, unless they belong to the user."""
        if self._closes:
            self._env.close()

    def _call_env(self, what: str, play: Callable[[], Any]) -> Any:
        try:
            return play()
        except UserError as error:
            raise UserError(f"{self._env}, {what} {self._steps}: {error}") from error
        except Exception as error:
            raise UserError(f"{self._env} raised in {what} {self._steps}: {type(error).__name__}: {error}") from error


def _merge_infos(info: dict[str, Any], own: dict[str, Any], i: int) -> dict[str, Any]:
    """Infos with the entries of environment ``i`` from its own reset."""
    merged = dict(info)
    for name, value in own.items():
        if isinstance(value, dict):
            merged[name] = _merge_infos(merged.get(name, {}), value, i)
        else:
            column = merged.get(name)
            column = np.array(value) if column is None else np.array(column)
            column[i] = value[i]
            merged[name] = column
    return merged


def _declared_params(env: Any, name: str) -> Any:
    """The options of ``reset`` that the environment, or each of those in Gymnasium's own classes, declares."""
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    inner = env.unwrapped
    if isinstance(inner, SyncVectorEnv):
        return declared_params(inner.envs[0], name)
    if not isinstance(inner, AsyncVectorEnv):
        return declared_params(env, name)
    if not all(env.call("has_wrapper_attr", "reset_options")):
        return ()
    return params_from_options(env.get_attr("reset_options")[0], name)


def _autoreset_mode(env: Any) -> Any:
    """The autoreset mode; for Gymnasium's own classes the attribute is more reliable than the shared ``metadata``."""
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    inner = env.unwrapped
    if isinstance(inner, SyncVectorEnv | AsyncVectorEnv):
        return inner.autoreset_mode
    mode = env.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise UserError(f'{env} does not declare how it resets: set metadata["autoreset_mode"]')
    if mode is AutoresetMode.NEXT_STEP:
        raise UserError(
            f"{env} resets ended environments in a step of its own, which would put filler rows into the data; "
            "use autoreset_mode SAME_STEP, or a SyncVectorEnv of single environments"
        )
    return mode


def _first_spec(env: Any) -> Any:
    from gymnasium.vector import SyncVectorEnv

    inner = env.unwrapped
    return inner.envs[0].spec if isinstance(inner, SyncVectorEnv) else None


def _info_row(masks: Any, i: Any) -> Any:
    """Entry ``i`` of an info that the vector environment has batched, nested dicts included."""
    if isinstance(masks, dict):
        return {name: _info_row(value, i) for name, value in masks.items() if not name.startswith("_")}
    return None if masks is None else masks[i]
