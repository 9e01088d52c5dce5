"""Probes of actions: they test the actor, action bounds, action masks, memory and credit assignment."""

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
from thespis.envs.probes.probe import KnownValue, ProbeState, probe_time_step, start_time


class MatchProbe(eqx.Module):
    """One-step probe: reward 1 for the action that the observation calls for, -1 for any other.

    Cue ``i`` is shown one-hot and calls for action ``target_actions[i]`` among ``num_actions``.
    """

    target_actions: tuple[int, ...] = eqx.field(static=True, default=(0, 1))
    num_actions: int = eqx.field(static=True, default=2)
    name: str = eqx.field(static=True, default="match")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((len(self.target_actions),), 0.0, 1.0), Discrete(self.num_actions))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws a cue at random."""
        cue = jax.random.randint(key, (), 0, len(self.target_actions))
        return ProbeState(start_time(), cue), probe_time_step(jax.nn.one_hot(cue, len(self.target_actions)))

    def step(self, state: ProbeState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Rewards the target action and ends the episode."""
        right = action == jnp.asarray(self.target_actions)[state.cue]
        return state, probe_time_step(jnp.zeros(len(self.target_actions)), jnp.where(right, 1.0, -1.0), terminated=True)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Value 1 for every cue."""
        cues = np.eye(len(self.target_actions), dtype="float32")
        return [KnownValue(cue, 1.0, np.int32(target)) for cue, target in zip(cues, self.target_actions, strict=True)]


class TargetProbe(eqx.Module):
    """One-step probe: the reward is 1 minus the squared distance of the action from the target shown.

    Targets are in ``[-1, 1]``.
    """

    targets: tuple[float, ...] = eqx.field(static=True, default=(-0.5, 0.5))
    name: str = eqx.field(static=True, default="target")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((1,), -1.0, 1.0), Box((1,), -1.0, 1.0))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws one of the targets at random."""
        target = jax.random.choice(key, jnp.asarray(self.targets), (1,))
        return ProbeState(start_time(), target), probe_time_step(target)

    def step(self, state: ProbeState, action: Float[Array, 1], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Rewards closeness to the target and ends the episode."""
        return state, probe_time_step(jnp.zeros(1), 1.0 - jnp.sum((action - state.cue) ** 2), terminated=True)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Value 1 for every target."""
        targets = [np.full(1, target, "float32") for target in self.targets]
        return [KnownValue(target, 1.0, target) for target in targets]


class ActionBoundProbe(eqx.Module):
    """One-step probe of action bounds: the reward is the action, from ``[-1, 3]``, so the upper bound is optimal.

    An action that is not rescaled earns at most 1, one that is not clipped earns more than 3.
    """

    name: str = eqx.field(static=True, default="bound")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((1,), 0.0, 1.0), Box((1,), -1.0, 3.0))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Starts in the only state."""
        return ProbeState(start_time()), probe_time_step(jnp.ones(1))

    def step(self, state: ProbeState, action: Float[Array, 1], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Pays the action and ends the episode."""
        return state, probe_time_step(jnp.ones(1), action[0], terminated=True)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Known values: the best reward is at the upper bound."""
        return [KnownValue(np.ones(1, "float32"), 3.0, np.ones(1, "float32"))]


class ActionMaskProbe(eqx.Module):
    """One-step probe of action masks: two of four actions are legal under the cue.

    The better legal action pays 1, the other 0. An illegal action pays 10, so a leaking action mask shows as a value
    above 1.
    """

    name: str = eqx.field(static=True, default="masked")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((2,), 0.0, 1.0), Discrete(4), has_action_mask=True)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws a cue at random."""
        cue = jax.random.randint(key, (), 0, 2)
        return ProbeState(start_time(), cue), probe_time_step(
            jax.nn.one_hot(cue, 2), action_mask=jnp.arange(4) // 2 == cue
        )

    def step(self, state: ProbeState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Pays the action and ends the episode."""
        reward = jnp.where(action // 2 == state.cue, (action % 2).astype("float32"), 10.0)
        return state, probe_time_step(jnp.zeros(2), reward, terminated=True, action_mask=jnp.ones(4, bool))

    def known_values(self, discount: float) -> list[KnownValue]:
        """Value 1 for both cues."""
        return [KnownValue(np.eye(2, dtype="float32")[cue], 1.0, np.int32(2 * cue + 1)) for cue in range(2)]


class DelayedCreditProbe(eqx.Module):
    """Credit-assignment probe: only the first of ``length`` actions counts, and its reward comes at the last step.

    The reward is 1 for action 1, else 0. The observation is the position, one-hot, and the first choice as ``-1`` or
    ``1`` (0 before it is made).
    """

    length: int = eqx.field(static=True, default=5)
    name: str = eqx.field(static=True, default="late")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((self.length + 1,), -1.0, 1.0), Discrete(2))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Starts at the first position, with no choice made."""
        state = ProbeState(start_time(), jnp.zeros(()))
        return state, probe_time_step(self._observe(state))

    def step(self, state: ProbeState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Advances one position; the first action is remembered."""
        choice = jnp.where(state.time == 0, 2.0 * action - 1.0, state.cue)
        state = ProbeState(state.time + 1, choice)
        over = state.time >= self.length
        return state, probe_time_step(self._observe(state), over & (choice > 0), over)

    def _observe(self, state: ProbeState) -> Float[Array, " features"]:
        return jnp.append(jax.nn.one_hot(state.time, self.length), state.cue)

    def known_values(self, discount: float) -> list[KnownValue]:
        """One discount factor for each step before the last."""
        last, positions = self.length - 1, np.eye(self.length, dtype="float32")
        start = [KnownValue(np.append(positions[0], np.float32(0)), discount**last, np.int32(1))]
        return start + [
            KnownValue(np.append(positions[i], np.float32(sign)), discount ** (last - i) * (sign > 0))
            for i, sign in itertools.product(range(1, self.length), (-1, 1))
        ]


class TMazeProbe(eqx.Module):
    """Memory probe, a T-maze: a sign shown at the start tells which turn pays 1 after ``length`` steps.

    The other turn pays -1. The observation is the sign (0 after the start) and whether this is the junction. Without
    memory the best average return is 0. (Bakker, 2001, "Reinforcement learning with long short-term memory".)
    """

    length: int = eqx.field(static=True, default=3)
    name: str = eqx.field(static=True, default="maze")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((2,), -1.0, 1.0), Discrete(2))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws the sign and shows it."""
        sign = jax.random.rademacher(key, (), "float32")
        return ProbeState(start_time(), sign), probe_time_step(jnp.stack([sign, jnp.zeros(())]))

    def step(self, state: ProbeState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Advances one step along the corridor; the last step is the turn."""
        turn, time = state.time == self.length, state.time + 1
        right = jnp.where((action == 1) == (state.cue > 0), 1.0, -1.0)
        observation = jnp.stack([jnp.zeros(()), (time == self.length).astype("float32")])
        return ProbeState(time, state.cue), probe_time_step(observation, jnp.where(turn, right, 0.0), turn)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Values at the start only: later observations do not contain the sign."""
        return [KnownValue(np.array([sign, 0], "float32"), discount**self.length) for sign in (-1, 1)]

    def optimal_action(self, history: list[Any]) -> np.int32:
        """The turn that the first observation calls for."""
        return np.int32(history[0][0] > 0)
