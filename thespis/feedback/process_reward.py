r"""Process reward model: the probability that a dialogue succeeds after a response, learned from returns of dialogues.

.. math:: \hat Q(s, a) = \frac{1}{|G(s, a)|} \sum_{\tau \in G(s, a)} \sum_{k \ge t} \gamma^{k - t} r_k, \qquad
          \min - \hat Q \log \sigma(q(s, a)) - (1 - \hat Q) \log(1 - \sigma(q(s, a)))

:math:`G(s, a)` are all stored dialogues in which :math:`a` was the response in :math:`s`.

Source: Choudhury 2025 (AgentPRM) and its code. Differs: the reward of a response is its score minus the mean score of
the batch's responses in the same state, where theirs is compared with one other response from :math:`s` (online DPO),
so a response that is alone in its state is paid nothing; the model goes on learning from the latest dialogues, while
the policy does, where theirs alternate in a few long iterations; responses are scored within dialogues of their own; at
first the rewards are the environment's. A pair counts as often as it occurred, where theirs counts once: among few
states the rare ones would dominate. Their code counts turns of the discount from the start, and counts failures as -1
before it discounts; here it is from the response on, and failures are 0.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Citation, EnvSpec, Metrics, Number
from thespis.feedback.text_model import TurnScorer
from thespis.learners.language.dialogues import Dialogues, store_latest
from thespis.learners.language.lm_agent import LMWithValueHead
from thespis.learners.language.turn_scores import turn_scores
from thespis.learners.optim.optimizers import gradient_step
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import fold


class ProcessRewardState(eqx.Module):
    """State of the process reward: model, optimizer state, replay buffer of dialogues, and number of batches so far."""

    model: LMWithValueHead
    opt_state: PyTree
    replay: Dialogues
    num_batches: Int[Array, ""]


class ProcessReward(TurnScorer):
    """Process reward: how much more success a response promises than the others in the same state (AgentPRM), for text.

    It replaces the environment's reward. ``advantage_estimator=RewardToGo(NoBaseline(), 0.0)`` gives it to the tokens
    of its turn only; ``kl_penalty`` keeps the policy near the reference. Larger groups have more responses to compare.
    Not for ``normalize_advantage``, nor for many small steps on a batch: where all responses are the same there is no
    signal, and noise would be scaled up.
    """

    buffer_size: int = eqx.field(static=True, default=512)
    """Number of latest dialogues that are stored."""
    num_gradient_steps: int = eqx.field(static=True, default=10)
    """Gradient steps of the model on each batch."""
    batch_size: int = eqx.field(static=True, default=64)
    """Dialogues per gradient step."""
    discount: Number = 0.95
    """Discount per turn, in [0, 1]."""
    max_return: Number = 1.0
    """Largest possible return, above 0: success is the return as a share of it."""
    num_warmup_batches: int = eqx.field(static=True, default=10)
    """Batches that train the model before its rewards are used; until then rewards are the environment's."""

    name: ClassVar[str] = "process-reward"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Process Reward Models for LLM Agents", "Choudhury", 2025, "arXiv:2502.10325"),
    )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> ProcessRewardState:
        """The initial model with a value head of zeros (probability 1/2), and an empty buffer."""
        model = self.initial_scorer(spec, key)
        replay = Dialogues.empty(self.buffer_size, dialogue_spec, dialogue_spec.max_turns)
        return ProcessRewardState(model, self.optimizer.init(model), replay, jnp.zeros((), "int32"))

    def score_turns(
        self, state: ProcessRewardState, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """The model's estimates minus their means in the same state; the environment's rewards at first."""
        success_probs = jax.nn.sigmoid(turn_scores(state.model, dialogues))
        baseline = shared_prefix_mean(dialogues, dialogues.response_starts[:-1], success_probs)
        gain = self.max_return * (success_probs - baseline)
        return jnp.where(state.num_batches >= self.num_warmup_batches, gain, dialogues.reward)

    def learn(
        self, state: ProcessRewardState, dialogues: Dialogues, own_dialogues: Dialogues | None, key: Key[Array, ""]
    ) -> tuple[ProcessRewardState, Metrics]:
        """Store the dialogues, then train the model on the buffer.

        Raises ``UserError`` if ``buffer_size`` is smaller than a batch.
        """
        replay, num_stored = store_latest(state.replay, dialogues, state.num_batches)
        targets = monte_carlo_targets(replay, self.discount, self.max_return)

        def step(carry: Any, tick: Array) -> Any:
            rows_sampled = jax.random.randint(fold(key, "rows", tick), (self.batch_size,), 0, num_stored)
            sampled, sampled_targets = replay.take_rows(rows_sampled), targets[..., rows_sampled]
            reward_model, opt_state, losses, _ = gradient_step(
                self.optimizer, lambda reward_model: process_reward_loss(reward_model, sampled, sampled_targets), *carry
            )
            return (reward_model, opt_state), losses

        carry = state.model, state.opt_state
        (model, opt_state), losses = jax.lax.scan(step, carry, jnp.arange(self.num_gradient_steps))
        metrics = {"process_loss": losses.mean(), "success": masked_mean(targets, replay.alive)}
        return ProcessRewardState(model, opt_state, replay, state.num_batches + 1), metrics


def monte_carlo_targets(dialogues: Dialogues, discount: Number, max_return: Number) -> Float[Array, "time row"]:
    """Target of each response: the mean success of all dialogues in which it was given in the same state.

    Success is the discounted return from the response on, as a share of ``max_return`` in [0, 1].
    """
    reward_share = jnp.where(dialogues.alive, dialogues.reward / max_return, 0.0)

    def discounted_sum(later: Array, turn: tuple[Array, Array]) -> tuple[Array, Array]:
        alive, reward = turn
        later = jnp.where(alive, reward + discount * later, later)
        return later, later

    _, success = jax.lax.scan(
        discounted_sum, jnp.zeros(reward_share.shape[1]), (dialogues.alive, reward_share), reverse=True
    )
    return shared_prefix_mean(
        dialogues,
        dialogues.response_starts[:-1] + dialogues.response_mask.sum(axis=-1),
        jnp.clip(success, 0.0, 1.0),
    )


def process_reward_loss(
    model: LMWithValueHead, dialogues: Dialogues, targets: Float[Array, "time row"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Process reward loss: binary cross-entropy with shares of success as targets; returned twice."""
    logit = turn_scores(model, dialogues)
    cross_entropy = -targets * jax.nn.log_sigmoid(logit) - (1.0 - targets) * jax.nn.log_sigmoid(-logit)
    loss = masked_mean(cross_entropy, dialogues.alive)
    return loss, loss


def shared_prefix_mean(
    dialogues: Dialogues, ends: Int[Array, "time row"], x: Float[Array, "time row"]
) -> Float[Array, "time row"]:
    """Mean of ``x`` over all dialogues with the same transcript up to ``ends``; 0 where none is alive."""
    same = jax.vmap(_same_prefix, in_axes=(None, 0, 0))(
        _shared_prefix_length(dialogues.transcript), ends, dialogues.alive
    )
    return jnp.einsum("tij,tj->ti", same.astype("float32"), x) / jnp.maximum(same.sum(axis=-1), 1)


def _shared_prefix_length(transcript: Int[Array, "row length"]) -> Int[Array, "row row"]:
    """Number of leading tokens that each pair of dialogues shares."""
    differs = transcript[:, None] != transcript[None]
    return jnp.where(differs.any(axis=-1), jnp.argmax(differs, axis=-1), transcript.shape[1])


def _same_prefix(
    shared_length: Int[Array, "row row"], end: Int[Array, " row"], alive: Bool[Array, " row"]
) -> Bool[Array, "row row"]:
    """Whether each pair of dialogues is the same up to ``end``."""
    return (end[:, None] == end) & (shared_length >= end) & alive[:, None] & alive
