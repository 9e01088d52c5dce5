"""Language-model actors: one generates a response as its action, the other chooses one of a list of responses.

:class:`LMPolicy`: a decoder reads the new tokens of a dialogue and generates a response as its action. The observation
is the whole dialogue as tokens, so the memory (a key-value cache) only saves time. The cache is a ring of blocks, one
per turn: every row writes its new tokens to the same slots, and a row that starts a new episode masks old slots by
positions of -1.

:class:`CandidateActor`: a categorical policy over a list of responses, scored by a language model. ``p(a|text)`` is a
softmax over the sums of the responses' token log-probabilities.

Source: Carta et al., 2023 (GLAM), for the policy over listed responses.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.actors.distributions import Categorical
from thespis.core.contracts import Mode, RecomputableMemory
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Text
from thespis.language.generation import LogitsProcessor, ResponseGenerator
from thespis.language.sampling import TemperatureSampler
from thespis.nets.candidate_scoring import CandidateScorer
from thespis.nets.decoder import Decoder, GeneratingModel, KVCache


@dataclasses.dataclass(frozen=True)
class DialogueSpec:
    """Size limits of a dialogue: tokens in all, new environment and response tokens per turn, turns, and stop tokens.

    ``choices``: the listed responses as tokens, where the action is a choice among them; ``num_players``: players whose
    responses one actor generates; ``max_own_turns``: turns in which the actor speaks, where others speak in between
    (``None``: all).
    """

    max_length: int
    max_env_tokens: int
    max_response_tokens: int
    max_turns: int
    stop_tokens: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...] = ()
    num_players: int = 1
    max_own_turns: int | None = None

    @classmethod
    def from_spec(cls, spec: EnvSpec) -> DialogueSpec:
        """Limits of an environment. Raises ``UserError`` unless it is a dialogue with a limit on turns."""
        observations, actions = spec.observation_space, spec.action_space
        if not isinstance(observations, Text) or not isinstance(actions, Text) or spec.time_limit is None:
            raise UserError(
                f"{spec.name} is no dialogue: language models need text observations, text actions and a limit on "
                "turns (thespis list envs text)"
            )
        if observations.vocabulary != actions.vocabulary:
            raise UserError(f"{spec.name} has different vocabularies for observations and actions: use one for both")
        max_env_tokens = observations.max_env_tokens or observations.max_length
        return cls(
            observations.max_length,
            max_env_tokens,
            actions.max_length,
            spec.time_limit,
            actions.vocabulary.eos_tokens,
            actions.choices,
            max_own_turns=spec.max_turns,
        )

    @property
    def num_own_turns(self) -> int:
        """Turns in which the actor speaks at most."""
        return self.max_own_turns or self.max_turns

    @property
    def block_size(self) -> int:
        """Cache slots of a turn.

        The environment's new tokens, the last token of the previous response, and all but the last of this response.
        """
        return self.max_env_tokens + self.max_response_tokens


class KVCacheState(eqx.Module, RecomputableMemory):
    """Key-value cache of each row's dialogue, laid out as in :class:`KVCache`, and how many tokens were read.

    ``turn_count`` counts the turns of all rows together; a fresh row has 0, so the largest is the true count.
    """

    keys: tuple[Float[Array, "row kv size slot"], ...]
    values: tuple[Float[Array, "row kv slot size"], ...]
    positions: Int[Array, "row slot"]
    num_read: Int[Array, " row"]
    turn_count: Int[Array, " row"]


class LMPolicy(eqx.Module):
    """Policy slice of a language-model actor: decoder, sampler and dialogue limits."""

    model: GeneratingModel
    sampler: TemperatureSampler
    dialogue_spec: DialogueSpec = eqx.field(static=True)
    mode: Mode = eqx.field(static=True)
    logits_processor: LogitsProcessor | None = None

    def init_memory(self, n: int) -> KVCacheState:
        """An empty cache for ``n`` fresh dialogues."""
        empty = self.model.init_cache(n, self.dialogue_spec.max_turns * self.dialogue_spec.block_size)
        zero = jnp.zeros(n, "int32")
        return KVCacheState(empty.keys, empty.values, empty.positions, zero, zero)

    def act(
        self, memory: KVCacheState, view: View, key: Key[Array, ""]
    ) -> tuple[Int[Array, "row response"], KVCacheState, Float[Array, "row response"]]:
        """Responses, the new memory, and the log-probability of each token as sampled.

        Rows that are not ``alive`` neither read nor generate.
        """
        limits, text = self.dialogue_spec, view.observation
        lengths, turn = (text >= 0).sum(axis=1), memory.turn_count.max()
        active = jnp.ones(lengths.shape, bool) if view.alive is None else view.alive
        indices = memory.num_read[:, None] + jnp.arange(limits.max_env_tokens + 1)
        positions = jnp.where((indices < lengths[:, None]) & active[:, None], indices, -1)
        new_tokens = jnp.maximum(jnp.take_along_axis(text, jnp.minimum(indices, limits.max_length - 1), axis=1), 0)
        slot = (turn % limits.max_turns) * limits.block_size
        empty = jnp.full((text.shape[0], limits.block_size), -1, memory.positions.dtype)
        cached_positions = jax.lax.dynamic_update_slice_in_dim(memory.positions, empty, slot, axis=1)
        cache = KVCache(memory.keys, memory.values, cached_positions, slot)
        sampler = TemperatureSampler(temperature=0.0) if self.mode is Mode.EXPLOIT else self.sampler
        generate = ResponseGenerator(
            self.model,
            sampler,
            limits.max_response_tokens,
            limits.stop_tokens,
            logits_processor=self.logits_processor,
        )
        output, cache = generate(cache, new_tokens, positions, key)
        num_read = jnp.where(active, lengths + output.lengths - 1, memory.num_read).astype("int32")
        turn_count = jnp.full_like(memory.turn_count, turn + 1)
        return (
            output.tokens,
            KVCacheState(cache.keys, cache.values, cache.positions, num_read, turn_count),
            output.log_probs,
        )

    def action_probs(self, view: View) -> Float[Array, "row choice"]:
        """Probabilities of the listed responses among the legal ones, from the log-probabilities of all their tokens.

        In ``EXPLOIT`` the most probable one has probability 1. Raises ``UserError`` as :meth:`choice_log_probs` does.
        """
        log_probs = self.choice_log_probs(view.observation)
        if view.action_mask is not None:
            log_probs = jnp.where(view.action_mask, log_probs, -jnp.inf)
        if self.mode is Mode.EXPLOIT:
            return jax.nn.one_hot(jnp.argmax(log_probs, axis=1), log_probs.shape[1])
        return jax.nn.softmax(log_probs, axis=1)

    def choice_log_probs(self, text: Int[Array, "row length"]) -> Float[Array, "row choice"]:
        """Log-probabilities of the listed responses among all responses, after texts that are padded with -1.

        Raises:
            UserError: where several models generate together: a listed response is scored by one decoder.
        """
        if not isinstance(self.model, Decoder):
            raise UserError("probabilities of listed responses are those of one decoder: act in Mode.SAMPLE")
        scorer = CandidateScorer(self.model, self.dialogue_spec.choices)
        return jax.vmap(lambda row: scorer.log_probs(row, self.sampler.log_probs))(text)


def generate_responses(
    model: Decoder,
    sampler: TemperatureSampler,
    dialogue_spec: DialogueSpec,
    transcript: Int[Array, "row length"],
    key: Key[Array, ""],
) -> Int[Array, "row response"]:
    """Responses to whole dialogues, which are read from their beginning, without a memory."""
    rows, length = transcript.shape
    positions = jnp.where(transcript >= 0, jnp.arange(length), -1)
    cache = model.init_cache(rows, length + dialogue_spec.max_response_tokens)
    generate = ResponseGenerator(model, sampler, dialogue_spec.max_response_tokens, dialogue_spec.stop_tokens)
    return generate(cache, jnp.maximum(transcript, 0), positions, key)[0].tokens


def response_features(
    model: Decoder, transcript: Int[Array, "row length"], response_starts: Int[Array, "time row"], num_tokens: int
) -> Float[Array, "time row width features"]:
    """Decoder features of whole dialogues at the places that predict the response tokens."""
    positions = jnp.where(transcript >= 0, jnp.arange(transcript.shape[1]), -1)
    features = model(jnp.maximum(transcript, 0), positions)
    places = jnp.clip(response_starts[..., None] + jnp.arange(num_tokens) - 1, 0, transcript.shape[1] - 1)
    return jax.vmap(lambda row, indices: row[indices], in_axes=(0, 1), out_axes=1)(features, places)


def token_log_probs(
    model: Decoder, sampler: TemperatureSampler, features: Float[Array, "*axes features"], tokens: Int[Array, "*axes"]
) -> tuple[Float[Array, "*axes"], Float[Array, "*axes"]]:
    """Log-probabilities of tokens under a sampler's distribution, and the entropies of that distribution."""
    log_probs = sampler.log_probs(model.logits(features))
    token_log_probs = jnp.take_along_axis(log_probs, jnp.maximum(tokens, 0)[..., None], axis=-1)[..., 0]
    # A dot product: XLA on CPUs takes forty times as long for the sum of a product over a large vocabulary.
    return token_log_probs, -jnp.einsum("...v,...v->...", jnp.exp(log_probs), log_probs)


class CandidateActor(eqx.Module):
    """Policy over the indices of listed responses. It starts from the model's knowledge, not from uniform actions."""

    scorer: CandidateScorer

    def __call__(self, view: View) -> Categorical:
        """The distribution for one view, whose observation is a text."""
        return Categorical(self.scorer.log_probs(view.observation), view.action_mask)

    def initial_action(self, distribution: Categorical, view: View, key: Key[Array, ""]) -> Int[Array, ""]:
        """The action before the first update: a sample of the policy itself."""
        return distribution.sample(key)
