r"""Off-policy critic of whole responses, whose advantages of turns teach the policy (ArCHer).

.. math::

    Q(s, a) \to r + \gamma \bar V(s'), \qquad V(s) \to \bar Q(s, a \sim \pi), \qquad A = \min_k Q_k - \min_k V_k

:math:`Q` learns from a replay buffer of dialogues, whoever sampled them; :math:`V` on the newest dialogues. Targets are
Polyak-averaged; each of two pairs of heads has its own.

Source: Zhou et al. 2024 (ArCHer), section 3 and its code. Differs: :math:`V` learns where the policy has just acted, or
with ``max_importance_weight`` from replayed responses, weighted by importance, instead of new responses at replayed
states; heads are linear, on a decoder initialized from the policy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, response_features
from thespis.core.errors import UserError
from thespis.core.records import Number
from thespis.learners.language.dialogues import Dialogues, SampledDialogues, store_latest, with_log_probs
from thespis.learners.language.response_critics import CriticUpdate, TokenValues, TurnAdvantageCritic
from thespis.learners.optim.optimizers import Adam, gradient_step, polyak_update
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import fold

_INIT_SCALE = 0.01


class TurnQVNetwork(eqx.Module):
    """Turn critic network: a decoder with two Q heads for responses, and two V heads for the dialogue before them."""

    model: Decoder
    q_weights: Float[Array, "twin features"]
    v_weights: Float[Array, "twin features"]
    bias: Float[Array, "kind twin"]

    def __call__(self, dialogues: Dialogues) -> tuple[Float[Array, "twin time row"], Float[Array, "twin places row"]]:
        """Q at the last token of each response, V before each and after the dialogue."""
        features = response_features(
            self.model, dialogues.transcript, dialogues.response_starts, dialogues.responses.shape[-1] + 1
        )
        features /= self.q_weights.shape[-1] ** 0.5
        num_tokens = dialogues.response_mask.sum(axis=-1)[..., None, None]
        last_features = jnp.take_along_axis(features[:-1], num_tokens, axis=2)[:, :, 0]
        q, v = (
            jnp.einsum("trf,kf->ktr", last_features, self.q_weights),
            jnp.einsum("trf,kf->ktr", features[:, :, 0], self.v_weights),
        )
        return q + self.bias[0, :, None, None], v + self.bias[1, :, None, None]


class TurnCriticState(eqx.Module):
    """State of the turn critic: critic, target critic, optimizer state, replay buffer and number of batches so far.

    The replay buffer holds dialogues.
    """

    critic: TurnQVNetwork
    target_critic: TurnQVNetwork
    opt_state: PyTree
    replay: SampledDialogues
    num_batches: Int[Array, ""]


class OffPolicyTurnCritic(TurnAdvantageCritic):
    """Off-policy turn critic: the advantage of a response is ``Q - V``, learned from a replay buffer of dialogues.

    ``advantage_estimator=RewardToGo(NoBaseline(), 0.0)`` gives it to the tokens of its turn only.
    """

    buffer_size: int = eqx.field(static=True, default=1024)
    """Number of latest dialogues that are stored."""
    num_gradient_steps: int = eqx.field(static=True, default=50)
    """Gradient steps of the critic on each batch. With too few the policy follows the critic's errors, and may settle
    on wrong responses."""
    batch_size: int = eqx.field(static=True, default=32)
    """Dialogues per gradient step, from the buffer and from the newest batch each."""
    learning_rate: Number = 1e-3
    """Step size of the critic."""
    discount: Number = 0.95
    """Discount per turn, in [0, 1]."""
    tau: Number = 0.1
    """Polyak rate of the target critic per step, in (0, 1]."""
    num_warmup_batches: int = eqx.field(static=True, default=10)
    """Batches that train the critic before its advantages are used; until then they are 0."""
    max_importance_weight: Number | None = None
    """Largest weight of a stored response in the loss of V, which is how much more likely the policy makes it now.

    V then learns on all stored dialogues. ``None``: V learns on the newest dialogues alone, whose responses it may
    remember if there are few of them.
    """
    num_critic_pretrain_updates: ClassVar[int] = 0
    needs_log_ratio: ClassVar[bool] = False

    @property
    def optimizer(self) -> Adam:
        """Optimizer of the critic: Adam with gradients clipped to norm 1."""
        return Adam(self.learning_rate, 1.0)

    def init_from(self, model: Decoder, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> TurnCriticState:
        """Critic and target from the policy's decoder, with heads of small random weights, and an empty buffer."""
        width = model.config.hidden_size
        q_weights, v_weights = _INIT_SCALE * jax.random.normal(
            fold(key, "heads"), (2, 2, width)
        )  # equal heads would stay equal
        critic = TurnQVNetwork(jax.tree.map(jnp.copy, model), q_weights, v_weights, jnp.zeros((2, 2)))
        target, opt_state = jax.tree.map(jnp.copy, critic), self.optimizer.init(critic)
        return TurnCriticState(
            critic,
            target,
            opt_state,
            SampledDialogues.empty(self.buffer_size, dialogue_spec, dialogue_spec.max_turns),
            jnp.zeros((), "int32"),
        )

    def values(self, critic: TurnCriticState, reference: PyTree, dialogues: Dialogues) -> TokenValues:
        """The smaller of two values before each turn and after the last one, the same for all tokens of a turn."""
        value = critic.critic(dialogues)[1].min(axis=0)
        return jnp.broadcast_to(value[..., None], (*value.shape, dialogues.responses.shape[-1]))

    def turn_advantages(
        self, critic: TurnCriticState, reference: PyTree, dialogues: Dialogues
    ) -> Float[Array, "time row"]:
        """``Q - V``, each the smaller of two; 0 until the warm-up is over."""
        q, v = critic.critic(dialogues)
        advantage = q.min(axis=0) - v[:, :-1].min(axis=0)
        return jnp.where(critic.num_batches <= self.num_warmup_batches, 0.0, advantage)

    def update(
        self,
        critic: TurnCriticState,
        reference: PyTree,
        dialogues: Dialogues,
        log_ratio: Any,
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> CriticUpdate:
        """Store the dialogues, then train the critic; values are those after it.

        Raises:
            UserError: if ``buffer_size`` is smaller than a batch, or if stored responses are to be weighted.
        """
        if self.max_importance_weight is not None:
            raise UserError("max_importance_weight needs a method that knows its policy now: archer")
        critic, metrics = self.learn(critic, dialogues, None, key)
        return critic, self.values(critic, reference, dialogues), metrics

    def learn(
        self,
        critic: TurnCriticState,
        dialogues: Dialogues,
        log_probs: Callable[[SampledDialogues], Float[Array, "time row token"]] | None,
        key: Key[Array, ""],
    ) -> tuple[TurnCriticState, dict[str, Float[Array, ""]]]:
        """Store the dialogues, then train the critic: its new state, and metrics.

        ``log_probs``: those of response tokens by the policy, for importance weights; ``None``: V learns on the newest
        dialogues. Raises ``UserError`` if ``buffer_size`` is smaller than a batch.
        """
        rows = dialogues.alive.shape[1]
        replay, num_stored = store_latest(critic.replay, with_log_probs(dialogues), critic.num_batches)
        weights = None if log_probs is None else self.importance_weights(replay, log_probs(replay))

        def step(carry: Any, tick: Array) -> Any:
            network, target, opt_state = carry
            old_key, new_key = jax.random.split(fold(key, "rows", tick))
            indices = jax.random.randint(old_key, (self.batch_size,), 0, num_stored)
            replayed = replay.take_rows(indices)
            sampled = dialogues.take_rows(jax.random.randint(new_key, (self.batch_size,), 0, rows))
            network, opt_state, losses, _ = gradient_step(
                self.optimizer,
                lambda network: (
                    self.compute_loss(network, target, replayed, sampled)
                    if weights is None
                    else self.compute_loss(network, target, replayed, None, weights[:, indices])
                ),
                network,
                opt_state,
            )
            return (network, polyak_update(target, network, self.tau), opt_state), losses

        carry = critic.critic, critic.target_critic, critic.opt_state
        (network, target, opt_state), losses = jax.lax.scan(step, carry, jnp.arange(self.num_gradient_steps))
        critic = TurnCriticState(network, target, opt_state, replay, critic.num_batches + 1)
        metrics = {
            "critic_loss": losses.mean(),
            "critic_value": masked_mean(network(dialogues)[1][0, :-1], dialogues.alive),
        }
        return critic, metrics

    def importance_weights(
        self, dialogues: SampledDialogues, log_probs: Float[Array, "time row token"]
    ) -> Float[Array, "time row"]:
        """How much more likely each response is now than when it was sampled, ``max_importance_weight`` at most."""
        assert self.max_importance_weight is not None
        log_ratio = jnp.where(dialogues.response_mask, log_probs - dialogues.log_probs, 0.0).sum(axis=-1)
        return jax.lax.stop_gradient(jnp.minimum(jnp.exp(log_ratio), self.max_importance_weight))

    def compute_loss(
        self,
        critic: TurnQVNetwork,
        target_critic: TurnQVNetwork,
        replayed: Dialogues,
        sampled: Dialogues | None,
        weights: Float[Array, "time row"] | None = None,
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Squared errors of Q on ``replayed`` dialogues and of V on ``sampled`` ones; the sum, twice.

        ``sampled``: ``None`` if V learns on the replayed ones too. ``weights``: those of V's errors, by default 1.
        """
        (q, v), (target_q, target_v) = critic(replayed), jax.lax.stop_gradient(target_critic(replayed))
        q_error, alive = jnp.square(q - self.q_targets(target_v, replayed)).sum(axis=0), replayed.alive
        if sampled is not None:
            v, target_q, alive = critic(sampled)[1], jax.lax.stop_gradient(target_critic(sampled)[0]), sampled.alive
        v_error = jnp.square(v[:, :-1] - target_q).sum(axis=0)
        loss = masked_mean(q_error, replayed.alive) + masked_mean(
            v_error if weights is None else weights * v_error, alive
        )
        return loss, loss

    def q_targets(self, value: Float[Array, "twin places row"], dialogues: Dialogues) -> Float[Array, "twin time row"]:
        """Q targets: reward plus the discounted value before the next own turn.

        After the last turn there is a value only if the dialogue was truncated.
        """
        time = len(dialogues.alive)
        turn = jnp.where(dialogues.alive, jnp.arange(time)[:, None], time)
        next_turn = jnp.pad(jax.lax.cummin(turn, axis=0, reverse=True)[1:], ((0, 1), (0, 0)), constant_values=time)
        next_value = jnp.take_along_axis(value, next_turn[None], axis=1)
        continues = ~dialogues.is_last_turn | dialogues.truncated
        return dialogues.reward + self.discount * jnp.where(continues, next_value, 0.0)
