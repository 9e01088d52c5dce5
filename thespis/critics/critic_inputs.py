"""Inputs of multi-agent critics: local observations, the global state, or the global state and all actions.

In training they take the place of the observation, as privileged observations do; actors never see them. Entries of
agents that do not decide are zeros.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from thespis.core.records import Batch, EnvSpec, View
from thespis.core.spaces import AgentGroup, CompositeSpace, Discrete, Space, dict_space, tuple_space

TargetActionFn = Callable[[], dict[str, PyTree]]
"""Actions that targets assume at the next views, by group, ``[time, row, agent, ...]``."""
CriticObservations = dict[str, tuple[PyTree, PyTree]]
"""Critic inputs now and next, by group, ``[time, row, agent, ...]``; ``None``: the agent's own observation."""


class CriticInput(eqx.Module):
    """Slot: what the critics of agents see in training."""

    @abc.abstractmethod
    def space(self, spec: EnvSpec, group: AgentGroup) -> Space | None:
        """The space of the critic inputs of a group; ``None``: the agent's own observation."""

    @abc.abstractmethod
    def critic_observations(
        self, groups: tuple[AgentGroup, ...], batch: Batch, target_action: TargetActionFn
    ) -> CriticObservations:
        """Critic inputs at the steps of a batch and after them, by group."""


class LocalObs(CriticInput):
    """Decentralized critic: it sees the agent's own observation, and the others are part of the environment."""

    def space(self, spec: EnvSpec, group: AgentGroup) -> Space | None:
        """No space of its own: critics see the agent's observation."""
        return None

    def critic_observations(
        self, groups: tuple[AgentGroup, ...], batch: Batch, target_action: TargetActionFn
    ) -> CriticObservations:
        """``None`` for every group: critics see the agent's observation."""
        return {group.name: (None, None) for group in groups}


class GlobalState(CriticInput):
    """Centralized critic: it sees the environment's state and the agent's own observation, else all observations.

    The agent's index in its group is part of it, as the critic may be shared by the group.
    """

    def space(self, spec: EnvSpec, group: AgentGroup) -> Space:
        """The space of the critic inputs of a group."""
        own = _subspace(spec.observation_space, group.name)
        whole = (
            {"all": joint_space(spec)} if spec.privileged_space is None else {"all": spec.privileged_space, "own": own}
        )
        return dict_space(**whole, which=Discrete(group.num_agents))

    def critic_observations(
        self, groups: tuple[AgentGroup, ...], batch: Batch, target_action: TargetActionFn
    ) -> CriticObservations:
        """Critic inputs, which differ between agents only in the index and the own observation."""
        steps = batch.steps
        pairs = (steps.view, steps.privileged), (steps.next_view, steps.next_privileged)

        def group_inputs(group: AgentGroup, view: View, told: PyTree) -> PyTree:
            inputs = {
                "all": _broadcast_to_agents(joint_observation(groups, view, told), group.num_agents),
                "which": _agent_ids(group, batch),
            }
            return inputs if told is None else inputs | {"own": view.observation[group.name]}

        inputs, next_inputs = ({g.name: group_inputs(g, *pair) for g in groups} for pair in pairs)
        return {name: (inputs[name], next_inputs[name]) for name in inputs}


class GlobalStateAction(CriticInput):
    """Centralized critic with actions: as :class:`GlobalState`, with the actions of all others.

    Those are the actions taken now, and those that targets assume next.
    """

    def space(self, spec: EnvSpec, group: AgentGroup) -> Space:
        """The space of the critic inputs of a group."""
        return tuple_space(GlobalState().space(spec, group), _per_agent_space(spec.action_space, spec.groups))

    def critic_observations(
        self, groups: tuple[AgentGroup, ...], batch: Batch, target_action: TargetActionFn
    ) -> CriticObservations:
        """Global state and the others' actions; the agent's own action is left out, as critics get it separately."""
        steps, observations = batch.steps, GlobalState().critic_observations(groups, batch, target_action)
        actions, next_actions = (
            _split_agents(groups, *x) for x in ((steps.action, steps.view), (target_action(), steps.next_view))
        )
        return {
            g.name: (
                (observations[g.name][0], _other_actions(g, actions)),
                (observations[g.name][1], _other_actions(g, next_actions)),
            )
            for g in groups
        }


def joint_space(spec: EnvSpec) -> Space:
    """Space of the environment's state where there is one, else of all observations."""
    return (
        _per_agent_space(spec.observation_space, spec.groups)
        if spec.privileged_space is None
        else spec.privileged_space
    )


def joint_observation(groups: tuple[AgentGroup, ...], view: View, privileged: PyTree) -> PyTree:
    """Build a value of :func:`joint_space` from views ``[..., agent]``; zeros for agents that do not decide."""
    return _split_agents(groups, view.observation, view) if privileged is None else privileged


def with_agent_id(spec: EnvSpec, group: AgentGroup) -> EnvSpec:
    """Environment spec of one agent of a group whose observation includes its index in the group."""
    observation_space = dict_space(own=_subspace(spec.observation_space, group.name), which=Discrete(group.num_agents))
    action = _subspace(spec.action_space, group.name)
    return EnvSpec(f"{spec.name}/{group.name}", observation_space, action, spec.has_action_mask, spec.time_limit)


def _subspace(space: Space, name: str) -> Space:
    assert isinstance(space, CompositeSpace)
    return dict(space.spaces)[name]


def _per_agent_space(space: Space, groups: tuple[AgentGroup, ...]) -> Space:
    """A space for each agent, as a tuple by group."""
    return dict_space(**{g.name: tuple_space(*[_subspace(space, g.name)] * g.num_agents) for g in groups})


def _split_agents(
    groups: tuple[AgentGroup, ...], values: dict[str, PyTree], view: View
) -> dict[str, tuple[PyTree, ...]]:
    """Values ``[..., agent, ...]`` as a tuple with one for each agent, zeros for agents that do not decide."""

    def agents(group: AgentGroup) -> tuple[PyTree, ...]:
        alive = view.alive[group.name]

        def agent_value(x: Array, i: int) -> Array:
            agent_alive = alive[..., i].reshape(alive.shape[:-1] + (1,) * (x.ndim - alive.ndim))
            value = jnp.take(x, i, axis=alive.ndim - 1)
            return jnp.where(agent_alive, value, jnp.zeros((), x.dtype))

        return tuple(
            jax.tree.map(lambda x, i=i: agent_value(x, i), values[group.name]) for i in range(group.num_agents)
        )

    return {group.name: agents(group) for group in groups}


def _broadcast_to_agents(tree: PyTree, count: int) -> PyTree:
    """Values ``[time, row, ...]`` repeated for every agent of a group."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x[:, :, None], (*x.shape[:2], count, *x.shape[2:])), tree)


def _agent_ids(group: AgentGroup, batch: Batch) -> Array:
    return jnp.broadcast_to(jnp.arange(group.num_agents, dtype="int32"), (*batch.mask.shape, group.num_agents))


def _other_actions(group: AgentGroup, agent_actions: dict[str, tuple[PyTree, ...]]) -> PyTree:
    """All actions as each agent of a group sees them: its own action is zeros."""
    visible: dict[str, Any] = {
        name: _broadcast_to_agents(actions, group.num_agents) for name, actions in agent_actions.items()
    }

    def without(i: int, x: Array) -> Array:
        return x.at[:, :, i].set(jnp.zeros((), x.dtype))

    own = enumerate(visible[group.name])
    visible[group.name] = tuple(jax.tree.map(lambda x, i=i: without(i, x), action) for i, action in own)
    return visible
