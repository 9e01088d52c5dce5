"""Vector environment of multi-agent host environments, stepped one after another, whatever library they come from.

Episodes are reset here, so the true last observation is available.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep, View
from thespis.core.spaces import (
    CompositeSpace,
    Discrete,
    MultiDiscrete,
    Space,
    action_mask_size,
    map_groups,
    map_space,
    space_dtype,
    space_shape,
)
from thespis.envs.agent_groups import GroupMembers
from thespis.envs.host import conversion


@dataclasses.dataclass(frozen=True)
class MultiAgentStep:
    """Result of one multi-agent step, indexed by agent in the environment's own order.

    ``observation``: ``None`` for an agent that has left or not entered yet. ``action_mask``: ``None`` where nothing is
    masked. ``alive``: the agents that act next. ``agent_terminated``: the agents whose episode ended in this step.
    ``rewards``: the reward of each agent. ``reported_reward``: the reward that the run reports.
    """

    observation: list[Any]
    action_mask: list[Any]
    alive: np.ndarray
    agent_terminated: np.ndarray
    rewards: np.ndarray
    reported_reward: float
    terminated: bool = False
    truncated: bool = False

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated


class MultiAgentHostEnv(Protocol):
    """Interface of one multi-agent environment of a library."""

    @property
    def spec(self) -> EnvSpec:
        """Groups and their spaces."""
        ...

    @property
    def group_members(self) -> GroupMembers:
        """The members of each group, as indices of agents."""
        ...

    def reset(self, seed: int | None) -> MultiAgentStep:
        """Start an episode; a seed starts a new stream of episodes."""
        ...

    def step(self, actions: list[Any]) -> MultiAgentStep:
        """Step with one action per agent, in the environment's units; actions of agents not alive are ignored."""
        ...

    def get_state(self) -> dict[str, np.ndarray] | None:
        """The complete state, random generators included; ``None`` if it cannot be saved."""
        ...

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore the state that :meth:`get_state` returned; the environment may be a new one."""
        ...

    def close(self) -> None:
        """Close windows that rendering has opened."""
        ...


class MultiAgentVectorEnv:
    """Vector environment of multi-agent environments, a :class:`~thespis.core.contracts.HostEnvironment`.

    Raises:
        UserError: whenever an environment raises or returns what its spaces do not allow.
    """

    def __init__(self, envs: list[Any]):
        self._envs: list[MultiAgentHostEnv] = envs
        self._spec, self._members, self._steps = envs[0].spec, envs[0].group_members, 0

    @property
    def spec(self) -> EnvSpec:
        """Groups and spaces of one environment."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return len(self._envs)

    def reset(self, seeds: list[int]) -> TimeStep:
        """Start an episode in every environment, environment ``i`` seeded with ``seeds[i]``."""
        conversion.check_seeds(seeds, self.num_envs)
        self._steps = 0
        return self._stack([self._reset_env(i, int(seed)) for i, seed in enumerate(seeds)])

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """The transitions that the actions lead to, and the next view to act on; actions in the environment's units."""

        def check(space: Space, axes: tuple[int, ...], given: Any) -> Any:
            return conversion.check_actions(space, given, self.num_envs, axes)

        actions = map_groups(self._spec.groups, self._spec.action_space, check, actions)
        self._steps += 1
        steps = [self._step_env(i, actions) for i in range(self.num_envs)]
        step = self._stack(steps)
        if not any(agent_step.done for agent_step in steps):
            return step, step.view
        return step, self._stack(
            [self._reset_env(i) if agent_step.done else agent_step for i, agent_step in enumerate(steps)]
        ).view

    def get_state(self) -> dict[str, Any] | None:
        """The states of all environments as named arrays; ``None`` if one of them cannot be saved."""
        states: dict[str, Any] = {"steps": np.asarray(self._steps)}
        for i, env in enumerate(self._envs):
            env_state = env.get_state()
            if env_state is None:
                return None
            states |= {f"{i}/{name}": value for name, value in env_state.items()}
        return states

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the environments from the state that :meth:`get_state` returned."""
        self._steps = int(state["steps"])
        for i, env in enumerate(self._envs):
            env.set_state({name.partition("/")[2]: v for name, v in state.items() if name.startswith(f"{i}/")})

    def close(self) -> None:
        """Close the environments and release what they hold."""
        for env in self._envs:
            env.close()

    def _reset_env(self, i: int, seed: int | None = None) -> MultiAgentStep:
        return self._call_env(i, "reset", lambda: self._envs[i].reset(seed))

    def _step_env(self, i: int, actions: dict[str, Any]) -> MultiAgentStep:
        agent_actions: list[Any] = [None] * sum(len(indices) for _, indices in self._members)
        spaces = _subspaces(self._spec.action_space)
        for group, indices in self._members:
            for j, index in enumerate(indices):
                agent_actions[index] = map_space(lambda part, x, j=j: x[i, j], spaces[group], actions[group])
        return self._call_env(i, "step", lambda: self._envs[i].step(agent_actions))

    def _call_env(self, i: int, what: str, play: Callable[[], MultiAgentStep]) -> MultiAgentStep:
        try:
            agent_step = play()
            if not np.isfinite(agent_step.rewards).all():
                raise UserError(f"a reward is not finite: {agent_step.rewards}")
            return agent_step
        except UserError as error:
            raise UserError(f"{self._spec.name}, environment {i}, {what} {self._steps}: {error}") from error
        except Exception as error:
            raised = f"raised {type(error).__name__}: {error}"
            raise UserError(f"{self._spec.name}, environment {i}, {what} {self._steps}, {raised}") from error

    def _stack(self, told: list[MultiAgentStep]) -> TimeStep:
        spec = self._spec
        observations, action_masks, alive, outcomes = {}, {}, {}, {}
        for group, indices in self._members:
            space, action_space = _subspaces(spec.observation_space)[group], _subspaces(spec.action_space)[group]
            rows = [[_or_zeros(space, agent_step.observation[p]) for p in indices] for agent_step in told]
            observations[group] = conversion.stack(space, [conversion.stack(space, row) for row in rows])
            members = list(indices)
            alive[group] = np.stack([agent_step.alive[members] for agent_step in told])
            outcomes[group] = AgentOutcome(
                np.stack([agent_step.rewards[members] for agent_step in told]).astype("float32"),
                np.stack([agent_step.agent_terminated[members] for agent_step in told]),
            )
            if spec.has_action_mask:
                masks = [
                    [
                        _complete_action_mask(action_space, agent_step.action_mask[p], bool(agent_step.alive[p]))
                        for p in indices
                    ]
                    for agent_step in told
                ]
                action_masks[group] = conversion.stack_action_masks(
                    action_space, [conversion.stack_action_masks(action_space, row) for row in masks]
                )
        return TimeStep(
            observations,
            np.array([agent_step.reported_reward for agent_step in told], "float32"),
            np.array([agent_step.terminated for agent_step in told]),
            np.array([agent_step.truncated for agent_step in told]),
            action_masks or None,
            alive=alive,
            agent_outcomes=outcomes,
        )


def _subspaces(space: Space) -> dict[str, Space]:
    assert isinstance(space, CompositeSpace)
    return dict(space.spaces)


def _or_zeros(space: Space, value: Any) -> Any:
    if value is not None:
        return value
    return map_space(lambda part: np.zeros(space_shape(part), space_dtype(part)), space)


def _complete_action_mask(space: Space, mask: Any, alive: bool) -> Any:
    """The complete mask of an agent: the first action of each choice if it is not alive, all if there is no mask."""

    def leaf(part: Space, given: Any) -> Any:
        match part:
            case Discrete(n):
                full, first = np.ones(n, bool), np.arange(n) == 0
            case MultiDiscrete(nvec):
                full, first = np.ones(action_mask_size(part), bool), np.concatenate([np.arange(n) == 0 for n in nvec])
            case _:
                return None
        return first if not alive else full if given is None else given

    return map_space(leaf, space, mask)
