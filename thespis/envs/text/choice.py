"""Choice task: say one of a few words; which is better is a matter of preference, and preferences may be cyclic.

``choose >`` is answered by ``c <end>``, which ends the episode. There is a probability for each pair of words that the
one is preferred to the other (:func:`~thespis.objectives.preference_games.cyclic_preferences`). The reward is how often
the word is preferred to one said at random. It is about the same for all words where preferences are cyclic: what to
learn from is the comparison of two responses (:class:`~thespis.feedback.win_rate.WinRate`), and how well a policy does
is its exploitability.

It is the smallest preference game, in which methods that learn from comparisons can be checked exactly. The
demonstrator says the word of the greatest reward, or, in a share ``demonstrator_noise``, any word.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep
from thespis.objectives.preference_games import cyclic_preferences
from thespis.runtime.keys import fold


class Choice(eqx.Module):
    """Choice task: say one of ``num_words`` words (2 to 26), of which others are preferred to each.

    ``table_seed``: seed of the table of preferences. ``strength``: how certain a preference is, in [0, 1]. ``noise``:
    half the width of its noise. ``demonstrator_noise``: the share of the demonstrator's words that are random.
    """

    num_words: int = eqx.field(static=True, default=10)
    table_seed: int = eqx.field(static=True, default=0)
    strength: float = eqx.field(static=True, default=0.8)
    noise: float = eqx.field(static=True, default=0.2)
    demonstrator_noise: float = 1.0

    @property
    def words(self) -> tuple[str, ...]:
        """The words that can be said."""
        return tuple("abcdefghijklmnopqrstuvwxyz"[: self.num_words])

    @property
    def preferences(self) -> np.ndarray:
        """The probability ``[word, word]`` that the first is preferred to the second."""
        return cyclic_preferences(self.num_words, self.table_seed, self.noise, self.strength)

    @property
    def task_spec(self) -> TaskSpec:
        """The words, the prompt and the response cue."""
        return TaskSpec(
            "text:choice",
            word_vocabulary((RESPONSE_CUE, "choose", *self.words)),
            1,
            2,
            max_opening_tokens=2,
            max_message_tokens=1,
            choices=self.words,
        )

    def __check_init__(self):
        """Raise ``ValueError`` for a number of words out of range."""
        if not 2 <= self.num_words <= 26:
            raise ValueError(f"num_words={self.num_words}: 2 to 26")

    def init(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Int[Array, " opening"]]:
        """The same prompt always, and an empty state."""
        return jnp.zeros((), "int32"), jnp.asarray(self.task_spec.encode(f"choose {RESPONSE_CUE}"))

    def step(self, state: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]):
        """How often the word is preferred to a random one, 0 for what is no word; the episode ends."""
        word = self.word_index(response)
        mean = jnp.asarray(self.preferences.mean(axis=1), "float32")
        reward = jnp.where(word >= 0, mean[word], 0.0)
        return state, TaskStep(jnp.full(1, -1), reward, jnp.ones((), bool))

    def word_index(self, response: Int[Array, "*axes token"]) -> Int[Array, "*axes"]:
        """The index of the word that a response says; -1 if it says none, or does not end after it."""
        word = response[..., 0] - self.task_spec.encode_word(self.words[0])
        is_word = (word >= 0) & (word < self.num_words)
        return jnp.where(is_word & (response[..., 1] == self.task_spec.vocabulary.eos_tokens[0]), word, -1)

    def demonstrator_response(self, state: Int[Array, ""], key: Key[Array, ""]) -> Int[Array, " response"]:
        """The word of the greatest reward, or any word."""
        is_random = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        any_word = jax.random.randint(fold(key, "word"), (), 0, self.num_words)
        word = jnp.where(is_random, any_word, int(self.preferences.mean(axis=1).argmax()))
        token = self.task_spec.encode_word(self.words[0]) + word
        return jnp.stack([token, jnp.full((), self.task_spec.vocabulary.eos_tokens[0], token.dtype)])
