"""Batches of whole dialogues as losses see them: transcripts, positions of the responses, and the responses.

:class:`SampledDialogues` are batches of dialogues that the policy sampled itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec, response_features, token_log_probs
from thespis.core.errors import UserError
from thespis.core.records import Transition
from thespis.critics.value_functions import critic_observation
from thespis.language.sampling import TemperatureSampler
from thespis.nets.decoder import Decoder
from thespis.objectives.decision_points import accumulate_between_decisions

AnyDialogues = TypeVar("AnyDialogues", bound="Dialogues")


class Dialogues(eqx.Module):
    """Dialogues: ``transcript[row, length]``, all else ``[time, row, ...]``.

    The transcript of a row is that of its whole dialogue.
    """

    transcript: Int[Array, "row length"]
    response_starts: Int[Array, "turns row"]
    """Length of the transcript before each response; last, its final length."""
    responses: Int[Array, "time row token"]
    alive: Bool[Array, "time row"]
    """Own turns of the dialogue: false after its end, and where another player speaks."""
    reward: Float[Array, "time row"]
    truncated: Bool[Array, " row"]
    """Dialogues that were not terminated."""

    @classmethod
    def from_transitions(cls, steps: Transition, mask: Bool[Array, "time row"]) -> Dialogues:
        """Dialogues from steps whose observations are transcripts.

        ``mask`` is false at turns of other players and after the end. Rewards of a player who waits are added to its
        last response. Nothing after the end is used.
        """
        last, rows = mask.shape[0] - 1 - jnp.argmax(mask[::-1], axis=0), jnp.arange(mask.shape[1])
        transcript = steps.next_view.observation[last, rows]
        end = (transcript >= 0).sum(axis=1)
        is_over = jnp.arange(len(mask))[:, None] > last
        starts = jnp.where(is_over, end, (steps.view.observation >= 0).sum(axis=-1))
        starts, responses = jnp.concatenate([starts, end[None]]), jnp.where(mask[..., None], steps.action, -1)
        over_rows = jax.vmap(accumulate_between_decisions, in_axes=1, out_axes=1)
        no_value = jnp.zeros(steps.reward.shape)
        reward, _, terminated, _ = over_rows(mask, steps.reward, no_value, steps.terminated, steps.done)
        reward = jnp.where(mask, reward, 0.0)
        return cls(transcript, starts, responses, mask, reward, ~terminated[last, rows])

    @property
    def response_mask(self) -> Bool[Array, "time row token"]:
        """Response tokens within the dialogue."""
        return (self.responses >= 0) & self.alive[..., None]

    @property
    def is_last_turn(self) -> Bool[Array, "time row"]:
        """The last own turn of each dialogue."""
        return self.alive & (jnp.cumsum(self.alive[::-1], axis=0)[::-1] == 1)

    @property
    def returns(self) -> Float[Array, " row"]:
        """Undiscounted return of each dialogue."""
        return jnp.where(self.alive, self.reward, 0.0).sum(axis=0)

    @property
    def rewards_to_go(self) -> Float[Array, "time row"]:
        """Undiscounted reward-to-go of each turn."""
        reward = jnp.where(self.alive, self.reward, 0.0)
        return jnp.cumsum(reward[::-1], axis=0)[::-1]

    def text_before(self, turn: int | Int[Array, "*row"]) -> Int[Array, "row length"]:
        """What was said before the response of a turn, the same or another one for each row, padded with -1."""
        start = self.response_starts[turn, jnp.arange(len(self.transcript))]
        is_before = jnp.arange(self.transcript.shape[1]) < start[:, None]
        return jnp.where(is_before, self.transcript, -1)

    def response_log_probs(
        self, model: Decoder, sampler: TemperatureSampler
    ) -> tuple[Float[Array, "time row token"], Float[Array, "time row token"]]:
        """Log-probabilities of response tokens, and entropies of their distributions.

        Values are arbitrary where there is no token.
        """
        features = response_features(model, self.transcript, self.response_starts[:-1], self.responses.shape[-1])
        return token_log_probs(model, sampler, features, self.responses)

    def transcript_log_probs(self, model: Decoder, sampler: TemperatureSampler) -> Float[Array, "row length"]:
        """Log-probabilities of all transcript tokens; arbitrary at the first one and after the last."""
        rows, length = self.transcript.shape
        features = response_features(model, self.transcript, jnp.zeros((1, rows), "int32"), length)[0]
        return token_log_probs(model, sampler, features, self.transcript)[0]

    def response_token_mask(self, turn_mask: Bool[Array, "time row"]) -> Bool[Array, "row length"]:
        """Transcript tokens that belong to the responses of these turns."""
        return _span_mask(self.response_starts[:-1], self._response_ends, turn_mask, self.transcript.shape[1])

    def env_token_mask(self, turn_mask: Bool[Array, "time row"]) -> Bool[Array, "row length"]:
        """Transcript tokens that the environment replied to the responses of these turns."""
        return _span_mask(self._response_ends, self.response_starts[1:], turn_mask, self.transcript.shape[1])

    def own_turns(self: AnyDialogues, num_turns: int) -> AnyDialogues:
        """The same dialogues without the turns of others, in arrays of ``num_turns`` turns, of which there are no more.

        What is said between two own responses is then the reply to the first.
        """
        if num_turns >= len(self.alive):
            return self
        order = jnp.argsort(~self.alive, axis=0, stable=True)[:num_turns]
        alive, end = jnp.take_along_axis(self.alive, order, axis=0), self.response_starts[-1:]

        def select(name: str, x: Array) -> Array:
            if name == "response_starts":
                return jnp.concatenate([jnp.where(alive, jnp.take_along_axis(x[:-1], order, axis=0), end), end])
            return jnp.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), axis=0)

        return self._map_fields(lambda _, x: x, select)

    @classmethod
    def empty(cls, num_rows: int, dialogue_spec: DialogueSpec, num_turns: int) -> Dialogues:
        """Dialogues without any response."""
        responses, alive = (
            jnp.full((num_turns, num_rows, dialogue_spec.max_response_tokens), -1),
            jnp.zeros((num_turns, num_rows), bool),
        )
        starts, transcript = (
            jnp.zeros((num_turns + 1, num_rows), responses.dtype),
            jnp.full((num_rows, dialogue_spec.max_length), -1),
        )
        return cls(transcript, starts, responses, alive, jnp.zeros(alive.shape), alive[0])

    def take_rows(self: AnyDialogues, indices: Int[Array, " chosen"]) -> AnyDialogues:
        """The dialogues in the given rows."""
        return self._map_fields(lambda _, x: x[indices], lambda _, x: x[:, indices])

    def where(self: AnyDialogues, mask: Bool[Array, " row"], other: AnyDialogues) -> AnyDialogues:
        """The rows of this batch where ``mask`` is true, those of the other batch elsewhere."""

        def choose(axis: int, name: str, x: Array) -> Array:
            row_mask = mask.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
            return jnp.where(row_mask, x, getattr(other, name))

        return self._map_fields(lambda *field: choose(0, *field), lambda *field: choose(1, *field))

    def set_rows(self: AnyDialogues, indices: Int[Array, " chosen"], other: Dialogues) -> AnyDialogues:
        """Replace the dialogues in the given rows, which must be distinct, by others of the same sizes."""
        return self._map_fields(
            lambda name, x: x.at[indices].set(getattr(other, name)),
            lambda name, x: x.at[:, indices].set(getattr(other, name)),
        )

    def append_rows(self: AnyDialogues, other: Dialogues) -> AnyDialogues:
        """The dialogues of both batches, which have the same sizes in all axes but that of rows."""
        return self._map_fields(
            lambda name, x: jnp.concatenate([x, getattr(other, name)]),
            lambda name, x: jnp.concatenate([x, getattr(other, name)], axis=1),
        )

    def padded_like(self: AnyDialogues, other: Dialogues) -> AnyDialogues:
        """The same dialogues in arrays as large as another batch's, in all axes but that of rows.

        Turns beyond the other's number are cut off: dialogues of one environment have none.
        """

        def pad(row_axis: int, name: str, x: Array) -> Array:
            sizes = [x.shape[i] if i == row_axis else size for i, size in enumerate(getattr(other, name).shape)]
            widths = [(0, max(size - length, 0)) for size, length in zip(sizes, x.shape, strict=True)]
            if name == "response_starts":
                return jnp.pad(x, widths, mode="edge")[: sizes[0]]
            fill = -1 if name in ("transcript", "responses") else 0
            return jnp.pad(x, widths, constant_values=fill)[tuple(slice(size) for size in sizes)]

        return self._map_fields(lambda *field: pad(0, *field), lambda *field: pad(1, *field))

    def _map_fields(
        self: AnyDialogues, row_fn: Callable[[str, Array], Array], time_fn: Callable[[str, Array], Array]
    ) -> AnyDialogues:
        """Map all fields, by ``row_fn`` if their first axis is rows, by ``time_fn`` if it is time."""
        fields = {f.name: x for f in dataclasses.fields(self) if (x := getattr(self, f.name)) is not None}
        row_fields = {"transcript", "truncated"}
        return type(self)(**{name: (row_fn if name in row_fields else time_fn)(name, x) for name, x in fields.items()})

    @property
    def _response_ends(self) -> Int[Array, "time row"]:
        """Length of the transcript after each response."""
        return self.response_starts[:-1] + (self.responses >= 0).sum(axis=-1)


def _span_mask(
    begin: Int[Array, "time row"], end: Int[Array, "time row"], turn_mask: Bool[Array, "time row"], length: int
) -> Bool[Array, "row length"]:
    place = jnp.arange(length)
    inside = (place >= begin[..., None]) & (place < end[..., None])
    return (inside & turn_mask[..., None]).any(axis=0)


def with_critic_observation(steps: Transition) -> Transition:
    """Steps whose observations are transcripts as critics read them, after the environment's privileged information."""
    observation = critic_observation(steps.privileged, steps.view.observation)
    next_observation = critic_observation(steps.next_privileged, steps.next_view.observation)
    views = (
        dataclasses.replace(steps.view, observation=observation),
        dataclasses.replace(steps.next_view, observation=next_observation),
    )
    return dataclasses.replace(steps, view=views[0], next_view=views[1])


