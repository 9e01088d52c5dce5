"""Debate (Irving et al. 2018, arXiv:1805.00899): two players claim what a picture shows, and show pixels to a judge.

Both see the picture; one claims what it shows, the other something else, and neither may take its claim back. In turn
each shows the judge a pixel that is not 0. A judge who sees nothing else (:class:`~thespis.envs.games.digits.Judge`)
then says which of the two claims it takes to be likelier: that player has won.

Differs from the paper: digits of 8 x 8 pixels in place of 28 x 28, and a judge without convolutions.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.contracts import Rules
from thespis.core.keys import fold
from thespis.core.spaces import Box, dict_space
from thespis.envs.games.digits import LABELS, PIXELS, digits, judge_of
from thespis.envs.games.everyone import Everyone


class Question(eqx.Module):
    """A debate under way: the picture, the digit that each player claims to see, and what the judge has been shown."""

    image: Float[Array, "*row pixel"]
    claims: Int[Array, "*row 2"]
    shown: Bool[Array, "*row pixel"]


@runtime_checkable
class Speakers(Protocol):
    """Who shows the next pixel."""

    def next(self, shown: Int[Array, ""]) -> Int[Array, ""]:
        """The player's number, after so many pixels."""
        ...


class Debaters(eqx.Module):
    """Both, in turn."""

    def next(self, shown: Int[Array, ""]) -> Int[Array, ""]:
        """0, 1, 0, 1 ..."""
        return shown % 2


class Adviser(eqx.Module):
    """Player 0 alone, with nobody to answer: it may be honest or not."""

    def next(self, shown: Int[Array, ""]) -> Int[Array, ""]:
        """Always 0."""
        return jnp.zeros_like(shown)


class Debate(eqx.Module):
    """A debate of so many ``pixels`` on digits that the judge has learnt by; a lot says which player is honest.

    Raises:
        UserError: when a game begins, if scikit-learn is missing.
    """

    pixels: int = eqx.field(static=True, default=6)
    speakers: Speakers = Debaters()

    @property
    def rules(self) -> Rules:
        """Two players who see everything but what the judge will say."""
        box = Box((PIXELS,), 0.0, 1.0)
        seen = dict_space(image=box, shown=box, claims=Box((2 * LABELS,), 0.0, 1.0))
        return Rules("debate", 2, seen, PIXELS, True, self.pixels)

    def start(self, key: Key[Array, ""]) -> Question:
        """A digit, a lie about it, and who tells it, by chance."""
        data = digits(seen=True)
        chosen = jax.random.randint(fold(key, "image"), (), 0, len(data.labels))
        lie = 1 + jax.random.randint(fold(key, "lie"), (), 0, LABELS - 1)
        claims = (jnp.asarray(data.labels)[chosen] + jnp.stack([jnp.zeros_like(lie), lie])) % LABELS
        claims = jnp.where(jax.random.bernoulli(fold(key, "seat")), claims, claims[::-1])
        return Question(jnp.asarray(data.images)[chosen], claims, jnp.zeros(PIXELS, bool))

    def play(self, position: Question, action: Int[Array, ""], key: Key[Array, ""]) -> Question:
        """One more pixel is shown."""
        more = (jnp.arange(PIXELS) == action) & ~self.over(position)
        return Question(position.image, position.claims, position.shown | more)

    def player(self, position: Question) -> Int[Array, ""]:
        """Whose turn it is to show a pixel."""
        return self.speakers.next(jnp.sum(position.shown, dtype="int32"))

    def observe(self, position: Question, player: Int[Array, ""]) -> dict[str, Array]:
        """The picture, what is shown of it, and both claims one-hot, the player's own first."""
        claims = jnp.where(player == 0, position.claims, position.claims[::-1])
        told = jax.nn.one_hot(claims, LABELS).reshape(-1)
        return {"image": position.image, "shown": position.shown.astype("float32"), "claims": told}

    def legal(self, position: Question) -> Bool[Array, " pixel"]:
        """Pixels that are not 0 and not yet shown."""
        return (position.image > 0) & ~position.shown

    def over(self, position: Question) -> Bool[Array, ""]:
        """Whether all pixels have been shown."""
        return jnp.sum(position.shown) >= self.pixels

    def payoff(self, position: Question) -> Float[Array, "2"]:
        """1 for the player whose claim the judge believes at the end, -1 for the other; until then nothing."""
        logits = judge_of(self.pixels)(position.image, position.shown)[position.claims]
        won = jnp.where(logits[0] > logits[1], 1.0, -1.0)
        return jnp.where(self.over(position), jnp.stack([won, -won]), 0.0)


SIX = Everyone(Debate())
"""A debate of six pixels."""
FOUR = Everyone(Debate(4))
"""A debate of four."""
ADVISED = Everyone(Debate(speakers=Adviser()))
"""Six pixels, all shown by a single adviser of unknown honesty."""
