r"""Reward model: learns from preference pairs which of two dialogues is better; its run is the reward of other runs.

.. math:: \min\; - \log \sigma(r(x, y_w) - r(x, y_l)) + c \, (r(x, y_w) + r(x, y_l))^2

The reward :math:`r` is a linear head on a language model's features at the last token of the last response.

Sources: Ziegler et al., 2019; Ouyang et al., 2022 (equation 1); Eisenstein et al., 2023 (arXiv:2312.09244, the penalty
:math:`c` on the mean of both rewards); Coste et al., 2024 (ensembles).

Differs: a reward is a dialogue's, of any number of turns; members of an ensemble differ by their heads (and adapters)
alone, and see the same pairs in the same order.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, KVCacheState, LMPolicy
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.data.feeds import PreferencePairs
from thespis.feedback.learned_reward import LearnedReward
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.learners.language.lm_agent import (
    LMWithValueHead,
    TrainableLMAgent,
    init_opt_state,
    trainable_gradient_step,
)
from thespis.learners.language.reward_ensemble import ensemble_scores, init_ensemble
from thespis.learners.language.turn_scores import turn_scores
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import bradley_terry_loss
from thespis.runs.ranges import AT_LEAST_1, in_range
from thespis.runtime.keys import fold


class RMState(eqx.Module):
    """Training state: reward models and optimizer states ``[member, ...]``; and the initial model, which acts."""

    scorers: LMWithValueHead
    opt_states: PyTree
    actor: Decoder
    dialogue_spec: DialogueSpec = eqx.field(static=True)


class BestOfN(eqx.Module):
    """Policy that samples some responses and says the one with the greatest reward; with one it is the actor's own."""

    actor: LMPolicy
    scorers: LMWithValueHead
    num_candidates: int = eqx.field(static=True)

    def init_memory(self, n: int) -> KVCacheState:
        """Empty caches for ``n`` dialogues; with several candidates the second axis is theirs."""
        memory, count = self.actor.init_memory(n * self.num_candidates), self.num_candidates
        return memory if count == 1 else jax.tree.map(lambda x: x.reshape(n, count, *x.shape[1:]), memory)

    def act(
        self, memory: KVCacheState, view: View, key: Key[Array, ""]
    ) -> tuple[Int[Array, "row response"], KVCacheState, Float[Array, "row response"]]:
        """The best candidates, the memory after them, and the log-probabilities of their tokens as sampled."""
        count = self.num_candidates
        if count == 1:
            return self.actor.act(memory, view, key)
        rows = view.observation.shape[0]
        candidates = jax.tree.map(lambda x: jnp.repeat(x, count, axis=0), view)
        memory = jax.tree.map(lambda x: x.reshape(rows * count, *x.shape[2:]), memory)
        responses, memory, log_probs = self.actor.act(memory, candidates, key)
        dialogues = single_turn_dialogues(candidates.observation, responses, jnp.ones(rows * count, bool))
        reward = jnp.mean(ensemble_scores(self.scorers, dialogues), axis=0)[0]
        best = jnp.argmax(reward.reshape(rows, count), axis=1) + count * jnp.arange(rows)
        kept = jnp.repeat(best, count).reshape(rows, count)  # all candidates go on from the best one
        return responses[best], jax.tree.map(lambda x: x[kept], memory), log_probs[best]


