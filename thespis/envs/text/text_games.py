"""Multi-player board and card games as text games: each player sees a transcript.

:class:`TextGame` is a game with numbered actions whose observations are transcripts: a player knows exactly what it
has read. :class:`TextGameEnv` is the environment in which every player writes responses: an action is parsed from the
words of a response, and whoever writes something that is not a legal action forfeits the game.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Game, GameSpec
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import END, AgentGroup, Text, dict_space
from thespis.envs.games.game_tree import EnumerableGame
from thespis.envs.games.self_play import PLAYER_GROUP
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, append_tokens, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

START_WORD = "start"
"""What the first player reads in place of an opponent's move."""


class TextGameState(eqx.Module):
    """State of a text game: that of the underlying game, and one transcript per player, padded with -1."""

    game_state: PyTree
    transcripts: Int[Array, "*positions player length"]


class TextGame(eqx.Module):
    """Game with text observations, built from ``game`` and the words of ``task_spec``.

    ``move_words`` names its actions, one word each. ``card_words``, if any, names the first entries of a player's
    ``seen`` observation, exactly one of which is 1.
    """

    game: Game
    task_spec: TaskSpec = eqx.field(static=True)
    move_words: tuple[str, ...] = eqx.field(static=True)
    card_words: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def spec(self) -> GameSpec:
        """The spec of the game, with transcripts as observations."""
        game_spec, task_spec = self.game.spec, self.task_spec
        length = task_spec.max_opening_tokens + self.max_moves * (
            task_spec.max_response_tokens + 1 + game_spec.num_players
        )
        observation_space = Text(
            length, task_spec.vocabulary, max(task_spec.max_opening_tokens, game_spec.num_players + 2)
        )
        return GameSpec(
            task_spec.name,
            game_spec.num_players,
            observation_space,
            game_spec.num_actions,
            perfect_information=False,
            max_game_length=game_spec.max_game_length,
        )

    @property
    def choices(self) -> tuple[tuple[int, ...], ...]:
        """The response that stands for each action, as tokens."""
        return tuple(tuple(int(i) for i in self.task_spec.encode(f"{move} {END}")) for move in self.move_words)

    def init(self, key: Key[Array, ""]) -> TextGameState:
        """An initial state; the player to move is prompted."""
        return self._make_initial_state(self.game.init(key))

    def initial_states(self) -> tuple[Float[np.ndarray, " opening"], TextGameState]:
        """All initial states with their probabilities. Raises ``UserError`` if the game cannot enumerate them."""
        assert isinstance(self.game, EnumerableGame)
        chance, inner = self.game.initial_states()
        return chance, jax.jit(jax.vmap(self._make_initial_state))(inner)

    def _make_initial_state(self, inner: PyTree) -> TextGameState:
        task_spec, first = self.task_spec, self.game.current_player(inner)

        def initial_transcript(player: Array) -> Array:
            prompt = jnp.where(player == first, task_spec.encode(f"{START_WORD} {RESPONSE_CUE}"), -1)
            if not self.card_words:
                return pack_tokens(task_spec.max_opening_tokens, prompt)
            card = jnp.argmax(self.game.observe(inner, player)["seen"].reshape(-1)[: len(self.card_words)])
            return pack_tokens(
                task_spec.max_opening_tokens,
                task_spec.encode("hold"),
                task_spec.encode_word(self.card_words[0]) + card,
                prompt,
            )

        openings = jax.vmap(initial_transcript)(jnp.arange(self.spec.num_players))
        width = self.spec.observation_space.max_length - task_spec.max_opening_tokens  # pyright: ignore[reportAttributeAccessIssue]
        return TextGameState(inner, jnp.pad(openings, ((0, 0), (0, width)), constant_values=-1))

    def step(self, state: TextGameState, action: Int[Array, ""], key: Key[Array, ""]) -> TextGameState:
        """The state after a legal action, written in its standard words."""
        return self.step_with_response(state, action, jnp.asarray(self.choices)[action], key)

    def step_with_response(
        self, state: TextGameState, action: Int[Array, ""], response: Int[Array, " tokens"], key: Key[Array, ""]
    ) -> TextGameState:
        """The state after a legal action that its player wrote as ``response``."""
        game, task_spec = self.game, self.task_spec
        mover, inner = game.current_player(state.game_state), game.step(state.game_state, action, key)
        next_player = jnp.where(game.is_terminal(inner), -1, game.current_player(inner))
        word = jnp.asarray(task_spec.encode(" ".join(self.move_words)))[action][None]

        def extend(player: Array, heard: Array) -> Array:
            move_tokens = jnp.where(
                player == mover, response, jnp.pad(word, (0, response.shape[0] - 1), constant_values=-1)
            )
            return append_tokens(
                append_tokens(heard, move_tokens),
                jnp.where(player == next_player, task_spec.encode(RESPONSE_CUE), -1),
            )

        return TextGameState(inner, jax.vmap(extend)(jnp.arange(self.spec.num_players), state.transcripts))

    def current_player(self, state: TextGameState) -> Int[Array, ""]:
        """The index of the player to move."""
        return self.game.current_player(state.game_state)

    @property
    def max_moves(self) -> int:
        """Moves of a player at most, as players move in turn."""
        length = self.game.spec.max_game_length
        assert length is not None
        return -(-length // self.game.spec.num_players)

    def observe(self, state: TextGameState, player: Int[Array, ""]) -> Int[Array, " length"]:
        """The transcript of a player."""
        return state.transcripts[player]

    def action_mask(self, state: TextGameState) -> Array:
        """Legal actions of the player to move."""
        return self.game.action_mask(state.game_state)

    def is_terminal(self, state: TextGameState) -> Array:
        """Whether the game is over."""
        return self.game.is_terminal(state.game_state)

    def rewards(self, state: TextGameState) -> Float[Array, " current_player"]:
        """Rewards of all players for the last move."""
        return self.game.rewards(state.game_state)


class TextGameEnv(eqx.Module):
    """Self-play environment in which all players of a text game write their moves.

    A response that is no legal action ends the game: its player loses ``forfeit_penalty``, which the others share. The
    penalty should exceed what a game can cost: otherwise an entropy bonus pays for nonsense, and a player who expects
    to lose would write it.
    """

    game: TextGame
    forfeit_penalty: float = 1.0

    @property
    def spec(self) -> EnvSpec:
        """One group with an agent per player; one of them acts at a time."""
        game_spec, task_spec = self.game.spec, self.game.task_spec
        return EnvSpec(
            name=task_spec.name,
            observation_space=dict_space(**{PLAYER_GROUP: game_spec.observation_space}),
            action_space=dict_space(
                **{PLAYER_GROUP: Text(task_spec.max_response_tokens, task_spec.vocabulary, choices=self.game.choices)}
            ),
            time_limit=game_spec.max_game_length,
            groups=(AgentGroup(PLAYER_GROUP, game_spec.num_players, self.game.max_moves),),
            game=self.game,
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[TextGameState, TimeStep]:
        """Start a new game."""
        state = self.game.init(key)
        return state, self._time_step(state, jnp.zeros(self.game.spec.num_players), jnp.zeros((), bool))

    def step(self, state: TextGameState, action: dict[str, Int[Array, "player response"]], key: Key[Array, ""]) -> Any:
        """Parse the response of the player to move; the responses of the others are ignored."""
        game, task_spec = self.game, self.game.task_spec
        mover = game.current_player(state)
        response = action[PLAYER_GROUP][mover]
        tokens, length = cut_at_eos(task_spec, response)
        move = tokens[0] == jnp.asarray(task_spec.encode(" ".join(game.move_words)))
        choice = jnp.argmax(move)
        legal = move.any() & (length == 1) & game.action_mask(state)[choice]
        stop = jnp.array(task_spec.vocabulary.eos_tokens)
        end = jnp.where((response[:, None] == stop).any(), -1, stop[:1])
        own_tokens = pack_tokens(task_spec.max_response_tokens + 1, response, end)
        next_state = game.step_with_response(state, choice, own_tokens, fold(key, "play"))
        mine = jnp.arange(game.spec.num_players) == mover
        transcripts = jnp.where(
            mine[:, None], jax.vmap(append_tokens, (0, None))(state.transcripts, own_tokens), state.transcripts
        )
        new_state = jax.tree.map(
            lambda a, b: jnp.where(legal, a, b), next_state, TextGameState(state.game_state, transcripts)
        )
        forfeit = jnp.where(mine, -self.forfeit_penalty, self.forfeit_penalty / (game.spec.num_players - 1))
        return new_state, self._time_step(
            new_state, jnp.where(legal, game.rewards(next_state), forfeit), ~legal | game.is_terminal(new_state)
        )

    def demonstrator_action(
        self, state: TextGameState, key: Key[Array, ""]
    ) -> dict[str, Int[Array, "player response"]]:
        """A uniformly random legal action of the player to move, in its standard words."""
        sampled = jax.random.categorical(fold(key, "lot"), jnp.where(self.game.action_mask(state), 0.0, -jnp.inf))
        response = pack_tokens(self.game.task_spec.max_response_tokens, jnp.asarray(self.game.choices)[sampled])
        mine = jnp.arange(self.game.spec.num_players) == self.game.current_player(state)
        return {PLAYER_GROUP: jnp.where(mine[:, None], response, -1)}

    def _time_step(self, tale: TextGameState, reward: Array, over: Array) -> TimeStep:
        speaks = (jnp.arange(self.game.spec.num_players) == self.game.current_player(tale)) & ~over
        outcomes = {PLAYER_GROUP: AgentOutcome(reward, jnp.broadcast_to(over, reward.shape))}
        false = jnp.zeros((), bool)
        return TimeStep(
            {PLAYER_GROUP: tale.transcripts},
            reward[0],
            over,
            false,
            alive={PLAYER_GROUP: speaks},
            agent_outcomes=outcomes,
        )
