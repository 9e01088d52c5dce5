"""Levers that are set all at once: a cue says where each belongs, and how many are right is what is paid.

What is chosen does not decide which cue comes next, so that all values are known: see :meth:`Levers.known`. With
``power`` 1 the value of a vector of choices is a mean of utilities of its parts; with more, one lever that is wrong
spoils what the others earn, and no such mean is the value.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, MultiDiscrete


class Setting(eqx.Module):
    """One episode under way."""

    cue: Int[Array, ""]
    time: Int[Array, ""]


class Levers(eqx.Module):
    """``count`` levers of ``choices`` places each; ``cues`` cues, drawn uniformly and shown one-hot.

    At cue ``c`` lever ``i`` belongs to place ``(c + i) mod choices``. The reward is the share that is right, to the
    ``power``, with normal ``noise`` on it. Episodes are cut after ``limit`` steps.
    """

    count: int = eqx.field(static=True, default=8)
    choices: int = eqx.field(static=True, default=3)
    cues: int = eqx.field(static=True, default=4)
    power: float = eqx.field(static=True, default=1.0)
    noise: float = eqx.field(static=True, default=0.0)
    limit: int = eqx.field(static=True, default=20)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limit."""
        action = MultiDiscrete((self.choices,) * self.count)
        return EnvSpec("levers", Box((self.cues,), 0.0, 1.0), action, time_limit=self.limit)

    def right(self, cue: Int[Array, ""]) -> Int[Array, " lever"]:
        """Where the levers belong."""
        return (cue + jnp.arange(self.count)) % self.choices

    def paid(self, cue: Int[Array, ""], action: Int[Array, " lever"]) -> Float[Array, ""]:
        """The reward without noise, in ``[0, 1]``."""
        return jnp.mean(action == self.right(cue)) ** self.power

    def known(self, cue: Int[Array, ""], action: Int[Array, " lever"], discount: float) -> Float[Array, ""]:
        """The value of a vector of choices if all that follow are best: ``paid + discount / (1 - discount)``."""
        return self.paid(cue, action) + discount / (1.0 - discount)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Setting, TimeStep]:
        """A cue by chance."""
        state = Setting(jax.random.randint(key, (), 0, self.cues, "int32"), jnp.zeros((), "int32"))
        return state, self._answer(state, jnp.zeros(()))

    def step(self, state: Setting, action: Int[Array, " lever"], key: Key[Array, ""]) -> tuple[Setting, TimeStep]:
        """The reward, and another cue."""
        cue_key, noise_key = jax.random.split(key)
        paid = self.paid(state.cue, action) + self.noise * jax.random.normal(noise_key)
        state = Setting(jax.random.randint(cue_key, (), 0, self.cues, "int32"), state.time + 1)
        return state, self._answer(state, paid)

    def _answer(self, state: Setting, paid: Float[Array, ""]) -> TimeStep:
        cue = jax.nn.one_hot(state.cue, self.cues)
        return TimeStep(cue, paid, jnp.zeros((), bool), state.time >= self.limit)


CREW = Levers(count=12, power=3.0, noise=0.3)
"""Twelve levers, of which each that is wrong spoils the others' share: of two thirds that are right pays 0.3."""
