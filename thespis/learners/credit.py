"""Credit: from what turns have earned to what each id of each utterance is told. Learners never see rewards themselves.

Groups begin alike and lie behind each other among rows, so that a row's companions are its baseline; critics are linear
heads on the decoder's last features. A reward reaches the turn that earned it and those before, never a later one; only
:class:`Whole` tells every turn the same, the return of the whole conversation.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.learners.baselines import Comparison, Others
from thespis.objectives.decisions import at_decisions
from thespis.objectives.returns import Number, discounted_returns, gae


class Turns(eqx.Module):
    """Conversations as credit sees them: ``group`` begin alike, one behind the other, each from ``roles`` seats."""

    reward: Float[Array, "time row"]
    alive: Bool[Array, "time row"]
    """One's own turns of the conversation itself: false behind its end, and where another one speaks."""
    cut: Bool[Array, " row"]
    """Conversations that had no turns left: what would have followed is worth the critic's value."""
    real: Bool[Array, "time row utterance"]
    """Ids that were said."""
    group: int = eqx.field(static=True)
    roles: int = eqx.field(static=True, default=1)

    @property
    def returns(self) -> Float[Array, " row"]:
        """Of whole conversations."""
        return jnp.where(self.alive, self.reward, 0.0).sum(axis=0)

    @property
    def alike(self) -> Float[Array, ""]:
        """The share of groups whose returns are all the same, so that they are no baseline to each other."""
        groups = self._grouped(self.returns).reshape(-1, self.group)
        apart = groups.max(axis=1) - groups.min(axis=1)
        return (apart < 1e-4).mean(dtype="float32")  # sums of what was paid anew differ by rounding

    def beside(self, baseline: Comparison, earned: Float[Array, " row"]) -> Float[Array, " row"]:
        """What rows have earned beside those that began alike in the same seat."""
        apart = self._grouped(earned)
        compared = baseline(apart.reshape(-1, self.group))
        return compared.reshape(apart.shape).swapaxes(1, 2).reshape(-1)

    def _grouped(self, x: Float[Array, " row"]) -> Float[Array, "groups role member"]:
        return x.reshape(-1, self.group, self.roles).swapaxes(1, 2)


class Verdict(eqx.Module):
    """What each id is told; what the critic said and should have said where it is asked (nowhere, if there is none)."""

    advantage: Float[Array, "time row utterance"]
    value: Float[Array, "time row utterance"]
    target: Float[Array, "time row utterance"]
    valued: Bool[Array, "time row utterance"]


class Whole(eqx.Module):
    """Every id is told the return of the whole conversation, beside its group's."""

    baseline: Comparison = Others()
    """What it is compared with: Alone, Mean, Others or Scaled."""

    critic: ClassVar[bool] = False

    def __call__(self, turns: Turns, values: Any) -> Verdict:
        """The same number for all ids of a row; ``values`` are not looked at."""
        compared = turns.beside(self.baseline, turns.returns)
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

        earned = jnp.where(turns.alive, turns.reward, 0.0)
        no, nothing = jnp.zeros(len(earned), bool), jnp.zeros(len(earned))

        def back(reward: Array, alive: Array) -> Array:
            def returns(reward: Array, _: Array, next_value: Array, terminated: Array, ended: Array) -> Array:
                return discounted_returns(reward, next_value, terminated, ended, self.discount)

            return at_decisions(returns, alive)(reward, nothing, nothing, no, no)

        to_go = jax.vmap(back, in_axes=1, out_axes=1)(earned, turns.alive)
        return _spread(turns, jax.vmap(lambda each: turns.beside(self.baseline, each))(to_go))


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
        advantage = _generalised(turns.reward, value[:-1], turns.alive, after, self.discount, self.trace)
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
        found = _generalised(reward, flat(value), flat(turns.real), after, self.discount, self.trace)
        advantage = found.reshape(time, width, rows).transpose(0, 2, 1)
        return Verdict(advantage, value, advantage + value, turns.real)


Credit = Whole | ToGo | TurnCritic | TokenCritic
"""``critic`` says whether values are asked for: ``[time + 1, row, utterance]`` before each id and behind the last."""


def _generalised(
    reward: Float[Array, "time row"],
    value: Float[Array, "time row"],
    real: Bool[Array, "time row"],
    after: Float[Array, " row"],
    discount: Number,
    trace: Number,
) -> Float[Array, "time row"]:
    """Generalised advantages over the steps that are ``real``; ``after`` is the value behind a row's last one."""
    following = jnp.concatenate([value[1:], after[None]])
    no = jnp.zeros(len(value), bool)
    advantages = functools.partial(gae, discount=discount, trace=trace)

    def row(reward: Array, value: Array, following: Array, real: Array) -> Array:
        over = at_decisions(advantages, real)
        return over(jnp.where(real, reward, 0.0), value, following, no, no.at[-1].set(True))

    return jax.vmap(row, in_axes=1, out_axes=1)(reward, value, following, real)


def _spread(turns: Turns, each: Float[Array, "time row"]) -> Verdict:
    """One number a turn, told to all of its ids."""
    told = jnp.where(turns.real, each[..., None], 0.0)
    nothing = jnp.zeros_like(told)
    return Verdict(told, nothing, nothing, jnp.zeros_like(turns.real))
