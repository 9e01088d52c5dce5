"""Self-play environment: a game as a multi-agent environment, one agent per player, all controlled by the learner.

An agent acts only on its own turn. At other times it is not ``alive``, and its only legal action (0) has no effect. The
return that a run reports is the first player's.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import Game
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep, View
from thespis.core.spaces import AgentGroup, Discrete, dict_space

PLAYER_GROUP = "seats"


class SelfPlayEnv(eqx.Module):
    """Self-play environment: all players of ``game`` are agents of one group."""

    game: Game

    @property
    def spec(self) -> EnvSpec:
        """One group, with as many agents as the game has players."""
        rules = self.game.spec
        return EnvSpec(
            name=rules.name,
            observation_space=dict_space(**{PLAYER_GROUP: rules.observation_space}),
            action_space=dict_space(**{PLAYER_GROUP: Discrete(rules.num_actions)}),
            has_action_mask=True,
            time_limit=rules.max_game_length,
            groups=(AgentGroup(PLAYER_GROUP, rules.num_players),),
            game=self.game,
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Starts a new game."""
        position = self.game.init(key)
        return position, self._time_step(position, jnp.zeros(self.game.spec.num_players))

    def step(self, state: PyTree, action: dict[str, Int[Array, " player"]], key: Key[Array, ""]):
        """Plays the current player's action; the other agents' actions are ignored."""
        position = self.game.step(state, action[PLAYER_GROUP][self.game.current_player(state)], key)
        return position, self._time_step(position, self.game.rewards(position))

    def view(self, state: PyTree) -> View:
        """Observation and action mask of every player; only the player to move is alive."""
        game, players = self.game, jnp.arange(self.game.spec.num_players)
        to_move = (players == game.current_player(state)) & ~game.is_terminal(state)
        noop = jnp.arange(game.spec.num_actions) == 0
        return View(
            {PLAYER_GROUP: jax.vmap(lambda player: game.observe(state, player))(players)},
            {PLAYER_GROUP: jnp.where(to_move[:, None], game.action_mask(state), noop)},
            {PLAYER_GROUP: to_move},
            state if game.spec.perfect_information else None,
        )

    def _time_step(self, position: PyTree, payoff: Array) -> TimeStep:
        view, over = self.view(position), self.game.is_terminal(position)
        outcome = {PLAYER_GROUP: AgentOutcome(payoff, jnp.broadcast_to(over, payoff.shape))}
        no = jnp.zeros((), bool)
        return TimeStep(
            view.observation,
            payoff[0],
            over,
            no,
            view.action_mask,
            alive=view.alive,
            game_state=view.game_state,
            agent_outcomes=outcome,
        )
