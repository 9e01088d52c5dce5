"""All steps that a replay buffer holds, by number: for methods that learn from more than a sampled batch."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Int

from thespis.core.records import Transition
from thespis.data.sampled_replay import ReplayBuffer


class BufferSteps(eqx.Module):
    """View of a replay buffer as one list of steps, from the oldest tick to the newest: nothing is copied."""

    buffer: ReplayBuffer
    num_written: Int[Array, ""]
    """Ticks written so far, also those that are overwritten."""

    @property
    def capacity(self) -> int:
        """The largest possible number of steps."""
        rows, envs = self.buffer.steps.reward.shape
        return rows * envs

    @property
    def size(self) -> Int[Array, ""]:
        """Number of steps: of seeds that train together, the same for all."""
        return self.buffer.num_available(self.num_written) * self.buffer.steps.reward.shape[1]

    def take(self, indices: Int[Array, " n"]) -> Transition:
        """The steps with these numbers, each from 0 to :attr:`size` exclusive; leaves ``[n, ...]``."""
        num_envs = self.buffer.steps.reward.shape[1]
        first = self.num_written - self.buffer.num_available(self.num_written)
        rows = (first + indices // num_envs) % self.buffer.num_rows
        steps, _ = self.buffer.take(rows[None], indices % num_envs)
        return jax.tree.map(lambda x: x[0], steps)
