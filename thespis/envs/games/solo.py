"""A game for one player as a world of one agent."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import Game
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Discrete


class Solo(eqx.Module):
    """The only seat of ``game``."""

    game: Game

    @property
    def spec(self) -> EnvSpec:
        """What the player sees and may do."""
        rules = self.game.rules
        return EnvSpec(rules.name, rules.observation, Discrete(rules.actions), True, rules.longest)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """A fresh game."""
        position = self.game.start(key)
        return position, self._step(position, jnp.zeros(()))

    def step(self, state: PyTree, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """One move."""
        position = self.game.play(state, action, key)
        return position, self._step(position, self.game.payoff(position)[0])

    def _step(self, position: PyTree, reward: Array) -> TimeStep:
        seen, over = self.game.observe(position, jnp.zeros((), "int32")), self.game.over(position)
        return TimeStep(seen, reward, over, jnp.zeros((), bool), self.game.legal(position))
