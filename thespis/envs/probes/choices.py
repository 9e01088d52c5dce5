"""Worlds in which the right thing must be done: they test actor, bounds, masks, memory and credit."""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.probes.probe import Known, Place, answer, zero


class Match(eqx.Module):
    """One step: reward 1 for the action that the observation asks for, -1 for any other.

    Cue ``i`` is shown one-hot and asks for ``wanted[i]`` among as many actions as ``choices``.
    """

    wanted: tuple[int, ...] = eqx.field(static=True, default=(0, 1))
    choices: int = eqx.field(static=True, default=2)
    name: str = eqx.field(static=True, default="match")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((len(self.wanted),), 0.0, 1.0), Discrete(self.choices))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """A cue by chance."""
        cue = jax.random.randint(key, (), 0, len(self.wanted))
        return Place(zero(), cue), answer(jax.nn.one_hot(cue, len(self.wanted)))

    def step(self, state: Place, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The verdict."""
        right = action == jnp.asarray(self.wanted)[state.cue]
        return state, answer(jnp.zeros(len(self.wanted)), jnp.where(right, 1.0, -1.0), terminated=True)

    def known(self, discount: float) -> list[Known]:
        """1 everywhere."""
        cues = np.eye(len(self.wanted), dtype="float32")
        return [Known(cue, 1.0, np.int32(wanted)) for cue, wanted in zip(cues, self.wanted, strict=True)]


class Target(eqx.Module):
    """One step: reward 1 less the squared distance of the action from the place shown (``[-1, 1]``)."""

    places: tuple[float, ...] = eqx.field(static=True, default=(-0.5, 0.5))
    name: str = eqx.field(static=True, default="target")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((1,), -1.0, 1.0), Box((1,), -1.0, 1.0))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """One of the places by chance."""
        place = jax.random.choice(key, jnp.asarray(self.places), (1,))
        return Place(zero(), place), answer(place)

    def step(self, state: Place, action: Float[Array, 1], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The verdict."""
        return state, answer(jnp.zeros(1), 1.0 - jnp.sum((action - state.cue) ** 2), terminated=True)

    def known(self, discount: float) -> list[Known]:
        """1 everywhere."""
        places = [np.full(1, place, "float32") for place in self.places]
        return [Known(place, 1.0, place) for place in places]


class Bound(eqx.Module):
    """One step; the reward is the action, which lies in ``[-1, 3]``: the best is the bound itself.

    An action not rescaled earns at most 1, one not clipped more than 3.
    """

    name: str = eqx.field(static=True, default="bound")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((1,), 0.0, 1.0), Box((1,), -1.0, 3.0))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The only state."""
        return Place(zero()), answer(jnp.ones(1))

    def step(self, state: Place, action: Float[Array, 1], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """What was done is paid."""
        return state, answer(jnp.ones(1), action[0], terminated=True)

    def known(self, discount: float) -> list[Known]:
        """The upper bound."""
        return [Known(np.ones(1, "float32"), 3.0, np.ones(1, "float32"))]


class Masked(eqx.Module):
    """One step, four actions, of which the cue makes two legal. The better legal one pays 1, the other 0.

    An illegal one pays 10, so that a leaking mask shows as a value above 1.
    """

    name: str = eqx.field(static=True, default="masked")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((2,), 0.0, 1.0), Discrete(4), legal=True)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """A cue by chance."""
        cue = jax.random.randint(key, (), 0, 2)
        return Place(zero(), cue), answer(jax.nn.one_hot(cue, 2), legal=jnp.arange(4) // 2 == cue)

    def step(self, state: Place, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The verdict."""
        reward = jnp.where(action // 2 == state.cue, (action % 2).astype("float32"), 10.0)
        return state, answer(jnp.zeros(2), reward, terminated=True, legal=jnp.ones(4, bool))

    def known(self, discount: float) -> list[Known]:
        """1 everywhere."""
        return [Known(np.eye(2, dtype="float32")[cue], 1.0, np.int32(2 * cue + 1)) for cue in range(2)]


class Late(eqx.Module):
    """Only the first of ``length`` actions counts, and is paid at the end: 1 for action 1, else 0.

    The observation is the position one-hot, and ``-1`` or ``1`` for the choice once it is made.
    """

    length: int = eqx.field(static=True, default=5)
    name: str = eqx.field(static=True, default="late")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((self.length + 1,), -1.0, 1.0), Discrete(2))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """Nothing chosen yet."""
        state = Place(zero(), jnp.zeros(()))
        return state, answer(self._observe(state))

    def step(self, state: Place, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """One position on; the first action is kept."""
        chosen = jnp.where(state.time == 0, 2.0 * action - 1.0, state.cue)
        state = Place(state.time + 1, chosen)
        over = state.time >= self.length
        return state, answer(self._observe(state), over & (chosen > 0), over)

    def _observe(self, state: Place) -> Float[Array, " features"]:
        return jnp.append(jax.nn.one_hot(state.time, self.length), state.cue)

    def known(self, discount: float) -> list[Known]:
        """One discount for each step that is left before the last."""
        last, places = self.length - 1, np.eye(self.length, dtype="float32")
        start = [Known(np.append(places[0], np.float32(0)), discount**last, np.int32(1))]
        return start + [
            Known(np.append(places[i], np.float32(sign)), discount ** (last - i) * (sign > 0))
            for i, sign in itertools.product(range(1, self.length), (-1, 1))
        ]


class Maze(eqx.Module):
    """A T-maze: a sign shown at the start tells which turn pays 1 after ``length`` steps; the other pays -1.

    The observation is the sign (0 after the start) and whether this is the turn. Without memory the best
    return is 0 on average. (Bakker, 2001, "Reinforcement learning with long short-term memory".)
    """

    length: int = eqx.field(static=True, default=3)
    name: str = eqx.field(static=True, default="maze")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((2,), -1.0, 1.0), Discrete(2))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The sign."""
        sign = jax.random.rademacher(key, (), "float32")
        return Place(zero(), sign), answer(jnp.stack([sign, jnp.zeros(())]))

    def step(self, state: Place, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """One step along the corridor; the last is the turn."""
        turn, time = state.time == self.length, state.time + 1
        right = jnp.where((action == 1) == (state.cue > 0), 1.0, -1.0)
        observation = jnp.stack([jnp.zeros(()), (time == self.length).astype("float32")])
        return Place(time, state.cue), answer(observation, jnp.where(turn, right, 0.0), turn)

    def known(self, discount: float) -> list[Known]:
        """At the start only: later observations do not tell the sign."""
        return [Known(np.array([sign, 0], "float32"), discount**self.length) for sign in (-1, 1)]

    def best(self, history: list[Any]) -> np.int32:
        """The turn that the first observation asked for."""
        return np.int32(history[0][0] > 0)
