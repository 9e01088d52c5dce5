"""Agents that learn from a user's edits without training: a memory of rounds, and a rule for the next style.

CIPHER infers from each edit the preference behind it, stores it with the document's context, and writes the next
document by the preference that is most frequent among those of the nearest contexts. Its rivals are other rules on the
same memory: :class:`RecentPreference` (continual inference, whatever the context), :class:`FirstPreference` (explore,
then exploit), :class:`RetrievedEdits` (edits themselves as examples), and :class:`PlainStyle` (no learning).

Source: Gao et al., 2024, algorithm 1, and the authors' code. Differs: who infers is not a language model. It reads
each attribute of an edited text rightly with a probability of ``inference_accuracy``, and as any style otherwise;
examples of edits are applied to the letter, where the document has the same words.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.core.spaces import CompositeSpace, MultiDiscrete
from thespis.data.feeds import Rollouts
from thespis.runs.ranges import FRACTION, in_range
from thespis.runtime.keys import fold


class EditMemory(eqx.Module):
    """Memory of an episode's rounds, ``[row, round, ...]``, of which ``count`` are over, and of the one at hand."""

    contexts: Float[Array, "*rows round size"]
    wordings: Int[Array, "*rows round attribute"]
    revised: Int[Array, "*rows round attribute"]
    """Styles of the edited texts."""
    inferred: Int[Array, "*rows round attribute"]
    """The preferences that were inferred from the edits."""
    count: Int[Array, "*rows"]
    has_draft: Bool[Array, "*rows"]
    """Whether a draft was written, which the next observation shows."""
    context: Float[Array, "*rows size"]
    wording: Int[Array, "*rows attribute"]
    style: Int[Array, "*rows attribute"]
    """The styles that the writer was asked for."""


class EditPolicy(eqx.Module):
    """What an actor carries: sizes of the memory."""

    placeholder: Float[Array, ""]
    num_rounds: int = eqx.field(static=True)
    context_size: int = eqx.field(static=True)
    num_styles: tuple[int, ...] = eqx.field(static=True)


class StyleRule(eqx.Module):
    """Slot: how the memory decides the styles of the next document."""

    @abc.abstractmethod
    def __call__(
        self, memory: EditMemory, context: Float[Array, " size"], wording: Int[Array, " attribute"], num_styles: int
    ) -> Int[Array, " attribute"]:
        """The style of each attribute, for one episode; 0 is plain."""


class PlainStyle(StyleRule):
    """The plain style for every document: no learning."""

    def __call__(
        self, memory: EditMemory, context: Float[Array, " size"], wording: Int[Array, " attribute"], num_styles: int
    ) -> Int[Array, " attribute"]:
        """Zeros."""
        return jnp.zeros_like(wording)


class NearestPreferences(StyleRule):
    """CIPHER: the most frequent of the preferences inferred in the nearest contexts."""

    num_neighbors: int = eqx.field(static=True, default=5)
    """Contexts that are retrieved."""

    def __call__(
        self, memory: EditMemory, context: Float[Array, " size"], wording: Int[Array, " attribute"], num_styles: int
    ) -> Int[Array, " attribute"]:
        """The majority; the nearest context decides between equally many."""
        rounds, is_valid = nearest_rounds(memory, context, self.num_neighbors)
        votes = jnp.broadcast_to(is_valid[:, None], (len(rounds), len(wording)))
        return majority(memory.inferred[rounds], votes, num_styles)


class RetrievedEdits(StyleRule):
    """Examples of edits in the nearest contexts, which say something only where the document has the same words."""

    num_neighbors: int = eqx.field(static=True, default=5)
    """Contexts that are retrieved."""

    def __call__(
        self, memory: EditMemory, context: Float[Array, " size"], wording: Int[Array, " attribute"], num_styles: int
    ) -> Int[Array, " attribute"]:
        """The majority of the edited texts that have the same wording of an attribute; plain where none has it."""
        rounds, is_valid = nearest_rounds(memory, context, self.num_neighbors)
        return majority(memory.revised[rounds], is_valid[:, None] & (memory.wordings[rounds] == wording), num_styles)


class RecentPreference(StyleRule):
    """Continual inference: the most frequent preference of the last rounds, whatever their contexts."""

    num_recent: int = eqx.field(static=True, default=5)
    """Rounds that count."""

    def __call__(
        self, memory: EditMemory, context: Float[Array, " size"], wording: Int[Array, " attribute"], num_styles: int
    ) -> Int[Array, " attribute"]:
        """The majority; the last round decides between equally many."""
        rounds = memory.count - 1 - jnp.arange(self.num_recent)
        votes = jnp.broadcast_to(rounds[:, None] >= 0, (self.num_recent, len(wording)))
        return majority(memory.inferred[jnp.maximum(rounds, 0)], votes, num_styles)


class FirstPreference(StyleRule):
    """Explore, then exploit: the most frequent preference of the first rounds, plain until they are over."""

    num_first: int = eqx.field(static=True, default=5)
    """Rounds that count."""

    def __call__(
        self, memory: EditMemory, context: Float[Array, " size"], wording: Int[Array, " attribute"], num_styles: int
    ) -> Int[Array, " attribute"]:
        """The majority, or zeros."""
        is_over = memory.count >= self.num_first
        votes = jnp.broadcast_to(is_over, (self.num_first, len(wording)))
        return majority(memory.inferred[: self.num_first], votes, num_styles)


