"""Credit: from what turns have earned to what each id of each utterance is told. Learners never see rewards themselves.

Groups begin alike and lie behind each other among rows, so that a row's companions are its baseline; critics are linear
heads on the decoder's last features. A reward reaches the turn that earned it and those before, never a later one; only
:class:`Whole` tells every turn the same, the return of the whole conversation.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.objectives import groups
from thespis.objectives.returns import Number


class Turns(eqx.Module):
    """Conversations as credit sees them; ``group`` of them begin alike."""

    reward: Float[Array, "time row"]
    alive: Bool[Array, "time row"]
    """Turns of the conversation itself: false behind its end."""
    cut: Bool[Array, " row"]
    """Conversations that had no turns left: what would have followed is worth the critic's value."""
    real: Bool[Array, "time row utterance"]
    """Ids that were said."""
    group: int = eqx.field(static=True)


class Verdict(eqx.Module):
    """What each id is told; what the critic said and should have said where it is asked (nowhere, if there is none)."""

    advantage: Float[Array, "time row utterance"]
    value: Float[Array, "time row utterance"]
    target: Float[Array, "time row utterance"]
    valued: Bool[Array, "time row utterance"]


class Alone(eqx.Module):
    """No baseline."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """As they are."""
        return returns


class Mean(eqx.Module):
    """Less the mean of the group (Liu et al. 2025, Dr. GRPO)."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """See :func:`thespis.objectives.groups.beyond_mean`."""
        return groups.beyond_mean(returns)


class Others(eqx.Module):
    """Less the mean of the others of the group: unbiased (Ahmadian et al. 2024, RLOO)."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """See :func:`thespis.objectives.groups.leave_one_out`."""
        return groups.leave_one_out(returns)


class Scaled(eqx.Module):
    """Less the mean of the group, over its deviation: biased (Shao et al. 2024, GRPO)."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """See :func:`thespis.objectives.groups.scaled`."""
        return groups.scaled(returns)


Comparison = Alone | Mean | Others | Scaled


class Whole(eqx.Module):
    """Every id is told the return of the whole conversation, beside its group's."""

    baseline: Comparison = Others()
    """What it is compared with: Alone, Mean, Others or Scaled."""

    critic: ClassVar[bool] = False

    def __call__(self, turns: Turns, values: Any) -> Verdict:
        """The same number for all ids of a row; ``values`` are not looked at."""
        returns = jnp.where(turns.alive, turns.reward, 0.0).sum(axis=0)
        compared = self.baseline(returns.reshape(-1, turns.group)).reshape(-1)
        return _spread(turns, jnp.broadcast_to(compared, turns.reward.shape))


class ToGo(eqx.Module):
    """Every id is told what its turn and those after it have earned, beside what the group's same turns have."""

    baseline: Comparison = Others()
    """What it is compared with: Alone, Mean, Others or Scaled."""
    discount: Number = 1.0
    """By turn, in [0, 1]."""

    critic: ClassVar[bool] = False

    def __call__(self, turns: Turns, values: Any) -> Verdict:
        """One number a turn."""

        def back(after: Array, reward: Array) -> tuple[Array, Array]:
            total = reward + self.discount * after
            return total, total

        earned = jnp.where(turns.alive, turns.reward, 0.0)
        _, to_go = jax.lax.scan(back, jnp.zeros_like(earned[0]), earned, reverse=True)
        compared = jax.vmap(lambda each: self.baseline(each.reshape(-1, turns.group)).reshape(-1))(to_go)
        return _spread(turns, compared)


class TurnCritic(eqx.Module):
    """Generalised advantages over turns: a critic values the conversation before each utterance."""

    trace: Number = 0.95
    """Lambda, in [0, 1]."""
    discount: Number = 1.0
    """By turn, in [0, 1]."""

    critic: ClassVar[bool] = True

    def __call__(self, turns: Turns, values: Any) -> Verdict:
        """One number a turn; the critic learns at the first id of each."""
        value = values[:, :, 0]
        after = jnp.where(turns.cut, value[-1], 0.0)
        advantage = generalised(turns.reward, value[:-1], turns.alive, after, self.discount, self.trace)
        valued = turns.real & (jnp.arange(turns.real.shape[-1]) == 0)
        value, target = (jnp.broadcast_to(x[..., None], valued.shape) for x in (value[:-1], advantage + value[:-1]))
        return Verdict(_spread(turns, advantage).advantage, value, target, valued)


class TokenCritic(eqx.Module):
    """Generalised advantages over ids: a critic values the conversation before each of them (RLHF's PPO)."""

    trace: Number = 0.95
    """Lambda, in [0, 1]."""
    discount: Number = 1.0
    """By id, in [0, 1]."""

    critic: ClassVar[bool] = True

    def __call__(self, turns: Turns, values: Any) -> Verdict:
        """One number an id; a turn's reward comes with its last id."""
        time, rows, width = turns.real.shape
        last = turns.real & ~jnp.pad(turns.real[..., 1:], ((0, 0), (0, 0), (0, 1)))

        def flat(x: Array) -> Array:
            return x.transpose(0, 2, 1).reshape(time * width, rows)

        reward = flat(jnp.where(last, turns.reward[..., None], 0.0))
        after = jnp.where(turns.cut, values[-1, :, 0], 0.0)
        value = values[:-1]
        found = generalised(reward, flat(value), flat(turns.real), after, self.discount, self.trace)
        advantage = found.reshape(time, width, rows).transpose(0, 2, 1)
        return Verdict(advantage, value, advantage + value, turns.real)


Credit = Whole | ToGo | TurnCritic | TokenCritic
"""``critic`` says whether values are asked for: ``[time + 1, row, utterance]`` before each id and behind the last."""


def generalised(
    reward: Float[Array, "time row"],
    value: Float[Array, "time row"],
    real: Bool[Array, "time row"],
    after: Float[Array, " row"],
    discount: Number,
    trace: Number,
) -> Float[Array, "time row"]:
    r""":math:`\sum_k (\gamma \lambda)^k \delta_{t + k}` over the steps that are ``real``; the others are passed over.

    ``after``: the value behind the last real step, 0 where nothing follows.
    """

    def back(carry: tuple[Array, Array], step: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        following, ahead = carry
        reward, value, real = step
        advantage = reward + discount * following - value + discount * trace * ahead
        kept = jnp.where(real, value, following), jnp.where(real, advantage, ahead)
        return kept, jnp.where(real, advantage, 0.0)

    return jax.lax.scan(back, (after, jnp.zeros_like(after)), (reward, value, real), reverse=True)[1]


def _spread(turns: Turns, each: Float[Array, "time row"]) -> Verdict:
    """One number a turn, told to all of its ids."""
    told = jnp.where(turns.real, each[..., None], 0.0)
    nothing = jnp.zeros_like(told)
    return Verdict(told, nothing, nothing, jnp.zeros_like(turns.real))
