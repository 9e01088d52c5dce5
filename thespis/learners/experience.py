"""What is made of conversations before they are credited: with a memory of its own, and maybe a second model.

A part begins with what it keeps (``init``) and then takes what was played, answers with what it keeps now, with what is
to be learnt from, and with metrics. Rewards may be written anew, and whole conversations be replaced by remembered
ones, whose ids then have the log-probabilities with which they were said at their time.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.language import Talking
from thespis.learners.conversations import Conversations
from thespis.learners.gradient import Number
from thespis.learners.imitating import Discriminator
from thespis.learners.process import Attribution
from thespis.learners.process_reward import ProcessReward
from thespis.learners.revisions import Chosen, Revisions
from thespis.learners.utterance_critic import UtteranceCritic
from thespis.nets.decoder import Decoder

_PRIME = 1_000_003


class AsPlayed(eqx.Module):
    """Nothing is kept and nothing changed."""

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> tuple[()]:
        """Nothing."""
        return ()

    def __call__(
        self, kept: tuple[()], played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], Conversations, dict[str, Array]]:
        """As they are."""
        return kept, played, {}


class Average(eqx.Module):
    """Mean return of all conversations so far, and how many batches it was made of."""

    mean: Float[Array, ""]
    batches: Float[Array, ""]


class MovingMean(eqx.Module):
    """A conversation's last reward is lowered by the mean return of all earlier batches (Ahmadian et al. 2024, b_MA).

    The baseline of REINFORCE without a group: the gradient stays unbiased, as what is subtracted is older than what was
    played.
    """

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> Average:
        """Nothing was seen: 0."""
        return Average(jnp.zeros(()), jnp.zeros(()))

    def __call__(
        self, kept: Average, played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[Average, Conversations, dict[str, Array]]:
        """Rewards, less the mean in each last turn."""
        last = jnp.where(played.last, kept.mean, 0.0)
        lowered = dataclasses.replace(played, reward=played.reward - last)
        batches = kept.batches + 1
        mean = kept.mean + (played.returns.mean() - kept.mean) / batches
        return Average(mean, batches), lowered, {"baseline": kept.mean}


class BySeat(eqx.Module):
    r"""A conversation's last reward is lowered by a running mean of what its seat has earned (Liu et al. 2025, SPIRAL).

    Their role-conditioned advantage: :math:`b \leftarrow \alpha b + (1 - \alpha) R` with each conversation,
    :math:`A = R - b`. Differs: conversations of one batch count alike and are told one ``b``.
    """

    decay: Number = 0.95
    """Of the running mean, with each conversation, in [0, 1)."""
    apart: bool = eqx.field(static=True, default=True)
    """Whether seats have means of their own; else one for all."""

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> Float[Array, " seat"]:
        """Nothing was earned yet."""
        return jnp.zeros(talking.roles)

    def __call__(
        self, kept: Float[Array, " seat"], played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[Float[Array, " seat"], Conversations, dict[str, Array]]:
        """Rewards, less the mean of the seat in each last turn. Seats of one game lie behind each other."""
        spoke = played.alive.any(axis=0).reshape(-1, kept.shape[0])
        earned = played.returns.reshape(spoke.shape)  # who never spoke has earned nothing
        count, total = spoke.sum(axis=0), earned.sum(axis=0)
        if not self.apart:
            count, total = (jnp.broadcast_to(x.sum(), x.shape) for x in (count, total))
        stays = self.decay**count
        kept = stays * kept + (1.0 - stays) * total / jnp.maximum(count, 1)
        own = jnp.tile(kept, len(spoke))
        lowered = dataclasses.replace(played, reward=played.reward - jnp.where(played.last, own, 0.0))
        return kept, lowered, {"baseline": kept.mean(), "baseline_apart": kept.max() - kept.min()}


class Progress(eqx.Module):
    """Attempts at one thing: each is paid what it is worth, and ``bonus`` times how far it is above the one before.

    For the first ``until`` batches only the last is paid, what it is worth (Kumar et al. 2024, SCoRe: stages I and II).
    """

    until: int = eqx.field(static=True, default=100)
    """Batches of the first stage."""
    bonus: Number = 10.0
    """What progress is paid: their alpha."""

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> Int[Array, ""]:
        """No batch was seen."""
        return jnp.zeros((), "int32")

    def __call__(
        self, kept: Int[Array, ""], played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Conversations, dict[str, Array]]:
        """Rewards of attempts, shaped."""
        earned = jnp.where(played.alive, played.reward, 0.0)
        before = jnp.pad(earned[:-1], ((1, 0), (0, 0)))
        later = jnp.arange(len(earned))[:, None] > 0
        shaped = earned + jnp.where(later, self.bonus * (earned - before), 0.0)
        reward = jnp.where(kept < self.until, jnp.where(played.last, earned, 0.0), shaped)
        return kept + 1, dataclasses.replace(played, reward=reward), {"progress": (earned[-1] - earned[0]).mean()}


class Remembered(eqx.Module):
    """A conversation in each slot that is ``full``, and the ids with which it began."""

    talks: Conversations
    beginning: Int[Array, "slot length"]
    full: Bool[Array, " slot"]


class Successes(eqx.Module):
    """Of every beginning the latest success is remembered; a group that all failed gets it in place of its first row.

    Else such a group, all of whose returns are alike, would teach nothing (Lu et al. 2025, ARPO). Differs from their
    code, which keeps the last eight of each task and draws one: the latest, which is nearest to the policy. A task is
    known by what the world says first: those that hide it (wordle, questions) begin all alike, and want no memory.
    """

    slots: int = eqx.field(static=True, default=256)
    """Beginnings that are remembered at most: two that fall into one slot forget each other."""
    success: Number = 0.5
    """The return from which a conversation is one."""

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> Remembered:
        """No slot is full."""
        beginning = jnp.full((self.slots, talking.length), -1)
        return Remembered(Conversations.none(self.slots, talking, turns), beginning, jnp.zeros(self.slots, bool))

    def __call__(
        self, kept: Remembered, played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[Remembered, Conversations, dict[str, Array]]:
        """Successes of earlier batches stand in for failures of this one, whose own are then remembered."""
        begun = jnp.where(jnp.arange(played.transcript.shape[1]) < played.starts[0][:, None], played.transcript, -1)
        slot, won = _slots(begun, self.slots), played.returns >= self.success
        rows = jnp.arange(len(won))
        known = kept.full[slot] & (kept.beginning[slot] == begun).all(axis=1)
        lost = jnp.repeat(~won.reshape(-1, group).any(axis=1), group)
        given = lost & known & (rows % group == 0)
        learnt = kept.talks.rows(slot).where(given, played)

        latest = jax.ops.segment_max(jnp.where(won, rows, -1), slot, self.slots)
        fresh = latest >= 0
        source = jnp.maximum(latest, 0)
        talks = played.rows(source).where(fresh, kept.talks)
        beginning = jnp.where(fresh[:, None], begun[source], kept.beginning)
        share = given.sum(dtype="float32") * group / len(won)
        return Remembered(talks, beginning, kept.full | fresh), learnt, {"recalled": share}


def _slots(begun: Int[Array, "row length"], slots: int) -> Int[Array, " row"]:
    """A slot for each beginning, alike for those that are alike."""

    def add(total: Array, ids: Array) -> tuple[Array, None]:
        return total * jnp.uint32(_PRIME) + ids.astype("uint32"), None

    total, _ = jax.lax.scan(add, jnp.zeros(len(begun), "uint32"), begun.T)
    return ((total ^ (total >> 15)) % jnp.uint32(slots)).astype("int32")


Experience = (
    AsPlayed
    | MovingMean
    | BySeat
    | Progress
    | Successes
    | Chosen
    | Revisions
    | Attribution
    | ProcessReward
    | Discriminator
    | UtteranceCritic
)
