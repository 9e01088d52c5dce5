"""Kuhn's poker against a player who throws a coin: three cards, a chip each, one bet.

``hold queen start >`` asks to begin; ``hold queen pass >`` and ``hold queen bet >`` tell what the other began with.
``bet <end>`` bets a chip or calls a bet, all else passes or folds; if the other bets after a pass ``bet >`` asks once
more. Whoever folds loses a chip; else the higher card of jack, queen, king wins one, or two if there was a bet that
was called. The reward is the chips won, from -2 to 2. A lot says who begins.

The demonstrator always bets, but folds a jack to a bet, which is the best there is against a coin; ``wandering`` of
its turns are thrown by a coin too. After Kuhn (1950); differs: the other player is part of the world and at random.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import END, closed
from thespis.envs.text.reading import before_end
from thespis.envs.text.task import ASK, Heard, Manners, message

CARDS = ("jack", "queen", "king")


class Hand(eqx.Module):
    """Own card and the other's, whether the other is still to act after a pass, and whether a bet is to be answered."""

    cards: Int[Array, "*episodes 2"]
    first: Bool[Array, "*episodes"]
    faced: Bool[Array, "*episodes"]


class Kuhn(eqx.Module):
    """``wandering``: how many of the demonstrator's turns are at random."""

    wandering: float = 0.8

    @property
    def manners(self) -> Manners:
        """Cards and five words more."""
        words = closed((ASK, "hold", "start", "pass", "bet", *CARDS))
        return Manners("text:kuhn", words, turns=2, utterance=2, opening=4, answer=2, choices=("bet", "pass"))

    def begin(self, key: Key[Array, ""]) -> tuple[Hand, Int[Array, " opening"]]:
        """Two cards, and the other's move if it begins."""
        told = self.manners
        cards = jax.random.permutation(fold(key, "cards"), len(CARDS))[:2]
        first, bets = jax.random.bernoulli(fold(key, "first")), jax.random.bernoulli(fold(key, "bet"))
        begun = jnp.where(first, told.id("start"), jnp.where(bets, told.id("bet"), told.id("pass")))
        said = message(told.opening, told.ids("hold"), told.id(CARDS[0]) + cards[0], begun, told.ids(ASK))
        return Hand(cards, first, bets & ~first), said

    def hear(self, state: Hand, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Hand, Heard]:
        """What a bet or a pass leads to, the other's coin included."""
        told = self.manners
        spoken, length = before_end(told, said)
        bets = (spoken[0] == told.id("bet")) & (length == 1)
        coin = jax.random.bernoulli(fold(key, "coin"))
        more = ~bets & ~state.faced & state.first & coin
        higher = jnp.where(state.cards[0] > state.cards[1], 1.0, -1.0)
        faced = jnp.where(bets, 2 * higher, -1.0)
        unfaced = jnp.where(bets, jnp.where(coin, 2 * higher, 1.0), higher)
        reward = jnp.where(more, 0.0, jnp.where(state.faced, faced, unfaced))
        answer = jnp.where(more, jnp.asarray(told.ids(f"bet {ASK}")), -1)
        return Hand(state.cards, state.first, state.faced | more), Heard(answer, reward, ~more)

    def expert(self, state: Hand, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """A bet, unless a jack would call."""
        told = self.manners
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        bets = jnp.where(wanders, jax.random.bernoulli(fold(key, "lot")), ~state.faced | (state.cards[0] > 0))
        return message(told.utterance, jnp.where(bets, told.id("bet"), told.id("pass")), told.ids(END))
