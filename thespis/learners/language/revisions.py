"""Rejection sampling, trajectory revision, second attempts: which own dialogues are learned, and how bad ones change.

They leave a reward of 1 where something is to be learned, so that
``advantage_estimator=TrajectoryReturn(NoBaseline())`` turns the policy gradient into maximum likelihood; turns that are
not to be learned are marked as another player's.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.core.records import Number
from thespis.learners.language.dialogues import SampledDialogues, single_turn_dialogues
from thespis.learners.language.rollout_transforms import RolloutTransform
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean


class RejectionSampling(RolloutTransform):
    """Rejection sampling: dialogues with a sufficient return are learned, others are left out."""

    min_return: Number = 0.5
    """Smallest return of a dialogue that is learned."""

    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state: nothing has to be kept."""
        return ()

    def __call__(
        self, state: tuple[()], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], SampledDialogues, dict[str, Array]]:
        """Mark the dialogues with a return of at least ``min_return`` for training."""
        good = dialogues.returns >= self.min_return
        return state, _mark_for_training(dialogues, good), {"chosen": good.mean(dtype="float32")}


class TrajectoryRevision(RolloutTransform):
    """Trajectory revision (Yuan et al. 2025, Agent-R): good dialogues are learned, and bad ones are revised by them.

    Only good dialogues of the same group are used. A dialogue is good if its return is at least ``min_return``. Another
    one of the group, whose return is lower by more than ``min_return_gap``, is cut at its first error: the response
    that separates it from the good dialogue with which it shares the most turns, so that no good dialogue contains it.
    After the environment's reply to it the response is the stop token alone, the environment repeats what it said
    before the two diverged, and the rest is the good dialogue's. Turns up to the stop token are not learned. All of
    that is what an environment says in which a response can be undone (:class:`~thespis.papers.agent_r.envs.UndoTask`);
    this should be used only there.

    Differs from the paper: several dialogues from each initial state replace Monte Carlo tree search, and their common
    prefixes its nodes; errors are found from the returns of other dialogues, as a model trained from scratch cannot be
    asked to judge its steps; every batch is an iteration, and ``min_return`` does not rise; general data are not mixed
    in. Differs from their code, where a fixed "ok" answers the change of mind and the environment need not undo
    anything: here the text is that of such an environment.
    """

    min_return: Number = 0.5
    """Smallest return of a dialogue that is learned: their alpha."""
    min_return_gap: Number = 0.2
    """How much more the good one of two must have returned: their beta."""

    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> Int[Array, ""]:
        """The stop token of a response."""
        return jnp.asarray(dialogue_spec.stop_tokens[0], "int32")

    def __call__(
        self, state: Int[Array, ""], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], SampledDialogues, dict[str, Array]]:
        """Good dialogues as they are; bad ones revised by the nearest good one of their group, where possible."""
        good, rows = dialogues.returns >= self.min_return, jnp.arange(len(dialogues.returns))
        members = jnp.arange(group_size) + rows[:, None] // group_size * group_size
        shared = jnp.where(good[members], _shared_turns(dialogues.responses, members), -1)
        nearest = shared == shared.max(axis=1, keepdims=True)
        choice = jax.random.categorical(key, jnp.where(nearest, 0.0, -jnp.inf), axis=1)
        guide = jnp.take_along_axis(members, choice[:, None], axis=1)[:, 0]
        guides = dialogues.take_rows(guide)
        revised, fits = revise_dialogues(dialogues, guides, state)
        revise = ~good & good[guide] & (guides.returns - dialogues.returns > self.min_return_gap) & fits
        training_dialogues = _mark_for_training(revised.where(revise, dialogues), good | revise)
        metrics = {"chosen": good.mean(dtype="float32"), "revised": revise.mean(dtype="float32")}
        return state, training_dialogues, metrics


