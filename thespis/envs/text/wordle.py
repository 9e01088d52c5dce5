"""Wordle task: guess a hidden word of five letters in six attempts, with a color per letter as feedback.

``guess >`` is answered by ``c r a n e <end>``, then by ``grey yellow green grey grey >``. A letter is green if it is in
its place, yellow if it is elsewhere in the word, grey otherwise; if a guess has a letter more often than the word, only
as many are colored as the word has, the green ones first, then from the left. Saying the hidden word earns 1; guesses
cost nothing. Guesses must be words of the list; others are answered by ``unknown >`` and count as guesses.

The demonstrator knows which words are still possible and guesses the word that leaves fewest of them on average, but a
share ``demonstrator_noise`` of its guesses are random words. After Wordle (Wardle, 2021) and that of LMRL-Gym (Abdulhai
et al., 2023). Differs from them: a list of 80 words, all of which may be hidden, and reward for the word alone.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

_WORD_LIST = """
apple beach brave bread brick chair chess clock cloud crane dance dream eagle earth fence field flame floor fruit
ghost glass grape happy heart honey horse house knife lemon level light lucky magic maple metal money mouse music
night ocean olive onion panda paper peach piano pizza plane plant queen quiet radio river robot salad sheep shirt
skate sleep smile snake spoon steam stone storm sugar sword table tiger toast tower train truck uncle water whale
wheat world youth zebra
"""
WORDS = tuple(_WORD_LIST.split())
"""All words that may be hidden or guessed."""
COLORS = ("grey", "yellow", "green")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORD_LENGTH = 5


class WordleState(eqx.Module):
    """State of one episode: the hidden word, the words that no feedback has ruled out, and the number of guesses."""

    hidden_word: Int[Array, "*episodes"]
    candidates: Bool[Array, "*episodes word"]
    num_guesses: Int[Array, "*episodes"]


class Wordle(eqx.Module):
    """Wordle task: guess a hidden word of five letters, with a color per letter as feedback.

    ``max_turns``: the number of guesses. ``demonstrator_noise``: the share of the demonstrator's guesses that are
    random words.
    """

    max_turns: int = eqx.field(static=True, default=6)
    demonstrator_noise: float = 0.85

    @property
    def task_spec(self) -> TaskSpec:
        """Letters, colors and three more words."""
        words = (RESPONSE_CUE, "guess", "unknown", *COLORS, *_LETTERS)
        return TaskSpec(
            "text:wordle",
            word_vocabulary(words),
            self.max_turns,
            _WORD_LENGTH + 1,
            max_opening_tokens=2,
            max_message_tokens=_WORD_LENGTH + 1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[WordleState, Int[Array, " opening"]]:
        """Start of a task: a word is drawn at random."""
        hidden = jax.random.randint(fold(key, "hidden"), (), 0, len(WORDS))
        state = WordleState(hidden, jnp.ones(len(WORDS), bool), jnp.zeros((), "int32"))
        return state, jnp.asarray(self.task_spec.encode(f"guess {RESPONSE_CUE}"))

    def step(
        self, state: WordleState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[WordleState, TaskStep]:
        """The colors of a guess."""
        spec, colors = self.task_spec, jnp.asarray(guess_colors())
        tokens, _ = cut_at_eos(spec, response)
        is_guess = (self._word_tokens == tokens[:_WORD_LENGTH]).all(axis=-1)
        in_list, guess = is_guess.any(), jnp.argmax(is_guess)
        feedback = colors[guess, state.hidden_word]
        consistent = (colors[guess] == feedback).all(axis=-1)
        correct, guesses = in_list & (guess == state.hidden_word), state.num_guesses + 1
        done = correct | (guesses >= self.max_turns)
        color_message = pack_tokens(
            spec.max_message_tokens, jnp.asarray(spec.encode(" ".join(COLORS)))[feedback], spec.encode(RESPONSE_CUE)
        )
        message = jnp.where(
            in_list, color_message, pack_tokens(spec.max_message_tokens, spec.encode(f"unknown {RESPONSE_CUE}"))
        )
        new_state = WordleState(state.hidden_word, state.candidates & (consistent | ~in_list), guesses)
        return new_state, TaskStep(jnp.where(done, -1, message), correct.astype("float32"), done)

    def demonstrator_response(self, state: WordleState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The word that leaves fewest candidates on average, in a tie a candidate itself; or a random word."""
        num_left = (state.candidates.astype("float32") @ _feedback_one_hot().reshape(len(WORDS), -1)).reshape(
            len(WORDS), -1
        )
        best = jnp.argmin(jnp.square(num_left).sum(axis=-1) - 0.5 * state.candidates)
        random_word = jax.random.randint(fold(key, "lot"), (), 0, len(WORDS))
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        spec = self.task_spec
        return pack_tokens(
            spec.max_response_tokens, self._word_tokens[jnp.where(is_noise, random_word, best)], spec.encode(END)
        )

    def hidden_tokens(self, state: WordleState) -> Int[Array, " letter"]:
        """The letters of the hidden word."""
        return self._word_tokens[state.hidden_word]

    @property
    def _word_tokens(self) -> Int[Array, "word letter"]:
        return self.task_spec.encode_word("a") + jnp.array(
            [[_LETTERS.index(letter) for letter in word] for word in WORDS]
        )


@functools.cache
def guess_colors() -> np.ndarray:
    """Wordle feedback: index into :data:`COLORS` of each letter, ``[guess, hidden, letter]``."""
    colors = np.zeros((len(WORDS), len(WORDS), _WORD_LENGTH), "int32")
    for g, guess in enumerate(WORDS):
        for h, hidden in enumerate(WORDS):
            green = [a == b for a, b in zip(guess, hidden, strict=True)]
            unmatched = [b for b, is_green in zip(hidden, green, strict=True) if not is_green]
            for i, letter in enumerate(guess):
                if green[i]:
                    colors[g, h, i] = 2
                elif letter in unmatched:
                    unmatched.remove(letter)
                    colors[g, h, i] = 1
    return colors


@functools.cache
def _feedback_one_hot() -> np.ndarray:
    """One-hot feedback of each guess for each hidden word: ``[hidden, guess, feedback]``."""
    codes = guess_colors() @ 3 ** np.arange(_WORD_LENGTH)
    classes = np.stack([np.unique(row, return_inverse=True)[1] for row in codes])
    return np.eye(classes.max() + 1, dtype="float32")[classes.T]