class RM(TrainableLMAgent):
    """Reward model: learns from preference pairs which dialogue is better; other runs use it by ``frozen:RUN``.

    It acts as its initial model does, or says the best of several samples of that by the reward that it has learned.
    """

    center_coef: Number = 0.0
    """Weight of the squared sum of both rewards, which keeps rewards near 0."""
    num_members: int = eqx.field(static=True, default=1, metadata=in_range(AT_LEAST_1))
    """Reward models in an ensemble."""
    num_candidates: int = eqx.field(static=True, default=1, metadata=in_range(AT_LEAST_1))
    """Responses of the initial model of which sampled play says the best (best-of-n); 1: the initial model's own."""
    feed: PreferencePairs = eqx.field(static=True, default=PreferencePairs())
    """Pairs of dialogues: batch_size, max_steps (turns; 0: as many as the longest dialogue has), max_tokens."""

    reward_address: ClassVar[str] = "scorers"
    name: ClassVar[str] = "rm"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Training language models to follow instructions", "Ouyang et al.", 2022, "arXiv:2203.02155"),
        *LearnedReward.citations,
    )
    details: ClassVar[tuple[str, ...]] = ("the reward is read at the last token of the last response",)

    def as_feedback(self) -> LearnedReward:
        """The trained reward as the feedback of other runs."""
        return LearnedReward(
            self.model,
            self.num_layers,
            self.hidden_size,
            self.num_pretrain_steps,
            self.compute_dtype,
            self.num_pretrain_dialogues,
            self.trainable,
            self.num_members,
        )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> RMState:
        """Reward models on the model that ``model`` names.

        Raises ``UserError`` for an environment without text.
        """
        dialogue_spec = DialogueSpec.from_spec(spec)
        actor = self.model_init.init_from(spec, fold(key, "model"))
        scorers = init_ensemble(actor, self.trainable, self.num_members, key)
        opt_states = jax.vmap(lambda scorer: init_opt_state(self.make_optimizer(), scorer))(scorers)
        return RMState(scorers, opt_states, actor, dialogue_spec)

    def policy(self, state: RMState, mode: Mode) -> BestOfN:
        """The initial model, choosing by the reward; greedy, its most probable response, which has no alternatives."""
        actor = LMPolicy(state.actor, self.sampler, state.dialogue_spec, mode)
        return BestOfN(actor, state.scorers, 1 if mode is Mode.EXPLOIT else self.num_candidates)

    def judge(self, state: RMState, episode: Transition) -> Critique:
        """The ensemble's mean score after each response, and its standard deviation."""
        steps = jax.tree.map(lambda x: x[:, None], episode)
        dialogues = Dialogues.from_transitions(steps, jnp.ones(steps.reward.shape, bool))
        scores = ensemble_scores(state.scorers, dialogues)[..., 0]
        return Critique(value=jnp.mean(scores, axis=0), spread=jnp.std(scores, axis=0))

    def update(self, state: RMState, batch: Batch, key: Key[Array, ""]) -> tuple[RMState, Report]:
        """One gradient step of every member on a batch of pairs; even rows are the better dialogues."""
        dialogues = Dialogues.from_transitions(batch.steps, batch.mask)

        def step(member: tuple[LMWithValueHead, PyTree]) -> tuple[LMWithValueHead, PyTree, dict[str, Array]]:
            scorer, opt_state, metrics, norm = trainable_gradient_step(
                self.make_optimizer(), lambda scorer: self._loss(scorer, dialogues), *member
            )
            return scorer, opt_state, metrics | {"gradient": norm}

        scorers, opt_states, metrics = jax.lax.map(step, (state.scorers, state.opt_states))
        metrics = {name: values.mean() for name, values in metrics.items()}
        return RMState(scorers, opt_states, state.actor, state.dialogue_spec), Report(metrics)

    def _loss(self, scorer: LMWithValueHead, dialogues: Dialogues) -> tuple[Float[Array, ""], dict[str, Array]]:
        rewards = dialogue_rewards(scorer, dialogues)
        chosen, rejected = rewards[0::2], rewards[1::2]
        loss = bradley_terry_loss(rejected - chosen, 0.0).mean()
        loss += self.center_coef * jnp.mean(jnp.square(chosen + rejected))
        probability = jax.nn.sigmoid(chosen - rejected)
        metrics = {
            "loss": loss,
            "accuracy": jnp.mean(chosen > rejected, dtype="float32"),
            "confidence": jnp.mean(jnp.maximum(probability, 1.0 - probability)),
            "brier_score": jnp.mean(jnp.square(1.0 - probability)),
            "margin": jnp.mean(chosen - rejected),
            "mean_reward": jnp.mean(rewards),
        }
        return loss, metrics


def dialogue_rewards(scorer: LMWithValueHead, dialogues: Dialogues) -> Float[Array, " row"]:
    """The reward of each dialogue: the score of its last response."""
    return jnp.sum(jnp.where(dialogues.is_last_turn, turn_scores(scorer, dialogues), 0.0), axis=0)
