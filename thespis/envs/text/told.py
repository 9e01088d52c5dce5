"""Games of several players, told in words: every player hears its cards, what the others do, and when to speak.

:class:`Told` is still a game with numbered choices, whose players see transcripts: what a player knows is all that it
has heard. :class:`Duel` is the world in which all seats speak: what an utterance means is read from its words, and who
says what is no legal choice forfeits the game.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.contracts import Game, Rules
from thespis.core.game_trees import Enumerable
from thespis.core.keys import fold
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Text, dict_space
from thespis.core.vocabulary import END
from thespis.envs.games.everyone import SEATS
from thespis.envs.text.reading import before_end
from thespis.envs.text.task import ASK, Manners, joined, message

START = "start"
"""What the player who begins hears in place of a move."""


class Tale(eqx.Module):
    """A position, and what each player has heard of the game, padded with -1."""

    inner: PyTree
    heard: Int[Array, "*positions player length"]


class Told(eqx.Module):
    """``game`` in the words of ``manners``: ``moves`` are what its choices are called, a word each.

    ``cards``: if there are any, the words for the first entries of what a player ``seen``, of which one is 1.
    """

    game: Game
    manners: Manners = eqx.field(static=True)
    moves: tuple[str, ...] = eqx.field(static=True)
    cards: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def rules(self) -> Rules:
        """Those of the game; what is seen are transcripts."""
        rules, told = self.game.rules, self.manners
        assert rules.longest is not None
        most = -(-rules.longest // rules.players)
        length = told.opening + most * (told.utterance + 1 + rules.players)
        seen = Text(length, told.vocabulary, max(told.opening, rules.players + 2))
        return Rules(told.name, rules.players, seen, rules.actions, perfect=False, longest=rules.longest)

    @property
    def choices(self) -> tuple[tuple[int, ...], ...]:
        """The utterance that is each choice, as ids."""
        return tuple(tuple(int(i) for i in self.manners.ids(f"{move} {END}")) for move in self.moves)

    def start(self, key: Key[Array, ""]) -> Tale:
        """A first position; who begins is asked."""
        return self._begun(self.game.start(key))

    def openings(self) -> tuple[Float[np.ndarray, " opening"], Tale]:
        """Every first position with its probability. Raises ``UserError`` where the game's cannot be counted."""
        assert isinstance(self.game, Enumerable)
        chance, inner = self.game.openings()
        return chance, jax.jit(jax.vmap(self._begun))(inner)

    def _begun(self, inner: PyTree) -> Tale:
        told, first = self.manners, self.game.player(inner)

        def opening(player: Array) -> Array:
            asked = jnp.where(player == first, told.ids(f"{START} {ASK}"), -1)
            if not self.cards:
                return message(told.opening, asked)
            card = jnp.argmax(self.game.observe(inner, player)["seen"].reshape(-1)[: len(self.cards)])
            return message(told.opening, told.ids("hold"), told.id(self.cards[0]) + card, asked)

        said = jax.vmap(opening)(jnp.arange(self.rules.players))
        width = self.rules.observation.length - told.opening  # pyright: ignore[reportAttributeAccessIssue]
        return Tale(inner, jnp.pad(said, ((0, 0), (0, width)), constant_values=-1))

    def play(self, position: Tale, action: Int[Array, ""], key: Key[Array, ""]) -> Tale:
        """The position after a legal choice, said as it should be."""
        return self.said(position, action, jnp.asarray(self.choices)[action], key)

    def said(self, position: Tale, action: Int[Array, ""], own: Int[Array, " ids"], key: Key[Array, ""]) -> Tale:
        """The position after a legal choice that was said in words of one's ``own``."""
        game, told = self.game, self.manners
        mover, inner = game.player(position.inner), game.play(position.inner, action, key)
        asked = jnp.where(game.over(inner), -1, game.player(inner))
        word = jnp.asarray(told.ids(" ".join(self.moves)))[action][None]

        def after(player: Array, heard: Array) -> Array:
            more = jnp.where(player == mover, own, jnp.pad(word, (0, own.shape[0] - 1), constant_values=-1))
            return joined(joined(heard, more), jnp.where(player == asked, told.ids(ASK), -1))

        return Tale(inner, jax.vmap(after)(jnp.arange(self.rules.players), position.heard))

    def player(self, position: Tale) -> Int[Array, ""]:
        """Whose move it is."""
        return self.game.player(position.inner)

    def observe(self, position: Tale, player: Int[Array, ""]) -> Int[Array, " length"]:
        """What a player has heard and said."""
        return position.heard[player]

    def legal(self, position: Tale) -> Array:
        """What the player to move may do."""
        return self.game.legal(position.inner)

    def over(self, position: Tale) -> Array:
        """Whether the game has ended."""
        return self.game.over(position.inner)

    def payoff(self, position: Tale) -> Float[Array, " player"]:
        """What the last move brought to every player."""
        return self.game.payoff(position.inner)


