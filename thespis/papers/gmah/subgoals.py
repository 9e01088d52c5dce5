"""Subgoals for two-level control: binary features of an agent's observation that the high level wants to be on.

The high level of :class:`~thespis.learners.multi_agent.hierarchical.Hierarchical` chooses for each agent one entry of
its observation, from ``obs_indices``; the subgoal is reached where that entry is above one half. The low level observes
which it is. All agents choose again when all have reached theirs, or when the interval is over; an agent that arrives
early keeps its subgoal until then.
"""

from __future__ import annotations

import abc
import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from thespis.core.errors import UserError
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space
from thespis.learners.multi_agent.independent_learners import agent_spec

AgentArrays = dict[str, Array]
"""Arrays by group, ``[..., agent]``."""


class LowLevelReward(eqx.Module):
    """Slot: what the low level is rewarded for."""

    @abc.abstractmethod
    def reward(self, steps: Transition, reached: AgentArrays) -> Float[Array, "..."]:
        """Team reward of each step, with the axes of ``steps.reward``."""

    @abc.abstractmethod
    def continues(self, alive: AgentArrays, reached: AgentArrays) -> AgentArrays:
        """For which agents a value is bootstrapped."""


class SubgoalReward(LowLevelReward):
    """Low-level reward of 1 for each agent at its subgoal, where the agent's own task ends."""

    def reward(self, steps: Transition, reached: AgentArrays) -> Float[Array, "..."]:
        """Team reward of each step, with the axes of ``steps.reward``."""
        return sum((x.sum(axis=-1).astype("float32") for x in reached.values()), jnp.zeros_like(steps.reward))

    def continues(self, alive: AgentArrays, reached: AgentArrays) -> AgentArrays:
        """For which agents a value is bootstrapped: those that have not reached their subgoal."""
        return {name: x & ~reached[name] for name, x in alive.items()}


class TaskReward(LowLevelReward):
    """Low-level reward of the environment: the control for the value of subgoal rewards."""

    def reward(self, steps: Transition, reached: AgentArrays) -> Float[Array, "..."]:
        """Team reward of each step, with the axes of ``steps.reward``."""
        return steps.reward

    def continues(self, alive: AgentArrays, reached: AgentArrays) -> AgentArrays:
        """For which agents a value is bootstrapped: all that are alive."""
        return alive


class SubgoalSpace(eqx.Module):
    """Subgoal space: entries of an agent's observation, which must be a vector."""

    obs_indices: tuple[int, ...] = eqx.field(static=True, default=())
    """Observation entries that may be chosen, counted from the end where negative; empty: all."""
    low_level_reward: LowLevelReward = SubgoalReward()
    """Reward of the low level: SubgoalReward, TaskReward or your own module:Class."""

    def level_specs(self, spec: EnvSpec) -> tuple[EnvSpec, EnvSpec]:
        """Environment specs of the two levels: subgoals as actions above, actions under a subgoal below.

        Raises ``UserError`` for other spaces.
        """
        sizes = {group.name: self._num_subgoals(spec, group) for group in spec.groups}
        goals = {name: Discrete(n) for name, n in sizes.items()}
        observation_spaces = {
            g.name: dict_space(own=agent_spec(spec, g).observation_space, goal=goals[g.name]) for g in spec.groups
        }
        above = dataclasses.replace(spec, action_space=dict_space(**goals), has_action_mask=False)
        return above, dataclasses.replace(spec, observation_space=dict_space(**observation_spaces))

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> tuple[()]:
        """An empty state: nothing has to be kept."""
        return ()

    def actor_state(self, state: tuple[()]) -> tuple[()]:
        """State that acting needs: none."""
        return state

    def high_level_view(self, actor_state: tuple[()], view: View) -> View:
        """The environment's view; any subgoal may be chosen."""
        return dataclasses.replace(view, action_mask=None)

    def low_level_view(self, actor_state: tuple[()], view: View, high_level_action: AgentArrays) -> View:
        """The environment's view with the subgoal added to the observation."""
        observation = {name: {"own": own, "goal": high_level_action[name]} for name, own in view.observation.items()}
        return dataclasses.replace(view, observation=observation)

    def should_terminate(
        self, actor_state: tuple[()], view: View, high_level_action: AgentArrays
    ) -> Bool[Array, "..."]:
        """Whether all agents that decide have reached their subgoals."""
        reached = self.is_reached(view, high_level_action)
        return jnp.all(jnp.concatenate([x | ~view.alive[name] for name, x in reached.items()], axis=-1), axis=-1)

    def low_level_transitions(
        self,
        actor_state: tuple[()],
        steps: Transition,
        high_level_action: AgentArrays,
        next_high_level_action: AgentArrays,
    ) -> Transition:
        """Transitions towards the same subgoal, whatever is chosen next, with the low-level reward."""
        alive = steps.view.alive
        reached = {name: x & alive[name] for name, x in self.is_reached(steps.next_view, high_level_action).items()}
        next_view = self.low_level_view(actor_state, steps.next_view, high_level_action)
        next_view = dataclasses.replace(
            next_view, alive=self.low_level_reward.continues(steps.next_view.alive, reached)
        )
        view = self.low_level_view(actor_state, steps.view, high_level_action)
        return dataclasses.replace(
            steps, view=view, next_view=next_view, reward=self.low_level_reward.reward(steps, reached)
        )

    def update(self, state: tuple[()], batch: Batch, key: Key[Array, ""]) -> tuple[tuple[()], dict[str, Array]]:
        """Nothing is learned; the metric ``reached`` is the share of steps that end at the subgoal."""
        chosen = {name: extras["chosen"] for name, extras in batch.steps.extras.items()}
        reached = self.is_reached(batch.steps.next_view, chosen)
        counted = jnp.concatenate([x & batch.mask[..., None] for x in reached.values()], axis=-1)
        share = jnp.sum(counted) / jnp.maximum(jnp.sum(batch.mask) * counted.shape[-1], 1)
        return state, {"reached": share}

    def is_reached(self, view: View, high_level_action: AgentArrays) -> AgentArrays:
        """Whether each agent's observation meets its subgoal."""

        def group_reached(name: str) -> Bool[Array, "..."]:
            observation = view.observation[name]
            candidates = (
                jnp.take(observation, jnp.asarray(self.obs_indices, "int32"), axis=-1)
                if self.obs_indices
                else observation
            )
            return jnp.take_along_axis(candidates, high_level_action[name][..., None], axis=-1)[..., 0] > 0.5

        return {name: group_reached(name) for name in high_level_action}

    def _num_subgoals(self, spec: EnvSpec, group: AgentGroup) -> int:
        group_spec = agent_spec(spec, group)
        if not isinstance(group_spec.observation_space, Box) or len(group_spec.observation_space.shape) != 1:
            raise UserError(
                f"subgoals are entries of a vector observation, and {group_spec.name} has "
                f"{group_spec.observation_space}"
            )
        size = group_spec.observation_space.shape[0]
        if any(not -size <= index < size for index in self.obs_indices):
            raise UserError(
                f"{group_spec.name} observes {size} numbers: high_level_actions.obs_indices must be between {-size} "
                f"and {size - 1}"
            )
        return len(self.obs_indices) or size
