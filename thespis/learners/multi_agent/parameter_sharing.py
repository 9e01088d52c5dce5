"""Parameter sharing among the agents of a group: shared, independent, or independent with periodic resets.

Each wraps a single-agent method. The agent axis follows the environments, ``[row, agent, ...]``; the method sees rows
only.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from thespis.core.contracts import HasActionProbs, Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import RolloutFeed, require_batches_of
from thespis.core.records import Batch, EnvSpec, Report, View
from thespis.runtime.keys import indexed_keys


class ParameterSharing(eqx.Module):
    """Slot: how the agents of a group share the learners of a single-agent method."""

    @abc.abstractmethod
    def init(self, method: Method, spec: EnvSpec, num_agents: int, key: Key[Array, ""]) -> PyTree:
        """The state of the group's learners."""

    @abc.abstractmethod
    def policy(self, method: Method, state: PyTree, mode: Mode) -> PyTree:
        """The policy or policies of the group."""

    @abc.abstractmethod
    def init_memory(self, method: Method, policy: PyTree, n: int, num_agents: int) -> PyTree:
        """Memories ``[n, agent, ...]``."""

    @abc.abstractmethod
    def act(self, method: Method, policy: PyTree, memory: Any, view: View, key: Key[Array, ""], num_agents: int) -> Any:
        """Actions, memories and extras ``[row, agent, ...]``."""

    @abc.abstractmethod
    def target_action(self, method: Any, state: PyTree, view: View, key: Key[Array, ""]) -> PyTree:
        """Actions used in targets, of all agents at views ``[row, agent, ...]``."""

    @abc.abstractmethod
    def action_probs(self, method: HasActionProbs, policy: PyTree, memory: Any, view: View, num_agents: int) -> Array:
        """Probability of every action, ``[row, agent, n]``."""

    @abc.abstractmethod
    def update(self, method: Method, state: Any, batch: Batch, key: Key[Array, ""]) -> tuple[Any, Report]:
        """One update on the experience of all agents, ``[time, row, agent, ...]``."""


class SharedParameters(ParameterSharing):
    """Full parameter sharing: one learner for all agents of a group, on their combined experience."""

    def init(self, method: Method, spec: EnvSpec, num_agents: int, key: Key[Array, ""]) -> PyTree:
        """State of the one learner."""
        return method.init(spec, key)

    def policy(self, method: Method, state: PyTree, mode: Mode) -> PyTree:
        """The policy of all agents."""
        return method.policy(state, mode)

    def init_memory(self, method: Method, policy: PyTree, n: int, num_agents: int) -> PyTree:
        """Memories ``[n, agent, ...]``."""
        return _split_agents(method.init_memory(policy, n * num_agents), num_agents)

    def act(self, method: Method, policy: PyTree, memory: Any, view: View, key: Key[Array, ""], num_agents: int) -> Any:
        """Actions, memories and extras ``[row, agent, ...]``."""
        return _split_agents(method.act(policy, _merge_agents(memory, 0), _merge_agents(view, 0), key), num_agents)

    def target_action(self, method: Any, state: PyTree, view: View, key: Key[Array, ""]) -> PyTree:
        """Actions used in targets, of all agents at views ``[row, agent, ...]``."""
        count = jax.tree.leaves(view)[0].shape[1]
        return _split_agents(method.target_action(state, _merge_agents(view, 0), key), count)

    def action_probs(self, method: HasActionProbs, policy: PyTree, memory: Any, view: View, num_agents: int) -> Array:
        """Probability of every action, ``[row, agent, n]``."""
        return _split_agents(method.action_probs(policy, _merge_agents(memory, 0), _merge_agents(view, 0)), num_agents)

    def update(self, method: Method, state: PyTree, batch: Batch, key: Key[Array, ""]) -> tuple[PyTree, Report]:
        """One update on the experience of all agents, ``[time, row, agent, ...]``."""
        steps, mask = _merge_agents((batch.steps, batch.mask), 1)
        return method.update(state, Batch(steps, mask, _merge_agents(batch.memory, 0), batch.update_index), key)


class Independent(ParameterSharing):
    """Independent learners: one for each agent of a group, states have the axis ``[agent]``."""

    def init(self, method: Method, spec: EnvSpec, num_agents: int, key: Key[Array, ""]) -> PyTree:
        """The learners' states ``[agent, ...]``, initialized one after the other.

        Under vmap their orthogonal matrices would be decomposed as one batch, with which the loop in which opponents
        start a game never ends on CPUs (jaxlib 0.10.2).
        """
        return jax.lax.map(lambda key: method.init(spec, key), indexed_keys(key, num_agents))

    def policy(self, method: Method, state: PyTree, mode: Mode) -> PyTree:
        """The agents' policies ``[agent, ...]``."""
        return jax.vmap(lambda state: method.policy(state, mode))(state)

    def init_memory(self, method: Method, policy: PyTree, n: int, num_agents: int) -> PyTree:
        """Memories ``[n, agent, ...]``."""
        return jax.vmap(lambda policy: method.init_memory(policy, n), out_axes=1)(policy)

    def act(self, method: Method, policy: PyTree, memory: Any, view: View, key: Key[Array, ""], num_agents: int) -> Any:
        """Actions, memories and extras ``[row, agent, ...]``."""
        return jax.vmap(method.act, in_axes=(0, 1, 1, 0), out_axes=1)(
            policy, memory, view, indexed_keys(key, num_agents)
        )

    def target_action(self, method: Any, state: PyTree, view: View, key: Key[Array, ""]) -> PyTree:
        """Actions used in targets, of each agent at views ``[row, agent, ...]``."""
        keys = indexed_keys(key, jax.tree.leaves(view)[0].shape[1])
        return jax.vmap(method.target_action, in_axes=(0, 1, 0), out_axes=1)(state, view, keys)

    def action_probs(self, method: HasActionProbs, policy: PyTree, memory: Any, view: View, num_agents: int) -> Array:
        """Probability of every action, ``[row, agent, n]``."""
        return jax.vmap(method.action_probs, in_axes=(0, 1, 1), out_axes=1)(policy, memory, view)

    def update(self, method: Method, state: PyTree, batch: Batch, key: Key[Array, ""]) -> tuple[PyTree, Report]:
        """One update of each learner on its own experience; metrics are means over agents."""

        def update_agent(
            state: PyTree, steps: Any, mask: Array, memory: Any, key: Key[Array, ""]
        ) -> tuple[PyTree, Report]:
            return method.update(state, Batch(steps, mask, memory, batch.update_index), key)

        keys = indexed_keys(key, batch.mask.shape[2])
        state, report = jax.vmap(update_agent, in_axes=(0, 2, 2, 1, 0))(
            state, batch.steps, batch.mask, batch.memory, keys
        )
        return state, Report({name: value.mean() for name, value in report.metrics.items()})