class Duel(eqx.Module):
    """All seats of a game that is told. Who says what is no legal choice loses ``forfeit``, which the others share.

    It should be more than a game can cost: an entropy bonus pays for nonsense, and who expects to lose would talk it.
    """

    game: Told
    forfeit: float = 1.0

    @property
    def spec(self) -> EnvSpec:
        """One group, of as many agents as there are seats; one speaks at a time."""
        rules, told = self.game.rules, self.game.manners
        return EnvSpec(
            name=told.name,
            observation=dict_space(**{SEATS: rules.observation}),
            action=dict_space(**{SEATS: Text(told.utterance, told.vocabulary, choices=self.game.choices)}),
            time_limit=rules.longest,
            groups=(Group(SEATS, rules.players),),
            game=self.game,
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Tale, TimeStep]:
        """A fresh game."""
        tale = self.game.start(key)
        return tale, self._step(tale, jnp.zeros(self.game.rules.players), jnp.zeros((), bool))

    def step(self, state: Tale, action: dict[str, Int[Array, "player utterance"]], key: Key[Array, ""]) -> Any:
        """What the one whose turn it is says; the others are not listened to."""
        game, told = self.game, self.game.manners
        mover = game.player(state)
        said = action[SEATS][mover]
        spoken, length = before_end(told, said)
        move = spoken[0] == jnp.asarray(told.ids(" ".join(game.moves)))
        choice = jnp.argmax(move)
        legal = move.any() & (length == 1) & game.legal(state)[choice]
        stop = jnp.array(told.vocabulary.stop)
        end = jnp.where((said[:, None] == stop).any(), -1, stop[:1])
        own = message(told.utterance + 1, said, end)
        played = game.said(state, choice, own, fold(key, "play"))
        mine = jnp.arange(game.rules.players) == mover
        heard = jnp.where(mine[:, None], jax.vmap(joined, (0, None))(state.heard, own), state.heard)
        tale = jax.tree.map(lambda a, b: jnp.where(legal, a, b), played, Tale(state.inner, heard))
        lost = jnp.where(mine, -self.forfeit, self.forfeit / (game.rules.players - 1))
        return tale, self._step(tale, jnp.where(legal, game.payoff(played), lost), ~legal | game.over(tale))

    def demonstrated(self, state: Tale, key: Key[Array, ""]) -> dict[str, Int[Array, "player utterance"]]:
        """Any legal choice of the one to speak, said as it should be."""
        lot = jax.random.categorical(fold(key, "lot"), jnp.where(self.game.legal(state), 0.0, -jnp.inf))
        said = message(self.game.manners.utterance, jnp.asarray(self.game.choices)[lot])
        mine = jnp.arange(self.game.rules.players) == self.game.player(state)
        return {SEATS: jnp.where(mine[:, None], said, -1)}

    def _step(self, tale: Tale, reward: Array, over: Array) -> TimeStep:
        speaks = (jnp.arange(self.game.rules.players) == self.game.player(tale)) & ~over
        each = {SEATS: Each(reward, jnp.broadcast_to(over, reward.shape))}
        no = jnp.zeros((), bool)
        return TimeStep({SEATS: tale.heard}, reward[0], over, no, alive={SEATS: speaks}, each=each)
