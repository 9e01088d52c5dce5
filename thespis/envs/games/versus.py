"""A game as a world of one agent: the other seats are filled by opponents, who are parameters of the episode.

A curriculum draws them: who they are, and where the learner sits. Opponents move inside the world's step, so the agent
sees its own turns alone, and any method for one agent can learn.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Game, Method, Mode
from thespis.core.keys import fold, key_of
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.core.spaces import Discrete, random_action

ANY = -1


class Opponents(eqx.Module):
    """Who sits in the other seats, and where the learner does.

    ``policy`` acts in each of them, unless ``uniform``: then they take legal moves at random. ``seat`` is where the
    learner sits, ``ANY`` for a lot drawn as the episode begins. ``member`` tells the curriculum whom it has drawn.
    """

    policy: PyTree
    uniform: Bool[Array, "*episodes"]
    seat: Int[Array, "*episodes"]
    member: Int[Array, "*episodes"]


class Table(eqx.Module):
    """A game under way."""

    position: PyTree
    seat: Int[Array, "*episodes"]
    opponents: Opponents
    memory: PyTree


class Versus(eqx.Module):
    """One seat of ``game``; the opponents act by ``rival``, a method for one agent, as it explores.

    Without a curriculum the opponents take legal moves at random, and seats are drawn by lot.
    """

    game: Game
    rival: Method

    @property
    def spec(self) -> EnvSpec:
        """What one player sees and may do."""
        alone = self._alone
        with jax.ensure_compile_time_eval():
            policy = self.rival.policy(self.rival.init(alone, key_of(0)), Mode.EXPLORE)
            nobody = Opponents(policy, jnp.ones((), bool), jnp.int32(ANY), jnp.int32(0))
        return EnvSpec(alone.name, alone.observation, alone.action, True, alone.time_limit, nobody)

    @property
    def _alone(self) -> EnvSpec:
        rules = self.game.rules
        return EnvSpec(f"{rules.name} against others", rules.observation, Discrete(rules.actions), True, rules.longest)

    def reset(self, params: Opponents, key: Key[Array, ""]) -> tuple[Table, TimeStep]:
        """A fresh game, played on until it is the learner's turn."""
        players = self.game.rules.players
        lot = jax.random.randint(fold(key, "seat"), (), 0, players)
        memory = self.rival.begin(params.policy, players)
        table = Table(self.game.start(key), jnp.where(params.seat == ANY, lot, params.seat), params, memory)
        table, _ = self._until_turn(table, fold(key, "opponents"), jnp.zeros(players))
        return table, self._step(table, jnp.zeros(()))

    def step(self, state: Table, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Table, TimeStep]:
        """The learner's move, and all that follow until it is its turn again. The reward is what they brought it."""
        position = self.game.play(state.position, action, key)
        table = Table(position, state.seat, state.opponents, state.memory)
        table, won = self._until_turn(table, fold(key, "opponents"), self.game.payoff(position))
        return table, self._step(table, won[table.seat])

    def _until_turn(self, table: Table, key: Key[Array, ""], won: Float[Array, " player"]) -> tuple[Table, Array]:
        game = self.game

        def waits(carry: tuple[Table, Array, Array]) -> Array:
            table, _, _ = carry
            return ~game.over(table.position) & (game.player(table.position) != table.seat)

        def move(carry: tuple[Table, Array, Array]) -> tuple[Table, Array, Array]:
            table, won, count = carry
            here = jax.random.fold_in(key, count)
            action, memory = self._choose(table, fold(here, "act"))
            position = game.play(table.position, action, fold(here, "step"))
            return Table(position, table.seat, table.opponents, memory), won + game.payoff(position), count + 1

        table, won, _ = jax.lax.while_loop(waits, move, (table, won, jnp.int32(0)))
        return table, won

    def _choose(self, table: Table, key: Key[Array, ""]) -> tuple[Int[Array, ""], PyTree]:
        game, position, opponents = self.game, table.position, table.opponents
        player, legal = game.player(position), game.legal(position)
        view: Any = jax.tree.map(lambda x: x[None], View(game.observe(position, player), legal))
        own = jax.tree.map(lambda x: x[player][None], table.memory)
        chosen, after, _ = self.rival.act(opponents.policy, own, view, key)
        memory = jax.tree.map(lambda all_, one: all_.at[player].set(one[0]), table.memory, after)
        lot = random_action(Discrete(game.rules.actions), fold(key, "uniform"), legal)
        return jnp.where(opponents.uniform, lot, chosen[0]), memory

    def _step(self, table: Table, reward: Array) -> TimeStep:
        game, over = self.game, self.game.over(table.position)
        seen = game.observe(table.position, table.seat)
        return TimeStep(seen, reward, over, jnp.zeros((), bool), game.legal(table.position))
