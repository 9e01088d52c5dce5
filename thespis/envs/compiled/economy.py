r"""A labour economy of two steps: a planner sets taxes, then workers of unlike skill choose how much to work.

Worker ``i`` earns :math:`z_i = w_i l_i`, pays the marginal rates of the brackets that its income reaches into, and gets
an equal share of all that was paid. Its utility is what it has then less what its labour costs,

.. math:: u_i = z_i - T(z_i) + \frac{1}{n} \sum_j T(z_j) - \frac{l_i^{1 + 1/e}}{1 + 1/e}

so that without taxes :math:`l_i = w_i^e`: ``e`` is the elasticity of labour. The planner is paid by what it is to seek.

After the one-step economies of Zheng et al. 2021, "The AI Economist" (arXiv:2108.02755): skills and brackets differ.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space

CHOICES = 10
"""Rates that a planner may set for a bracket: 0, 0.1 ... 0.9."""


@runtime_checkable
class Welfare(Protocol):
    """What a planner seeks."""

    def __call__(self, income: Array, coin: Array, utility: Array) -> Float[Array, ""]:
        """One number for incomes before taxes, what is left of them, and utilities ``[worker]``."""
        ...


class InverseIncome(eqx.Module):
    """Mean utility, weighted by the inverse of income (or of 1, where income is less)."""

    def __call__(self, income: Array, coin: Array, utility: Array) -> Float[Array, ""]:
        """In units of utility."""
        weight = 1.0 / jnp.maximum(income, 1.0)
        return jnp.sum(weight * utility) / jnp.sum(weight)


class EqualityTimesProductivity(eqx.Module):
    """Mean income times equality of what is left of it: 1 where all have the same, 0 where one has everything."""

    def __call__(self, income: Array, coin: Array, utility: Array) -> Float[Array, ""]:
        """In units of income. Equality is ``1 - gini * n / (n - 1)``."""
        count = coin.shape[0]
        apart = jnp.sum(jnp.abs(coin[:, None] - coin[None, :]))
        gini = apart / (2 * count * jnp.maximum(jnp.sum(coin), 1e-6))
        return jnp.mean(income) * (1.0 - gini * count / (count - 1))


class Taxed(eqx.Module):
    """An economy under way: the rates that were set, and how many steps have been made."""

    rates: Float[Array, " bracket"]
    time: Int[Array, ""]


class Economy(eqx.Module):
    """A planner and as many workers as there are ``skills``; brackets begin at ``cuts``, in units of income.

    The planner, who sees nothing, chooses a rate for each bracket; then workers, who see their skill and the rates,
    choose among ``levels`` amounts of labour, evenly spaced from 0 to ``most``.
    """

    skills: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.3, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0))
    cuts: tuple[float, ...] = eqx.field(static=True, default=(0.0, 2.0, 5.0))
    elasticity: float = eqx.field(static=True, default=0.5)
    levels: int = eqx.field(static=True, default=26)
    most: float = eqx.field(static=True, default=2.5)
    welfare: Welfare = InverseIncome()

    @property
    def spec(self) -> EnvSpec:
        """Two groups, of which one decides at each of the two steps."""
        brackets = len(self.cuts)
        seen = dict_space(planner=Box((1,), 0.0, 1.0), worker=Box((1 + brackets,), 0.0, max(1.0, *self.skills)))
        done = dict_space(planner=MultiDiscrete((CHOICES,) * brackets), worker=Discrete(self.levels))
        groups = Group("planner", 1), Group("worker", len(self.skills))
        return EnvSpec("economy", seen, done, time_limit=2, groups=groups)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Taxed, TimeStep]:
        """Nothing is set yet."""
        state = Taxed(jnp.zeros(len(self.cuts)), jnp.zeros((), "int32"))
        return state, self._answer(state, jnp.zeros(()), jnp.zeros(len(self.skills)))

    def step(self, state: Taxed, action: dict[str, Array], key: Key[Array, ""]) -> tuple[Taxed, TimeStep]:
        """The planner's step, or the workers', after which all are paid."""
        working = state.time == 1
        rates = jnp.where(working, state.rates, action["planner"][0] / CHOICES)
        labour = action["worker"] * (self.most / (self.levels - 1))
        income, coin, utility = self.settled(rates, labour)
        paid = jnp.where(working, self.welfare(income, coin, utility), 0.0)
        after = Taxed(rates, state.time + 1)
        return after, self._answer(after, paid, jnp.where(working, utility, 0.0))

    def tax(self, rates: Float[Array, " bracket"], income: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """What is due on incomes."""
        return jnp.sum(rates * reached(self.cuts, income), axis=-1)

    def settled(self, rates: Float[Array, " bracket"], labour: Float[Array, " worker"]) -> tuple[Array, Array, Array]:
        """Incomes before taxes, what is left of them with everybody's share, and utilities ``[worker]``."""
        income = jnp.asarray(self.skills) * labour
        due = self.tax(rates, income)
        coin = income - due + jnp.mean(due)
        return income, coin, coin - self.cost(labour)

    def cost(self, labour: Any) -> Any:
        """Of an amount of labour, in units of utility."""
        power = 1 + 1 / self.elasticity
        return labour**power / power

    def rational(self, rates: Float[np.ndarray, " bracket"], amounts: Float[np.ndarray, " amount"] | None = None):
        """The best amount of labour for each worker, whatever the others do; among the ``levels``, or ``amounts``.

        What it pays comes back to it in part, as one of ``n``.
        """
        amounts = np.linspace(0, self.most, self.levels) if amounts is None else amounts
        income = np.asarray(self.skills)[:, None] * amounts
        due = (np.asarray(rates) * np.asarray(reached(self.cuts, income))).sum(axis=-1)
        kept = income - due * (1 - 1 / len(self.skills))
        return amounts[np.argmax(kept - self.cost(amounts), axis=1)]

    def worth(self, rates: Float[np.ndarray, " bracket"]) -> float:
        """Welfare under ``rates`` where all workers choose best."""
        chosen = jnp.asarray(self.rational(rates), "float32")
        return float(self.welfare(*self.settled(jnp.asarray(rates, "float32"), chosen)))

    def _answer(self, state: Taxed, paid: Array, utility: Float[Array, " worker"]) -> TimeStep:
        count, over = len(self.skills), state.time == 2
        told = jnp.concatenate(
            [jnp.asarray(self.skills)[:, None], jnp.broadcast_to(state.rates, (count, len(self.cuts)))], axis=1
        )
        seen = {"planner": jnp.ones((1, 1)), "worker": told}
        alive = {"planner": (state.time == 0)[None], "worker": jnp.broadcast_to(state.time == 1, (count,))}
        gone = {name: jnp.broadcast_to(over, x.shape) for name, x in alive.items()}
        each = {"planner": Each(paid[None], gone["planner"]), "worker": Each(utility, gone["worker"])}
        return TimeStep(seen, paid, over, jnp.zeros((), bool), alive=alive, each=each)


