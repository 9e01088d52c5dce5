r"""The spread of two prices wanders about its mean, and who holds it gains or loses by what it does.

.. math:: dP = \kappa (\mu - P) dt + \sigma dW, \qquad
          r_t = Q_t (P_{t+1} - P_t) - \phi a_t^2 - 1_{t+1 = T} \, \psi Q_T^2, \qquad
          Q_{t+1} = \mathrm{clip}(Q_t + a_t)

An order of :math:`a_t` units is filled at the step's end, at a cost that grows with its square; whoever still holds
something at the last step pays for that. Steps follow the exact law of the Ornstein-Uhlenbeck process, which is
normal: mean :math:`\mu + (P - \mu) e^{-\kappa dt}`, variance :math:`\sigma^2 (1 - e^{-2 \kappa dt}) / 2 \kappa`.

The task is that of Han, Liu and Yu (2025, arXiv:2505.04553), sizes as a reproduction by others states them
(Syntaxxiaohe/risk-sensitive-es-actor-critic), which steps by Euler's method and keeps prices in [0, 2].
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box
from thespis.envs.compiled.accumulated import Accumulated


class Market(eqx.Module):
    """What one episode is played with."""

    reversion: Float[Array, ""]
    """kappa, over an episode's length."""
    mean: Float[Array, ""]
    volatility: Float[Array, ""]
    """sigma, over the root of an episode's length."""
    order_cost: Float[Array, ""]
    """phi."""
    holding_cost: Float[Array, ""]
    """psi, at the end."""

    def moments(self, price: Float[Array, ""], dt: float) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean and deviation of the price ``dt`` later."""
        kept = jnp.exp(-self.reversion * dt)
        variance = self.volatility**2 * (1 - kept**2) / (2 * self.reversion)
        return self.mean + (price - self.mean) * kept, jnp.sqrt(variance)


class Position(eqx.Module):
    """One episode under way: the price of the spread, and how much of it is held."""

    price: Float[Array, ""]
    held: Float[Array, ""]
    time: Int[Array, ""]
    market: Market


class PairTrading(eqx.Module):
    """``steps`` orders in ``[-order, order]``, of which at most ``most`` units are held; then it is over.

    Seen are time, the price less its mean and the holding over ``most``. Both begin at random: the price with four
    times its stationary deviation, the holding anywhere in ``[-start, start]``. ``spec.params`` is a :class:`Market`.
    """

    steps: int = eqx.field(static=True, default=5)
    order: float = eqx.field(static=True, default=2.0)
    most: float = eqx.field(static=True, default=5.0)
    start: float = eqx.field(static=True, default=5.0)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limit and default parameters."""
        market = Market(*(jnp.float32(x) for x in (2.0, 1.0, 0.2, 0.005, 0.5)))
        orders = Box((1,), -self.order, self.order)
        return EnvSpec("pair-trading", Box((3,)), orders, time_limit=self.steps, params=market)

    def reset(self, params: Market, key: Key[Array, ""]) -> tuple[Position, TimeStep]:
        """A price and a holding at random."""
        price_key, held_key = jax.random.split(key)
        wide = 4 * params.volatility / jnp.sqrt(2 * params.reversion)
        price = params.mean + wide * jax.random.normal(price_key)
        held = jax.random.uniform(held_key, minval=-self.start, maxval=self.start)
        state = Position(price, held, jnp.zeros((), "int32"), params)
        return state, self._answer(state, jnp.zeros(()))

    def step(self, state: Position, action: Float[Array, "1"], key: Key[Array, ""]) -> tuple[Position, TimeStep]:
        """What was held moves with the price; the order is filled."""
        market, order = state.market, jnp.clip(action[0], -self.order, self.order)
        mean, deviation = market.moments(state.price, 1 / self.steps)
        price = mean + deviation * jax.random.normal(key)
        held = jnp.clip(state.held + order, -self.most, self.most)
        last = state.time + 1 >= self.steps
        gained = state.held * (price - state.price) - market.order_cost * order**2
        gained = gained - jnp.where(last, market.holding_cost * held**2, 0.0)
        state = Position(price, held, state.time + 1, market)
        return state, self._answer(state, gained)

    def _answer(self, state: Position, gained: Float[Array, ""]) -> TimeStep:
        seen = jnp.stack([state.time / self.steps, state.price - state.market.mean, state.held / self.most])
        return TimeStep(seen, gained, state.time >= self.steps, jnp.zeros((), bool))


TOLD = Accumulated(PairTrading())
FLAT = Accumulated(PairTrading(start=0.0))
"""Nothing is held at first, so that what is risked is the trader's own doing."""