class PeriodicResetState(eqx.Module):
    """States of learners that may be reset: current and initial, ``[agent, ...]``."""

    current: PyTree
    initial: PyTree


class PeriodicReset(ParameterSharing):
    """Independent learners, some of which are reset to their initial state periodically (Vinyals et al. 2019).

    Everything is reset: parameters, optimizer state, normalizers. Actor memories of an episode in progress stay. For
    methods that learn from rollouts: :func:`rollouts_per_interval` says how many rollouts make up ``reset_interval``.
    """

    reset_interval: int = eqx.field(static=True)
    """Smallest number of environment steps of a seed between two reset times."""
    agent_periods: tuple[int, ...] = eqx.field(static=True)
    """For each agent, the number of reset times after which it is reset; 0: never."""

    def init(self, method: Method, spec: EnvSpec, num_agents: int, key: Key[Array, ""]) -> PeriodicResetState:
        """The learners' states, twice. Raises ``UserError`` unless ``agent_periods`` has one number for each agent."""
        if len(self.agent_periods) != num_agents:
            raise UserError(
                f"{num_agents} agents need agent_periods of {num_agents} numbers, not {len(self.agent_periods)}"
            )
        state = Independent().init(method, spec, num_agents, key)
        return PeriodicResetState(state, jax.tree.map(jnp.copy, state))

    def policy(self, method: Method, state: PeriodicResetState, mode: Mode) -> PyTree:
        """The agents' policies ``[agent, ...]``."""
        return Independent().policy(method, state.current, mode)

    def init_memory(self, method: Method, policy: PyTree, n: int, num_agents: int) -> PyTree:
        """Memories ``[n, agent, ...]``."""
        return Independent().init_memory(method, policy, n, num_agents)

    def act(self, method: Method, policy: PyTree, memory: Any, view: View, key: Key[Array, ""], num_agents: int) -> Any:
        """Actions, memories and extras ``[row, agent, ...]``."""
        return Independent().act(method, policy, memory, view, key, num_agents)

    def target_action(self, method: Any, state: PeriodicResetState, view: View, key: Key[Array, ""]) -> PyTree:
        """Actions used in targets, of each agent at views ``[row, agent, ...]``."""
        return Independent().target_action(method, state.current, view, key)

    def action_probs(self, method: HasActionProbs, policy: PyTree, memory: Any, view: View, num_agents: int) -> Array:
        """Probability of every action, ``[row, agent, n]``."""
        return Independent().action_probs(method, policy, memory, view, num_agents)

    def update(
        self, method: Method, state: PeriodicResetState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[PeriodicResetState, Report]:
        """One update of each learner on its own experience, then the resets that are due."""
        updated, report = Independent().update(method, state.current, batch, key)
        (time, rows), feed = batch.mask.shape[:2], method.feed
        require_batches_of("a learner that is reset periodically", feed, RolloutFeed)
        num_updates, updates_per_interval = (
            batch.update_index + 1,
            rollouts_per_interval(self.reset_interval, time * rows) * feed.num_updates,
        )
        is_reset = jnp.stack(
            [
                num_updates % (updates_per_interval * after) == 0 if after else num_updates < 0
                for after in self.agent_periods
            ]
        )
        return PeriodicResetState(_select_agents(is_reset, state.initial, updated), state.initial), report


def rollouts_per_interval(interval: int, rollout_size: int) -> int:
    """Number of rollouts of ``rollout_size`` steps that first make up ``interval`` steps."""
    return max(-(-interval // rollout_size), 1)


def _select_agents(mask: Bool[Array, " agent"], on_true: PyTree, on_false: PyTree) -> PyTree:
    """Agent by agent from one tree or the other."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), on_true, on_false)


def _merge_agents(tree: PyTree, axis: int) -> PyTree:
    """The axis and the next one merged into one: rows and agents."""
    return jax.tree.map(lambda x: x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :]), tree)


def _split_agents(tree: PyTree, num_agents: int) -> PyTree:
    """Rows ``[row * agent, ...]`` as ``[row, agent, ...]``."""
    return jax.tree.map(lambda x: x.reshape(-1, num_agents, *x.shape[1:]), tree)
