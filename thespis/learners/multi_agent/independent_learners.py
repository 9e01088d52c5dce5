"""Independent learners: a single-agent method for many agents, each treating the others as part of the environment.

With shared parameters this is self-play where agents are opponents (the opponent is always the latest policy), and
independent learning with parameter sharing where they are a team. Critics may see more than their agent does.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import HasActionProbs, Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import AgentGroup, CompositeSpace
from thespis.critics.critic_inputs import CriticInput, LocalObs
from thespis.learners.multi_agent.parameter_sharing import ParameterSharing, SharedParameters
from thespis.runtime.keys import fold, indexed_keys


class GroupStates(eqx.Module):
    """States or policies by agent group; ``num_updates`` so far where groups learn in turns."""

    by_group: dict[str, PyTree]
    groups: tuple[AgentGroup, ...] = eqx.field(static=True)
    num_updates: Int[Array, ""] | None = None


class BaseIndependentLearners(eqx.Module):
    """Independent learners, one per agent. A concrete method supplies the ``method``; nothing here is overridden.

    Where critics see the other agents' next actions, the method provides them: ``target_action(state, view, key)``.
    """

    method: eqx.AbstractVar[Method]
    sharing: eqx.AbstractVar[ParameterSharing]
    critic_input: eqx.AbstractVar[CriticInput]

    multi_agent: ClassVar[bool] = True

    @property
    def feed(self) -> Feed:
        """Feed of the single-agent method."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> GroupStates:
        """Fresh learners by group.

        Raises ``UserError`` for an environment of one agent, and for a game whose players wait for their turn if the
        method has a replay buffer: such methods learn from single steps and would take waiting for a decision.
        """
        require_multi_agent(spec)
        if spec.game is not None and not self.feed.is_fresh:
            raise UserError(
                f"{self.method.name} learns from single steps, and in {spec.name} players wait for their turn: "
                "use a method that learns from rollouts (ppo, a2c, impala)"
            )

        def learner(group: AgentGroup) -> PyTree:
            single_spec = dataclasses.replace(
                agent_spec(spec, group), privileged_space=self.critic_input.space(spec, group)
            )
            return self.sharing.init(self.method, single_spec, group.num_agents, fold(key, group.name))

        return GroupStates({group.name: learner(group) for group in spec.groups}, spec.groups)

    def policy(self, state: GroupStates, mode: Mode) -> GroupStates:
        """Acting policies of all agents, by group."""
        policies = {
            name: self.sharing.policy(self.method, group_state, mode) for name, group_state in state.by_group.items()
        }
        return GroupStates(policies, state.groups)

    def init_memory(self, policy: GroupStates, n: int) -> dict[str, PyTree]:
        """Recurrent states by group, ``[n, agent, ...]``."""
        return {
            g.name: self.sharing.init_memory(self.method, policy.by_group[g.name], n, g.num_agents)
            for g in policy.groups
        }

    def act(self, policy: GroupStates, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Actions, recurrent states and extras by group, ``[row, agent, ...]``."""
        results = {}
        for group in policy.groups:
            name, count = group.name, group.num_agents
            inputs = policy.by_group[name], memory[name], group_view(view, name), fold(key, name)
            results[name] = self.sharing.act(self.method, *inputs, count)
        action, memory, extras = ({name: parts[i] for name, parts in results.items()} for i in range(3))
        return action, memory, extras

    def action_probs(self, policy: GroupStates, memory: Any, view: View) -> dict[str, Float[Array, "row agent n"]]:
        """Action probabilities of every agent, by group.

        Raises ``UserError`` if the single-agent method has none.
        """
        if not isinstance(self.method, HasActionProbs):
            raise UserError(f"{self.method.name} has no action probabilities: use a method that provides them")
        probs = {}
        for group in policy.groups:
            name, count = group.name, group.num_agents
            inputs = policy.by_group[name], memory[name], group_view(view, name)
            probs[name] = self.sharing.action_probs(self.method, *inputs, count)
        return probs

    def judge(self, state: GroupStates, episode: Transition) -> Critique:
        """Empty critique: every agent has a critic of its own."""
        return Critique()

    def update(self, state: GroupStates, batch: Batch, key: Key[Array, ""]) -> tuple[GroupStates, Report]:
        """One update of every group from its own agents' experience."""
        critic_inputs = self.critic_input.critic_observations(
            state.groups, batch, lambda: self._target_actions(state, batch.steps, fold(key, "follow"))
        )
        new_states, metrics = {}, {}
        for group in state.groups:
            name, group_data = group.name, group_batch(batch, group, *critic_inputs[group.name])
            new_states[name], report = self.sharing.update(
                self.method, state.by_group[name], group_data, fold(key, name)
            )
            prefix = f"{name}_" if len(state.groups) > 1 else ""
            metrics |= {prefix + metric: value for metric, value in report.metrics.items()}
        return GroupStates(new_states, state.groups), Report(metrics)

    def _target_actions(self, state: GroupStates, steps: Transition, key: Key[Array, ""]) -> dict[str, PyTree]:
        """Next actions of all agents for the critics' targets, by group, ``[time, row, agent, ...]``."""

        def group_actions(name: str) -> PyTree:
            keys, view = indexed_keys(fold(key, name), steps.reward.shape[0]), group_view(steps.next_view, name)
            return jax.vmap(lambda *inputs: self.sharing.target_action(self.method, state.by_group[name], *inputs))(
                view, keys
            )

        return {group.name: group_actions(group.name) for group in state.groups}


class IndependentLearners(BaseIndependentLearners):
    """Independent learners with any single-agent method."""

    method: Method
    """Single-agent method by which each agent learns."""
    sharing: ParameterSharing = SharedParameters()
    """Parameter sharing within a group: SharedParameters, Independent or PeriodicReset."""
    critic_input: CriticInput = LocalObs()
    """What critics see: LocalObs (the agent's observation), GlobalState or GlobalStateAction."""

    @property
    def name(self) -> str:
        """Name of the single-agent method."""
        return self.method.name

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Citations of the single-agent method."""
        return self.method.citations

    @property
    def details(self) -> tuple[str, ...]:
        """Implementation details of the single-agent method, and that agents learn independently."""
        return (*self.method.details, "every agent learns as if the others were part of the environment")


def require_multi_agent(spec: EnvSpec) -> None:
    """Raises ``UserError`` for an environment of one agent."""
    if not spec.groups:
        raise UserError(f"{spec.name} has one agent, but this method needs several: use a single-agent method")


def agent_spec(spec: EnvSpec, group: AgentGroup) -> EnvSpec:
    """Environment spec of one agent of a group."""
    spaces = (
        dict(space.spaces)[group.name]
        for space in (spec.observation_space, spec.action_space)
        if isinstance(space, CompositeSpace)
    )
    observation, action = spaces
    name = f"{spec.name}/{group.name}"
    return EnvSpec(name, observation, action, spec.has_action_mask, spec.time_limit, max_turns=group.max_turns)


def group_view(view: View, group_name: str) -> View:
    """Views of a group's agents, ``[row, agent, ...]``."""
    action_mask = None if view.action_mask is None else view.action_mask[group_name]
    return View(view.observation[group_name], action_mask, None if view.alive is None else view.alive[group_name])


def group_batch(batch: Batch, group: AgentGroup, privileged: PyTree = None, next_privileged: PyTree = None) -> Batch:
    """Batch of a group's agents, ``[time, row, agent, ...]``; the mask leaves out steps where they did not act.

    An agent's episode ends where the agent terminates, or with the whole episode. ``privileged``: what their critics
    see, with the same axes.
    """
    steps, name = batch.steps, group.name

    def broadcast_to_agents(tree: PyTree) -> PyTree:
        return jax.tree.map(
            lambda x: jnp.broadcast_to(x[:, :, None], (*x.shape[:2], group.num_agents, *x.shape[2:])), tree
        )

    outcomes: Any = steps.agent_outcomes
    view, next_view = group_view(steps.view, name), group_view(steps.next_view, name)
    terminated, truncated, is_first, mask = broadcast_to_agents(
        (steps.terminated, steps.truncated, steps.is_first, batch.mask)
    )
    transitions = Transition(
        view,
        steps.action[name],
        outcomes[name].reward,
        terminated | outcomes[name].terminated,
        truncated,
        next_view,
        is_first,
        steps.extras[name],
        privileged,
        next_privileged,
    )
    memory = batch.memory[name] if batch.memory else ()
    return Batch(transitions, mask & view.alive, memory, batch.update_index)
