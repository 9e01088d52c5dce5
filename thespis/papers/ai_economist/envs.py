r"""Taxation economy of two steps: a planner sets tax rates, then workers of different skill choose how much to work.

Worker ``i`` earns :math:`z_i = w_i l_i`, pays the marginal rates of the brackets that its income reaches, and receives
an equal share of all taxes. Its utility is its net income minus the cost of its labor,

.. math:: u_i = z_i - T(z_i) + \frac{1}{n} \sum_j T(z_j) - \frac{l_i^{1 + 1/e}}{1 + 1/e}

so that without taxes :math:`l_i = w_i^e`: ``e`` is the elasticity of labor. The planner's reward is social welfare.

After the one-step economies of Zheng et al. 2021, "The AI Economist" (arXiv:2108.02755); skills and brackets differ.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, MultiDiscrete, dict_space

NUM_TAX_RATES = 10
"""Number of rates that a planner may set for a bracket: 0, 0.1 ... 0.9."""


@runtime_checkable
class SocialWelfare(Protocol):
    """Social welfare: the planner's objective."""

    def __call__(self, income: Array, net_income: Array, utility: Array) -> Float[Array, ""]:
        """Welfare from incomes before taxes, net incomes and utilities, each ``[worker]``."""
        ...


class InverseIncomeWelfare(eqx.Module):
    """Social welfare as mean utility, weighted by the inverse of income (by 1 where income is below 1)."""

    def __call__(self, income: Array, net_income: Array, utility: Array) -> Float[Array, ""]:
        """Welfare in units of utility."""
        weight = 1.0 / jnp.maximum(income, 1.0)
        return jnp.sum(weight * utility) / jnp.sum(weight)


class EqualityTimesProductivity(eqx.Module):
    """Social welfare as mean income times equality of net incomes.

    Equality is 1 if all have the same, 0 if one worker has everything.
    """

    def __call__(self, income: Array, net_income: Array, utility: Array) -> Float[Array, ""]:
        """Welfare in units of income. Equality is ``1 - gini * n / (n - 1)``."""
        count = net_income.shape[0]
        differences = jnp.sum(jnp.abs(net_income[:, None] - net_income[None, :]))
        gini = differences / (2 * count * jnp.maximum(jnp.sum(net_income), 1e-6))
        return jnp.mean(income) * (1.0 - gini * count / (count - 1))


class EconomyState(eqx.Module):
    """State of an economy: the tax rates, and the number of steps taken."""

    tax_rates: Float[Array, " bracket"]
    time: Int[Array, ""]