def single_turn_dialogues(
    prompts: Int[Array, "row length"], responses: Int[Array, "row token"], alive: Bool[Array, " row"]
) -> Dialogues:
    """Dialogues of one turn: ``responses`` to ``prompts``; rows that are not ``alive`` have no response."""
    start = (prompts >= 0).sum(axis=1)
    padded = jnp.pad(prompts, ((0, 0), (0, responses.shape[1])), constant_values=-1)
    place = jnp.arange(padded.shape[1]) - start[:, None]
    response_tokens = jnp.take_along_axis(responses, jnp.clip(place, 0, responses.shape[1] - 1), axis=1)
    transcript = jnp.where(place < 0, padded, jnp.where(place < responses.shape[1], response_tokens, -1))
    starts = jnp.stack([start, (transcript >= 0).sum(axis=1)])
    return Dialogues(
        transcript, starts, responses[None], alive[None], jnp.zeros((1, len(responses))), jnp.zeros_like(alive)
    )


def random_prompts(dialogues: Dialogues, num_prompts: int, key: Key[Array, ""]) -> Int[Array, "chosen length"]:
    """What was said before turns that are drawn at random, with replacement, from all turns of the dialogues."""
    weights = dialogues.alive.reshape(-1).astype("float32")
    chosen = jax.random.choice(key, weights.size, (num_prompts,), p=weights / weights.sum())
    turns, rows = jnp.divmod(chosen, dialogues.alive.shape[1])
    transcript, starts = dialogues.transcript[rows], dialogues.response_starts[turns, rows]
    return jnp.where(jnp.arange(transcript.shape[1]) < starts[:, None], transcript, -1)


