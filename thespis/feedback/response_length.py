"""Reward by the length of responses: a cost for every token, or for those beyond a free number."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.core.records import Citation, Number
from thespis.feedback.text_feedback import TextFeedback
from thespis.learners.language.dialogues import Dialogues


class ResponseLength(TextFeedback):
    r"""Length cost: minus ``token_cost`` for each token of a response beyond ``num_free_tokens``, for text.

    .. math:: r_t = - c \max(|a_t| - n, 0)

    The environment's reward is not used: add the two (:class:`~thespis.feedback.combined.AddedFeedback`).
    """

    token_cost: Number = 0.01
    """Cost of a token, in units of reward; below 0 long responses are rewarded."""
    num_free_tokens: Number = 0
    """Tokens of a response that cost nothing."""

    name: ClassVar[str] = "response-length"
    citations: ClassVar[tuple[Citation, ...]] = ()

    def score_turns(self, state: tuple[()], dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row"]:
        """The cost of each response, as a reward."""
        num_tokens = dialogues.response_mask.sum(axis=-1)
        return -self.token_cost * jnp.maximum(num_tokens - self.num_free_tokens, 0.0)
