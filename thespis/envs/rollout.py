"""Rollout: the pure function that acts, steps environments, records, and starts new episodes where asked.

It knows no loop and no method. Three functions say what happens in a tick, which is all that they get to make keys of:

- ``act(memory, view, is_first, tick)``: the action in the environment's units, the canonical action, memory, extras;
- ``step(state, action, tick)``: the next state of each environment and its :class:`~thespis.core.records.TimeStep`;
- ``restart(draw, tick)``: parameters of the next episodes, their states and first time steps; ``None``: no episode
  starts, and steps after an episode's end are recorded as they come.

The compiled loop runs it in real environments; methods with a learned model run it in a
:class:`~thespis.learners.model_based.learned_env.LearnedEnv`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Method
from thespis.core.records import AgentOutcome, Draw, EpisodeStats, TimeStep, Transition, View
from thespis.core.spaces import AgentGroup, Space, unscale_action

Tick = Int[Array, ""]
Act = Callable[[Any, View, Bool[Array, " env"], Tick], tuple[PyTree, PyTree, Any, PyTree]]
Step = Callable[[PyTree, PyTree, Tick], tuple[PyTree, TimeStep]]
Restart = Callable[[Draw, Tick], tuple[Draw, PyTree, TimeStep]]


class RolloutState(eqx.Module):
    """State of environments between two steps, leaves ``[env, ...]``, with what the actor remembers of them."""

    state: PyTree
    view: View
    privileged: PyTree
    memory: Any
    is_first: Bool[Array, "*seed env"]
    returns: Float[Array, "*seed env"]
    lengths: Int[Array, "*seed env"]
    params: PyTree
    agent_returns: dict[str, Array] | None
    """Every agent's return so far, by group ``[env, agent]``; ``None`` with a single agent."""
    level: Int[Array, "*seed env"] | None = None
    """The curriculum's number of each environment's level."""
    learns: Bool[Array, "*seed env"] | None = None
    """Whether the learner may learn from each environment's episode."""


def start_rollout(
    state: PyTree, first: TimeStep, memory: Any, draw: Draw, groups: tuple[AgentGroup, ...] = ()
) -> RolloutState:
    """All environments at the beginning of an episode; ``first`` are their first time steps."""
    n = first.reward.shape[0]
    agent_returns = {agents.name: jnp.zeros((n, agents.num_agents)) for agents in groups} or None
    return RolloutState(
        state,
        first.view,
        first.privileged,
        memory,
        jnp.ones(n, bool),
        jnp.zeros(n),
        jnp.zeros(n, "int32"),
        draw.params,
        agent_returns,
        draw.level,
        draw.learns,
    )


def rollout(
    act: Act, step: Step, restart: Restart | None, now: RolloutState, ticks: Int[Array, " time"]
) -> tuple[RolloutState, tuple[Transition, EpisodeStats]]:
    """Step all environments once for each of ``ticks``; transitions and episode statistics ``[time, env]``."""
    return jax.lax.scan(lambda now, tick: rollout_step(act, step, restart, now, tick), now, ticks)


def rollout_step(
    act: Act, step: Step, restart: Restart | None, now: RolloutState, tick: Tick
) -> tuple[RolloutState, tuple[Transition, EpisodeStats]]:
    """Step all environments once: the state after it, transitions and episode statistics ``[env]``."""
    env_action, action, memory, extras = act(now.memory, now.view, now.is_first, tick)
    state, following = step(now.state, env_action, tick)
    transition = Transition(
        now.view,
        action,
        following.reward,
        following.terminated,
        following.truncated,
        following.view,
        now.is_first,
        extras,
        now.privileged,
        following.privileged,
        following.agent_outcomes,
        following.channels,
        now.learns,
        now.level,
    )
    returns, lengths = now.returns + following.reward, now.lengths + 1
    ended = transition.done
    agent_returns = _add_agent_rewards(now.agent_returns, following.agent_outcomes)
    stats = EpisodeStats(ended, returns, lengths, now.params, agent_returns=agent_returns, level=now.level)
    draw = Draw(now.params, now.level, now.learns)
    view, privileged = following.view, following.privileged
    if restart is not None:
        next_draw, fresh_state, fresh = restart(draw, tick)
        state, view, privileged, draw, agent_returns = select_rows(
            ended,
            (fresh_state, fresh.view, fresh.privileged, next_draw, jax.tree.map(jnp.zeros_like, agent_returns)),
            (state, view, privileged, draw, agent_returns),
        )
        returns, lengths = jnp.where(ended, 0.0, returns), jnp.where(ended, 0, lengths)
    after = RolloutState(
        state,
        view,
        privileged,
        memory,
        ended,
        returns,
        lengths,
        draw.params,
        agent_returns,
        draw.level,
        draw.learns,
    )
    return after, (transition, stats)


def act_once(
    method: Method,
    action_space: Space,
    policy: PyTree,
    memory: Any,
    view: View,
    is_first: Bool[Array, " env"],
    key: Key[Array, ""],
) -> tuple[PyTree, PyTree, Any, PyTree]:
    """Act once: ``(environment action, canonical action, memory, extras)``. New episodes reset memory."""
    memory = select_rows(is_first, method.init_memory(policy, is_first.shape[0]), memory)
    action, memory, extras = method.act(policy, memory, view, key)
    return unscale_action(action_space, action), action, memory, extras


def select_rows(condition: Bool[Array, "*row"], yes: PyTree, no: PyTree) -> PyTree:
    """Select from two trees by ``condition``, whose axes come first in all leaves (none: one of the trees)."""

    def leaf(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, yes, no)


def _add_agent_rewards(sums: dict[str, Array] | None, each: dict[str, AgentOutcome] | None) -> dict[str, Array] | None:
    """Every agent's return with a step's rewards added; ``None`` with a single agent."""
    return None if sums is None or each is None else {name: sums[name] + each[name].reward for name in sums}