class SecondAttempts(RolloutTransform):
    """Second attempts as first ones: where an attempt fails and the next succeeds, this one takes its place.

    For dialogues of two turns: an attempt, and after a failure another one, which has read what the environment says
    of the first. All dialogues become dialogues of one turn, without what the environment said, so that what is learned
    needs no second attempt: that of the first attempt, or of the second where only this has succeeded. With dialogues
    of one turn (``feed.max_steps=1``) there are no second attempts.

    Successes are imitated, and failures teach nothing, as in self-training with a reflector (Dou et al. 2024, Re-ReST).

    Metrics: ``first_success`` and ``second_success``, the shares of first and of second attempts that succeed;
    ``chosen``, the share of dialogues with a success.
    """

    success_threshold: Number = 0.5
    """Smallest reward of an attempt that succeeds."""
    learn_revisions: bool = eqx.field(static=True, default=False)
    """Whether second attempts that succeed are also imitated as such, after what the environment has said."""

    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state: nothing has to be kept. Raises ``UserError`` for dialogues of more than two turns."""
        if num_turns > 2:
            raise UserError(f"SecondAttempts is for one attempt and another one, not for {num_turns} turns")
        return ()

    def __call__(
        self, state: tuple[()], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], SampledDialogues, dict[str, Array]]:
        """Dialogues of one turn; with ``learn_revisions`` as many rows more, of second attempts."""
        reward = jnp.where(dialogues.alive, dialogues.reward, 0.0)
        success = reward >= self.success_threshold
        metrics = {
            "first_success": success[0].mean(dtype="float32"),
            "chosen": success.any(axis=0).mean(dtype="float32"),
        }
        is_second = jnp.zeros_like(success[0])
        if len(success) > 1:
            is_second = success[1] & ~success[0]
            metrics |= {"second_success": masked_mean(success[1].astype("float32"), dialogues.alive[1])}
        attempts = as_first_attempts(dataclasses.replace(dialogues, reward=reward), is_second)
        attempts = _mark_for_training(attempts, success.any(axis=0))
        if not self.learn_revisions or len(success) == 1:
            return state, attempts, metrics
        turn = jnp.arange(2)[:, None]
        revisions = dataclasses.replace(dialogues, alive=dialogues.alive & (turn == 1))
        revisions = _mark_for_training(revisions, is_second)
        return state, attempts.padded_like(revisions).append_rows(revisions), metrics


def as_first_attempts(dialogues: SampledDialogues, is_second: Bool[Array, " row"]) -> SampledDialogues:
    """Dialogues of one turn: the first response, or where ``is_second`` the second one in its place."""
    prompts = dialogues.text_before(0)

    def chosen(x: Array) -> Array:
        return jnp.where(is_second.reshape(-1, *[1] * (x.ndim - 2)), x[-1], x[0])

    single = single_turn_dialogues(prompts, chosen(dialogues.responses), dialogues.alive[0])
    fields = vars(single) | {
        "transcript": single.transcript[:, : prompts.shape[1]],
        "reward": chosen(dialogues.reward)[None],
        "log_probs": chosen(dialogues.log_probs)[None],
    }
    return SampledDialogues(**fields)


def revise_dialogues(
    bad: SampledDialogues, good: SampledDialogues, stop_token: Int[Array, ""]
) -> tuple[SampledDialogues, Bool[Array, " row"]]:
    """Revise dialogues: each row of ``bad``, undone where it diverges from ``good`` and continued as in ``good``.

    Also returns whether a row can be revised. It cannot where the two diverge by what the environment says or by
    undoing, where the bad one ended with its error, and where there is no room. Turns up to the error are marked as not
    the policy's own.
    """
    num_turns, num_rows = bad.alive.shape
    error_turn = jnp.argmax((bad.responses != good.responses).any(axis=-1), axis=0)  # 0 where all turns are equal

    def take(x: Array, turn: Array) -> Array:
        return x[jnp.clip(turn, 0, len(x) - 1), jnp.arange(num_rows)]

    split_start, error_end = take(bad.response_starts, error_turn), take(bad.response_starts, error_turn + 1)
    message_start = take(bad.response_starts, error_turn - 1) + take((bad.responses >= 0).sum(axis=-1), error_turn - 1)
    message_start = jnp.where(error_turn == 0, 0, message_start)
    env_ended = (
        jnp.take_along_axis(bad.transcript, message_start[:, None], axis=1)[:, 0] == stop_token
    )  # a response that the environment has ended
    message_start += env_ended & (error_turn > 0)
    resume_start = error_end + 1 + split_start - message_start
    transcript = _splice_transcripts(
        bad.transcript, good.transcript, stop_token, (error_end, message_start, resume_start, split_start)
    )

    turn_index = jnp.arange(num_turns + 1)[:, None]
    own, is_undo = turn_index > error_turn + 1, turn_index == error_turn + 1
    source = jnp.clip(turn_index - 2, 0, num_turns), jnp.arange(num_rows)
    starts = jnp.where(
        own,
        good.response_starts[source] - split_start + resume_start,
        jnp.where(is_undo, error_end, bad.response_starts),
    )
    own, is_undo, source = own[:-1], is_undo[:-1], (source[0][:-1], source[1])
    undo_response = jnp.where(jnp.arange(bad.responses.shape[-1]) == 0, stop_token, -1)
    responses = jnp.where(
        own[..., None], good.responses[source], jnp.where(is_undo[..., None], undo_response, bad.responses)
    )
    log_probs = jnp.where(own[..., None], good.log_probs[source], jnp.where(is_undo[..., None], 0.0, bad.log_probs))
    reward = jnp.where(own, good.reward[source], 0.0)

    same = _same_prefix(bad.transcript, good.transcript, split_start) & (
        split_start == take(good.response_starts, error_turn)
    )
    continues = take(good.alive, error_turn) & take(bad.alive, error_turn + 1) & (error_turn + 1 < num_turns)
    continues &= (take(good.responses, error_turn)[:, 0] != stop_token) & (
        take(bad.responses, error_turn)[:, 0] != stop_token
    )  # there is nothing left to undo
    room = (good.alive.sum(axis=0) + 2 <= num_turns) & (starts[-1] <= bad.transcript.shape[1])
    revised = SampledDialogues(
        transcript, starts, responses, is_undo | own & good.alive[source], reward, good.truncated, log_probs
    )
    return revised, same & continues & room & (bad.responses != good.responses).any(axis=(0, 2))


def _splice_transcripts(
    bad: Int[Array, "row length"],
    good: Int[Array, "row length"],
    stop_token: Int[Array, ""],
    positions: tuple[Array, ...],
) -> Int[Array, "row length"]:
    """Transcripts of revised dialogues: ``bad`` up to its error, a stop token, the repeated message, then ``good``.

    ``positions`` are the end of ``bad``'s error and its reply, the start of the message in ``bad``, and the places in
    the result and in ``good`` from which the rest is ``good``'s.
    """
    error_end, message_start, resume_start, split_start = (x[:, None] for x in positions)
    place = jnp.arange(bad.shape[1])

    def at(text: Array, where: Array) -> Array:
        tokens = jnp.take_along_axis(text, jnp.clip(where, 0, text.shape[1] - 1), axis=1)
        return jnp.where(where < text.shape[1], tokens, -1)

    repeated, continuation = (
        at(bad, message_start + place - error_end - 1),
        at(good, split_start + place - resume_start),
    )
    tail = jnp.where(place == error_end, stop_token, jnp.where(place < resume_start, repeated, continuation))
    return jnp.where(place < error_end, bad, tail)


def _shared_turns(responses: Int[Array, "time row token"], rows: Int[Array, "row other"]) -> Int[Array, "row other"]:
    """Number of turns before the first in which two rows have different responses."""
    differs = (responses[:, :, None] != responses[:, rows]).any(axis=-1)
    return (jnp.cumsum(differs, axis=0) == 0).sum(axis=0)


def _same_prefix(
    a: Int[Array, "row length"], b: Int[Array, "row length"], length: Int[Array, " row"]
) -> Bool[Array, " row"]:
    return ((a == b) | (jnp.arange(a.shape[1]) >= length[:, None])).all(axis=1)


def _mark_for_training(dialogues: SampledDialogues, mask: Bool[Array, " row"]) -> SampledDialogues:
    """Reward 1 at the last own turn in rows of ``mask``; in other rows no turn is marked as the policy's own."""
    alive = dialogues.alive & mask
    dialogues = dataclasses.replace(dialogues, alive=alive)
    reward: Float[Array, "time row"] = dialogues.is_last_turn.astype("float32")
    return dataclasses.replace(dialogues, reward=reward)
