"""Advantage estimators for language models: from rewards of turns to advantages of tokens.

Where a feedback rewards single tokens, :class:`TokenGAE` gives each its own; all others see their sum, with the turn.

Rows of a group have the same beginning and are adjacent, so that they are each other's baseline: a group baseline gives
advantages of dialogues from the returns of the others. Critics are linear heads on the decoder's last features. A
reward counts for its own turn and those before, never for later ones; only :class:`TrajectoryReturn` gives every turn
the return of the whole dialogue.
"""

from __future__ import annotations

import abc
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Number
from thespis.learners.language.dialogues import is_last_token
from thespis.objectives import group_advantages
from thespis.objectives.decision_points import restrict_to_decisions
from thespis.objectives.returns import discounted_returns, gae


class GroupBaseline(eqx.Module):
    """Slot: what the returns of a group are compared with."""

    @abc.abstractmethod
    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """Advantages of dialogues from the returns of their groups."""


class NoBaseline(GroupBaseline):
    """No baseline: returns are the advantages."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """Advantages: the returns, unchanged."""
        return returns


class GroupMean(GroupBaseline):
    """Returns minus the mean of the group (Liu et al. 2025, Dr. GRPO)."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """See :func:`thespis.objectives.group_advantages.group_mean_advantage`."""
        return group_advantages.group_mean_advantage(returns)


class LeaveOneOut(GroupBaseline):
    """Returns minus the mean of the others of the group: unbiased (Ahmadian et al. 2024, RLOO)."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """See :func:`thespis.objectives.group_advantages.leave_one_out_advantage`."""
        return group_advantages.leave_one_out_advantage(returns)


class GroupNormalized(GroupBaseline):
    """Returns minus the mean of the group, divided by its standard deviation: biased (Shao et al. 2024, GRPO)."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """See :func:`thespis.objectives.group_advantages.group_normalized_advantage`."""
        return group_advantages.group_normalized_advantage(returns)


class TurnBatch(eqx.Module):
    """Rewards of dialogues by turn.

    Groups are ``group_size`` adjacent dialogues with the same beginning, each with ``num_players`` adjacent rows.
    """

    reward: Float[Array, "time row"]
    alive: Bool[Array, "time row"]
    """The policy's own turns within the dialogue: false after its end, and where another player speaks."""
    truncated: Bool[Array, " row"]
    """Dialogues that ran out of turns: what would have followed is bootstrapped from the critic."""
    response_mask: Bool[Array, "time row token"]
    """Tokens that were sampled."""
    group_size: int = eqx.field(static=True)
    num_players: int = eqx.field(static=True, default=1)
    token_rewards: Float[Array, "time row token"] | None = None
    """What part of the reward of its turn each token earns; ``None``: no token earns any."""

    @property
    def returns(self) -> Float[Array, " row"]:
        """Returns of whole dialogues."""
        return jnp.where(self.alive, self.reward, 0.0).sum(axis=0)

    @property
    def zero_std_fraction(self) -> Float[Array, ""]:
        """Fraction of groups whose returns are all equal, so that a group baseline gives zeros."""
        groups = self._group_rows(self.returns).reshape(-1, self.group_size)
        spread = groups.max(axis=1) - groups.min(axis=1)
        return (spread < 1e-4).mean(dtype="float32")  # sums of rewritten rewards differ by rounding

    def subtract_baseline(self, baseline: GroupBaseline, returns: Float[Array, " row"]) -> Float[Array, " row"]:
        """Apply a group baseline to returns, among rows with the same beginning and the same player."""
        grouped = self._group_rows(returns)
        compared = baseline(grouped.reshape(-1, self.group_size))
        return compared.reshape(grouped.shape).swapaxes(1, 2).reshape(-1)

    def _group_rows(self, x: Float[Array, " row"]) -> Float[Array, "groups role member"]:
        return x.reshape(-1, self.group_size, self.num_players).swapaxes(1, 2)


class TokenAdvantages(eqx.Module):
    """Advantages of tokens, and values and targets of the critic.

    ``value_mask``: where the critic learns; nowhere if there is none.
    """

    advantage: Float[Array, "time row token"]
    value: Float[Array, "time row token"]
    target: Float[Array, "time row token"]
    value_mask: Bool[Array, "time row token"]


class AdvantageEstimator(eqx.Module):
    """Slot: token advantages from a :class:`TurnBatch` and the critic's values."""

    needs_critic: eqx.AbstractClassVar[bool]
    """Whether values are used: ``[time + 1, row, token]``, before each token and after the last turn."""

    @abc.abstractmethod
    def __call__(self, turns: TurnBatch, values: Any) -> TokenAdvantages:
        """Advantages of all sampled tokens, and what the critic learns from."""


class TrajectoryReturn(AdvantageEstimator):
    """Every token gets the return of the whole dialogue, relative to its group's baseline."""

    baseline: GroupBaseline = LeaveOneOut()
    """Group baseline: NoBaseline, GroupMean, LeaveOneOut or GroupNormalized."""

    needs_critic: ClassVar[bool] = False

    def __call__(self, turns: TurnBatch, values: Any) -> TokenAdvantages:
        """The same advantage for all tokens of a row; ``values`` are not used."""
        compared = turns.subtract_baseline(self.baseline, turns.returns)
        return _broadcast_to_tokens(turns, jnp.broadcast_to(compared, turns.reward.shape))