def flatten_turns(x: Array) -> Array:
    """``[time, row, token]`` as ``[row, time * token]``."""
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def sum_over_tokens(x: Float[Array, "time row token"], mask: Bool[Array, "time row token"]) -> Float[Array, " row"]:
    """Sum over all tokens of each dialogue where ``mask`` is true."""
    return jnp.where(mask, x, 0.0).sum(axis=(0, 2))


def is_last_token(mask: Bool[Array, "time row token"]) -> Bool[Array, "time row token"]:
    """Which is the last token of its response; ``mask``: where there are tokens, which come first in each response."""
    return mask & ~jnp.pad(mask[..., 1:], ((0, 0), (0, 0), (0, 1)))


def sum_from_token(
    x: Float[Array, "time row token"], mask: Bool[Array, "time row token"]
) -> Float[Array, "time row token"]:
    """Sum over this token and all later ones of its dialogue where ``mask`` is true."""
    time, rows, width = x.shape
    summed = jnp.cumsum(flatten_turns(jnp.where(mask, x, 0.0))[:, ::-1], axis=1)[:, ::-1]
    return summed.reshape(rows, time, width).transpose(1, 0, 2)


class SampledDialogues(Dialogues):
    """Dialogues sampled by the policy; rows of a group have the same beginning and are adjacent."""

    log_probs: Float[Array, "time row token"]
    """Log-probabilities of the response tokens when they were sampled."""
    token_rewards: Float[Array, "time row token"] | None = None
    """What part of the reward of its turn each token earns, 0 where there is none; ``None``: no token earns any."""

    @classmethod
    def empty(cls, num_rows: int, dialogue_spec: DialogueSpec, num_turns: int) -> SampledDialogues:
        """Dialogues without any response."""
        dialogues = Dialogues.empty(num_rows, dialogue_spec, num_turns)
        return cls(**vars(dialogues), log_probs=jnp.zeros(dialogues.responses.shape))


