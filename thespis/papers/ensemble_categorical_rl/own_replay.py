"""Own replay of ensemble members: each acts in its own environments and learns from what it did there.

Environment ``e`` of ``n`` belongs to member ``e % num_members``, in the buffer and in acting.

Source: the code of Lindenberg et al., 2020, where every agent has its own environment and its own buffer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import Store
from thespis.core.records import Batch, Transition
from thespis.data.feeds import Replay, ReplayStore
from thespis.data.ring_buffer import RingBuffer, sample_windows
from thespis.learners.off_policy.discrete_q import MemberExploration


class PerEnvironment(MemberExploration):
    """The same member at all times in the same environment."""

    def init_memory(self, n: int) -> Int[Array, " n"]:
        """The numbers of the environments."""
        return jnp.arange(n, dtype="int32")

    def sample_member(
        self, memory: Int[Array, ""], ensemble_size: int, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The member that owns the environment, and its number."""
        return memory % ensemble_size, memory


@dataclasses.dataclass(frozen=True)
class MemberReplay(Replay):
    """Replay buffer with a part for each ensemble member: equal shares of a batch come from their own environments."""

    num_members: int = 5
    """Members, of which each has as many of the environments and as large a share of a batch."""
    num_envs: int = 5

    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed.

        Raises ``UserError`` unless windows of whole observations are sampled uniformly, in equal shares.
        """
        if self.demos or self.sampler or self.relabel or self.frame_stack or self.batch_size % self.num_members:
            raise UserError(
                f"replay of {self.num_members} members samples whole observations uniformly, in equal shares: leave "
                f"out demos, sampler, relabel and frame_stack, and make batch_size a multiple of {self.num_members}"
            )
        return MemberReplayStore(self, total_steps)


@dataclasses.dataclass(frozen=True)
class MemberReplayStore(ReplayStore):
    """A replay buffer that serves every member transitions of its own environments."""

    feed: MemberReplay

    def init(self, example: Transition, num_envs: int) -> Any:
        """An empty store for one seed. Raises ``UserError`` unless members have equally many environments."""
        if num_envs % self.feed.num_members:
            members = self.feed.num_members
            raise UserError(f"{num_envs} environments are no multiple of {members} members: --envs {members}")
        return super().init(example, num_envs)

    def sample(
        self,
        state: RingBuffer,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The batch for the next update: equal shares, in the order of the members."""
        feed, available = self.feed, state.num_available(num_written)
        rows, envs = sample_windows(state.steps, num_written, available, key, feed.batch_size, feed.sequence_length)
        member = jnp.repeat(jnp.arange(feed.num_members), feed.batch_size // feed.num_members)
        steps, mask = state.take(rows, envs // feed.num_members * feed.num_members + member)
        return Batch(steps, mask, (), update_index)
