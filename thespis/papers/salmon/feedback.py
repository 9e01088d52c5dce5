r"""Reward model that reads principles, trained on preferences before reinforcement learning begins, and frozen then.

The initial model writes two texts for each prompt. A judge compares them under principles that are drawn anew for every
pair, and the reward model learns which text is preferred, given the words of the principles, the prompt and the text:

.. math:: \min\; - \log \sigma(r(p, x, y_w) - r(p, x, y_l))

In reinforcement learning it reads the principles that the environment hides from the policy, which may be any.

Source: Sun et al., 2023, and the authors' code.

Differs: a judge chooses by the model of Bradley and Terry on the sum of all principles, where the authors' label is
that of the principle on which the two responses differ most, and the judge is scripted. The words of the principles
stand behind the text, as in the authors' template, but the reward is the mean of a linear head's values at these words,
not its value at the last token; and the model starts from random parameters, as the initial model hardly tells words
apart that it never met.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec, response_features
from thespis.core.records import Batch, Citation, EnvSpec, Number, Rewards
from thespis.envs.registry import make_compiled
from thespis.envs.text.task import append_tokens
from thespis.feedback.fitted_reward import fit_on_rows, write_pairs
from thespis.feedback.learned_reward import LearnedReward
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import LMWithValueHead
from thespis.learners.language.model_init import BLANK
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import bradley_terry_loss
from thespis.papers.salmon.envs import RANDOM_PRINCIPLES_ENV
from thespis.runtime.keys import fold


class LabelledPairs(eqx.Module):
    """Pairs of texts under principles, with a label that is 1 where the first is preferred, and 0 elsewhere."""

    principles: Int[Array, "pair principle"]
    prompts: Int[Array, "pair opening"]
    responses: Int[Array, "pair 2 token"]
    labels: Float[Array, " pair"]


def principle_scores(
    ensemble: LMWithValueHead, texts: Int[Array, "row length"], principles: Int[Array, "row principle"]
) -> Float[Array, "member row"]:
    """Each member's score of texts: the mean of its values at the words of the principles, which follow the text."""
    num_words = principles.shape[1]
    padded = jnp.pad(texts, ((0, 0), (0, num_words)), constant_values=-1)
    transcript, starts = jax.vmap(append_tokens)(padded, principles), (texts >= 0).sum(axis=1) + 1

    def scores(scorer: LMWithValueHead) -> Float[Array, " row"]:
        features = response_features(scorer.model, transcript, starts[None], num_words)
        return scorer.value(features)[0].mean(axis=-1)

    return jax.lax.map(scores, ensemble)


class PrincipleReward(LearnedReward):
    """Principle-following reward model, for text: trained on AI preferences before the first update, then frozen."""

    labelling_env: str = eqx.field(static=True, default=RANDOM_PRINCIPLES_ENV)
    """Environment whose prompts and principles the preferences are about; its task judges texts."""
    num_pairs: int = eqx.field(static=True, default=4_096)
    """Pairs of texts of the initial model that are compared."""
    text_temperature: Number = 1.2
    """Temperature at which the initial model writes these texts: above 1, so that some of them are faulty."""
    rationality: Number = 40.0
    """Inverse temperature of the judge, per unit of reward."""
    reads_principles: bool = eqx.field(static=True, default=True)
    """Whether the reward model reads the principles; otherwise it reads ``blank_word`` in place of each."""
    blank_word: int = eqx.field(static=True, default=0)
    """Token in place of each principle where they are not read."""
    num_reward_steps: int = eqx.field(static=True, default=900)
    """Gradient steps of the reward model."""
    reward_batch_size: int = eqx.field(static=True, default=32)
    """Pairs per gradient step."""
    reward_learning_rate: Number = 3e-3
    """Step size of the reward model."""

    name: ClassVar[str] = "principle-reward"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "SALMON: Self-Alignment with Principle-Following Reward Models", "Sun et al.", 2023, "arXiv:2310.05910"
        ),
    )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> LMWithValueHead:
        """The trained reward model, whose texts and labels are others for every seed."""
        scorer = LearnedReward.init_state(dataclasses.replace(self, model=BLANK), spec, dialogue_spec, key)
        pairs = self.label_pairs(self.initial_model(spec, key), dialogue_spec, fold(key, "preferences"))

        def loss(scorer: LMWithValueHead, rows: Int[Array, " chosen"]) -> Float[Array, ""]:
            margin = self.margins(scorer, pairs, rows)
            return bradley_terry_loss(margin, jnp.broadcast_to(pairs.labels[rows], margin.shape)).mean()

        return fit_on_rows(
            scorer,
            loss,
            self.num_pairs,
            self.reward_batch_size,
            self.num_reward_steps,
            self.reward_learning_rate,
            fold(key, "reward"),
        )

    def label_pairs(self, model: Decoder, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> LabelledPairs:
        """Pairs of texts of a model, compared by the judge of the environment."""
        env: Any = make_compiled(self.labelling_env)
        states, prompts, responses = write_pairs(
            model, env.task, self.num_pairs, self.text_temperature, dialogue_spec, key
        )
        rewards = jax.vmap(lambda state, pair: jax.vmap(lambda text: env.task.judged_reward(state, text))(pair))(
            states, responses
        )
        probability = jax.nn.sigmoid(self.rationality * (rewards[:, 0] - rewards[:, 1]))
        labels = jax.random.uniform(fold(key, "labels"), probability.shape) < probability
        principles = jax.vmap(env.task.hidden_tokens)(states)
        return LabelledPairs(principles, prompts, responses, labels.astype("float32"))

    def margins(
        self, scorer: LMWithValueHead, pairs: LabelledPairs, rows: Int[Array, " chosen"]
    ) -> Float[Array, "member chosen"]:
        """By how much the first text of each pair has the larger reward."""
        prompts = jnp.repeat(pairs.prompts[rows], 2, axis=0)
        responses = pairs.responses[rows].reshape(2 * len(rows), -1)
        principles = self.read_principles(jnp.repeat(pairs.principles[rows], 2, axis=0))
        rewards = principle_scores(scorer, jnp.concatenate([prompts, responses], axis=1), principles)
        return rewards[:, ::2] - rewards[:, 1::2]

    def read_principles(self, principles: Int[Array, "row principle"]) -> Int[Array, "row principle"]:
        """The words of the principles as the reward model reads them."""
        return principles if self.reads_principles else jnp.full_like(principles, self.blank_word)

    def score(self, state: LMWithValueHead, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The reward of each text, read before the principles that the environment hides."""
        dialogues = Dialogues.from_transitions(batch.steps, batch.mask)
        num_words = batch.steps.privileged.shape[-1] - batch.steps.view.observation.shape[-1]
        principles = self.read_principles(batch.steps.privileged[0, :, :num_words])
        rewards = principle_scores(state, dialogues.transcript, principles).mean(axis=0)
        return Rewards(jax.lax.stop_gradient(jnp.where(dialogues.is_last_turn, rewards, 0.0)))