def with_log_probs(dialogues: Dialogues) -> SampledDialogues:
    """Dialogues with the log-probabilities of when they were sampled; zeros for logged ones, which have none."""
    if isinstance(dialogues, SampledDialogues):
        return dialogues
    return SampledDialogues(**vars(dialogues), log_probs=jnp.zeros(dialogues.responses.shape))


def store_latest(
    replay: AnyDialogues, dialogues: AnyDialogues, num_batches: Int[Array, ""]
) -> tuple[AnyDialogues, Int[Array, ""]]:
    """The buffer of the latest dialogues with those of a batch stored, and the number of dialogues in it.

    ``num_batches``: how many batches of the same size were stored before.

    Raises:
        UserError: if the buffer is smaller than a batch.
    """
    size, rows = replay.alive.shape[1], dialogues.alive.shape[1]
    if rows > size:
        raise UserError(f"buffer_size={size} is less than the {rows} dialogues of one batch: raise it")
    slots = (num_batches * rows + jnp.arange(rows)) % size
    return replay.set_rows(slots, dialogues.padded_like(replay)), jnp.minimum((num_batches + 1) * rows, size)


def sampled_dialogues(steps: Transition, mask: Bool[Array, "time row"]) -> SampledDialogues:
    """Dialogues of a feed's batch, in rows. See :meth:`Dialogues.from_transitions`."""
    dialogues, token_rewards = Dialogues.from_transitions(steps, mask), steps.token_rewards
    log_probs = jnp.where(dialogues.response_mask, steps.extras, 0.0)
    if token_rewards is not None:
        token_rewards = jnp.where(dialogues.response_mask, token_rewards, 0.0)
    return SampledDialogues(**vars(dialogues), log_probs=log_probs, token_rewards=token_rewards)
