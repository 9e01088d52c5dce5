"""An imperfect reward model of rated words: right about the best and the worst words, wrong about those between them.

Each prompt has a table of rewards. Its best and worst words have their utilities as rewards, and the utilities of the
others are permuted among them. So extreme rewards are reliable, and moderate ones are not.
"""

from __future__ import annotations

import functools
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from thespis.core.records import Citation
from thespis.envs.text.bandit import Bandit
from thespis.feedback.text_feedback import TextFeedback
from thespis.learners.language.dialogues import Dialogues
from thespis.runs.ranges import Range, in_range


@functools.cache
def draw_rewards(task: Bandit, num_reliable: int, seed: int) -> np.ndarray:
    """Rewards ``[prompt, word]``: utilities, but those of words of middle rank permuted, for each prompt anew."""
    rng, rewards = np.random.default_rng(seed), task.utilities.copy()
    for row, order in zip(rewards, np.argsort(task.utilities, axis=1), strict=True):
        middle = order[num_reliable : len(order) - num_reliable]
        row[middle] = row[rng.permutation(middle)]
    return rewards


class PermutedReward(TextFeedback):
    """Reward of ``text:bandit`` by an imperfect model: utilities, permuted among each prompt's words of middle rank.

    A response that is no word has the environment's reward.
    """

    task: Bandit = Bandit()
    """The task, with the seed of its utilities."""
    num_reliable: int = eqx.field(static=True, default=2, metadata=in_range(Range(0)))
    """Best and worst words of each prompt, so many of each, whose rewards are their utilities."""
    seed: int = eqx.field(static=True, default=0)
    """Seed of the permutations."""

    name: ClassVar[str] = "permuted-reward"
    citations: ClassVar[tuple[Citation, ...]] = ()

    @property
    def rewards(self) -> np.ndarray:
        """The reward ``[prompt, word]`` of each word."""
        return draw_rewards(self.task, self.num_reliable, self.seed)

    def score_turns(self, state: tuple[()], dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row"]:
        """The reward of each response."""
        prompts, spec = jnp.asarray(self.task.prompt_tokens), self.task.task_spec
        opening = dialogues.transcript[:, None, : prompts.shape[1]]
        prompt = jnp.argmax((opening == prompts).all(axis=-1), axis=1)
        word = dialogues.responses[..., 0] - spec.encode_word(self.task.words[0])
        is_end = dialogues.responses[..., 1] == spec.vocabulary.eos_tokens[0]
        is_word = (word >= 0) & (word < self.task.num_words) & is_end
        return jnp.where(is_word, jnp.asarray(self.rewards)[prompt, word], dialogues.reward)
