"""Games by name, and the default environment of a game, also of a game with a single player."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import Environment, Game
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Discrete
from thespis.envs.games.pgx import Pgx
from thespis.envs.games.self_play import SelfPlayEnv


class SinglePlayerEnv(eqx.Module):
    """The only player of ``game`` as the agent."""

    game: Game

    @property
    def spec(self) -> EnvSpec:
        """Observation and action space of the player."""
        rules = self.game.spec
        return EnvSpec(rules.name, rules.observation_space, Discrete(rules.num_actions), True, rules.max_game_length)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Starts a new game."""
        position = self.game.init(key)
        return position, self._time_step(position, jnp.zeros(()))

    def step(self, state: PyTree, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Play one move and return the next state."""
        position = self.game.step(state, action, key)
        return position, self._time_step(position, self.game.rewards(position)[0])

    def _time_step(self, position: PyTree, reward: Array) -> TimeStep:
        observation, over = self.game.observe(position, jnp.zeros((), "int32")), self.game.is_terminal(position)
        return TimeStep(observation, reward, over, jnp.zeros((), bool), self.game.action_mask(position))


def make_game(name: str) -> Game:
    """The pgx game called ``name``."""
    return Pgx(name)


def make_game_env(name: str) -> Environment:
    """A self-play environment of the game, or a single-player environment if it has one player."""
    game = make_game(name)
    return SinglePlayerEnv(game) if game.spec.num_players == 1 else SelfPlayEnv(game)
