"""Cast: a method for each seat of a conversation, with a model, a reward and a learning rule of its own.

A seat is a group of one agent (:mod:`thespis.envs.text.conversation`). Each seat's method sees its seat's transcript
and reward alone, as if the others were part of the environment; the reward for a response that comes while others speak
counts for that response. A seat that does not learn has a
:class:`~thespis.learners.language.frozen_model.FrozenModel`, which costs its parameters and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Mode, learns
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Metrics, Report, Transition, View
from thespis.core.spaces import AgentGroup
from thespis.learners.multi_agent.independent_learners import (
    GroupStates,
    agent_spec,
    group_batch,
    group_view,
    require_multi_agent,
)
from thespis.learners.multi_agent.parameter_sharing import SharedParameters
from thespis.runtime.keys import fold
from thespis.runtime.vmap_exact import call_either

_SHARING = SharedParameters()


class Seat(eqx.Module):
    """Seat of a conversation: its name, and the method that acts and learns for it."""

    name: str = eqx.field(static=True)
    method: Any


def _as_seats(seats: Any) -> tuple[Seat, ...]:
    """Seats from methods by name, or as they are."""
    return tuple(Seat(*item) for item in seats.items()) if isinstance(seats, dict) else tuple(seats)


class Cast(eqx.Module):
    """Cast: one method for each seat of a conversation, learning or frozen."""

    seats: tuple[Seat, ...] = eqx.field(converter=_as_seats)
    """The method of each seat; also as a dictionary of methods by name. Those that learn need the same feed."""
    updates_per_turn: int = eqx.field(static=True, default=0)
    """Updates after which the next seat learns, in the order of the cast; 0: all learn in every update."""

    name: ClassVar[str] = "cast"
    multi_agent: ClassVar[bool] = True

    def __check_init__(self):
        """Raise ``ValueError`` for different feeds of seats that learn, and turns that are negative."""
        if self.updates_per_turn < 0:
            raise ValueError(f"updates_per_turn={self.updates_per_turn} is at least 0")
        learning = [seat for seat in self.seats if learns(seat.method)]
        if len({seat.method.feed for seat in learning}) > 1:
            feeds = "; ".join(f"{seat.name}: {seat.method.feed}" for seat in learning)
            raise ValueError(f"seats that learn share their episodes, and these have different feeds: {feeds}")

    @property
    def learns(self) -> bool:
        """Whether a seat learns; a cast in which none does can only play."""
        return any(learns(seat.method) for seat in self.seats)

    @property
    def feed(self) -> Feed:
        """Feed of the seats that learn; that of the first one if none does."""
        return next((seat.method.feed for seat in self.seats if learns(seat.method)), self.seats[0].method.feed)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Citations of the seats' methods."""
        return tuple(dict.fromkeys(citation for seat in self.seats for citation in seat.method.citations))

    @property
    def details(self) -> tuple[str, ...]:
        """Implementation details of the seats' methods."""
        return tuple(f"{seat.name}: {detail}" for seat in self.seats for detail in seat.method.details)

    @property
    def methods(self) -> dict[str, Any]:
        """The methods by the names of their seats."""
        return {seat.name: seat.method for seat in self.seats}

    @property
    def _names(self) -> str:
        return ", ".join(seat.name for seat in self.seats)

    def map_seats(self, change: Callable[[str, Any], Any]) -> Cast:
        """The cast with ``change(name, method)`` as the method of each seat."""
        seats = tuple(Seat(seat.name, change(seat.name, seat.method)) for seat in self.seats)
        return Cast(seats, self.updates_per_turn)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> GroupStates:
        """Fresh states by seat. Raises ``UserError`` for an environment with other seats than the cast."""
        require_multi_agent(spec)
        names = [group.name for group in spec.groups]
        if sorted(names) != sorted(self.methods) or any(group.num_agents > 1 for group in spec.groups):
            raise UserError(
                f"{spec.name} has the groups {', '.join(names)}, and the cast the seats {self._names}: each "
                "seat is a group of one agent"
            )
        states = {
            group.name: self.methods[group.name].init(agent_spec(spec, group), fold(key, group.name))
            for group in spec.groups
        }
        return GroupStates(states, spec.groups, jnp.int32(0) if self.updates_per_turn else None)

    def policy(self, state: GroupStates, mode: Mode) -> GroupStates:
        """Acting policies by seat."""
        return GroupStates(
            {name: self.methods[name].policy(part, mode) for name, part in state.by_group.items()}, state.groups
        )

    def init_memory(self, policy: GroupStates, n: int) -> dict[str, PyTree]:
        """Memories by seat, ``[n, agent, ...]``."""
        return {name: _SHARING.init_memory(self.methods[name], part, n, 1) for name, part in policy.by_group.items()}

    def act(self, policy: GroupStates, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Responses, memories and extras by seat, ``[row, agent, ...]``; nothing of a seat that speaks in no row."""
        results = {
            name: self._responses(name, part, memory[name], group_view(view, name), fold(key, name))
            for name, part in policy.by_group.items()
        }
        action, memory, extras = ({name: parts[i] for name, parts in results.items()} for i in range(3))
        return action, memory, extras

    def _responses(self, name: str, policy: PyTree, memory: PyTree, view: View, key: Key[Array, ""]) -> Any:
        """Responses, memory and extras of a seat, whose model runs only if it speaks in some row.

        A seat that calls the host runs always, as JAX cannot map such calls under a condition over seeds.
        """

        def speak(policy: PyTree, memory: PyTree, view: View, key: Key[Array, ""]) -> Any:
            return _SHARING.act(self.methods[name], policy, memory, view, key, 1)

        jaxpr, (actions, _, extras) = jax.make_jaxpr(speak, return_shape=True)(policy, memory, view, key)
        if jaxpr.effects:
            return speak(policy, memory, view, key)

        def wait(policy: PyTree, memory: PyTree, view: View, key: Key[Array, ""]) -> Any:
            nothing = jax.tree.map(lambda leaf: jnp.full(leaf.shape, -1, leaf.dtype), actions)
            return nothing, memory, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), extras)

        return call_either(speak, wait)(jnp.any(view.alive), policy, memory, view, key)

    def judge(self, state: GroupStates, episode: Transition) -> Critique:
        """Empty critique: every seat has a critic of its own."""
        return Critique()

    def update(self, state: GroupStates, batch: Batch, key: Key[Array, ""]) -> tuple[GroupStates, Report]:
        """One update of every seat that learns, or of the one whose turn it is, from its own responses and rewards.

        The metrics of a seat that waits for its turn are 0, and so is its ``learns``.
        """
        states, metrics = dict(state.by_group), {}
        for group in state.groups:
            name, method = group.name, self.methods[group.name]
            if not learns(method):
                continue

            def learn(name: str = name, method: Any = method, group: AgentGroup = group) -> tuple[PyTree, Metrics]:
                data = group_batch(batch, group)
                new, report = _SHARING.update(method, state.by_group[name], data, fold(key, name))
                return new, report.metrics

            states[name], of_seat = self._in_turn(state, name, learn)
            metrics |= {f"{name}_{metric}": value for metric, value in of_seat.items()}
        num_updates = None if state.num_updates is None else state.num_updates + 1
        return GroupStates(states, state.groups, num_updates), Report(metrics)

    def _in_turn(
        self, state: GroupStates, name: str, learn: Callable[[], tuple[PyTree, Metrics]]
    ) -> tuple[PyTree, Metrics]:
        """State and metrics of a seat after an update in which it learns if it is its turn."""
        if state.num_updates is None:
            return learn()
        learning = [seat.name for seat in self.seats if learns(seat.method)]
        is_turn = state.num_updates // self.updates_per_turn % len(learning) == learning.index(name)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(learn)[1])
        new, metrics = jax.lax.cond(is_turn, learn, lambda: (state.by_group[name], nothing))
        return new, dict(metrics) | {"learns": is_turn.astype(jnp.float32)}