class RewardToGo(AdvantageEstimator):
    """Every token gets the discounted return from its turn on, relative to the group's at the same turn."""

    baseline: GroupBaseline = LeaveOneOut()
    """Group baseline: NoBaseline, GroupMean, LeaveOneOut or GroupNormalized."""
    discount: Number = 1.0
    """Discount per turn, in [0, 1]."""

    needs_critic: ClassVar[bool] = False

    def __call__(self, turns: TurnBatch, values: Any) -> TokenAdvantages:
        """One advantage per turn; ``values`` are not used."""

        reward_rows = jnp.where(turns.alive, turns.reward, 0.0)
        not_done, zeros = jnp.zeros(len(reward_rows), bool), jnp.zeros(len(reward_rows))

        def row_returns(reward: Array, alive: Array) -> Array:
            def returns(reward: Array, _: Array, next_value: Array, terminated: Array, ended: Array) -> Array:
                return discounted_returns(reward, next_value, terminated, ended, self.discount)

            return restrict_to_decisions(returns, alive)(reward, zeros, zeros, not_done, not_done)

        to_go = jax.vmap(row_returns, in_axes=1, out_axes=1)(reward_rows, turns.alive)
        return _broadcast_to_tokens(turns, jax.vmap(lambda each: turns.subtract_baseline(self.baseline, each))(to_go))


class TurnGAE(AdvantageEstimator):
    """GAE over turns: a critic values the dialogue before each response."""

    gae_lambda: Number = 0.95
    """GAE's lambda, in [0, 1]."""
    discount: Number = 1.0
    """Discount per turn, in [0, 1]."""

    needs_critic: ClassVar[bool] = True

    def __call__(self, turns: TurnBatch, values: Any) -> TokenAdvantages:
        """One advantage per turn; the critic learns at the first token of each."""
        value = values[:, :, 0]
        bootstrap_value = jnp.where(turns.truncated, value[-1], 0.0)
        advantage = _masked_gae(turns.reward, value[:-1], turns.alive, bootstrap_value, self.discount, self.gae_lambda)
        value_mask = turns.response_mask & (jnp.arange(turns.response_mask.shape[-1]) == 0)
        value, target = (jnp.broadcast_to(x[..., None], value_mask.shape) for x in (value[:-1], advantage + value[:-1]))
        return TokenAdvantages(_broadcast_to_tokens(turns, advantage).advantage, value, target, value_mask)


class TokenGAE(AdvantageEstimator):
    """GAE over tokens: a critic values the dialogue before each of them (PPO in RLHF)."""

    gae_lambda: Number = 0.95
    """GAE's lambda, in [0, 1]."""
    discount: Number = 1.0
    """Discount per token, in [0, 1]."""

    needs_critic: ClassVar[bool] = True

    def __call__(self, turns: TurnBatch, values: Any) -> TokenAdvantages:
        """One advantage per token; what tokens do not earn of a turn's reward comes with its last token."""
        time, rows, width = turns.response_mask.shape
        is_last = is_last_token(turns.response_mask)

        def flat(x: Array) -> Array:
            return x.transpose(0, 2, 1).reshape(time * width, rows)

        reward = jnp.where(is_last, turns.reward[..., None], 0.0)
        if turns.token_rewards is not None:
            earned = jnp.where(turns.response_mask, turns.token_rewards, 0.0)
            reward = earned + jnp.where(is_last, (turns.reward - earned.sum(axis=-1))[..., None], 0.0)
        bootstrap_value = jnp.where(turns.truncated, values[-1, :, 0], 0.0)
        value = values[:-1]
        flat_advantage = _masked_gae(
            flat(reward), flat(value), flat(turns.response_mask), bootstrap_value, self.discount, self.gae_lambda
        )
        advantage = flat_advantage.reshape(time, width, rows).transpose(0, 2, 1)
        return TokenAdvantages(advantage, value, advantage + value, turns.response_mask)


def _masked_gae(
    reward: Float[Array, "time row"],
    value: Float[Array, "time row"],
    mask: Bool[Array, "time row"],
    bootstrap_value: Float[Array, " row"],
    discount: Number,
    gae_lambda: Number,
) -> Float[Array, "time row"]:
    """GAE over the steps where ``mask`` is true; ``bootstrap_value`` is the value after a row's last step."""
    following = jnp.concatenate([value[1:], bootstrap_value[None]])
    not_done = jnp.zeros(len(value), bool)
    advantages = functools.partial(gae, discount=discount, gae_lambda=gae_lambda)

    def row(reward: Array, value: Array, following: Array, real: Array) -> Array:
        masked_estimator = restrict_to_decisions(advantages, real)
        return masked_estimator(jnp.where(real, reward, 0.0), value, following, not_done, not_done.at[-1].set(True))

    return jax.vmap(row, in_axes=1, out_axes=1)(reward, value, following, mask)


def _broadcast_to_tokens(turns: TurnBatch, turn_advantages: Float[Array, "time row"]) -> TokenAdvantages:
    """One advantage per turn, for all of its tokens, without a critic."""
    advantage = jnp.where(turns.response_mask, turn_advantages[..., None], 0.0)
    zeros = jnp.zeros_like(advantage)
    return TokenAdvantages(advantage, zeros, zeros, jnp.zeros_like(turns.response_mask))
