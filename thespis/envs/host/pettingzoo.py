"""PettingZoo environments, by name or the user's own: parallel ones, and those in which one agent acts at a time.

A tick is a step of all live agents (``ParallelEnv``), or one agent's move (``AECEnv``). An agent that is truncated
alone while others go on counts as terminated; an episode whose last agents are truncated is truncated. Action masks are
read from ``action_mask``, in the observation or in the info. The run reports the mean of the rewards of all possible
agents; one that is absent counts as 0.

PettingZoo's environments cannot save their state: a user's environment may (``get_state`` and ``set_state``).

Adapters of one PettingZoo environment: :class:`ParallelEnvAdapter` and :class:`AECEnvAdapter`.

Every episode is reset with a seed that the adapter samples, so episodes can be reproduced even if the environment would
continue a random stream of its own when it is reset without a seed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec
from thespis.core.spaces import dict_space
from thespis.envs.agent_groups import group_agents, make_groups
from thespis.envs.host import conversion, snapshot
from thespis.envs.host.multi_agent import MultiAgentStep, MultiAgentVectorEnv
from thespis.envs.host.state_encoding import EncodingError
from thespis.envs.options import parse_options
from thespis.envs.space_conversion import from_gymnasium

PettingZooEnv = Any
"""An environment with PettingZoo's interface."""
MASK_KEY = "action_mask"


