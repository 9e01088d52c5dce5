"""Games as environments with opponents: for one learner, and for many learners at once (a league).

:class:`OpponentEnv` is a game as a single-agent environment whose opponents are parameters of the episode. A curriculum
draws the opponents, and which player of the game the learner is (``seat``). Opponents move inside ``step``, so the
agent acts on its own turns only, and any single-agent method can learn.

In :class:`LeagueEnv` many agents learn one game, each in a game of its own against its own opponents. Agents do not
observe each other's games. All games start together; an agent whose game is over is absent until the last game ends,
and with it the episode.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Game, Method, Mode
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep, View
from thespis.core.spaces import AgentGroup, Discrete, dict_space, random_action
from thespis.runtime.keys import fold, indexed_keys, seed_key

RANDOM_SEAT = -1


class OpponentParams(eqx.Module):
    """Opponents in the other seats, and the learner's seat.

    ``policy`` acts in each of the other seats, unless ``random_policy`` is set: then they play random legal moves.
    ``seat`` is the learner's seat; ``RANDOM_SEAT`` draws it at the start of the episode. ``pool_index`` tells the
    curriculum which opponent it has drawn.
    """

    policy: PyTree
    random_policy: Bool[Array, "*episodes"]
    seat: Int[Array, "*episodes"]
    pool_index: Int[Array, "*episodes"]


class OpponentEnvState(eqx.Module):
    """State of the game, with the learner's seat, the opponents, and their memory for every seat."""

    game_state: PyTree
    seat: Int[Array, "*episodes"]
    params: OpponentParams
    memory: PyTree


class OpponentEnv(eqx.Module):
    """One seat of ``game`` for the learner; opponents act with ``opponent``, a single-agent method that explores.

    Without a curriculum the opponents play random legal moves, and seats are drawn at random.
    """

    game: Game
    opponent: Method

    @property
    def spec(self) -> EnvSpec:
        """Spaces of one player; the default parameters are random opponents and a random seat."""
        player_spec = self._player_spec
        with jax.ensure_compile_time_eval():
            policy = self.opponent.policy(self.opponent.init(player_spec, seed_key(0)), Mode.EXPLORE)
            params = OpponentParams(policy, jnp.ones((), bool), jnp.int32(RANDOM_SEAT), jnp.int32(0))
        return EnvSpec(
            player_spec.name,
            player_spec.observation_space,
            player_spec.action_space,
            True,
            player_spec.time_limit,
            params,
        )

    @property
    def _player_spec(self) -> EnvSpec:
        rules = self.game.spec
        return EnvSpec(
            f"{rules.name} against others",
            rules.observation_space,
            Discrete(rules.num_actions),
            True,
            rules.max_game_length,
        )

    def reset(self, params: OpponentParams, key: Key[Array, ""]) -> tuple[OpponentEnvState, TimeStep]:
        """Starts a new game and plays it until it is the learner's turn."""
        players = self.game.spec.num_players
        random_seat = jax.random.randint(fold(key, "seat"), (), 0, players)
        memory = self.opponent.init_memory(params.policy, players)
        state = OpponentEnvState(
            self.game.init(key), jnp.where(params.seat == RANDOM_SEAT, random_seat, params.seat), params, memory
        )
        state, _ = self._play_until_turn(state, fold(key, "opponents"), jnp.zeros(players))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: OpponentEnvState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[OpponentEnvState, TimeStep]:
        """Plays the learner's move and all moves until its next turn. The reward is what they earned the learner."""
        position = self.game.step(state.game_state, action, key)
        next_state = OpponentEnvState(position, state.seat, state.params, state.memory)
        next_state, rewards = self._play_until_turn(next_state, fold(key, "opponents"), self.game.rewards(position))
        return next_state, self._time_step(next_state, rewards[next_state.seat])

    def _play_until_turn(
        self, table: OpponentEnvState, key: Key[Array, ""], won: Float[Array, " player"]
    ) -> tuple[OpponentEnvState, Array]:
        game = self.game

        def opponent_to_move(carry: tuple[OpponentEnvState, Array, Array]) -> Array:
            table, _, _ = carry
            return ~game.is_terminal(table.game_state) & (game.current_player(table.game_state) != table.seat)

        def move(carry: tuple[OpponentEnvState, Array, Array]) -> tuple[OpponentEnvState, Array, Array]:
            table, won, count = carry
            move_key = jax.random.fold_in(key, count)
            action, memory = self._opponent_action(table, fold(move_key, "act"))
            position = game.step(table.game_state, action, fold(move_key, "step"))
            return OpponentEnvState(position, table.seat, table.params, memory), won + game.rewards(position), count + 1

        table, won, _ = jax.lax.while_loop(opponent_to_move, move, (table, won, jnp.int32(0)))
        return table, won

    def _opponent_action(self, table: OpponentEnvState, key: Key[Array, ""]) -> tuple[Int[Array, ""], PyTree]:
        game, position, opponents = self.game, table.game_state, table.params
        player, action_mask = game.current_player(position), game.action_mask(position)
        view: Any = jax.tree.map(lambda x: x[None], View(game.observe(position, player), action_mask))
        own = jax.tree.map(lambda x: x[player][None], table.memory)
        actions, memories, _ = self.opponent.act(opponents.policy, own, view, key)
        memory = jax.tree.map(lambda rows, row: rows.at[player].set(row[0]), table.memory, memories)
        random_move = random_action(Discrete(game.spec.num_actions), fold(key, "uniform"), action_mask)
        return jnp.where(opponents.random_policy, random_move, actions[0]), memory

    def _time_step(self, table: OpponentEnvState, reward: Array) -> TimeStep:
        game, over = self.game, self.game.is_terminal(table.game_state)
        observation = game.observe(table.game_state, table.seat)
        return TimeStep(observation, reward, over, jnp.zeros((), bool), game.action_mask(table.game_state))