def reached(cuts: tuple[float, ...], income: Float[Any, "*n"]) -> Float[Array, "*n bracket"]:
    """How much of incomes lies within each bracket; the last has no end."""
    low, high = jnp.asarray(cuts), jnp.asarray((*cuts[1:], jnp.inf))
    return jnp.clip(jnp.asarray(income)[..., None] - low, 0.0, high - low)


def saez(economy: Economy, rounds: int = 100) -> Float[np.ndarray, " bracket"]:
    r"""The rates of Saez (2001) for an economy's brackets, with social weights that are the inverse of income.

    In bracket ``b``, with :math:`m_{ib}` what worker ``i`` earns within it and weights :math:`g` of mean 1,

    .. math:: \frac{\tau_b}{1 - \tau_b} = \frac{\sum_i (1 - g_i) m_{ib}}{e \sum_{i \in b} z_i}

    Incomes depend on the rates: they are found in turn, until neither changes.
    """
    rates, skills = np.zeros(len(economy.cuts)), np.asarray(economy.skills)
    for _ in range(rounds):
        income = skills * economy.rational(rates, np.linspace(0, economy.most, 2_001))
        weight = 1 / np.maximum(income, 1.0)
        within, weight = np.asarray(reached(economy.cuts, income)), weight / weight.mean()
        gained = ((1 - weight)[:, None] * within).sum(axis=0)
        bracket = np.digitize(income, economy.cuts[1:])
        moved = economy.elasticity * np.bincount(bracket, income, len(economy.cuts))
        gained = np.maximum(gained, 0.0)
        rates = 0.9 * rates + 0.1 * gained / np.maximum(gained + moved, 1e-9)
    return rates


FAIR = Economy(welfare=EqualityTimesProductivity())
"""The planner seeks equality times productivity."""
