"""Choice task: say one of a few words; which is better is a matter of preference, and preferences may be cyclic.

``choose >`` is answered by ``c <end>``, which ends the episode. A table has a probability for each pair of words that
the one is preferred to the other (:func:`~thespis.objectives.preference_games.cyclic_preferences`). The reward is how
often the word is preferred to one said at random. It is about the same for all words where preferences are cyclic:
what to learn from is the comparison of two responses (:class:`~thespis.feedback.win_rate.WinRate`), and how well a
policy does is its exploitability.

It is the smallest preference game, in which methods that learn from comparisons can be checked exactly. The
demonstrator says the word of the greatest reward, or, in a share ``demonstrator_noise``, any word; or it draws words
from the equilibrium.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep
from thespis.objectives.preference_games import add_dominated, cyclic_preferences, equilibrium
from thespis.runtime.keys import fold


class Choice(eqx.Module):
    """Choice task: say one of ``num_words`` words (2 to 26), of which others are preferred to each.

    ``table_seeds``: seeds of the tables of preferences, at most ten; with several a prompt says which one counts,
    ``choose 2 >``. ``strength``: how certain a preference is, in [0, 1]. ``noise``: half the width of its noise.
    ``num_dominated``: how many of the words, the last ones, lose to all others with a probability of ``domination``;
    the others are cyclic. ``demonstrator_noise``: the share of the demonstrator's words that are random.
    ``demonstrates_equilibrium``: whether the rest are drawn from the equilibrium.
    """

    num_words: int = eqx.field(static=True, default=10)
    table_seeds: tuple[int, ...] = eqx.field(static=True, default=(0,))
    strength: float = eqx.field(static=True, default=0.8)
    noise: float = eqx.field(static=True, default=0.2)
    num_dominated: int = eqx.field(static=True, default=0)
    domination: float = eqx.field(static=True, default=0.95)
    demonstrates_equilibrium: bool = eqx.field(static=True, default=False)
    demonstrator_noise: float = 1.0

    @property
    def words(self) -> tuple[str, ...]:
        """The words that can be said."""
        return tuple("abcdefghijklmnopqrstuvwxyz"[: self.num_words])

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt of each table, without the response cue."""
        count = len(self.table_seeds)
        return ("choose",) if count == 1 else tuple(f"choose {i}" for i in range(count))

    @property
    def preferences(self) -> np.ndarray:
        """The probability ``[table, word, word]`` that the first word is preferred to the second."""
        num_cyclic = self.num_words - self.num_dominated
        tables = [cyclic_preferences(num_cyclic, seed, self.noise, self.strength) for seed in self.table_seeds]
        return np.stack([add_dominated(table, self.num_dominated, self.domination) for table in tables])

    @property
    def task_spec(self) -> TaskSpec:
        """The words, the prompts and the response cue."""
        prompt_words = dict.fromkeys(word for prompt in self.prompts for word in prompt.split())
        return TaskSpec(
            "text:choice",
            word_vocabulary((RESPONSE_CUE, *prompt_words, *self.words)),
            1,
            2,
            max_opening_tokens=1 + len(self.prompts[0].split()),
            max_message_tokens=1,
            choices=self.words,
        )

    def __check_init__(self):
        """Raise ``ValueError`` for numbers of words or tables out of range."""
        if not 2 <= self.num_words <= 26:
            raise ValueError(f"num_words={self.num_words}: 2 to 26")
        if not 0 <= self.num_dominated <= self.num_words - 2:
            raise ValueError(f"num_dominated={self.num_dominated}: 0 to {self.num_words - 2}, as two words are cyclic")
        if not 1 <= len(self.table_seeds) <= 10:
            raise ValueError(f"table_seeds: {len(self.table_seeds)} tables, not 1 to 10")

    def init(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Int[Array, " opening"]]:
        """The prompt of a table that is drawn; the state is its index."""
        table = jax.random.randint(fold(key, "table"), (), 0, len(self.table_seeds))
        return table, jnp.asarray(self.prompt_tokens)[table]

    def step(self, state: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]):
        """How often the word is preferred to a random one, 0 for what is no word; the episode ends."""
        word = self.word_index(response)
        mean = jnp.asarray(self.preferences.mean(axis=2), "float32")
        reward = jnp.where(word >= 0, mean[state, word], 0.0)
        return state, TaskStep(jnp.full(1, -1), reward, jnp.ones((), bool))

    @property
    def prompt_tokens(self) -> np.ndarray:
        """The tokens ``[table, opening]`` of the prompts with the response cue."""
        return np.stack([self.task_spec.encode(f"{prompt} {RESPONSE_CUE}") for prompt in self.prompts])

    def table_index(self, transcript: Int[Array, "*axes token"]) -> Int[Array, "*axes"]:
        """The index of the table whose prompt a transcript begins with."""
        prompts = jnp.asarray(self.prompt_tokens)
        begin = transcript[..., None, : prompts.shape[1]]
        return jnp.argmax(jnp.all(begin == prompts, axis=-1), axis=-1)

    def word_index(self, response: Int[Array, "*axes token"]) -> Int[Array, "*axes"]:
        """The index of the word that a response says; -1 if it says none, or does not end after it."""
        word = response[..., 0] - self.task_spec.encode_word(self.words[0])
        is_word = (word >= 0) & (word < self.num_words)
        return jnp.where(is_word & (response[..., 1] == self.task_spec.vocabulary.eos_tokens[0]), word, -1)

    def demonstrator_response(self, state: Int[Array, ""], key: Key[Array, ""]) -> Int[Array, " response"]:
        """The word of the greatest reward or one of the equilibrium, or any word."""
        is_random = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        any_word = jax.random.randint(fold(key, "word"), (), 0, self.num_words)
        tables = self.preferences
        if self.demonstrates_equilibrium:
            probs = jnp.asarray(np.stack([equilibrium(table) for table in tables]), "float32")
            best = jax.random.categorical(fold(key, "equilibrium"), jnp.log(jnp.maximum(probs[state], 1e-30)))
        else:
            best = jnp.asarray(tables.mean(axis=2).argmax(axis=1))[state]
        word = jnp.where(is_random, any_word, best)
        token = self.task_spec.encode_word(self.words[0]) + word
        return jnp.stack([token, jnp.full((), self.task_spec.vocabulary.eos_tokens[0], token.dtype)])
