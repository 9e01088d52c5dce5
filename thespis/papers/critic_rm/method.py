r"""Critic-RM: a reward model that says a critique of an answer first, and learns critiques and rewards jointly.

The initial model samples critiques :math:`z` of both answers of a pair, each with a score in its words. Those are kept
of which the better answer has the larger score. One model learns to say them and, by a linear head on its features
after them, to give the reward:

.. math:: \lambda(t) \, (-\log \pi(z_w|x, y_w) - \log \pi(z_l|x, y_l)) / 2
          + (1 - \lambda(t)) \, (-\log \sigma(r(x, y_w, z_w) - r(x, y_l, z_l)))

The weight :math:`\lambda` is 1 at first, and then falls linearly to 0. A reward is the mean over several critiques
that the trained model samples.

Source: Yu et al., 2024.

Differs: critiques are kept by the scores of the two that are compared, not by the means of all of a pair, and they are
not summarized or ranked by a judge; labels are of pairs of the initial model's own answers.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.lm_policy import (
    DialogueSpec,
    LMPolicy,
    generate_responses,
    response_features,
    token_log_probs,
)
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition
from thespis.core.spaces import Text
from thespis.data.feeds import Episodes
from thespis.envs.text.task import DIGITS
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.learners.language.lm_agent import (
    LMWithValueHead,
    TrainableLMAgent,
    init_opt_state,
    trainable_gradient_step,
)
from thespis.learners.language.reward_ensemble import init_ensemble
from thespis.learners.language.turn_scores import turn_scores
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import bradley_terry_loss
from thespis.objectives.statistics import masked_mean
from thespis.runs.ranges import AT_LEAST_0, AT_LEAST_1, FRACTION, in_range
from thespis.runtime.keys import fold, indexed_keys


class CriticRMState(eqx.Module):
    """Training state: the reward model with its critiques, and the initial model, which answers.

    ``digit_tokens``: the tokens of the digits, in which critiques give their scores.
    """

    scorer: LMWithValueHead
    initial_model: Decoder
    dialogue_spec: DialogueSpec = eqx.field(static=True)
    digit_tokens: tuple[int, ...] = eqx.field(static=True)


class LabelledPairs(eqx.Module):
    """Preference pairs: the better and the worse answer with what was said before it, and critiques of both.

    ``keeps``: which critiques are learned from, none where answers are equally good.
    """

    texts: Int[Array, "pair 2 length"]
    critiques: Int[Array, "critique pair 2 token"]
    keeps: Bool[Array, "critique pair"]


class CriticRM(TrainableLMAgent):
    """Reward model that criticizes an answer before it scores it, trained jointly; or parts of it, as rivals.

    In the environment, of two turns, it acts as its initial model does: it answers and criticizes its answer. Two
    answers to a query are a preference pair, labelled by their rewards. The critiques in the transcripts are not used.
    """

    critiques: Literal["agreeing", "all", "none"] = eqx.field(static=True, default="agreeing")
    """Critiques that are learned: those that agree with the label, all, or none, where the initial model criticizes."""
    reads: Literal["critique", "answer", "score"] = eqx.field(static=True, default="critique")
    """What a reward follows from: the answer and a critique, the answer alone, or the score in a critique's words."""
    num_critiques: int = eqx.field(static=True, default=8, metadata=in_range(AT_LEAST_1))
    """Critiques of each answer that the initial model samples."""
    critique_phase: Number = eqx.field(default=0.3, metadata=in_range(FRACTION))
    """Share of the gradient steps in which critiques alone are learned."""
    num_gradient_steps: int = eqx.field(static=True, default=200, metadata=in_range(AT_LEAST_0))
    """Gradient steps on the pairs of an update."""
    batch_size: int = eqx.field(static=True, default=32, metadata=in_range(AT_LEAST_1))
    """Pairs per gradient step."""
    feed: Episodes = eqx.field(static=True, default=Episodes(group_size=2, num_envs=256))
    """Feed of dialogues of two turns: num_envs (answers that are labelled), group_size (2: pairs)."""

    name: ClassVar[str] = "critic-rm"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Self-Generated Critiques Boost Reward Modeling for Language Models", "Yu et al.", 2024, "arXiv:2411.16646"
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("the weight falls linearly from critiques to rewards",)

    def __check_init__(self):
        """Raise ``ValueError`` for a score in words where no critiques are learned, which has nothing to learn."""
        if self.reads == "score" and self.critiques == "none" and self.num_gradient_steps:
            raise ValueError("reads=score with critiques=none learns nothing: num_gradient_steps=0")

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CriticRMState:
        """A reward model on the model that ``model`` names. Raises ``UserError`` for an environment without text."""
        dialogue_spec, initial = DialogueSpec.from_spec(spec), self.model_init.init_from(spec, fold(key, "model"))
        scorer = jax.tree.map(lambda x: x[0], init_ensemble(initial, self.trainable, 1, key))
        assert isinstance(spec.action_space, Text)
        words = spec.action_space.vocabulary.words
        return CriticRMState(scorer, initial, dialogue_spec, tuple(words.index(digit) for digit in DIGITS))

    def policy(self, state: CriticRMState, mode: Mode) -> LMPolicy:
        """The initial model as policy."""
        return LMPolicy(state.initial_model, self.sampler, state.dialogue_spec, mode)

    def judge(self, state: CriticRMState, episode: Transition) -> Critique:
        """No critique of steps: rewards are of answers, and need critiques to be sampled."""
        return Critique()

    def rewards(
        self, state: CriticRMState, texts: Int[Array, "row length"], num_critiques: int, key: Key[Array, ""]
    ) -> Float[Array, " row"]:
        """Rewards of answers at the ends of ``texts``: the mean over some critiques that are sampled of each."""
        if self.reads == "answer":
            return self._read(state.scorer, texts, None)
        critic = state.initial_model if self.critiques == "none" else state.scorer.model
        critiques = self.sample_critiques(critic, state, texts, num_critiques, key)
        if self.reads == "score":
            return jax.vmap(lambda critique: implied_scores(critique, state.digit_tokens))(critiques).mean(axis=0)
        return jax.lax.map(lambda critique: self._read(state.scorer, texts, critique), critiques).mean(axis=0)

    def sample_critiques(
        self, critic: Decoder, state: CriticRMState, texts: Int[Array, "row length"], count: int, key: Key[Array, ""]
    ) -> Int[Array, "critique row token"]:
        """Some critiques of each answer by a model."""
        return jax.lax.map(
            lambda key: generate_responses(critic, self.sampler, state.dialogue_spec, texts, key),
            indexed_keys(key, count),
        )

    def update(self, state: CriticRMState, batch: Batch, key: Key[Array, ""]) -> tuple[CriticRMState, Report]:
        """Critiques of all answers, then gradient steps on their pairs."""
        dialogues = Dialogues.from_transitions(batch.steps, batch.mask)
        texts, returns = dialogues.text_before(1), dialogues.returns
        critiques = self.sample_critiques(state.initial_model, state, texts, self.num_critiques, fold(key, "critiques"))
        pairs = self.make_pairs(texts, returns, critiques, state.digit_tokens)
        scorer, metrics = self.fit(state.scorer, pairs, fold(key, "fit"))
        is_labelled = returns[0::2] != returns[1::2]
        metrics |= {
            "labelled_pairs": is_labelled.sum(dtype="float32"),
            "kept_critiques": masked_mean(
                pairs.keeps.astype("float32"), jnp.broadcast_to(is_labelled, pairs.keeps.shape)
            ),
        }
        return CriticRMState(scorer, state.initial_model, state.dialogue_spec, state.digit_tokens), Report(metrics)

    def make_pairs(
        self,
        texts: Int[Array, "row length"],
        returns: Float[Array, " row"],
        critiques: Int[Array, "critique row token"],
        digit_tokens: tuple[int, ...],
    ) -> LabelledPairs:
        """Pairs of adjacent rows, the better first, and which of their critiques are kept."""
        is_swapped, is_labelled = returns[0::2] < returns[1::2], returns[0::2] != returns[1::2]
        order = 2 * jnp.arange(len(is_swapped))[:, None] + jnp.where(
            is_swapped[:, None], jnp.array([1, 0]), jnp.arange(2)
        )
        texts, critiques = texts[order], critiques[:, order]
        scores = jax.vmap(lambda critique: implied_scores(critique, digit_tokens))(critiques)
        agrees = scores[..., 0] > scores[..., 1] if self.critiques == "agreeing" else jnp.ones(scores.shape[:2], bool)
        return LabelledPairs(texts, critiques, agrees & is_labelled)

    def critique_weight(self, tick: Int[Array, ""]) -> Float[Array, ""]:
        """Weight of the loss of critiques: 1 in the first phase, then falling linearly to 0 at the end."""
        if self.reads == "score":
            return jnp.ones(())
        if self.critiques == "none":
            return jnp.zeros(())
        begin = jnp.asarray(self.critique_phase, "float32")
        return jnp.clip((1.0 - tick / self.num_gradient_steps) / jnp.maximum(1.0 - begin, 1e-6), 0.0, 1.0)

    def fit(
        self, scorer: LMWithValueHead, pairs: LabelledPairs, key: Key[Array, ""]
    ) -> tuple[LMWithValueHead, dict[str, Array]]:
        """The reward model after gradient steps on pairs of answers and critiques, and the means of metrics."""
        if self.num_gradient_steps == 0:
            return scorer, {}
        optimizer, log_keeps = self.make_optimizer(), jnp.log(pairs.keeps.astype("float32"))
        log_share = jnp.where(pairs.keeps.any(axis=0), 0.0, -jnp.inf)
        has_any = pairs.keeps.any().astype("float32")

        def step(carry: Any, tick: Array) -> Any:
            rows = jax.random.categorical(fold(key, "pairs", tick), log_share, shape=(self.batch_size,))
            chosen = jax.random.categorical(fold(key, "critiques", tick), log_keeps[:, rows], axis=0)
            texts, critiques = pairs.texts[rows], pairs.critiques[chosen, rows]
            weight = self.critique_weight(tick)

            def loss_fn(scorer: LMWithValueHead) -> tuple[Float[Array, ""], dict[str, Array]]:
                return self.joint_loss(scorer, texts, critiques, weight * has_any, (1.0 - weight) * has_any)

            scorer, opt_state, metrics, norm = trainable_gradient_step(optimizer, loss_fn, *carry)
            return (scorer, opt_state), metrics | {"gradient": norm}

        (scorer, _), metrics = jax.lax.scan(
            step, (scorer, init_opt_state(optimizer, scorer)), jnp.arange(self.num_gradient_steps)
        )
        return scorer, jax.tree.map(jnp.mean, metrics)

    def joint_loss(
        self,
        scorer: LMWithValueHead,
        texts: Int[Array, "pair 2 length"],
        critiques: Int[Array, "pair 2 token"],
        critique_weight: Float[Array, ""],
        reward_weight: Float[Array, ""],
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Weighted sum of the critiques' negative log-likelihood and the Bradley-Terry loss of the rewards."""
        rows, words = texts.reshape(-1, texts.shape[-1]), critiques.reshape(-1, critiques.shape[-1])
        dialogues = single_turn_dialogues(rows, words, jnp.ones(len(rows), bool))
        mask = dialogues.response_mask[0]
        features = response_features(
            scorer.model, dialogues.transcript, dialogues.response_starts[:1], words.shape[1] + 1
        )[0]
        log_probs = token_log_probs(scorer.model, self.sampler, features[:, :-1], words)[0]
        critique_loss = -jnp.where(mask, log_probs, 0.0).sum(axis=-1).mean()
        last = jnp.zeros(len(rows), "int32") if self.reads == "answer" else mask.sum(axis=-1)
        values = jnp.take_along_axis(scorer.value(features), last[:, None], axis=1).reshape(-1, 2)
        reward_loss = bradley_terry_loss(values[:, 1] - values[:, 0], 0.0).mean()
        loss = critique_weight * critique_loss + reward_weight * reward_loss
        return loss, {
            "loss": loss,
            "critique_loss": critique_loss,
            "reward_loss": reward_loss,
            "accuracy": jnp.mean(values[:, 0] > values[:, 1], dtype="float32"),
        }

    def _read(
        self, scorer: LMWithValueHead, texts: Int[Array, "row length"], critiques: Int[Array, "row token"] | None
    ) -> Float[Array, " row"]:
        """The head's value after the critiques, or after the texts themselves."""
        if critiques is None:
            critiques = jnp.full((len(texts), 1), -1, "int32")
        return turn_scores(scorer, single_turn_dialogues(texts, critiques, jnp.ones(len(texts), bool)))[0]


def implied_scores(critiques: Int[Array, "*axes token"], digit_tokens: tuple[int, ...]) -> Float[Array, "*axes"]:
    """The score that a critique gives in its words: its last digit; -1 where it has none."""
    matches = critiques[..., None] == jnp.asarray(digit_tokens)
    values = jnp.where(matches.any(axis=-1), jnp.argmax(matches, axis=-1), -1)
    last = critiques.shape[-1] - 1 - jnp.argmax(values[..., ::-1] >= 0, axis=-1)
    return jnp.take_along_axis(values, last[..., None], axis=-1)[..., 0].astype("float32")
