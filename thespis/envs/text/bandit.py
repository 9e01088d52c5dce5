"""Contextual bandit of words: say one of a few words, each of which has a known utility that depends on the prompt.

``rate 2 >`` is answered by ``c <end>``, which ends the episode. The reward is the word's utility at that prompt, plus a
constant of the prompt (``offset_scale``), plus noise. The noise has Gumbel's distribution, so that of two words the one
with the higher reward is a choice by the model of Bradley and Terry, with the utilities divided by ``reward_noise``.

It is the smallest alignment problem. All responses can be listed, so the policy that is best under a penalty on the
divergence from the initial model is known in closed form (:mod:`thespis.objectives.aligned_policies`), and with it how
far any model is from it. The demonstrator, from whom models learn to speak, says some words often and others rarely;
``alignment`` says whether it tends to say the better ones.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep
from thespis.runtime.keys import fold

NO_WORD_PENALTY = 1.0
"""How much less than the least utility of a prompt a response earns that is no word."""


@functools.cache
def draw_tables(num_prompts: int, num_words: int, seed: int, alignment: float) -> tuple[np.ndarray, ...]:
    """Utilities, demonstrator preferences and prompt offsets, all standard normal: ``[prompt, word]`` and ``[prompt]``.

    ``alignment``: the correlation of utilities and the demonstrator's preferences, in [-1, 1].
    """
    rng = np.random.default_rng(seed)
    utilities, others = rng.normal(size=(2, num_prompts, num_words))
    preferences = alignment * utilities + np.sqrt(1 - alignment**2) * others
    return utilities.astype("float32"), preferences.astype("float32"), rng.normal(size=num_prompts).astype("float32")


class Bandit(eqx.Module):
    """Contextual bandit of words, whose utilities depend on the prompt.

    ``num_words``: the words that can be said, 2 to 26. ``num_prompts``: the prompts, 1 to 10.
    ``seed``: that of the utilities, which are standard normal. ``reward_noise``: scale of the Gumbel noise of rewards,
    at least 0. ``offset_scale``: standard deviation of the constant that is added to all rewards of a prompt.
    ``demonstrator_spread``: standard deviation of the demonstrator's logits, 0 for all words alike. ``alignment``:
    their correlation with the utilities, from -1 to 1. ``demonstrator_noise``: the share of its words that are drawn;
    the others are the best.
    """

    num_words: int = eqx.field(static=True, default=16)
    num_prompts: int = eqx.field(static=True, default=6)
    seed: int = eqx.field(static=True, default=0)
    reward_noise: float = 0.0
    offset_scale: float = 0.0
    demonstrator_spread: float = 1.0
    alignment: float = eqx.field(static=True, default=0.0)
    demonstrator_noise: float = 1.0

    def __check_init__(self):
        """Raise ``ValueError`` for numbers of words or prompts, or an alignment, out of range."""
        if not 2 <= self.num_words <= 26:
            raise ValueError(f"num_words={self.num_words}: 2 to 26")
        if not 1 <= self.num_prompts <= 10:
            raise ValueError(f"num_prompts={self.num_prompts}: 1 to 10")
        if not -1 <= self.alignment <= 1:
            raise ValueError(f"alignment={self.alignment}: a correlation, from -1 to 1")

    @property
    def words(self) -> tuple[str, ...]:
        """The words that can be said."""
        return tuple("abcdefghijklmnopqrstuvwxyz"[: self.num_words])

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """Utilities and preferences of the demonstrator ``[prompt, word]``, and offsets ``[prompt]``, unscaled."""
        return draw_tables(self.num_prompts, self.num_words, self.seed, self.alignment)

    @property
    def utilities(self) -> np.ndarray:
        """The utility ``[prompt, word]`` of each word."""
        return self.tables[0]

    @property
    def task_spec(self) -> TaskSpec:
        """The words, the numbers of the prompts and the response cue."""
        numbers = [str(i) for i in range(self.num_prompts)]
        return TaskSpec(
            "text:bandit",
            word_vocabulary((RESPONSE_CUE, "rate", *numbers, *self.words)),
            1,
            2,
            max_opening_tokens=3,
            max_message_tokens=1,
            choices=self.words,
        )

    @property
    def prompt_tokens(self) -> np.ndarray:
        """The tokens ``[prompt, opening]`` of the prompts with the response cue."""
        return np.stack([self.task_spec.encode(f"rate {i} {RESPONSE_CUE}") for i in range(self.num_prompts)])

    def init(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Int[Array, " opening"]]:
        """A prompt that is drawn; the state is its index."""
        prompt = jax.random.randint(fold(key, "prompt"), (), 0, self.num_prompts)
        return prompt, jnp.asarray(self.prompt_tokens)[prompt]

    def step(self, state: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]):
        """The utility of the word with the prompt's offset and noise; the episode ends."""
        utilities, _, offsets = (jnp.asarray(table) for table in self.tables)
        word = response[0] - self.task_spec.encode_word(self.words[0])
        is_word = (word >= 0) & (word < self.num_words) & (response[1] == self.task_spec.vocabulary.eos_tokens[0])
        utility = jnp.where(is_word, utilities[state, word], utilities[state].min() - NO_WORD_PENALTY)
        noise = jax.random.gumbel(fold(key, "noise")) - np.euler_gamma
        reward = utility + self.offset_scale * offsets[state] + self.reward_noise * noise
        return state, TaskStep(jnp.full(1, -1), reward, jnp.ones((), bool))

    def demonstrator_response(self, state: Int[Array, ""], key: Key[Array, ""]) -> Int[Array, " response"]:
        """The best word, or one drawn with the demonstrator's probabilities."""
        is_drawn = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        utilities, preferences, _ = (jnp.asarray(table) for table in self.tables)
        word = jax.random.categorical(fold(key, "word"), self.demonstrator_spread * preferences[state])
        token = self.task_spec.encode_word(self.words[0]) + jnp.where(is_drawn, word, jnp.argmax(utilities[state]))
        return jnp.stack([token, jnp.full((), self.task_spec.vocabulary.eos_tokens[0], token.dtype)])
