r"""Writing for a user who edits: texts of documents of several types, each with a style that the user wants.

In each round a document arrives. The agent sees a context vector of it, near the center of its type, and chooses a
style for each attribute (greeting, tone, form ...). A writer writes the text: for each attribute a word of its own,
then a phrase in that style, whose length depends on the style and whose words depend on the document's wording of the
attribute. The user edits the text until all styles are those that they want for this type, which they never say. The
cost is Levenshtein's distance of both texts in words; the next observation shows the styles of the draft and of the
edited text. Types follow each other at random, and the user is new in every episode.

Source: Gao et al., 2024 (PRELUDE), whose user and writer are GPT-4. Differs: styles are numbers and texts are made of
phrases, so that an edit says exactly what was wanted; the writer errs in a share ``writing_noise`` of the attributes.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, MultiDiscrete, dict_space
from thespis.papers.prelude_cipher.edit_distance import levenshtein
from thespis.runtime.keys import fold


class UserEditsState(eqx.Module):
    """State of one episode: the user's wishes, the centers of the types, the document at hand, and the last edit."""

    wishes: Int[Array, "type attribute"]
    centers: Float[Array, "type size"]
    document_type: Int[Array, ""]
    context: Float[Array, " size"]
    wording: Int[Array, " attribute"]
    draft: Int[Array, " attribute"]
    edited: Int[Array, " attribute"]
    time: Int[Array, ""]


class UserEdits(eqx.Module):
    """Writing for a user who edits; the reward of a round is minus the edit distance.

    Observations are a dict: ``context``, the vector of the document; ``wording``, which words the document uses for
    each attribute; and the styles of the last ``draft`` and of what the user made of it, ``edited``.
    """

    num_types: int = eqx.field(static=True, default=5)
    """Types of documents, each with wishes of its own."""
    num_attributes: int = eqx.field(static=True, default=5)
    """Attributes of a style."""
    num_styles: int = eqx.field(static=True, default=3)
    """Styles of each attribute; the phrase of style ``i`` has ``i + 1`` words."""
    num_wordings: int = eqx.field(static=True, default=4)
    """Wordings of each attribute: documents say the same style in as many different words."""
    context_size: int = eqx.field(static=True, default=8)
    """Numbers in a context vector."""
    context_noise: float = 0.8
    """Standard deviation of a context around the center of its type, whose numbers are standard normal."""
    writing_noise: float = 0.05
    """Share of the attributes that the writer gets wrong: any style."""
    num_rounds: int = eqx.field(static=True, default=60)
    """Documents of an episode."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces and return bounds."""
        styles = MultiDiscrete((self.num_styles,) * self.num_attributes)
        observation = dict_space(
            context=Box((self.context_size,)),
            draft=styles,
            edited=styles,
            wording=MultiDiscrete((self.num_wordings,) * self.num_attributes),
        )
        worst = -float(self.num_rounds * self.num_attributes * self.num_styles)
        return EnvSpec("user-edits", observation, styles, time_limit=self.num_rounds, return_bounds=(worst, 0.0))

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[UserEditsState, TimeStep]:
        """A user with any wishes, and the first document; no draft has been written."""
        shape = self.num_types, self.num_attributes
        wishes = jax.random.randint(fold(key, "wishes"), shape, 0, self.num_styles)
        centers = jax.random.normal(fold(key, "centers"), (self.num_types, self.context_size))
        nothing = jnp.zeros(self.num_attributes, "int32")
        document = self._draw_document(centers, fold(key, "document"))
        state = UserEditsState(wishes, centers, *document, nothing, nothing, jnp.zeros((), "int32"))
        false = jnp.zeros((), bool)
        return state, TimeStep(self._observe(state), jnp.zeros(()), false, false)

    def step(
        self, state: UserEditsState, action: Int[Array, " attribute"], key: Key[Array, ""]
    ) -> tuple[UserEditsState, TimeStep]:
        """The draft is written and edited, and the next document arrives."""
        is_error = jax.random.uniform(fold(key, "errs"), action.shape) < self.writing_noise
        error = jax.random.randint(fold(key, "error"), action.shape, 0, self.num_styles)
        draft = jnp.where(is_error, error, action)
        edited = state.wishes[state.document_type]
        cost = levenshtein(self.write(state.wording, draft), self.write(state.wording, edited))
        document, time = self._draw_document(state.centers, fold(key, "document")), state.time + 1
        state = UserEditsState(state.wishes, state.centers, *document, draft, edited, time)
        over = time >= self.num_rounds
        return state, TimeStep(self._observe(state), -cost.astype("float32"), over, jnp.zeros((), bool))

    def write(self, wording: Int[Array, " attribute"], style: Int[Array, " attribute"]) -> Int[Array, " word"]:
        """The words of a text, padded with -1: for each attribute a word of its own, then a phrase of the style."""
        attribute = jnp.arange(self.num_attributes)
        place = jnp.arange(self.num_styles)
        phrase = (attribute * self.num_styles + style) * self.num_wordings + wording
        words = self.num_attributes + phrase[:, None] * self.num_styles + place
        words = jnp.concatenate([attribute[:, None], jnp.where(place <= style[:, None], words, -1)], axis=1).ravel()
        return words[jnp.argsort(words < 0, stable=True)]

    def _draw_document(self, centers: Float[Array, "type size"], key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        """Type, context and wording of a document."""
        document_type = jax.random.randint(fold(key, "type"), (), 0, self.num_types)
        noise = jax.random.normal(fold(key, "noise"), (self.context_size,))
        wording = jax.random.randint(fold(key, "wording"), (self.num_attributes,), 0, self.num_wordings)
        return document_type, centers[document_type] + self.context_noise * noise, wording

    def _observe(self, state: UserEditsState) -> dict[str, Array]:
        return {name: getattr(state, name) for name in ("context", "draft", "edited", "wording")}
