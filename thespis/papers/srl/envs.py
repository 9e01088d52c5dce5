"""Action repeat: a wrapper that repeats every action for several steps, and continuous-control environments with it.

Action repeat is frame skipping without the loss of rewards: a step returns the sum of the rewards and the last
observation. An episode that ends during the repetition ends there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.records import EnvSpec, TimeStep
from thespis.envs.compiled.gymnax import Gymnax
from thespis.envs.compiled.swing_up import SwingUp


class ActionRepeat(eqx.Module):
    """``env`` with each action repeated for ``num_repeats`` steps."""

    env: Environment
    num_repeats: int = eqx.field(static=True)

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec, with a time limit in repeated steps."""
        spec = self.env.spec
        limit = None if spec.time_limit is None else -(-spec.time_limit // self.num_repeats)
        return dataclasses.replace(spec, name=f"{spec.name}-held-{self.num_repeats}", time_limit=limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Start an episode of the wrapped environment."""
        return self.env.reset(params, key)

    def step(self, state: PyTree, action: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Repeats the action ``num_repeats`` times, or until the episode ends."""
        first, *others = jax.random.split(key, self.num_repeats)
        first_result = self.env.step(state, action, first)
        if not others:
            return first_result

        def repeat(carry: tuple[PyTree, TimeStep], key: Key[Array, ""]) -> Any:
            state, previous = carry
            over = jnp.logical_or(previous.terminated, previous.truncated)
            state, step = self.env.step(state, action, key)
            step = eqx.tree_at(lambda s: s.reward, step, previous.reward + step.reward)
            return jax.tree.map(lambda old, new: jnp.where(over, old, new), carry, (state, step)), None

        return jax.lax.scan(repeat, first_result, jnp.stack(others))[0]


PENDULUM_REPEAT_4 = ActionRepeat(Gymnax("Pendulum-v1"), 4)
SWING_UP_REPEAT_4 = ActionRepeat(SwingUp(), 4)
"""Both with actions repeated four times: 50 decisions per episode."""
