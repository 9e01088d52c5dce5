"""Hierarchical team method: a high-level policy chooses now and then, a low-level policy acts under its choice.

Each level is a complete multi-agent method: the high level learns from periods, each of which is one of its steps, the
low level from the environment's steps. What can be chosen, what either level observes, and the low level's reward are
defined by a :class:`HighLevelActionSpace`.

All agents of a team choose together, every ``high_level_interval`` steps or earlier where the action space says so. A
window must hold a whole period wherever it starts: ``2 high_level_interval - 1`` steps.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Feed, WindowFeed, require_batches_of
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import AgentGroup
from thespis.critics.critic_inputs import joint_observation, joint_space
from thespis.learners.multi_agent.independent_learners import require_multi_agent
from thespis.runtime.keys import fold, seed_key

HighLevelAction = dict[str, Int[Array, "..."]]
"""High-level actions of all agents, by group, ``[..., agent]``."""


class HighLevelActionSpace(Protocol):
    """High-level action space: what the high level can choose, and what that means to the low level.

    Views and steps may have any leading axes.
    """

    def level_specs(self, spec: EnvSpec) -> tuple[EnvSpec, EnvSpec]:
        """Environment specs of the high level and of the low level."""
        ...

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PyTree:
        """Initial state of the action space: all that is known or learned of the high-level actions."""
        ...

    def actor_state(self, state: PyTree) -> PyTree:
        """The part of the state that an actor carries."""
        ...

    def high_level_view(self, actor_state: PyTree, view: View) -> View:
        """View of the high level."""
        ...

    def low_level_view(self, actor_state: PyTree, view: View, high_level_action: HighLevelAction) -> View:
        """View of the low level."""
        ...

    def should_terminate(
        self, actor_state: PyTree, view: View, high_level_action: HighLevelAction
    ) -> Bool[Array, "..."]:
        """Whether the team should choose again at this view, before the period is over."""
        ...

    def low_level_transitions(
        self,
        actor_state: PyTree,
        steps: Transition,
        high_level_action: HighLevelAction,
        next_high_level_action: HighLevelAction,
    ) -> Transition:
        """Transitions for the low level's update.

        ``next_high_level_action`` are the high-level actions under which the next steps are taken.
        """
        ...

    def update(self, state: PyTree, batch: Batch, key: Key[Array, ""]) -> tuple[PyTree, dict[str, Array]]:
        """New state of the action space after a batch, and metrics."""
        ...


class HierarchicalState(eqx.Module):
    """Training state of both levels and of the high-level actions; also the policy, with policies in their place."""

    high_level: PyTree
    low_level: PyTree
    high_level_actions_state: PyTree
    groups: tuple[AgentGroup, ...] = eqx.field(static=True)


class HierarchicalMemory(eqx.Module):
    """Memory of an episode: the low level's memory and the current high-level action.

    ``high_level_action`` is ``[row, agent]`` by group; ``steps_left`` of its period is ``[row]``.
    """

    low_level: PyTree
    high_level_action: HighLevelAction
    steps_left: Int[Array, " row"]


class Hierarchical(eqx.Module):
    """Hierarchical method: two multi-agent methods, one above the other.

    The high level has no memory, and its feed is not used.
    """

    high_level: eqx.AbstractVar[Method]
    low_level: eqx.AbstractVar[Method]
    high_level_actions: eqx.AbstractVar[HighLevelActionSpace]
    high_level_interval: eqx.AbstractVar[int]

    multi_agent: ClassVar[bool] = True

    @property
    def feed(self) -> Feed:
        """Feed of the low level."""
        return self.low_level.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> HierarchicalState:
        """Fresh states of both levels.

        Raises ``UserError`` for an environment of one agent, for a feed without windows, for windows too short to hold
        a period, and for a high level with memory.
        """
        require_multi_agent(spec)
        require_batches_of("a hierarchical method", self.feed, WindowFeed)
        if (window := self.feed.batch_shape[0]) < 2 * self.high_level_interval - 1:
            raise UserError(
                f"windows of {window} steps may not hold a period of {self.high_level_interval}: "
                f"set feed.sequence_length to {2 * self.high_level_interval - 1} or more"
            )
        privileged_space = joint_space(spec)
        high_spec, low_spec = (
            dataclasses.replace(level_spec, privileged_space=privileged_space)
            for level_spec in self.high_level_actions.level_specs(spec)
        )
        high_level, low_level = (
            self.high_level.init(high_spec, fold(key, "upper")),
            self.low_level.init(low_spec, fold(key, "lower")),
        )
        if jax.tree.leaves(self.high_level.init_memory(self.high_level.policy(high_level, Mode.EXPLOIT), 1)):
            raise UserError("the high level must be without memory: set its memory to none")
        return HierarchicalState(
            high_level, low_level, self.high_level_actions.init(spec, fold(key, "choices")), spec.groups
        )

    def policy(self, state: HierarchicalState, mode: Mode) -> HierarchicalState:
        """Policies of both levels."""
        levels = self.high_level.policy(state.high_level, mode), self.low_level.policy(state.low_level, mode)
        return HierarchicalState(
            *levels, self.high_level_actions.actor_state(state.high_level_actions_state), state.groups
        )

    def init_memory(self, policy: HierarchicalState, n: int) -> HierarchicalMemory:
        """Memories of fresh episodes, in which the high level chooses at the first step."""
        no_action = {group.name: jnp.zeros((n, group.num_agents), "int32") for group in policy.groups}
        return HierarchicalMemory(self.low_level.init_memory(policy.low_level, n), no_action, jnp.zeros(n, "int32"))

    def act(
        self, policy: HierarchicalState, memory: HierarchicalMemory, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, HierarchicalMemory, PyTree]:
        """Low-level actions under the current high-level actions.

        Extras hold the high-level action (``chosen``), whether it was chosen at this step (``due``), and whether its
        period ends with this step (``last``).
        """
        due = (memory.steps_left == 0) | self.high_level_actions.should_terminate(
            policy.high_level_actions_state, view, memory.high_level_action
        )
        new_action = self._select_high_level(policy, view, fold(key, "upper"))
        high_level_action = {
            name: jnp.where(due[:, None], new_action[name], x) for name, x in memory.high_level_action.items()
        }
        low_level_view = self.high_level_actions.low_level_view(
            policy.high_level_actions_state, view, high_level_action
        )
        action, low_level_memory, _ = self.low_level.act(
            policy.low_level, memory.low_level, low_level_view, fold(key, "lower")
        )
        steps_left = jnp.where(due, self.high_level_interval, memory.steps_left) - 1

        def extras_of(x: Int[Array, "row agent"]) -> dict[str, Array]:
            flags = {"due": due, "last": steps_left == 0}
            return {"chosen": x} | {name: jnp.broadcast_to(y[:, None], x.shape) for name, y in flags.items()}

        extras = {name: extras_of(x) for name, x in high_level_action.items()}
        return action, HierarchicalMemory(low_level_memory, high_level_action, steps_left), extras

    def judge(self, state: HierarchicalState, episode: Transition) -> Critique:
        """Empty critique: values of the high level are those of whole periods."""
        return Critique()

    def update(self, state: HierarchicalState, batch: Batch, key: Key[Array, ""]) -> tuple[HierarchicalState, Report]:
        """One update of each level, and of the high-level actions' state."""
        steps, actor_state = (
            self._with_state(batch.steps, state.groups),
            self.high_level_actions.actor_state(state.high_level_actions_state),
        )
        high_level_action, due, last = (
            {name: x[field] for name, x in steps.extras.items()} for field in ("chosen", "due", "last")
        )
        terminates = _any_alive(last, steps.view) | self.high_level_actions.should_terminate(
            actor_state, steps.next_view, high_level_action
        )
        high_level_batch = self._high_level_batch(
            actor_state, dataclasses.replace(batch, steps=steps), _any_alive(due, steps.view), terminates
        )
        high_level, high_report = self.high_level.update(state.high_level, high_level_batch, fold(key, "upper"))

        greedy = self.policy(state, Mode.EXPLOIT)
        new_action = jax.vmap(lambda view: self._select_high_level(greedy, view, seed_key(0)))(steps.next_view)
        # agents that do not act keep no high-level action
        use_new = {name: terminates[..., None] | ~steps.view.alive[name] for name in high_level_action}
        next_high_level_action = {
            name: jnp.where(use_new[name], new_action[name], x) for name, x in high_level_action.items()
        }
        low_level_steps = dataclasses.replace(
            self.high_level_actions.low_level_transitions(
                actor_state, steps, high_level_action, next_high_level_action
            ),
            extras={group.name: () for group in state.groups},
        )
        low_level, low_report = self.low_level.update(
            state.low_level, dataclasses.replace(batch, steps=low_level_steps), fold(key, "lower")
        )
        actions_state, action_metrics = self.high_level_actions.update(
            state.high_level_actions_state, batch, fold(key, "choices")
        )
        metrics = (
            {f"upper_{name}": x for name, x in high_report.metrics.items()} | dict(low_report.metrics) | action_metrics
        )
        return HierarchicalState(high_level, low_level, actions_state, state.groups), Report(metrics)

    def _select_high_level(self, policy: HierarchicalState, view: View, key: Key[Array, ""]) -> HighLevelAction:
        """New high-level actions for all rows."""
        high_level_view = self.high_level_actions.high_level_view(policy.high_level_actions_state, view)
        memory = self.high_level.init_memory(policy.high_level, jax.tree.leaves(view.alive)[0].shape[0])
        return self.high_level.act(policy.high_level, memory, high_level_view, key)[0]

    def _with_state(self, steps: Transition, groups: tuple[AgentGroup, ...]) -> Transition:
        """Steps with the joint state as critics' observation.

        So neither level mistakes its own privileged observation for the state.
        """
        privileged, next_privileged = (
            joint_observation(groups, steps.view, steps.privileged),
            joint_observation(groups, steps.next_view, steps.next_privileged),
        )
        return dataclasses.replace(steps, privileged=privileged, next_privileged=next_privileged)

    def _high_level_batch(self, actor_state: PyTree, batch: Batch, starts: Array, terminates: Array) -> Batch:
        """The first period that starts in each window as one step ``[1, row]``.

        Masked out if none starts before the end of the episode.
        """
        steps = batch.steps
        reward, length, terminated, truncated = jax.vmap(high_level_transition, in_axes=1, out_axes=0)(
            steps.reward, starts, terminates, steps.terminated, steps.truncated
        )
        start, rows = jnp.argmax(starts, axis=0), jnp.arange(starts.shape[1])
        first_step, last_step = (
            jax.tree.map(lambda x, i=i: x[i, rows][None], steps) for i in (start, start + length - 1)
        )
        transition = dataclasses.replace(
            first_step,
            view=self.high_level_actions.high_level_view(actor_state, first_step.view),
            action={name: extras["chosen"] for name, extras in first_step.extras.items()},
            reward=reward[None],
            terminated=terminated[None],
            truncated=truncated[None],
            next_view=self.high_level_actions.high_level_view(actor_state, last_step.next_view),
            next_privileged=last_step.next_privileged,
            is_first=jnp.ones_like(first_step.is_first),
            agent_outcomes=last_step.agent_outcomes,
            extras={name: () for name in first_step.extras},
        )
        return Batch(transition, (batch.mask & starts)[start, rows][None], (), batch.update_index)


def high_level_transition(
    reward: Float[Array, " time"],
    starts: Bool[Array, " time"],
    terminates: Bool[Array, " time"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
) -> tuple[Float[Array, ""], Int[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
    """High-level transition of the first period that starts in a window (``starts``).

    Returns its reward sum, length, termination and truncation. The period ends with the first step from there on at
    which ``terminates`` is true, or with the episode, or with the window.
    """
    time = jnp.arange(reward.shape[0])
    start = jnp.argmax(starts)
    ends = (terminates | terminated | truncated | (time == time[-1])) & (time >= start)
    end = jnp.argmax(ends)
    inside = (time >= start) & (time <= end)
    return jnp.sum(jnp.where(inside, reward, 0.0)), end - start + 1, terminated[end], truncated[end]


def _any_alive(flags: dict[str, Array], view: View) -> Bool[Array, "time row"]:
    """Whether the flag is true for any agent that acts."""
    return jnp.any(jnp.concatenate([x & view.alive[name] for name, x in flags.items()], axis=-1), axis=-1)
