"""Levers: many levers are set at once; a cue determines each lever's target, and the reward is the share that is right.

Actions do not influence the next cue, so all values are known: see :meth:`Levers.optimal_q_value`. With ``exponent`` 1
the value of a joint action is a mean of utilities of its parts. With a larger exponent one wrong lever reduces what the
others earn, and the value is no such mean.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, MultiDiscrete


class LeversState(eqx.Module):
    """State of one episode: the current cue, and the number of steps taken."""

    cue: Int[Array, ""]
    time: Int[Array, ""]


class Levers(eqx.Module):
    """Lever environment: ``num_levers`` levers are set at once; a cue determines the target position of each.

    Each lever has ``num_choices`` positions; the ``num_cues`` cues are drawn uniformly and observed one-hot. At cue
    ``c`` the target of lever ``i`` is position ``(c + i) mod num_choices``. The reward is the share of levers at their
    target, to the power ``exponent``, plus normal noise of standard deviation ``noise_std``. Episodes are truncated
    after ``time_limit`` steps.
    """

    num_levers: int = eqx.field(static=True, default=8)
    num_choices: int = eqx.field(static=True, default=3)
    num_cues: int = eqx.field(static=True, default=4)
    exponent: float = eqx.field(static=True, default=1.0)
    noise_std: float = eqx.field(static=True, default=0.0)
    time_limit: int = eqx.field(static=True, default=20)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        action = MultiDiscrete((self.num_choices,) * self.num_levers)
        return EnvSpec("levers", Box((self.num_cues,), 0.0, 1.0), action, time_limit=self.time_limit)

    def target_positions(self, cue: Int[Array, ""]) -> Int[Array, " lever"]:
        """Target position of every lever."""
        return (cue + jnp.arange(self.num_levers)) % self.num_choices

    def expected_reward(self, cue: Int[Array, ""], action: Int[Array, " lever"]) -> Float[Array, ""]:
        """Reward without noise, in ``[0, 1]``."""
        return jnp.mean(action == self.target_positions(cue)) ** self.exponent

    def optimal_q_value(self, cue: Int[Array, ""], action: Int[Array, " lever"], discount: float) -> Float[Array, ""]:
        """Optimal Q-value of a joint action: ``expected_reward + discount / (1 - discount)``."""
        return self.expected_reward(cue, action) + discount / (1.0 - discount)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[LeversState, TimeStep]:
        """Draws a cue at random."""
        state = LeversState(jax.random.randint(key, (), 0, self.num_cues, "int32"), jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: LeversState, action: Int[Array, " lever"], key: Key[Array, ""]
    ) -> tuple[LeversState, TimeStep]:
        """Pays the reward and draws another cue."""
        cue_key, noise_key = jax.random.split(key)
        reward = self.expected_reward(state.cue, action) + self.noise_std * jax.random.normal(noise_key)
        state = LeversState(jax.random.randint(cue_key, (), 0, self.num_cues, "int32"), state.time + 1)
        return state, self._time_step(state, reward)

    def _time_step(self, state: LeversState, paid: Float[Array, ""]) -> TimeStep:
        cue = jax.nn.one_hot(state.cue, self.num_cues)
        return TimeStep(cue, paid, jnp.zeros((), bool), state.time >= self.time_limit)


TWELVE_LEVERS = Levers(num_levers=12, exponent=3.0, noise_std=0.3)
"""Twelve levers with exponent 3: two thirds of them at their target earn 0.3."""
