"""Parts of a package that knows Thespis and that Thespis does not know: a sampler, a temperature, a critic, a feed."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from thespis.core.feeds import ReplaySampler
from thespis.critics.hypernetwork import CriticArchitecture
from thespis.critics.value_functions import build_q_function
from thespis.data.feeds import Replay
from thespis.learners.off_policy.temperature import Temperature


@dataclasses.dataclass(frozen=True)
class NewestFirst(ReplaySampler):
    """Samples the newest windows alone."""

    num_newest: int = 40

    def init(self, num_windows):
        return jnp.full(num_windows, -1, "int32")

    def add(self, state, windows, is_complete):
        newest = jnp.max(state) + 1 + jnp.cumsum(is_complete)
        return state.at[windows].set(jnp.where(is_complete, newest, -1))

    def forget(self, state, windows, is_gone):
        return state.at[windows].set(jnp.where(is_gone, -1, state[windows]))

    def draw(self, state, batch_size, key):
        return jax.lax.top_k(state, self.num_newest)[1][jax.random.randint(key, (batch_size,), 0, self.num_newest)]

    def weights(self, state, indices, num_windows, update_index):
        return jnp.ones(indices.shape)

    def revise(self, state, indices, priorities):
        return state


class FallingTemperature(Temperature):
    """Temperature that falls with the number of updates."""

    init_value: float = 0.5
    timescale: float = 20.0

    def init(self, spec):
        return jnp.zeros((), "int32")

    def alpha(self, state):
        return self.init_value / (1.0 + state / self.timescale)

    def update(self, state, entropy):
        return state + 1


class NarrowCritic(CriticArchitecture):
    """Critic with a single small hidden layer."""

    width: int = eqx.field(static=True, default=6)

    def build(self, spec, hidden_sizes, key, options):
        return build_q_function(spec, (self.width,), key, options)


@dataclasses.dataclass(frozen=True)
class SmallReplay(Replay):
    """Replay buffer with small defaults."""

    buffer_size: int = 200
    batch_size: int = 8
    learning_starts: int = 60
    update_interval: int = 4
    num_envs: int = 2
