r"""Reward models that are fitted to labels of the initial model's texts before the first update, and frozen then.

The initial model writes two texts for each prompt of an environment. A subclass says how its task labels them, how
scores of labelled texts become a loss, and what reward a score is. Rewards are standardized: the mean over those texts
is subtracted, and what is left divided by their standard deviation, so that weights of a sum
(:class:`~thespis.feedback.combined.AddedFeedback`) mean the same for all.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, generate_responses
from thespis.core.errors import UserError
from thespis.core.records import Citation, EnvSpec, Metrics, Number
from thespis.envs.registry import make_compiled
from thespis.feedback.learned_reward import LearnedReward
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.learners.language.lm_agent import LMWithValueHead, Params, init_opt_state, trainable_gradient_step
from thespis.learners.language.model_init import BLANK
from thespis.learners.language.reward_ensemble import ensemble_scores
from thespis.learners.optim.optimizers import Adam
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import bradley_terry_loss
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import fold, indexed_keys


def write_pairs(
    model: Decoder, task: Any, num_prompts: int, temperature: Number, limits: DialogueSpec, key: Key[Array, ""]
) -> tuple[PyTree, Int[Array, "prompt opening"], Int[Array, "prompt 2 token"]]:
    """States, prompts and two sampled texts for each of them, in new episodes of a task."""
    states, prompts = jax.vmap(task.init)(indexed_keys(fold(key, "prompts"), num_prompts))
    sampler = TemperatureSampler(jnp.asarray(temperature, "float32"))
    doubled = jnp.repeat(prompts, 2, axis=0)
    texts = generate_responses(model, sampler, limits, doubled, fold(key, "texts"))
    return states, prompts, texts.reshape(num_prompts, 2, -1)


def fit_on_rows(
    params: Params,
    loss: Callable[[Params, Int[Array, " chosen"]], Float[Array, ""]],
    num_rows: int,
    batch_size: int,
    num_steps: int,
    learning_rate: Number,
    key: Key[Array, ""],
) -> Params:
    """Trainable parameters after steps of Adam on minibatches of rows, which are drawn with replacement."""
    optimizer = Adam(learning_rate, 1.0)

    def step(carry: tuple[Params, PyTree], tick: Array) -> tuple[tuple[Params, PyTree], None]:
        rows = jax.random.randint(fold(key, "rows", tick), (batch_size,), 0, num_rows)
        params, opt_state, _, _ = trainable_gradient_step(optimizer, lambda x: (loss(x, rows), ()), *carry)
        return (params, opt_state), None

    return jax.lax.scan(step, (params, init_opt_state(optimizer, params)), jnp.arange(num_steps))[0][0]


class FittedScorer(eqx.Module):
    """A reward model, and mean and standard deviation of its rewards of the texts that it was fitted to."""

    scorer: LMWithValueHead
    mean: Float[Array, ""]
    scale: Float[Array, ""]


class FittedReward(LearnedReward):
    """Base of rewards for text that are fitted to labels of the initial model's texts, standardized and frozen."""

    labelling_env: str = eqx.field(static=True, default="")
    """Environment whose prompts are answered, and whose task labels the texts."""
    num_prompts: int = eqx.field(static=True, default=4_096)
    """Prompts with two labelled texts each."""
    text_temperature: Number = 1.2
    """Temperature at which the initial model writes these texts: above 1, so that some of them are faulty."""
    num_reward_steps: int = eqx.field(static=True, default=600)
    """Gradient steps of the reward model."""
    reward_batch_size: int = eqx.field(static=True, default=32)
    """Prompts per gradient step."""
    reward_learning_rate: Number = 1e-3
    """Step size of the reward model, which starts from random parameters."""

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> FittedScorer:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The fitted reward model, whose texts and labels are others for every seed.

        Raises ``UserError`` if no environment labels texts.
        """
        if not self.labelling_env:
            raise UserError(f"the feedback {self.name} needs texts with labels: set feedback.labelling_env")
        env: Any = make_compiled(self.labelling_env)
        own_key = fold(key, self.name)
        states, prompts, responses = write_pairs(
            self.initial_model(spec, key), env.task, self.num_prompts, self.text_temperature, dialogue_spec, own_key
        )
        keys = indexed_keys(fold(own_key, "labels"), self.num_prompts)
        labels = jax.vmap(lambda state, pair, k: self.label(env.task, state, pair, k))(states, responses, keys)

        def scores(scorer: LMWithValueHead, rows: Int[Array, " chosen"]) -> Float[Array, "chosen 2"]:
            texts = responses[rows].reshape(2 * len(rows), -1)
            dialogues = single_turn_dialogues(jnp.repeat(prompts[rows], 2, axis=0), texts, jnp.ones(len(texts), bool))
            return ensemble_scores(scorer, dialogues).mean(axis=0)[0].reshape(-1, 2)

        scorer = fit_on_rows(
            LearnedReward.init_state(dataclasses.replace(self, model=BLANK), spec, dialogue_spec, own_key),
            lambda scorer, rows: self.loss(scores(scorer, rows), labels[rows]),
            self.num_prompts,
            self.reward_batch_size,
            self.num_reward_steps,
            self.reward_learning_rate,
            fold(own_key, "reward"),
        )
        rewards = self.reward(scores(scorer, jnp.arange(min(512, self.num_prompts))))
        return FittedScorer(scorer, rewards.mean(), rewards.std())

    def score_turns(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state: FittedScorer, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """The standardized reward of each dialogue at its last response; 0 at all others."""
        rewards = self._rewards(state, dialogues, key)
        return jnp.where(dialogues.is_last_turn, (rewards - state.mean) / (state.scale + 1e-6), 0.0)

    def learn(
        self, state: FittedScorer, dialogues: Dialogues, own_dialogues: Dialogues | None, key: Key[Array, ""]
    ) -> tuple[FittedScorer, Metrics]:
        """The same state, and the mean reward of the texts in its own units: what is believed to be earned."""
        return state, {"reward": masked_mean(self._rewards(state, dialogues, key), dialogues.is_last_turn)}

    def _rewards(self, state: FittedScorer, dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row"]:
        """The rewards before they are standardized."""
        return self.reward(LearnedReward.score_turns(self, state.scorer, dialogues, key))

    @abc.abstractmethod
    def label(self, task: Any, state: PyTree, texts: Int[Array, "2 token"], key: Key[Array, ""]) -> Float[Array, " 2"]:
        """Labels of the two texts of a prompt."""

    @abc.abstractmethod
    def loss(self, scores: Float[Array, "prompt 2"], labels: Float[Array, "prompt 2"]) -> Float[Array, ""]:
        """The mean loss of scores."""

    @abc.abstractmethod
    def reward(self, scores: Float[Array, "*texts"]) -> Float[Array, "*texts"]:
        """The reward of texts with these scores, before it is standardized."""


class ComparisonReward(FittedReward):
    """Comparison reward, for text: learned from which of two texts a task's judge scores higher, then frozen.

    The task of the environment has ``score(state, text, key)``, which may be noisy.
    """

    name: ClassVar[str] = "comparison-reward"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Fine-Tuning Language Models from Human Preferences", "Ziegler et al.", 2019, "arXiv:1909.08593"),
    )

    def label(self, task: Any, state: PyTree, texts: Int[Array, "2 token"], key: Key[Array, ""]) -> Float[Array, " 2"]:
        """1 for the text that has the higher score, 0 for the other."""
        scores = jax.vmap(lambda text, k: task.score(state, text, k))(texts, indexed_keys(key, 2))
        is_first = scores[0] > scores[1]
        return jnp.stack([is_first, ~is_first]).astype("float32")

    def loss(self, scores: Float[Array, "prompt 2"], labels: Float[Array, "prompt 2"]) -> Float[Array, ""]:
        """That of Bradley and Terry."""
        return bradley_terry_loss(scores[:, 0] - scores[:, 1], labels[:, 0]).mean()

    def reward(self, scores: Float[Array, "*texts"]) -> Float[Array, "*texts"]:
        """The score of the model itself."""
        return scores