def nearest_rounds(
    memory: EditMemory, context: Float[Array, " size"], num_neighbors: int
) -> tuple[Int[Array, " neighbor"], Bool[Array, " neighbor"]]:
    """The rounds of the most similar contexts by the cosine, the nearest first; and which of them there are."""
    norms = jnp.linalg.norm(memory.contexts, axis=-1) * jnp.linalg.norm(context)
    similarity = memory.contexts @ context / jnp.maximum(norms, 1e-9)
    is_over = jnp.arange(len(memory.contexts)) < memory.count
    values, rounds = jax.lax.top_k(jnp.where(is_over, similarity, -2.0), min(num_neighbors, len(is_over)))
    return rounds, values > -2.0


def majority(
    styles: Int[Array, "vote attribute"], counts: Bool[Array, "vote attribute"], num_styles: int
) -> Int[Array, " attribute"]:
    """The most frequent style of each attribute among the votes that count; of equally many that of the first vote.

    0 where no vote counts.
    """
    votes = jax.nn.one_hot(styles, num_styles) * counts[..., None]
    first = jnp.argmax(counts, axis=0)
    tie = jax.nn.one_hot(jnp.take_along_axis(styles, first[None], axis=0)[0], num_styles) * counts.any(axis=0)[:, None]
    return jnp.argmax(votes.sum(axis=0) + 0.5 * tie, axis=-1)


class EditLearner(eqx.Module):
    """Agent that learns from edits by its memory alone: infers the preference behind each, and never trains."""

    rule: StyleRule = NearestPreferences()
    """NearestPreferences (CIPHER), RetrievedEdits, RecentPreference, FirstPreference, PlainStyle, or your own."""
    inference_accuracy: Number = eqx.field(default=0.8, metadata=in_range(FRACTION))
    """Probability that an attribute of an edited text is read rightly; otherwise it is any style."""
    stream: str = eqx.field(static=True, default="inference")
    """Name of the random numbers of inference."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(num_steps=60, num_envs=1))
    """Rollouts, from which nothing is learned."""

    name: ClassVar[str] = "edit-learner"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Aligning LLM Agents by Learning Latent Preference from User Edits", "Gao et al.", 2024, "arXiv:2404.15269"
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("no parameters are trained",)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> EditPolicy:
        """The sizes of the memory."""
        space = spec.observation_space
        assert isinstance(space, CompositeSpace) and isinstance(spec.action_space, MultiDiscrete) and spec.time_limit
        size = dict(space.spaces)["context"].shape[0]  # pyright: ignore[reportAttributeAccessIssue]
        return EditPolicy(jnp.zeros(()), spec.time_limit, size, spec.action_space.nvec)

    def policy(self, state: EditPolicy, mode: Mode) -> EditPolicy:
        """The sizes: there is nothing to choose a mode of."""
        return state

    def init_memory(self, policy: EditPolicy, n: int) -> EditMemory:
        """Memory without any round."""
        rounds, attributes = (n, policy.num_rounds), len(policy.num_styles)
        past_styles, styles = jnp.zeros((*rounds, attributes), "int32"), jnp.zeros((n, attributes), "int32")
        return EditMemory(
            contexts=jnp.zeros((*rounds, policy.context_size)),
            wordings=past_styles,
            revised=past_styles,
            inferred=past_styles,
            count=jnp.zeros(n, "int32"),
            has_draft=jnp.zeros(n, bool),
            context=jnp.zeros((n, policy.context_size)),
            wording=styles,
            style=styles,
        )

    def act(
        self, policy: EditPolicy, memory: EditMemory, view: View, key: Key[Array, ""]
    ) -> tuple[Int[Array, "row attribute"], EditMemory, tuple[()]]:
        """Learn from the last edit, then choose the styles of the document at hand."""
        keys = jax.random.split(fold(key, self.stream), len(memory.count))
        num_styles = max(policy.num_styles)

        def act_one(memory: EditMemory, observation: dict[str, Array], key: Key[Array, ""]) -> tuple[Array, EditMemory]:
            inferred = self.infer(memory.style, observation["draft"], observation["edited"], num_styles, key)
            slot = jnp.where(memory.has_draft, memory.count, len(memory.contexts))
            memory = EditMemory(
                memory.contexts.at[slot].set(memory.context, mode="drop"),
                memory.wordings.at[slot].set(memory.wording, mode="drop"),
                memory.revised.at[slot].set(observation["edited"], mode="drop"),
                memory.inferred.at[slot].set(inferred, mode="drop"),
                memory.count + memory.has_draft,
                jnp.ones((), bool),
                observation["context"],
                observation["wording"],
                memory.style,
            )
            style = self.rule(memory, observation["context"], observation["wording"], num_styles).astype("int32")
            return style, eqx.tree_at(lambda m: m.style, memory, style)

        styles, memory = jax.vmap(act_one)(memory, view.observation, keys)
        return styles, memory, ()

    def infer(
        self,
        style: Int[Array, " attribute"],
        draft: Int[Array, " attribute"],
        edited: Int[Array, " attribute"],
        num_styles: int,
        key: Key[Array, ""],
    ) -> Int[Array, " attribute"]:
        """The preference behind an edit; that by which the draft was written where nothing was edited."""
        is_right = jax.random.uniform(fold(key, "right"), edited.shape) < self.inference_accuracy
        guess = jax.random.randint(fold(key, "guess"), edited.shape, 0, num_styles)
        return jnp.where((draft == edited).all(), style, jnp.where(is_right, edited, guess))

    def judge(self, state: EditPolicy, episode: Transition) -> Critique:
        """Empty: there is no critic."""
        return Critique()

    def update(self, state: EditPolicy, batch: Batch, key: Key[Array, ""]) -> tuple[EditPolicy, Report]:
        """The same state, and no metrics."""
        return state, Report({})
