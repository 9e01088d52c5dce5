"""Wordle: a hidden word of five letters, six guesses, and after each a colour for every letter.

``guess >`` is answered by ``c r a n e <end>``, then by ``grey yellow green grey grey >``. A letter is green where it
stands, yellow where it is in the word but not there, grey otherwise; of a letter that is guessed more often than the
word has it only so many are coloured, the green ones first, then from the left. Whoever says the hidden word earns 1,
and there is no cost of a guess. Guesses must be words of the list; others are answered ``unknown >`` and count.

The demonstrator knows which words are still possible and guesses the word that leaves fewest of them on average, but
``wandering`` of its guesses are any words. After Wordle (Wardle, 2021) and that of LMRL-Gym (Abdulhai et al., 2023);
differs: a list of 80 words, all of which may be hidden, and reward for the word alone.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import END, closed
from thespis.envs.text.reading import before_end
from thespis.envs.text.task import ASK, Heard, Manners, message

_LIST = """
apple beach brave bread brick chair chess clock cloud crane dance dream eagle earth fence field flame floor fruit
ghost glass grape happy heart honey horse house knife lemon level light lucky magic maple metal money mouse music
night ocean olive onion panda paper peach piano pizza plane plant queen quiet radio river robot salad sheep shirt
skate sleep smile snake spoon steam stone storm sugar sword table tiger toast tower train truck uncle water whale
wheat world youth zebra
"""
WORDS = tuple(_LIST.split())
"""All that may be hidden or guessed."""
COLOURS = ("grey", "yellow", "green")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LENGTH = 5


class Game(eqx.Module):
    """The hidden word, the words that no answer has ruled out, and the guesses so far."""

    hidden: Int[Array, "*episodes"]
    possible: Bool[Array, "*episodes word"]
    guesses: Int[Array, "*episodes"]


class Wordle(eqx.Module):
    """``turns``: how many guesses; ``wandering``: how many of the demonstrator's are any words."""

    turns: int = eqx.field(static=True, default=6)
    wandering: float = 0.85

    @property
    def manners(self) -> Manners:
        """Letters, colours and three words more."""
        words = (ASK, "guess", "unknown", *COLOURS, *_LETTERS)
        return Manners("text:wordle", closed(words), self.turns, _LENGTH + 1, opening=2, answer=_LENGTH + 1)

    def begin(self, key: Key[Array, ""]) -> tuple[Game, Int[Array, " opening"]]:
        """Any word."""
        hidden = jax.random.randint(fold(key, "hidden"), (), 0, len(WORDS))
        game = Game(hidden, jnp.ones(len(WORDS), bool), jnp.zeros((), "int32"))
        return game, jnp.asarray(self.manners.ids(f"guess {ASK}"))

    def hear(self, state: Game, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Game, Heard]:
        """The colours of a guess."""
        told, colours = self.manners, jnp.asarray(coloured())
        spoken, _ = before_end(told, said)
        same = (self._spelt == spoken[:_LENGTH]).all(axis=-1)
        known, guess = same.any(), jnp.argmax(same)
        shown = colours[guess, state.hidden]
        fitting = (colours[guess] == shown).all(axis=-1)
        right, guesses = known & (guess == state.hidden), state.guesses + 1
        over = right | (guesses >= self.turns)
        seen = message(told.answer, jnp.asarray(told.ids(" ".join(COLOURS)))[shown], told.ids(ASK))
        answer = jnp.where(known, seen, message(told.answer, told.ids(f"unknown {ASK}")))
        game = Game(state.hidden, state.possible & (fitting | ~known), guesses)
        return game, Heard(jnp.where(over, -1, answer), right.astype("float32"), over)

    def expert(self, state: Game, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """The word that leaves fewest possible ones on average, itself possible if there is a choice; or any word."""
        left = (state.possible.astype("float32") @ _kinds().reshape(len(WORDS), -1)).reshape(len(WORDS), -1)
        best = jnp.argmin(jnp.square(left).sum(axis=-1) - 0.5 * state.possible)
        lot = jax.random.randint(fold(key, "lot"), (), 0, len(WORDS))
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        told = self.manners
        return message(told.utterance, self._spelt[jnp.where(wanders, lot, best)], told.ids(END))

    def hidden(self, state: Game) -> Int[Array, " letter"]:
        """The letters of the hidden word."""
        return self._spelt[state.hidden]

    @property
    def _spelt(self) -> Int[Array, "word letter"]:
        return self.manners.id("a") + jnp.array([[_LETTERS.index(letter) for letter in word] for word in WORDS])


@functools.cache
def coloured() -> np.ndarray:
    """Index into :data:`COLOURS` of each letter, ``[guess, hidden, letter]``."""
    shown = np.zeros((len(WORDS), len(WORDS), _LENGTH), "int32")
    for g, guess in enumerate(WORDS):
        for h, hidden in enumerate(WORDS):
            green = [a == b for a, b in zip(guess, hidden, strict=True)]
            left = [b for b, right in zip(hidden, green, strict=True) if not right]
            for i, letter in enumerate(guess):
                if green[i]:
                    shown[g, h, i] = 2
                elif letter in left:
                    left.remove(letter)
                    shown[g, h, i] = 1
    return shown


@functools.cache
def _kinds() -> np.ndarray:
    """Which of a guess's answers a hidden word leads to, one hot: ``[hidden, guess, answer]``."""
    codes = coloured() @ 3 ** np.arange(_LENGTH)
    kinds = np.stack([np.unique(row, return_inverse=True)[1] for row in codes])
    return np.eye(kinds.max() + 1, dtype="float32")[kinds.T]
