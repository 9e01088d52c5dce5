r"""Risk-sensitive environments: pair trading, a risky path, and a wrapper that adds the return so far to observations.

:class:`ReturnObservation` adds the episode's return so far to the observation. Risk-sensitive objectives need it: the
optimal action depends on the rewards already earned, not only on the state.

:class:`PairTrading`: an agent trades the mean-reverting spread of two prices (an Ornstein-Uhlenbeck process).

.. math:: dP = \kappa (\mu - P) dt + \sigma dW, \qquad
          r_t = Q_t (P_{t+1} - P_t) - \phi a_t^2 - 1_{t+1 = T} \, \psi Q_T^2, \qquad
          Q_{t+1} = \mathrm{clip}(Q_t + a_t)

An order of :math:`a_t` units is filled at the end of the step, at a quadratic cost; a position that is still open at
the last step is penalized. Steps follow the exact law of the Ornstein-Uhlenbeck process, which is normal: mean
:math:`\mu + (P - \mu) e^{-\kappa dt}`, variance :math:`\sigma^2 (1 - e^{-2 \kappa dt}) / 2 \kappa`.

:class:`RiskyPath`: several lanes lead to one goal; the shortest is best on average but may fail badly, the longest is
safe.

Source: Han, Liu and Yu, 2025 (arXiv:2505.04553), for the task of pair trading; its sizes are those stated in a
third-party reproduction (Syntaxxiaohe/risk-sensitive-es-actor-critic).

Differs from the reproduction, which uses Euler steps and clips prices to [0, 2].
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, dict_space


class ReturnObservationState(eqx.Module):
    """State of one episode, and the sum of its rewards."""

    env_state: PyTree
    episode_return: Float[Array, ""]


class ReturnObservation(eqx.Module):
    """``env`` whose observation becomes ``own``, together with the sum of rewards / ``scale`` as ``earned``."""

    env: Environment
    scale: float = eqx.field(static=True, default=1.0)

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec, with one more number to observe."""
        spec = self.env.spec
        observation_space = dict_space(earned=Box((1,)), own=spec.observation_space)
        return dataclasses.replace(spec, name=f"{spec.name}, accumulated", observation_space=observation_space)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ReturnObservationState, TimeStep]:
        """Resets the environment and the return."""
        env_state, step = self.env.reset(params, key)
        return self._time_step(env_state, jnp.zeros(()), step)

    def step(
        self, state: ReturnObservationState, action: PyTree, key: Key[Array, ""]
    ) -> tuple[ReturnObservationState, TimeStep]:
        """One step of the environment; its reward is added to the return."""
        env_state, step = self.env.step(state.env_state, action, key)
        return self._time_step(env_state, state.episode_return + step.reward, step)

    def _time_step(
        self, inner: PyTree, earned: Float[Array, ""], step: TimeStep
    ) -> tuple[ReturnObservationState, TimeStep]:
        observation = {"earned": earned[None] / self.scale, "own": step.observation}
        return ReturnObservationState(inner, earned), dataclasses.replace(step, observation=observation)