class PettingZooAdapter:
    """Base of the PettingZoo adapters: possible agents, conversion of values, seeds and states."""

    def __init__(self, env: PettingZooEnv, name: str, infos: Callable[[], dict[Any, dict]]):
        self.env = env
        try:
            self.agents = list(env.possible_agents)
        except AttributeError:
            raise UserError(f"{name} does not declare its agents: set possible_agents") from None
        spaces = [(_without_mask(env.observation_space(a)), env.action_space(a)) for a in self.agents]
        self._masked = [_has_mask(env.observation_space(a)) for a in self.agents]
        self._read = [
            conversion.observation_reader(observation_space, label=f"{a}: observation")
            for a, (observation_space, _) in self._zip(spaces)
        ]
        self._write = [conversion.action_writer(action_space) for _, action_space in spaces]
        converted = [
            (from_gymnasium(observation_space), from_gymnasium(action_space))
            for observation_space, action_space in spaces
        ]
        self._action_spaces = [action_space for _, action_space in converted]
        self.group_members = group_agents([str(agent) for agent in self.agents], converted)
        self._random = np.random.default_rng(0)
        self.reset(0)
        has_action_mask = any(self._masked) or any(MASK_KEY in info for info in infos().values())
        group_spaces = {group: converted[indices[0]] for group, indices in self.group_members}
        self.spec = EnvSpec(
            name,
            dict_space(**{group: observation_space for group, (observation_space, _) in group_spaces.items()}),
            dict_space(**{group: action_space for group, (_, action_space) in group_spaces.items()}),
            has_action_mask,
            groups=make_groups(self.group_members),
        )

    def reset(self, seed: int | None) -> Any:
        """Start an episode and return its first observation."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        return self.env.reset(seed=int(self._random.integers(2**31)))

    def convert_action(self, i: int, action: Any) -> Any:
        """The action of agent ``i`` in PettingZoo's format."""
        return self._write[i](action)

    def make_step(
        self,
        observations: dict[Any, Any],
        infos: dict[Any, dict],
        deciding: list[Any],
        agent_terminated: list[Any],
        rewards: dict[Any, Any],
        terminated: bool = False,
        truncated: bool = False,
    ) -> MultiAgentStep:
        """A step by agent. Agents that act next and have no mask may do everything."""
        converted: list[Any] = [None] * len(self.agents)
        action_masks: list[Any] = [None] * len(self.agents)
        for i, agent in enumerate(self.agents):
            if agent in agent_terminated or agent not in observations:
                continue
            value = observations[agent]
            mask = value[MASK_KEY] if self._masked[i] else infos.get(agent, {}).get(MASK_KEY)
            converted[i] = self._read[i](_drop_mask(value) if self._masked[i] else value)
            if mask is not None and agent in deciding:
                action_masks[i] = conversion.read_action_mask(self._action_spaces[i], mask, terminated or truncated)
        alive, terminated_agents = (
            np.array([agent in agents for agent in self.agents]) for agents in (deciding, agent_terminated)
        )
        reward_array = np.array([float(rewards.get(agent, 0.0)) for agent in self.agents], "float32")
        return MultiAgentStep(
            converted,
            action_masks,
            alive,
            terminated_agents,
            reward_array,
            float(reward_array.mean()),
            terminated,
            truncated,
        )

    def get_state(self) -> dict[str, np.ndarray] | None:
        """The state of the user's environment and of the seed generator; ``None`` if it cannot be saved."""
        base = self.env.unwrapped
        try:
            env_state = snapshot.get_own_state(base)
        except EncodingError:
            return None
        return None if env_state is None else env_state | {"seeds": snapshot.get_rng_state(self._random)}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore the state that :meth:`get_state` returned."""
        self.reset(0)
        snapshot.set_rng_state(self._random, state["seeds"])
        snapshot.set_own_state(self.env.unwrapped, state)

    def close(self) -> None:
        """Close windows that rendering has opened."""
        self.env.close()

    def _zip(self, spaces: list[Any]) -> Any:
        return zip(self.agents, spaces, strict=True)


class ParallelEnvAdapter:
    """Adapter for a ``ParallelEnv``: all live agents act at once; agents may leave and enter."""

    def __init__(self, env: PettingZooEnv, name: str):
        self._infos: dict[Any, dict] = {}
        self._env = env
        self._adapter = PettingZooAdapter(env, name, lambda: env.reset(seed=0)[1])
        self.spec, self.group_members = self._adapter.spec, self._adapter.group_members
        self.get_state, self.set_state, self.close = (
            self._adapter.get_state,
            self._adapter.set_state,
            self._adapter.close,
        )

    def reset(self, seed: int | None) -> MultiAgentStep:
        """Start an episode and return its first observation."""
        observations, infos = self._adapter.reset(seed)
        return self._adapter.make_step(observations, infos, list(self._env.agents), [], {})

    def step(self, actions: list[Any]) -> MultiAgentStep:
        """Step with the actions of all live agents."""
        agents, env = self._adapter.agents, self._env
        live_agents = list(env.agents)
        action_dict = {
            agent: self._adapter.convert_action(i, actions[i]) for i, agent in enumerate(agents) if agent in live_agents
        }
        observations, rewards, terminations, truncations, infos = env.step(action_dict)
        done, terminated, truncated_agents = (
            not env.agents,
            *([a for a in live_agents if flags.get(a)] for flags in (terminations, truncations)),
        )
        truncated = done and any(agent not in terminated for agent in truncated_agents)
        finished = [agent for agent in live_agents if agent in terminated or (agent in truncated_agents and not done)]
        next_agents = [agent for agent in (live_agents if done else env.agents) if agent not in finished]
        return self._adapter.make_step(
            observations, infos, next_agents, finished, rewards, done and not truncated, truncated
        )


class AECEnvAdapter:
    """Adapter for an ``AECEnv``: one agent acts at a time, the others wait."""

    def __init__(self, env: PettingZooEnv, name: str):
        self._env = env
        self._adapter = PettingZooAdapter(env, name, lambda: env.infos)
        self.spec, self.group_members = self._adapter.spec, self._adapter.group_members
        self.get_state, self.set_state, self.close = (
            self._adapter.get_state,
            self._adapter.set_state,
            self._adapter.close,
        )

    def reset(self, seed: int | None) -> MultiAgentStep:
        """Start an episode and return its first observation."""
        self._adapter.reset(seed)
        return self._adapter.make_step(self._observe(), self._env.infos, [self._env.agent_selection], [], {})

    def step(self, actions: list[Any]) -> MultiAgentStep:
        """The move of the agent whose turn it is; agents that have finished are removed at once."""
        env, adapter = self._env, self._adapter
        i = adapter.agents.index(env.agent_selection)
        live_agents = list(env.agents)
        env.step(adapter.convert_action(i, actions[i]))
        rewards = dict(env.rewards)
        leaving = [agent for agent in env.agents if env.terminations[agent] or env.truncations[agent]]
        truncated_agents = [agent for agent in leaving if not env.terminations[agent]]
        observations, infos, done = self._observe(), dict(env.infos), len(leaving) == len(env.agents)
        finished = [agent for agent in live_agents if agent in leaving and not (done and agent in truncated_agents)]
        if done:
            return adapter.make_step(
                observations, infos, truncated_agents, finished, rewards, not truncated_agents, bool(truncated_agents)
            )
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        return adapter.make_step(self._observe(), env.infos, [env.agent_selection], finished, rewards)

    def _observe(self) -> dict[Any, Any]:
        return {agent: self._env.observe(agent) for agent in self._env.agents}


def _has_mask(space: Any) -> bool:
    import gymnasium.spaces as g

    return isinstance(space, g.Dict) and MASK_KEY in space.spaces


def _without_mask(space: Any) -> Any:
    """The space without the mask: the other entry itself, if there is only one."""
    import gymnasium.spaces as g

    if not _has_mask(space):
        return space
    rest = {name: part for name, part in space.spaces.items() if name != MASK_KEY}
    return next(iter(rest.values())) if len(rest) == 1 else g.Dict(rest)


def _drop_mask(value: dict[str, Any]) -> Any:
    rest = {name: part for name, part in value.items() if name != MASK_KEY}
    return next(iter(rest.values())) if len(rest) == 1 else rest


_LIBRARIES = {"mpe": "mpe2", **{f: f"pettingzoo.{f}" for f in ("classic", "butterfly", "sisl", "atari")}}
_EXTRA_DEPENDENCIES = {
    "atari": "multi_agent_ale_py",
    "chess": "chess",
    "hanabi": "shimmy",
    "leduc": "rlcard",
    "multiwalker": "Box2D",
    "pistonball": "pymunk",
    "texas": "rlcard",
}
"""What else must be installed for a family, or for environments whose names begin with this."""


def list_envs() -> list[str]:
    """Names of available environments, read from the libraries' files without importing them."""
    names = []
    for family, library in _LIBRARIES.items():
        for name in _list_env_files(library):
            modules = [
                module for prefix, module in _EXTRA_DEPENDENCIES.items() if prefix == family or name.startswith(prefix)
            ]
            if all(map(importlib.util.find_spec, ("pygame", *modules))):
                names.append(f"{family}/{name}")
    return names


