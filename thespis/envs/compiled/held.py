"""A compiled world in which every action is held for several steps: who acts looks less often, nothing else changes.

This is action repeat, or frame skipping without the skipping of rewards: a step pays what all its parts paid, and shows
what the last of them showed. An episode that ends while an action is held ends there.
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


class Held(eqx.Module):
    """``world`` with each action held for ``times`` of its steps."""

    world: Environment
    times: int = eqx.field(static=True)

    @property
    def spec(self) -> EnvSpec:
        """The world's, with fewer steps."""
        told = self.world.spec
        limit = None if told.time_limit is None else -(-told.time_limit // self.times)
        return dataclasses.replace(told, name=f"{told.name}-held-{self.times}", time_limit=limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """The world's own."""
        return self.world.reset(params, key)

    def step(self, state: PyTree, action: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Until the action was held long enough, or the episode is over."""
        first, *others = jax.random.split(key, self.times)
        begun = self.world.step(state, action, first)
        if not others:
            return begun

        def part(carry: tuple[PyTree, TimeStep], key: Key[Array, ""]) -> Any:
            state, so_far = carry
            over = jnp.logical_or(so_far.terminated, so_far.truncated)
            state, step = self.world.step(state, action, key)
            step = eqx.tree_at(lambda s: s.reward, step, so_far.reward + step.reward)
            return jax.tree.map(lambda old, new: jnp.where(over, old, new), carry, (state, step)), None

        return jax.lax.scan(part, begun, jnp.stack(others))[0]