LEAGUE_GROUP = "league"


class LeagueEnvState(eqx.Module):
    """States of the games ``[agent]``, and which of them are over."""

    env_states: OpponentEnvState
    finished: Bool[Array, "*agent"]


class LeagueEnv(eqx.Module):
    """``num_agents`` agents, each of which plays its own copy of ``env``. The reported return is the first agent's."""

    env: OpponentEnv
    num_agents: int = eqx.field(static=True)

    @property
    def spec(self) -> EnvSpec:
        """One group of agents; the parameters are each agent's opponents, ``[agent]``."""
        spec = self.env.spec
        return EnvSpec(
            name=spec.name,
            observation_space=dict_space(**{LEAGUE_GROUP: spec.observation_space}),
            action_space=dict_space(**{LEAGUE_GROUP: spec.action_space}),
            has_action_mask=True,
            time_limit=spec.time_limit,
            params=jax.tree.map(lambda x: jnp.broadcast_to(x, (self.num_agents, *jnp.shape(x))), spec.params),
            groups=(AgentGroup(LEAGUE_GROUP, self.num_agents),),
        )

    def reset(self, params: OpponentParams, key: Key[Array, ""]) -> tuple[LeagueEnvState, TimeStep]:
        """Starts new games, each played until it is the agent's turn."""
        states, first = jax.vmap(self.env.reset)(params, indexed_keys(key, self.num_agents))
        not_finished = jnp.zeros(self.num_agents, bool)
        return LeagueEnvState(states, first.terminated), self._time_step(first, not_finished, first.terminated)

    def step(
        self, state: LeagueEnvState, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[LeagueEnvState, TimeStep]:
        """Plays every agent's move and the opponents' replies; finished games stay as they are."""
        states, time_steps = jax.vmap(self.env.step)(
            state.env_states, action[LEAGUE_GROUP], indexed_keys(key, self.num_agents)
        )
        over = state.finished | time_steps.terminated
        return LeagueEnvState(states, over), self._time_step(time_steps, state.finished, over)

    def _time_step(self, told: TimeStep, before: Bool[Array, " agent"], over: Bool[Array, " agent"]) -> TimeStep:
        reward = jnp.where(before, 0.0, told.reward)
        observation: PyTree = told.observation
        legal: Any = told.action_mask
        return TimeStep(
            {LEAGUE_GROUP: observation},
            reward[0],
            over.all(),
            jnp.zeros((), bool),
            {LEAGUE_GROUP: legal},
            alive={LEAGUE_GROUP: ~over},
            agent_outcomes={LEAGUE_GROUP: AgentOutcome(reward, over)},
        )
