r"""Writing for a fallible judge, who can also write: teacher and critic are the same judge.

The judge's score of a text :math:`y` is its true reward plus noise with Gumbel's distribution, of scale
:math:`1 / \beta`. As a critic, the judge prefers the text of the larger score, a choice by the model of Bradley and
Terry: with a probability of :math:`\sigma(\beta (r(y) - r(y')))` it is the first. As a teacher, the judge writes many
drafts and gives the one of the largest score. With enough drafts from a distribution :math:`W` these texts are samples
of :math:`W(y) \exp(\beta r(y))`, normalized: of that language model whose log-ratio to :math:`W` is the critic's own
reward (Rafailov et al., 2023). So :math:`\beta` is the strength of both.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from thespis.envs.text.task import TaskStep
from thespis.envs.text.writing import Writing, WritingState
from thespis.runtime.keys import fold, indexed_keys


class JudgedWriting(Writing):
    """Writing task whose reward is a fallible judge's score; the demonstrator gives the judge's best draft.

    ``rationality``: the inverse scale of the noise in a score. ``num_drafts``: drafts of the demonstrator, each of
    which is a text of :class:`~thespis.envs.text.writing.Writing`'s demonstrator; with one the judge chooses nothing.
    """

    rationality: float = 10.0
    num_drafts: int = eqx.field(static=True, default=1)

    def step(
        self, state: WritingState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[WritingState, TaskStep]:
        """The judge's score; the episode ends."""
        return state, TaskStep(jnp.full(1, -1), self.score(state, response, key), jnp.ones((), bool))

    def score(self, state: WritingState, response: Int[Array, " response"], key: Key[Array, ""]) -> Float[Array, ""]:
        """The true reward with the judge's noise, whose mean is 0."""
        noise = jax.random.gumbel(fold(key, "noise")) - np.euler_gamma
        return self.reward(state.reader, self.grade(state.topic, response)) + noise / self.rationality

    def demonstrator_response(self, state: WritingState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The draft of the largest score."""

        def choose(best: tuple[Array, Array], draft_key: Key[Array, ""]) -> tuple[tuple[Array, Array], None]:
            draft = super(JudgedWriting, self).demonstrator_response(state, draft_key)
            score = self.score(state, draft, draft_key)
            is_better = score > best[1]
            return (jnp.where(is_better, draft, best[0]), jnp.where(is_better, score, best[1])), None

        keys = indexed_keys(fold(key, "drafts"), self.num_drafts)
        empty = jnp.full(self.task_spec.max_response_tokens, -1, "int32"), jnp.array(-jnp.inf)
        return jax.lax.scan(choose, empty, keys)[0][0]
