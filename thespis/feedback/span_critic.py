r"""Span critic: a language model that has learned, from marked texts, which spans of a response are good or bad.

.. math:: \min\; - \frac{1}{N} \sum_t \log p(m_t | x, y_{\le t}), \qquad
          e_t = c_+ \mathbb{1}[\hat m_t = 1] + c_- \mathbb{1}[\hat m_t = -1]

The critic is a classifier of tokens: a linear layer on the features that a decoder has after a token. What a token is
worth in what follows is not seen by it.

Source: Cao et al., 2024 (DRLC, later RELC), and its code. Differs: their critic is a large language model that is
prompted with three examples, reads the whole text and names spans in words, and every token that occurs anywhere in a
named span is paid; here a small model has learned from marked texts and classifies each token in its place.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec, generate_responses, response_features
from thespis.core.records import Citation, EnvSpec, Metrics, Number
from thespis.feedback.fitted_reward import fit_on_rows
from thespis.feedback.text_model import TextModelFeedback
from thespis.feedback.token_feedback import SpanFeedback, mark_dialogues, marking_task
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.learners.language.model_init import BLANK
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean
from thespis.runs.ranges import AT_LEAST_1, Range, in_range
from thespis.runtime.keys import fold, indexed_keys, seed_key

NUM_MARKS = 3
"""Classes of tokens: bad, neither, good."""


class TokenClassifier(eqx.Module):
    """Classifier of tokens: a decoder with a linear layer on its features after each token."""

    model: Decoder
    weight: Float[Array, "features mark"]
    bias: Float[Array, " mark"]

    def logits(self, dialogues: Dialogues) -> Float[Array, "time row token mark"]:
        """Logits of the marks of all response tokens; arbitrary where there is none."""
        features = response_features(
            self.model, dialogues.transcript, dialogues.response_starts[:-1] + 1, dialogues.responses.shape[-1]
        )
        return features @ self.weight + self.bias


class SpanCritic(TextModelFeedback, SpanFeedback):
    """Span critic: rewards the tokens of spans that a trained language model marks as good or bad (DRLC), for text.

    Before the first update the initial model writes ``num_texts`` responses to first messages of ``marking_env``, whose
    task marks them. The critic learns from these marks and is frozen then.
    """

    marking_env: str = eqx.field(static=True, default="")
    """Environment with the first messages, whose task has ``span_marks(prompt, response)``."""
    num_texts: int = eqx.field(static=True, default=1_024, metadata=in_range(AT_LEAST_1))
    """Marked texts that the critic learns from."""
    text_temperature: Number = 1.0
    """Temperature at which the initial model writes these texts."""
    mark_noise: Number = eqx.field(default=0.0, metadata=in_range(Range(0, 1)))
    """Share of tokens whose mark is a random one of the three: annotators who err."""
    num_critic_steps: int = eqx.field(static=True, default=400, metadata=in_range(AT_LEAST_1))
    """Gradient steps of the critic."""
    critic_batch_size: int = eqx.field(static=True, default=32, metadata=in_range(AT_LEAST_1))
    """Texts per gradient step."""
    critic_learning_rate: Number = 1e-3
    """Step size of the critic."""
    fit_seed: int | None = eqx.field(static=True, default=None)
    """Seed of texts, marks and critic, so that all seeds of a run have the same critic; None: one for each seed."""
    pretrained_critic: bool = eqx.field(static=True, default=True)
    """Whether the critic starts as a copy of the initial model, or with random parameters of the same size."""

    name: ClassVar[str] = "span-critic"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "DRLC: Reinforcement Learning with Dense Rewards from LLM Critic", "Cao et al.", 2024, "arXiv:2401.07382"
        ),
    )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> TokenClassifier:
        """The critic after it has learned. Raises ``UserError`` if nobody marks spans, or no model is named."""
        task = marking_task(self.name, self.marking_env)
        own_key = fold(key if self.fit_seed is None else seed_key(self.fit_seed), self.name)
        writer = self.initial_model(spec, key)
        dialogues, marks = self.marked_texts(writer, task, dialogue_spec, own_key)
        model = writer if self.pretrained_critic else self._blank_model(spec, own_key)
        critic = TokenClassifier(model, jnp.zeros((model.config.hidden_size, NUM_MARKS)), jnp.zeros(NUM_MARKS))

        def loss(critic: TokenClassifier, rows: Int[Array, " chosen"]) -> Float[Array, ""]:
            return mark_loss(critic, dialogues.take_rows(rows), marks[:, rows])

        return fit_on_rows(
            critic,
            loss,
            self.num_texts,
            self.critic_batch_size,
            self.num_critic_steps,
            self.critic_learning_rate,
            own_key,
        )

    def marked_texts(
        self, writer: Decoder, task: Any, dialogue_spec: DialogueSpec, key: Key[Array, ""]
    ) -> tuple[Dialogues, Int[Array, "1 row token"]]:
        """Responses of a model to first messages of the task, and their marks, of which some are random."""
        _, prompts = jax.vmap(task.init)(indexed_keys(fold(key, "prompts"), self.num_texts))
        sampler = TemperatureSampler(jnp.asarray(self.text_temperature, "float32"))
        responses = generate_responses(writer, sampler, dialogue_spec, prompts, fold(key, "texts"))
        dialogues = single_turn_dialogues(prompts, responses, jnp.ones(self.num_texts, bool))
        marks = mark_dialogues(task, dialogues)
        is_random = jax.random.uniform(fold(key, "errors"), marks.shape) < self.mark_noise
        return dialogues, jnp.where(is_random, jax.random.randint(fold(key, "marks"), marks.shape, -1, 2), marks)

    def marks(self, state: TokenClassifier, dialogues: Dialogues, key: Key[Array, ""]) -> Int[Array, "time row token"]:
        """The most probable mark of each token."""
        return jnp.argmax(state.logits(dialogues), axis=-1) - 1

    def learn(
        self, state: TokenClassifier, dialogues: Dialogues, own_dialogues: Dialogues | None, key: Key[Array, ""]
    ) -> tuple[TokenClassifier, Metrics]:
        """The same state, shares of good and bad tokens, and the share that the task marks as the critic does."""
        _, metrics = super().learn(state, dialogues, own_dialogues, key)
        truth = mark_dialogues(marking_task(self.name, self.marking_env), dialogues)
        is_right = (self.marks(state, dialogues, key) == truth).astype("float32")
        return state, {**metrics, "accuracy": masked_mean(is_right, dialogues.response_mask)}

    def _blank_model(self, spec: EnvSpec, key: Key[Array, ""]) -> Decoder:
        return dataclasses.replace(self.model_init, name_or_path=BLANK).init_from(spec, fold(key, "critic"))


def mark_loss(critic: TokenClassifier, dialogues: Dialogues, marks: Int[Array, "time row token"]) -> Float[Array, ""]:
    """Cross-entropy of the marks, as a mean over all response tokens."""
    log_probs = jax.nn.log_softmax(critic.logits(dialogues))
    losses = -jnp.take_along_axis(log_probs, marks[..., None] + 1, axis=-1)[..., 0]
    return masked_mean(losses, dialogues.response_mask)