class Economy(eqx.Module):
    """Taxation environment: a planner sets tax rates for one worker per entry of ``skills``.

    Brackets begin at ``bracket_cutoffs``, in units of income. The planner, whose observation is constant, chooses a
    rate for each bracket. Then workers, who observe their skill and the rates, choose among ``num_labor_levels``
    amounts of labor, evenly spaced from 0 to ``max_labor``. ``fixed_rates``: these rates hold whatever the planner
    chooses.
    """

    skills: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.3, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0))
    bracket_cutoffs: tuple[float, ...] = eqx.field(static=True, default=(0.0, 2.0, 5.0))
    elasticity: float = eqx.field(static=True, default=0.5)
    num_labor_levels: int = eqx.field(static=True, default=26)
    max_labor: float = eqx.field(static=True, default=2.5)
    welfare: SocialWelfare = InverseIncomeWelfare()
    fixed_rates: tuple[float, ...] | None = eqx.field(static=True, default=None)

    @property
    def spec(self) -> EnvSpec:
        """Two groups; the planner acts in the first step, the workers in the second."""
        brackets = len(self.bracket_cutoffs)
        observations = dict_space(planner=Box((1,), 0.0, 1.0), worker=Box((1 + brackets,), 0.0, max(1.0, *self.skills)))
        actions = dict_space(planner=MultiDiscrete((NUM_TAX_RATES,) * brackets), worker=Discrete(self.num_labor_levels))
        groups = AgentGroup("planner", 1), AgentGroup("worker", len(self.skills))
        return EnvSpec("economy", observations, actions, time_limit=2, groups=groups)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[EconomyState, TimeStep]:
        """Starts with all rates at 0."""
        state = EconomyState(jnp.zeros(len(self.bracket_cutoffs)), jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()), jnp.zeros(len(self.skills)))

    def step(self, state: EconomyState, action: dict[str, Array], key: Key[Array, ""]) -> tuple[EconomyState, TimeStep]:
        """The planner's step, or the workers' step, after which all are rewarded."""
        working = state.time == 1
        chosen = action["planner"][0] / NUM_TAX_RATES if self.fixed_rates is None else jnp.array(self.fixed_rates)
        rates = jnp.where(working, state.tax_rates, chosen)
        labor = action["worker"] * (self.max_labor / (self.num_labor_levels - 1))
        income, net_income, utility = self.settle_taxes(rates, labor)
        reward = jnp.where(working, self.welfare(income, net_income, utility), 0.0)
        next_state = EconomyState(rates, state.time + 1)
        return next_state, self._time_step(next_state, reward, jnp.where(working, utility, 0.0))

    def tax_due(self, tax_rates: Float[Array, " bracket"], income: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Taxes due on incomes, by marginal rates."""
        return jnp.sum(tax_rates * income_per_bracket(self.bracket_cutoffs, income), axis=-1)

    def settle_taxes(
        self, tax_rates: Float[Array, " bracket"], labor: Float[Array, " worker"]
    ) -> tuple[Array, Array, Array]:
        """Incomes before taxes, net incomes including the equal share of all taxes, and utilities, ``[worker]``."""
        income = jnp.asarray(self.skills) * labor
        due = self.tax_due(tax_rates, income)
        net_income = income - due + jnp.mean(due)
        return income, net_income, net_income - self.labor_cost(labor)

    def labor_cost(self, labor: Any) -> Any:
        """Cost of an amount of labor, in units of utility."""
        power = 1 + 1 / self.elasticity
        return labor**power / power

    def optimal_labor(
        self, tax_rates: Float[np.ndarray, " bracket"], labor_grid: Float[np.ndarray, " amount"] | None = None
    ):
        """Each worker's optimal amount of labor among ``labor_grid`` (default: the labor levels).

        It does not depend on the other workers. A share ``1 / n`` of the taxes that a worker pays comes back to it.
        """
        labor_grid = np.linspace(0, self.max_labor, self.num_labor_levels) if labor_grid is None else labor_grid
        income = np.asarray(self.skills)[:, None] * labor_grid
        due = (np.asarray(tax_rates) * np.asarray(income_per_bracket(self.bracket_cutoffs, income))).sum(axis=-1)
        net_income = income - due * (1 - 1 / len(self.skills))
        return labor_grid[np.argmax(net_income - self.labor_cost(labor_grid), axis=1)]

    def optimal_welfare(self, tax_rates: Float[np.ndarray, " bracket"]) -> float:
        """Welfare under ``tax_rates`` if all workers choose optimally."""
        labor = jnp.asarray(self.optimal_labor(tax_rates), "float32")
        return float(self.welfare(*self.settle_taxes(jnp.asarray(tax_rates, "float32"), labor)))

    def _time_step(self, state: EconomyState, paid: Array, utility: Float[Array, " worker"]) -> TimeStep:
        count, over = len(self.skills), state.time == 2
        worker_observations = jnp.concatenate(
            [jnp.asarray(self.skills)[:, None], jnp.broadcast_to(state.tax_rates, (count, len(self.bracket_cutoffs)))],
            axis=1,
        )
        observation = {"planner": jnp.ones((1, 1)), "worker": worker_observations}
        alive = {"planner": (state.time == 0)[None], "worker": jnp.broadcast_to(state.time == 1, (count,))}
        terminated = {name: jnp.broadcast_to(over, x.shape) for name, x in alive.items()}
        outcomes = {
            "planner": AgentOutcome(paid[None], terminated["planner"]),
            "worker": AgentOutcome(utility, terminated["worker"]),
        }
        return TimeStep(observation, paid, over, jnp.zeros((), bool), alive=alive, agent_outcomes=outcomes)


def income_per_bracket(bracket_cutoffs: tuple[float, ...], income: Float[Any, "*n"]) -> Float[Array, "*n bracket"]:
    """Split each income into the parts that lie within each tax bracket; the last bracket is unbounded."""
    low, high = jnp.asarray(bracket_cutoffs), jnp.asarray((*bracket_cutoffs[1:], jnp.inf))
    return jnp.clip(jnp.asarray(income)[..., None] - low, 0.0, high - low)


def saez_tax_rates(economy: Economy, num_iterations: int = 100) -> Float[np.ndarray, " bracket"]:
    r"""Optimal tax rates of Saez (2001) for an economy's brackets, with social weights that are the inverse of income.

    In bracket ``b``, with :math:`m_{ib}` what worker ``i`` earns within it and weights :math:`g` of mean 1,

    .. math:: \frac{\tau_b}{1 - \tau_b} = \frac{\sum_i (1 - g_i) m_{ib}}{e \sum_{i \in b} z_i}

    Incomes depend on the rates, so both are updated alternately, ``num_iterations`` times, with damping 0.9.
    """
    rates, skills = np.zeros(len(economy.bracket_cutoffs)), np.asarray(economy.skills)
    for _ in range(num_iterations):
        income = skills * economy.optimal_labor(rates, np.linspace(0, economy.max_labor, 2_001))
        weight = 1 / np.maximum(income, 1.0)
        within, weight = np.asarray(income_per_bracket(economy.bracket_cutoffs, income)), weight / weight.mean()
        gained = ((1 - weight)[:, None] * within).sum(axis=0)
        bracket = np.digitize(income, economy.bracket_cutoffs[1:])
        moved = economy.elasticity * np.bincount(bracket, income, len(economy.bracket_cutoffs))
        gained = np.maximum(gained, 0.0)
        rates = 0.9 * rates + 0.1 * gained / np.maximum(gained + moved, 1e-9)
    return rates


EQUALITY_ECONOMY = Economy(welfare=EqualityTimesProductivity())
"""The planner maximizes equality times productivity."""
