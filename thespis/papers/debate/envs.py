"""Debate game (Irving et al. 2018, arXiv:1805.00899): two players make claims about an image and reveal pixels of it.

Both players observe the image. One claims its true label, the other a false one, and neither may withdraw its claim. In
turn each reveals to the judge a pixel that is not 0. A judge that observes only these pixels
(:class:`~thespis.papers.debate.judge.PixelJudge`) then decides which of the two claims is likelier: that player wins.

Differs from the paper: digits of 8 x 8 pixels instead of 28 x 28, and a judge without convolutions.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.contracts import GameSpec
from thespis.core.spaces import Box, dict_space
from thespis.envs.games.self_play import SelfPlayEnv
from thespis.papers.debate.judge import NUM_LABELS, NUM_PIXELS, load_digit_split, trained_judge
from thespis.runtime.keys import fold


class DebateState(eqx.Module):
    """State of a debate: the image, the label that each player claims, and the pixels revealed to the judge."""

    image: Float[Array, "*row pixel"]
    claims: Int[Array, "*row 2"]
    revealed: Bool[Array, "*row pixel"]


@runtime_checkable
class SpeakerOrder(Protocol):
    """Interface of speaker orders: the order in which players reveal pixels."""

    def next_player(self, num_revealed: Int[Array, ""]) -> Int[Array, ""]:
        """Number of the player that reveals the next pixel, after ``num_revealed`` pixels."""
        ...


class AlternatingSpeakers(eqx.Module):
    """Alternating speaker order: both players reveal pixels in turn."""

    def next_player(self, num_revealed: Int[Array, ""]) -> Int[Array, ""]:
        """0, 1, 0, 1 ..."""
        return num_revealed % 2


class SingleSpeaker(eqx.Module):
    """Speaker order with one speaker: player 0, honest or not, reveals all pixels, unopposed."""

    def next_player(self, num_revealed: Int[Array, ""]) -> Int[Array, ""]:
        """Player to move: always 0."""
        return jnp.zeros_like(num_revealed)


class Debate(eqx.Module):
    """Debate game of ``num_pixels`` revealed pixels, on digits of the judge's training split.

    The honest player is drawn at random.

    Raises:
        UserError: in ``init``, if scikit-learn is missing.
    """

    num_pixels: int = eqx.field(static=True, default=6)
    speaker_order: SpeakerOrder = AlternatingSpeakers()

    @property
    def spec(self) -> GameSpec:
        """Two players with perfect information, except for the judge's decision."""
        box = Box((NUM_PIXELS,), 0.0, 1.0)
        observation_space = dict_space(image=box, shown=box, claims=Box((2 * NUM_LABELS,), 0.0, 1.0))
        return GameSpec("debate", 2, observation_space, NUM_PIXELS, True, self.num_pixels)

    def init(self, key: Key[Array, ""]) -> DebateState:
        """Draws a digit, a false label, and which player claims it."""
        data = load_digit_split(train=True)
        index = jax.random.randint(fold(key, "image"), (), 0, len(data.labels))
        offset = 1 + jax.random.randint(fold(key, "lie"), (), 0, NUM_LABELS - 1)
        claims = (jnp.asarray(data.labels)[index] + jnp.stack([jnp.zeros_like(offset), offset])) % NUM_LABELS
        claims = jnp.where(jax.random.bernoulli(fold(key, "seat")), claims, claims[::-1])
        return DebateState(jnp.asarray(data.images)[index], claims, jnp.zeros(NUM_PIXELS, bool))

    def step(self, state: DebateState, action: Int[Array, ""], key: Key[Array, ""]) -> DebateState:
        """Reveals one more pixel."""
        pixel = (jnp.arange(NUM_PIXELS) == action) & ~self.is_terminal(state)
        return DebateState(state.image, state.claims, state.revealed | pixel)

    def current_player(self, state: DebateState) -> Int[Array, ""]:
        """The player that reveals the next pixel."""
        return self.speaker_order.next_player(jnp.sum(state.revealed, dtype="int32"))

    def observe(self, state: DebateState, player: Int[Array, ""]) -> dict[str, Array]:
        """The image, the revealed pixels, and both claims one-hot, the player's own first."""
        claims = jnp.where(player == 0, state.claims, state.claims[::-1])
        claim_features = jax.nn.one_hot(claims, NUM_LABELS).reshape(-1)
        return {"image": state.image, "shown": state.revealed.astype("float32"), "claims": claim_features}

    def action_mask(self, state: DebateState) -> Bool[Array, " pixel"]:
        """Pixels that are not 0 and not yet revealed."""
        return (state.image > 0) & ~state.revealed

    def is_terminal(self, state: DebateState) -> Bool[Array, ""]:
        """Whether all pixels have been revealed."""
        return jnp.sum(state.revealed) >= self.num_pixels

    def rewards(self, state: DebateState) -> Float[Array, "2"]:
        """At the end 1 for the player whose claim the judge finds likelier and -1 for the other; before that 0."""
        outcome = jnp.where(self.judge_margin(state) > 0, 1.0, -1.0)
        return jnp.where(self.is_terminal(state), jnp.stack([outcome, -outcome]), 0.0)

    def judge_margin(self, state: DebateState) -> Float[Array, ""]:
        """The judge's logit of the first player's claim minus that of the other, from the revealed pixels."""
        logits = trained_judge(self.num_pixels)(state.image, state.revealed)[state.claims]
        return logits[0] - logits[1]


DEBATE_6 = SelfPlayEnv(Debate())
"""A debate of six pixels."""
DEBATE_4 = SelfPlayEnv(Debate(4))
"""A debate of four pixels."""
SINGLE_SPEAKER_DEBATE = SelfPlayEnv(Debate(speaker_order=SingleSpeaker()))
"""Six pixels, all revealed by a single player that may be honest or not."""
SINGLE_SPEAKER_DEBATE_4 = SelfPlayEnv(Debate(4, SingleSpeaker()))
"""Four pixels, all revealed by a single player that may be honest or not."""
