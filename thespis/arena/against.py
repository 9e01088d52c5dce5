"""One seat of a game whose other seats are kept by players that do not learn: trained runs, bots, a user's own."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.arena.naming import entrant
from thespis.arena.players import Player
from thespis.core.contracts import Environment, Method, Mode
from thespis.core.errors import UserError
from thespis.core.keys import fold
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.curricula.fixed import Fixed
from thespis.curricula.seating import only
from thespis.learners.crowd import one_of


class Seat(eqx.Module):
    """A game under way, as the one who learns left it: which seat is its, and which player keeps the others."""

    state: PyTree
    view: View
    memory: tuple[PyTree, ...]
    seat: Int[Array, "*row"]
    other: Int[Array, "*row"]
    over: Bool[Array, "*row"]


class Against(eqx.Module):
    """One seat, drawn by lot, of a game in turn; one of ``players``, drawn anew for every game, keeps all others.

    They move inside the world's step: an agent sees its own turns alone, so any method for one can learn.
    """

    world: Environment
    players: tuple[Player, ...]

    @property
    def spec(self) -> EnvSpec:
        """What one agent sees and may do. Raises ``UserError`` for a world that is no game in turn."""
        spec = self.world.spec
        if spec.game is None:
            raise UserError(f"{spec.name} is no game in turn: opponents sit in those of pgx (thespis list envs pgx)")
        return one_of(spec, spec.groups[0])

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Seat, TimeStep]:
        """A fresh game, played on until it is the learner's turn."""
        spec = self.world.spec
        state, begun = self.world.reset(spec.params, fold(key, "world"))
        seat = jax.random.randint(fold(key, "seat"), (), 0, spec.groups[0].count)
        other = jax.random.randint(fold(key, "other"), (), 0, len(self.players))
        memory = tuple(player.begin(1) for player in self.players)
        table = Seat(state, begun.view, memory, seat, other, begun.terminated)
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
        acting = fold(key, "act")
        acted = [player.act(memory, views, acting) for player, memory in zip(self.players, table.memory, strict=True)]
        theirs = jnp.stack([actions[group][0] for actions, _ in acted])[table.other]
        taken = {group: theirs.at[table.seat].set(own.astype(theirs.dtype))}
        state, told = self.world.step(table.state, taken, fold(key, "step"))
        each: Any = told.each
        over: Any = told.terminated | told.truncated
        memory = tuple(after for _, after in acted)
        return Seat(state, told.view, memory, table.seat, table.other, over), each[group].reward[table.seat]

    def _told(self, table: Seat, won: Float[Array, ""]) -> TimeStep:
        group, no = self.world.spec.groups[0].name, jnp.zeros((), bool)
        seen, legal = jax.tree.map(lambda x: x[table.seat], (table.view.observation[group], table.view.legal[group]))
        return TimeStep(seen, won, table.over, no, legal)


class Players(Fixed):
    """Opponents by name, all alike likely: ``runs/ppo``, ``runs/ppo@3``, ``bot:random``, ``module:attribute`` ...

    Runs take the actions that they would sample. Against one run this trains an exploiter of it. Nothing varies but the
    lots that the world draws.
    """

    texts: tuple[str, ...] = eqx.field(static=True)

    name: ClassVar[str] = "players"

    def learner(self, method: Method) -> Method:
        """The method itself."""
        return method

    def player(self, method: Method, states: PyTree, member: int) -> tuple[Method, PyTree]:
        """The one that there is."""
        return only(method, states, member)

    def world(self, environment: Environment, method: Method) -> Environment:
        """One seat of the game that ``environment`` is. Raises ``UserError`` if nobody is called so."""
        found = [entrant(text, environment, environment.spec.name, Mode.SAMPLE) for text in self.texts]
        return Against(environment, tuple(who.players[0] for who in found))
