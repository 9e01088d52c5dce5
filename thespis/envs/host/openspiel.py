"""OpenSpiel games as multi-agent environments: players act in turn, or all at once in simultaneous-move games.

A player observes its information state tensor, or where a game has none its observation tensor. Chance moves are
sampled by the environment. The run reports the return of the first player, as for the other games of this package.
"""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space
from thespis.envs.host import snapshot
from thespis.envs.host.multi_agent import MultiAgentStep, MultiAgentVectorEnv

GAME_NAMES = (
    "backgammon",
    "battleship",
    "blotto",
    "breakthrough",
    "bridge",
    "checkers",
    "chess",
    "connect_four",
    "dark_hex",
    "first_sealed_auction",
    "go",
    "goofspiel",
    "havannah",
    "hex",
    "kuhn_poker",
    "leduc_poker",
    "liars_dice",
    "matrix_pd",
    "matrix_rps",
    "mancala",
    "nim",
    "othello",
    "oshi_zumo",
    "phantom_ttt",
    "pig",
    "tic_tac_toe",
    "tiny_bridge_2p",
    "tiny_hanabi",
    "y",
)
"""Some games, listed without importing OpenSpiel; any other of its games can be named too."""

PLAYER_GROUP = "seats"


def make_env(name: str, num_envs: int) -> MultiAgentVectorEnv:
    """Make ``num_envs`` games that OpenSpiel calls ``name``, parameters included: ``leduc_poker(players=3)``.

    Raises:
        UserError: if OpenSpiel is missing, has no such game, or the game provides no tensor observations.
    """
    return MultiAgentVectorEnv([OpenSpielGame(name) for _ in range(num_envs)])


class OpenSpielGame:
    """Adapter for one OpenSpiel game, a :class:`~thespis.envs.host.multi_agent.MultiAgentHostEnv`."""

    def __init__(self, name: str):
        self.game = game = load_game(name)
        kind = game.get_type()
        if not (kind.provides_information_state_tensor or kind.provides_observation_tensor):
            raise UserError(f"openspiel:{name} provides no observation tensors, and so cannot be learned")
        self._use_information_state = kind.provides_information_state_tensor
        self._shape = tuple(
            game.information_state_tensor_shape() if self._use_information_state else game.observation_tensor_shape()
        )
        self._players, self._random = game.num_players(), np.random.default_rng(0)
        self._state: Any = None
        self.group_members = ((PLAYER_GROUP, tuple(range(self._players))),)
        self.spec = EnvSpec(
            f"openspiel:{name}",
            dict_space(**{PLAYER_GROUP: Box(self._shape)}),
            dict_space(**{PLAYER_GROUP: Discrete(game.num_distinct_actions())}),
            has_action_mask=True,
            time_limit=game.max_game_length(),
            groups=(AgentGroup(PLAYER_GROUP, self._players),),
        )

    def reset(self, seed: int | None) -> MultiAgentStep:
        """Start a game; initial chance moves are sampled."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._state = self.game.new_initial_state()
        return self._make_step(np.zeros(self._players))

    def step(self, actions: list[Any]) -> MultiAgentStep:
        """Apply the action of the player to move, or of all players at a simultaneous node."""
        state, returns = self._state, np.array(self._state.returns())
        if state.is_simultaneous_node():
            state.apply_actions([int(action) for action in actions])
        else:
            state.apply_action(int(actions[state.current_player()]))
        return self._make_step(returns)

    def get_state(self) -> dict[str, np.ndarray]:
        """The state of the game and of the random generator."""
        text = "" if self._state is None else self._state.serialize()
        return {"state": np.frombuffer(text.encode(), "uint8"), "random": snapshot.get_rng_state(self._random)}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore the state that :meth:`get_state` returned."""
        self._state = self.game.deserialize_state(bytes(state["state"]).decode())
        snapshot.set_rng_state(self._random, state["random"])

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def _make_step(self, before: np.ndarray) -> MultiAgentStep:
        state = self._state
        while state.is_chance_node():
            outcomes, chances = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(outcomes[self._random.choice(len(outcomes), p=np.array(chances) / np.sum(chances))])
        done = state.is_terminal()
        observations, masks, alive = self.observe(state)
        rewards = (np.array(state.returns()) - before).astype("float32")
        return MultiAgentStep(
            observations, masks, alive, np.full(self._players, done), rewards, float(rewards[0]), done
        )

    def observe(self, state: Any) -> tuple[list[np.ndarray], list[np.ndarray | None], np.ndarray]:
        """Every player's observation in a state of OpenSpiel, legal actions of those who act now, and who they are."""
        done, players = state.is_terminal(), range(self._players)
        simultaneous = not done and state.is_simultaneous_node()
        alive = np.array([not done and (simultaneous or player == state.current_player()) for player in players])
        masks = [np.array(state.legal_actions_mask(player), bool) if alive[player] else None for player in players]
        tensor = state.information_state_tensor if self._use_information_state else state.observation_tensor
        observations = [np.array(tensor(player), "float32").reshape(self._shape) for player in players]
        return observations, masks, alive


def load_game(name: str) -> Any:
    """OpenSpiel's game called ``name``. Raises ``UserError`` if OpenSpiel is missing, or has no such game."""
    try:
        import pyspiel
    except ImportError as error:
        raise missing_extra("open-spiel", "spiel") from error
    base_name, names = name.partition("(")[0], pyspiel.registered_names()
    if base_name not in names:
        similar = difflib.get_close_matches(base_name, names, 3, 0.5)
        raise UserError(
            f"OpenSpiel has no game named {base_name!r}" + (f"; nearest: {', '.join(similar)}" if similar else "")
        )
    try:
        game: Any = pyspiel.load_game(name)
    except pyspiel.SpielError as error:
        raise UserError(f"openspiel:{name} cannot be made: {str(error).splitlines()[0]}") from error
    if game.get_type().dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise UserError(f"openspiel:{name} is a game of uncountably many players, which is not supported")
    return game
