"""Learned best replies: what PPO wins that has trained against one player and nothing else.

It is at most what a best reply would win, so it finds weaknesses and cannot prove that there are none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis import api
from thespis.arena.players import Player, Trained
from thespis.core.contracts import Environment, Mode
from thespis.core.errors import UserError
from thespis.core.keys import fold
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.learners.crowd import EachAlone, Members, one_of


class Seat(eqx.Module):
    """A game under way, as the one who learns left it."""

    state: PyTree
    view: View
    memory: PyTree
    seat: Int[Array, "*row"]
    over: Bool[Array, "*row"]


class Against(eqx.Module):
    """One seat, drawn by lot, of a game whose other seats ``player`` keeps. An agent sees its own turns alone."""

    world: Environment
    player: Player

    @property
    def spec(self) -> EnvSpec:
        """What one agent sees and may do. Raises ``UserError`` for a world that is no game in turn."""
        spec = self.world.spec
        if spec.game is None:
            raise UserError(f"{spec.name} is no game in turn: best replies are learnt in those of pgx")
        return one_of(spec, spec.groups[0])

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Seat, TimeStep]:
        """A fresh game, played on until it is the learner's turn."""
        spec = self.world.spec
        state, begun = self.world.reset(spec.params, fold(key, "world"))
        seat = jax.random.randint(fold(key, "seat"), (), 0, spec.groups[0].count)
        table = Seat(state, begun.view, self.player.begin(1), seat, begun.terminated)
        table, _ = self._until_turn(table, fold(key, "before"), jnp.zeros(()))
        return table, self._told(table, jnp.zeros(()))

    def step(self, state: Seat, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Seat, TimeStep]:
        """The learner's move, and the others' until it is its turn again; the reward is what all of them brought it."""
        table, won = self._move(state, action, fold(key, "own"))
        table, won = self._until_turn(table, fold(key, "others"), won)
        return table, self._told(table, won)

    def _until_turn(self, table: Seat, key: Key[Array, ""], won: Float[Array, ""]) -> tuple[Seat, Float[Array, ""]]:
        group = self.world.spec.groups[0].name

        def waits(carry: tuple[Seat, Array, Array]) -> Array:
            alive: Any = carry[0].view.alive
            return ~carry[0].over & ~alive[group][carry[0].seat]

        def move(carry: tuple[Seat, Array, Array]) -> tuple[Seat, Array, Array]:
            table, won, count = carry
            table, more = self._move(table, jnp.zeros((), "int32"), jax.random.fold_in(key, count))
            return table, won + more, count + 1

        table, won, _ = jax.lax.while_loop(waits, move, (table, won, jnp.zeros((), "int32")))
        return table, won

    def _move(self, table: Seat, own: Int[Array, ""], key: Key[Array, ""]) -> tuple[Seat, Float[Array, ""]]:
        """One step of the world, in which the learner's seat does ``own``; what it brought that seat."""
        group = self.world.spec.groups[0].name
        views: Any = jax.tree.map(lambda x: x[None], table.view)
        actions, memory = self.player.act(table.memory, views, fold(key, "act"))
        taken = {group: actions[group][0].at[table.seat].set(own.astype(actions[group].dtype))}
        state, told = self.world.step(table.state, taken, fold(key, "step"))
        each: Any = told.each
        over: Any = told.terminated | told.truncated
        return Seat(state, told.view, memory, table.seat, over), each[group].reward[table.seat]

    def _told(self, table: Seat, won: Float[Array, ""]) -> TimeStep:
        group, no = self.world.spec.groups[0].name, jnp.zeros((), bool)
        seen, legal = jax.tree.map(lambda x: x[table.seat], (table.view.observation[group], table.view.legal[group]))
        return TimeStep(seen, won, table.over, no, legal)


def reply(world: Environment, player: Player, steps: int, out: Path, seed: int = 0) -> Player:
    """PPO after ``steps`` steps against ``player``, taking its best actions; the run is written to ``out``."""
    run = api.train("ppo", Against(world, player), steps=steps, seeds=[seed], out=out, episodes=2)
    state, groups = jax.tree.map(lambda x: x[0], run.states), world.spec.groups
    members = Members({group.name: state for group in groups}, groups)
    method: Any = EachAlone(run.method)
    return Trained(method, members, Mode.EXPLOIT, world.spec.action)
