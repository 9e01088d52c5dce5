"""Hidden trades: workers of a team do not know what each of them is good at, and must find their own trade by trying.

Every worker has a trade, drawn anew for each episode. It succeeds often at the jobs of its trade, and rarely at others.
A product needs one piece of work of each trade at the same time, so the team is paid for the trade with the fewest.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space
from thespis.runtime.keys import fold

GROUP = "workers"
NO_JOB = -1
"""Job before the first step."""


class HiddenTradesState(eqx.Module):
    """State of one episode: the workers' trades, their last jobs and whether those succeeded."""

    trades: Int[Array, " worker"]
    jobs: Int[Array, " worker"]
    """Last jobs; ``NO_JOB`` before the first step."""
    successes: Bool[Array, " worker"]
    time: Int[Array, ""]
    num_successes: Int[Array, "worker trade"]
    """Successes of each worker at each job so far."""
    num_failures: Int[Array, "worker trade"]
    """Failures of each worker at each job so far."""


class HiddenTrades(eqx.Module):
    """Hidden trades: ``num_trades * num_per_trade`` workers choose one of ``num_trades`` jobs at every step.

    As many workers have each trade, in a random order that is drawn for every episode. A worker succeeds at a job with
    probability ``skilled_prob`` if it is of its trade, else ``unskilled_prob``. The reward of a step is the smallest
    number of successes at any of the jobs. A worker observes its last job and whether it succeeded, one-hot, and the
    time; with ``trades_visible`` also its trade. Critics observe the same of all workers, and all trades. Episodes end
    after ``num_steps`` steps.
    """

    num_trades: int = eqx.field(static=True, default=3)
    num_per_trade: int = eqx.field(static=True, default=2)
    skilled_prob: float = eqx.field(static=True, default=0.9)
    unskilled_prob: float = eqx.field(static=True, default=0.1)
    num_steps: int = eqx.field(static=True, default=8)
    trades_visible: bool = eqx.field(static=True, default=False)
    """Whether workers observe their own trade."""

    def __check_init__(self):
        """Raise ``UserError`` for too few trades, or probabilities that make a belief certain."""
        if self.num_trades < 2 or self.num_per_trade < 1 or self.num_steps < 1:
            raise UserError("hidden trades need two trades, a worker of each and a step")
        for name in ("skilled_prob", "unskilled_prob"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise UserError(f"{name}={getattr(self, name):g}: it must be above 0 and below 1")

    @property
    def num_workers(self) -> int:
        """Number of workers in the team."""
        return self.num_trades * self.num_per_trade

    @property
    def spec(self) -> EnvSpec:
        """One group of workers, and their trades for critics."""
        count, trades = self.num_workers, self.num_trades
        own_size = 2 * trades + 1
        return EnvSpec(
            "hidden-trades",
            dict_space(**{GROUP: Box((own_size + trades * self.trades_visible,), 0.0, 1.0)}),
            dict_space(**{GROUP: Discrete(trades)}),
            time_limit=self.num_steps,
            privileged_space=Box((count * (own_size - 1 + trades) + 1,), 0.0, 1.0),
            groups=(AgentGroup(GROUP, count),),
            return_bounds=(0.0, float(self.num_steps * self.num_per_trade)),
        )

    def optimal_return(self) -> float:
        """Expected return of workers who all know their trade and work at it."""
        per_job = np.array([1.0])
        for _ in range(self.num_per_trade):
            per_job = np.convolve(per_job, [1.0 - self.skilled_prob, self.skilled_prob])
        at_least = per_job[::-1].cumsum()[::-1][1:]
        return float(self.num_steps * (at_least**self.num_trades).sum())

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[HiddenTradesState, TimeStep]:
        """Draws the workers' trades."""
        ordered = jnp.repeat(jnp.arange(self.num_trades, dtype="int32"), self.num_per_trade)
        trades, count = jax.random.permutation(fold(key, "trades"), ordered), self.num_workers
        no_jobs, none = jnp.full(count, NO_JOB, "int32"), jnp.zeros((count, self.num_trades), "int32")
        state = HiddenTradesState(trades, no_jobs, jnp.zeros(count, bool), jnp.zeros((), "int32"), none, none)
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: HiddenTradesState, action: dict[str, Int[Array, " worker"]], key: Key[Array, ""]
    ) -> tuple[HiddenTradesState, TimeStep]:
        """All workers try their jobs at once."""
        jobs = action[GROUP].astype("int32")
        prob = jnp.where(jobs == state.trades, self.skilled_prob, self.unskilled_prob)
        successes = jax.random.bernoulli(fold(key, "work"), prob)
        tried = jobs[:, None] == jnp.arange(self.num_trades)
        pieces = jnp.sum(tried & successes[:, None], axis=0)
        state = HiddenTradesState(
            state.trades,
            jobs,
            successes,
            state.time + 1,
            state.num_successes + (tried & successes[:, None]),
            state.num_failures + (tried & ~successes[:, None]),
        )
        return state, self._time_step(state, jnp.min(pieces).astype("float32"))

    def beliefs(self, state: HiddenTradesState) -> Float[Array, "worker trade"]:
        """For each worker the probability of each trade, exact by Bayes' rule given its own jobs and successes."""
        skilled, unskilled = self.skilled_prob, self.unskilled_prob
        log_odds = state.num_successes * jnp.log(skilled / unskilled)
        log_odds = log_odds + state.num_failures * jnp.log((1.0 - skilled) / (1.0 - unskilled))
        return jax.nn.softmax(log_odds, axis=1)

    def _time_step(self, state: HiddenTradesState, reward: Float[Array, ""]) -> TimeStep:
        count, trades = self.num_workers, self.num_trades
        job = jax.nn.one_hot(state.jobs, trades)
        own = jnp.concatenate([job, job * state.successes[:, None]], axis=1)
        trade = jax.nn.one_hot(state.trades, trades)
        time = (state.time / self.num_steps).astype("float32")
        observation = [own, jnp.full((count, 1), time)] + ([trade] if self.trades_visible else [])
        outcomes = AgentOutcome(jnp.full(count, reward), jnp.zeros(count, bool))
        return TimeStep(
            {GROUP: jnp.concatenate(observation, axis=1)},
            reward,
            state.time >= self.num_steps,
            jnp.zeros((), bool),
            None,
            jnp.concatenate([own.ravel(), trade.ravel(), time[None]]),
            {GROUP: jnp.ones(count, bool)},
            agent_outcomes={GROUP: outcomes},
        )


HIDDEN, VISIBLE = HiddenTrades(), HiddenTrades(trades_visible=True)
"""Six workers of three trades; and the same who know their own trade."""