class MarketParams(eqx.Module):
    """Market parameters of one episode."""

    reversion: Float[Array, ""]
    """kappa, per episode length."""
    mean: Float[Array, ""]
    volatility: Float[Array, ""]
    """sigma, per square root of the episode length."""
    order_cost: Float[Array, ""]
    """phi."""
    holding_cost: Float[Array, ""]
    """psi, charged at the end."""

    def price_moments(self, price: Float[Array, ""], dt: float) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean and standard deviation of the price ``dt`` later."""
        decay = jnp.exp(-self.reversion * dt)
        variance = self.volatility**2 * (1 - decay**2) / (2 * self.reversion)
        return self.mean + (price - self.mean) * decay, jnp.sqrt(variance)


class PairTradingState(eqx.Module):
    """State of one episode: the price of the spread, and the current holding."""

    price: Float[Array, ""]
    holding: Float[Array, ""]
    time: Int[Array, ""]
    params: MarketParams


class PairTrading(eqx.Module):
    """``num_steps`` orders in ``[-max_order, max_order]`` with holdings within ``max_holding``; then it terminates.

    The observation is the time, the price minus its mean, and the holding / ``max_holding``. Price and holding start at
    random: the price with four times its stationary standard deviation, the holding uniform in ``[-max_initial_holding,
    max_initial_holding]``. ``spec.params`` is a :class:`MarketParams`.
    """

    num_steps: int = eqx.field(static=True, default=5)
    max_order: float = eqx.field(static=True, default=2.0)
    max_holding: float = eqx.field(static=True, default=5.0)
    max_initial_holding: float = eqx.field(static=True, default=5.0)
    volatility: float = eqx.field(static=True, default=0.2)
    """sigma, per square root of the episode length."""
    holding_cost: float = eqx.field(static=True, default=0.5)
    """psi, charged at the end."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces, time limit and default parameters."""
        market = MarketParams(*(jnp.float32(x) for x in (2.0, 1.0, self.volatility, 0.005, self.holding_cost)))
        orders = Box((1,), -self.max_order, self.max_order)
        return EnvSpec("pair-trading", Box((3,)), orders, time_limit=self.num_steps, params=market)

    def reset(self, params: MarketParams, key: Key[Array, ""]) -> tuple[PairTradingState, TimeStep]:
        """Draws price and holding at random."""
        price_key, holding_key = jax.random.split(key)
        std = 4 * params.volatility / jnp.sqrt(2 * params.reversion)
        price = params.mean + std * jax.random.normal(price_key)
        holding = jax.random.uniform(holding_key, minval=-self.max_initial_holding, maxval=self.max_initial_holding)
        state = PairTradingState(price, holding, jnp.zeros((), "int32"), params)
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: PairTradingState, action: Float[Array, "1"], key: Key[Array, ""]
    ) -> tuple[PairTradingState, TimeStep]:
        """The holding gains or loses with the price; then the order is filled."""
        market, order = state.params, jnp.clip(action[0], -self.max_order, self.max_order)
        mean, deviation = market.price_moments(state.price, 1 / self.num_steps)
        price = mean + deviation * jax.random.normal(key)
        holding = jnp.clip(state.holding + order, -self.max_holding, self.max_holding)
        last = state.time + 1 >= self.num_steps
        reward = state.holding * (price - state.price) - market.order_cost * order**2
        reward = reward - jnp.where(last, market.holding_cost * holding**2, 0.0)
        state = PairTradingState(price, holding, state.time + 1, market)
        return state, self._time_step(state, reward)

    def _time_step(self, state: PairTradingState, gained: Float[Array, ""]) -> TimeStep:
        observation = jnp.stack(
            [state.time / self.num_steps, state.price - state.params.mean, state.holding / self.max_holding]
        )
        return TimeStep(observation, gained, state.time >= self.num_steps, jnp.zeros((), bool))


PAIR_TRADING = ReturnObservation(PairTrading())
FLAT_PAIR_TRADING = ReturnObservation(PairTrading(max_initial_holding=0.0))
"""Starts without a holding, so that all risk is the agent's own choice."""
VOLATILE_PAIR_TRADING = ReturnObservation(
    PairTrading(max_initial_holding=0.0, volatility=1.0, holding_cost=0.005), scale=5.0
)
"""As :data:`FLAT_PAIR_TRADING`, with prices that move five times as much and hardly a cost of positions still open at
the end: losses come from prices, not from costs."""


class RiskyPathState(eqx.Module):
    """State of one episode: lane, column, and number of steps taken."""

    lane: Int[Array, ""]
    column: Int[Array, ""]
    time: Int[Array, ""]


class RiskyPath(eqx.Module):
    """Actions: up a lane, down a lane, forward. A step costs 1; the goal is the end of the lowest lane.

    Moving forward on lane ``i`` costs ``failure_cost`` more with probability ``failure_probs[i]``. Episodes terminate
    at the goal or after ``time_limit`` steps. The observation is lane, column and time, one-hot.
    """

    failure_probs: tuple[float, ...] = eqx.field(static=True, default=(0.1, 0.04, 0.0))
    path_length: int = eqx.field(static=True, default=4)
    failure_cost: float = eqx.field(static=True, default=6.0)
    time_limit: int = eqx.field(static=True, default=12)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        size = len(self.failure_probs) + self.path_length + 1 + self.time_limit
        return EnvSpec("risky-path", Box((size,), 0.0, 1.0), Discrete(3), time_limit=self.time_limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[RiskyPathState, TimeStep]:
        """Starts at the beginning of the lowest lane."""
        zero = jnp.zeros((), "int32")
        state = RiskyPathState(zero, zero, zero)
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: RiskyPathState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[RiskyPathState, TimeStep]:
        """Moves once; a move beyond the lanes or columns stays in place at the same cost."""
        forward = (action == 2) & (state.column < self.path_length)
        fails = forward & jax.random.bernoulli(key, jnp.array(self.failure_probs)[state.lane])
        lane = jnp.clip(state.lane + jnp.array([1, -1, 0], "int32")[action], 0, len(self.failure_probs) - 1)
        state = RiskyPathState(lane, state.column + forward.astype("int32"), state.time + 1)
        return state, self._time_step(state, -1.0 - self.failure_cost * fails)

    def _time_step(self, state: RiskyPathState, paid: Float[Array, ""]) -> TimeStep:
        fields = (
            (state.lane, len(self.failure_probs)),
            (state.column, self.path_length + 1),
            (state.time, self.time_limit),
        )
        at_goal = (state.lane == 0) & (state.column == self.path_length)
        observation = jnp.concatenate([jax.nn.one_hot(x, n) for x, n in fields])
        return TimeStep(observation, paid, at_goal | (state.time >= self.time_limit), jnp.zeros((), bool))


RISKY_PATH = ReturnObservation(RiskyPath(), scale=10.0)