def has_env(name: str) -> bool:
    """Whether there is an environment of this name, options aside; its dependencies may still be missing."""
    family, _, env_name = name.partition("?")[0].partition("/")
    return family in _LIBRARIES and (
        env_name in _list_env_files(_LIBRARIES[family]) or not _installed(_LIBRARIES[family])
    )


def make_env(name: str, num_envs: int) -> MultiAgentVectorEnv:
    """Make ``num_envs`` environments of PettingZoo or MPE2, e.g. ``mpe/simple_spread_v3`` or ``classic/tictactoe_v3``.

    Options of the library's function follow a question mark: ``mpe/simple_spread_v3?N=5&max_cycles=50``.

    Raises:
        UserError: if a library is missing or does not take the options.
    """
    path, _, option_text = name.partition("?")
    family, _, env_name = path.partition("/")
    options = parse_options(f"pettingzoo:{name}", option_text)
    for library in ("pettingzoo", _LIBRARIES[family].partition(".")[0]):
        if not _installed(library):
            raise missing_extra(library, "teams")
    try:
        make = _mpe_factory(env_name) if family == "mpe" else _registry_factory(family, env_name)
        return wrap_envs([make(**options) for _ in range(num_envs)], f"pettingzoo:{name}")
    except ImportError as error:
        raise UserError(f"pettingzoo:{name} needs a package that is not installed: {error}") from error
    except (AssertionError, TypeError, ValueError) as error:
        raise UserError(f"pettingzoo:{name} cannot be made: {error}") from error


def _mpe_factory(env_name: str) -> Callable[..., Any]:
    return importlib.import_module(f"mpe2.{env_name}").parallel_env


def _registry_factory(family: str, env_name: str) -> Callable[..., Any]:
    """The constructor of an environment of PettingZoo's registry: its parallel version, where there is one."""
    import pettingzoo
    from pettingzoo.env_registry.exceptions import FailedToImport

    base_name, _, version = env_name.rpartition("_v")
    env_id = f"{family}/{base_name}-v{version}"
    kind = "parallel" if env_id in pettingzoo.parallel_registry else "aec"

    def make(**options: Any) -> Any:
        try:
            return pettingzoo.make(kind, env_id, **options)  # pyright: ignore
        except FailedToImport as error:
            raise UserError(
                f"pettingzoo:{family}/{env_name} needs a package that is not installed: {error.__cause__}"
            ) from error

    return make


def wrap_envs(envs: list[Any], name: str) -> MultiAgentVectorEnv:
    """Wrap environments with PettingZoo's interface as one :class:`MultiAgentVectorEnv`."""
    kind: Callable[[PettingZooEnv, str], Any] = (
        AECEnvAdapter if isinstance(envs[0], _base_classes()[0]) else ParallelEnvAdapter
    )
    return MultiAgentVectorEnv([kind(env, name) for env in envs])


def is_pettingzoo_env(environment: Any) -> bool:
    """Whether a class or an object inherits from PettingZoo's base classes, which are then imported already."""
    bases = _base_classes()
    return issubclass(environment, bases) if isinstance(environment, type) else isinstance(environment, bases)


def _base_classes() -> tuple[type, ...]:
    module = sys.modules.get("pettingzoo")
    return (module.AECEnv, module.ParallelEnv) if module is not None else ()


def _installed(library: str) -> bool:
    return importlib.util.find_spec(library.partition(".")[0]) is not None


def _list_env_files(library: str) -> list[str]:
    """Names of a library's environments, from its file names."""
    top, _, package = library.partition(".")
    spec = importlib.util.find_spec(top)
    folders = spec.submodule_search_locations if spec is not None else None
    return sorted(path.stem for folder in folders or () for path in (Path(folder) / package).glob("*_v[0-9]*.py"))
