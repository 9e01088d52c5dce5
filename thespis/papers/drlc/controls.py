"""Controls of DRLC: a critic that marks at random, and measures of marks and of texts."""

from __future__ import annotations

from typing import ClassVar

import jax
from jaxtyping import Array, Int, Key

from thespis.core.records import Citation, Number
from thespis.feedback.token_feedback import SpanFeedback
from thespis.learners.language.dialogues import Dialogues


class RandomSpans(SpanFeedback):
    """Random span critic, for text: each token is good, bad or neither by chance, whatever it says."""

    good_share: Number = 0.2
    """Share of tokens that are marked as good."""
    bad_share: Number = 0.2
    """Share of tokens that are marked as bad."""

    name: ClassVar[str] = "random-spans"
    citations: ClassVar[tuple[Citation, ...]] = ()

    def marks(self, state: tuple[()], dialogues: Dialogues, key: Key[Array, ""]) -> Int[Array, "time row token"]:
        """Random marks; the same for the same batch and key."""
        chance = jax.random.uniform(key, dialogues.responses.shape)
        is_good, is_bad = chance < self.good_share, chance > 1.0 - self.bad_share
        return is_good.astype("int32") - is_bad
