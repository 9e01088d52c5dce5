"""A replay ring buffer for frame-stacked observations that stores each frame once.

Besides transitions without observations it stores the frames, ``[slots, env, ...]``, of each environment in order: at
the start of an episode the frames of its first stack (repeated oldest frames only once), and with every step the
newest frame of the next observation. A stack is the frame at a row's ``newest_index`` and those before it, as far back
as the row's ``history_length``; beyond that the oldest is repeated. So every stack is reproduced exactly, however an
environment fills the first one of an episode: with copies, with zeros or with other frames.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int32, Key, PyTree, UInt8

from thespis.core.errors import UserError
from thespis.core.records import Transition, View
from thespis.data.ring_buffer import allocate, first_episode_mask, num_rows_for, sample_windows, write_rows
from thespis.runtime.vmap_exact import concat_seeds, map_shards, take_sharded

ROWS_PER_SPARE_FRAME = 32
"""One extra slot per this number of rows, for starts of episodes. Where they need more, fewer rows are available."""
MAX_STACK_SIZE = 256
"""Largest number of frames in a stack: a row's history length is stored in a byte."""
INDEX_MODULUS = 2**30
"""Slot indices wrap around near this number, so that a run may be arbitrarily long."""


class FrameStackBuffer(eqx.Module):
    """Transitions ``[rows, env]`` without observations, and the frames of which these consist.

    ``newest_index`` is the index of the newest frame of a row's observation, modulo a multiple of the number of slots
    near :data:`INDEX_MODULUS`; that of its next observation follows it. ``stack_mismatch`` is true once an observation
    was no stack of its frames.
    """

    steps: Transition
    frames: PyTree
    newest_index: Int32[Array, "row env"]
    history_length: UInt8[Array, "row env"]
    stack_mismatch: Bool[Array, "one env"]
    stack_size: int = eqx.field(static=True)

    @property
    def num_rows(self) -> int:
        """Number of rows (ticks), if starts of episodes leave room for all."""
        return self.newest_index.shape[0]

    @property
    def num_frames(self) -> int:
        """Number of frame slots of each environment."""
        return jax.tree.leaves(self.frames)[0].shape[0]

    @property
    def _index_modulus(self) -> int:
        return INDEX_MODULUS // self.num_frames * self.num_frames

    def add(self, steps: Transition, num_written: Int[Array, ""]) -> FrameStackBuffer:
        """The buffer with ``[chunk, env]`` transitions added after ``num_written`` ticks, in place of the oldest."""
        observation, next_observation = steps.view.observation, steps.next_view.observation
        last = (num_written - 1) % self.num_rows
        new = jnp.where(steps.is_first, self.stack_size - _num_repeated_frames(observation), 0)
        newest_index = (self.newest_index[last] + jnp.cumsum(1 + new, axis=0)) % self._index_modulus
        history_length = _history_lengths(self.history_length[last].astype("int32"), new, self.stack_size - 1)

        back = jnp.arange(self.stack_size - 1, -1, -1)
        slots = (
            jnp.concatenate([newest_index[..., None] - back, newest_index[..., None] + 1], axis=-1) % self.num_frames
        )
        keep = jnp.concatenate([back < new[..., None], jnp.ones((*newest_index.shape, 1), bool)], axis=-1)
        out_of_range = self.num_frames + jnp.arange(newest_index.shape[0] * (self.stack_size + 1)).reshape(
            -1, 1, self.stack_size + 1
        )
        content = jax.tree.map(lambda x, y: jnp.concatenate([x, y[:, :, -1:]], axis=2), observation, next_observation)
        frames = map_shards(_scatter_frames, self.frames, jnp.where(keep, slots, out_of_range), content)

        mismatch = self.stack_mismatch | ~_frames_equal(observation, next_observation, 1).all(axis=(0, 2))
        old, fresh = (
            (self.steps, self.newest_index, self.history_length),
            (_drop_observations(steps), newest_index, history_length.astype("uint8")),
        )
        stored, newest_index, history_length = write_rows(old, fresh, num_written % self.num_rows)
        return FrameStackBuffer(stored, frames, newest_index, history_length, mismatch, self.stack_size)

    def sample(
        self, num_written: Int[Array, ""], key: Key[Array, ""], batch_size: int, sequence_length: int
    ) -> tuple[Transition, Bool[Array, "length batch"]]:
        """Sample the same windows as a :class:`~thespis.data.ring_buffer.RingBuffer`, while all rows are available.

        Steps with overwritten frames are not sampled, nor equally old steps of other environments.
        """
        return self.take(
            *sample_windows(self.steps, num_written, self.num_available(num_written), key, batch_size, sequence_length)
        )

    def take(
        self, rows: Int[Array, "length batch"], envs: Int[Array, " batch"]
    ) -> tuple[Transition, Bool[Array, "length batch"]]:
        """The windows with these rows and environments, and their mask as in :meth:`sample`."""
        steps, newest_index, history_length = take_sharded(
            (self.steps, self.newest_index, self.history_length), rows, envs
        )
        back, history_length = jnp.arange(self.stack_size - 1, -1, -1), history_length.astype("int32")[..., None]
        slots = newest_index[..., None] - jnp.minimum(back, history_length)
        next_slots = newest_index[..., None] + 1 - jnp.minimum(back, history_length + 1)
        return _with_observations(
            steps, self._gather_stacks(slots, envs), self._gather_stacks(next_slots, envs)
        ), first_episode_mask(steps.done)

    def _gather_stacks(self, slots: Int[Array, "length batch frame"], envs: Int[Array, " batch"]) -> PyTree:
        """Stacks ``[length, batch, frame, ...]``, gathered frame by frame."""
        flat = take_sharded(
            self.frames, (slots % self.num_frames).reshape(slots.shape[0], -1), jnp.repeat(envs, self.stack_size)
        )
        return jax.tree.map(lambda x: x.reshape(*slots.shape, *x.shape[2:]), flat)

    def num_available(self, num_written: Int[Array, ""]) -> Int[Array, ""]:
        """Number of newest ticks whose stacks are complete for all environments.

        A binary search: the older a row, the older the frames that it needs.
        """
        end = self.newest_index[(num_written - 1) % self.num_rows] + 2

        def is_complete(ticks: Array) -> Array:
            row = (num_written - ticks) % self.num_rows
            oldest = self.newest_index[row] - self.history_length[row]
            return ((end - oldest) % self._index_modulus <= self.num_frames).all()

        def halve(i: Array, held: Array) -> Array:
            more = held + (1 << (bits - 1 - i))
            return jnp.where((more <= jnp.minimum(num_written, self.num_rows)) & is_complete(more), more, held)

        bits = self.num_rows.bit_length()
        return jax.lax.fori_loop(0, bits, halve, jnp.zeros_like(num_written))

    def max_lost(self, chunk_size: int) -> int:
        """The most ticks, besides those that are overwritten, that can become unreadable with one write."""
        # a tick writes at most a first stack and one frame, and a first stack is read by as many rows as it has frames
        return min(chunk_size * (self.stack_size + 1) * self.stack_size, self.num_rows)

    def check_stacks(self) -> None:
        """Check that all observations were stacks of their frames.

        Raises:
            UserError: if one was not.
        """
        if bool(jnp.any(concat_seeds(self.stack_mismatch))):
            raise UserError(
                f"feed.frame_stack={self.stack_size}, but an observation is not the {self.stack_size} newest frames, "
                "oldest first, of which each step adds one: set feed.frame_stack=0 to keep observations whole"
            )


def init_frame_buffer(
    example: Transition, buffer_size: int, num_envs: int, chunk_size: int, sequence_length: int, stack_size: int
) -> FrameStackBuffer:
    """An empty buffer for ``buffer_size`` transitions of ``num_envs`` environments, with ``stack_size`` frames each.

    ``chunk_size`` is the number of ticks written at a time, ``sequence_length`` the length of the longest window.

    Raises:
        UserError: if the observations of the ``example`` transition cannot be stacks of ``stack_size`` frames.
    """
    rows = num_rows_for(buffer_size, num_envs, chunk_size)
    shapes = [x.shape for x in jax.tree.leaves(example.view.observation)]
    if not 1 <= stack_size <= MAX_STACK_SIZE:
        raise UserError(f"feed.frame_stack={stack_size}: it is 0, to keep observations whole, or 1 to {MAX_STACK_SIZE}")
    for shape in shapes:
        if shape[:1] != (stack_size,):
            raise UserError(
                f"feed.frame_stack={stack_size} needs observations [{stack_size}, ...], {stack_size} frames along "
                f"their first axis; these are {list(shape)}: set feed.frame_stack=0 to keep them whole"
            )
    # an episode's first tick needs a whole stack and one frame; a window, or what is written at once, must fit
    slots = max(
        rows + stack_size + math.ceil(rows / ROWS_PER_SPARE_FRAME), (stack_size + 1) * max(chunk_size, sequence_length)
    )
    if slots * (stack_size + 4) > INDEX_MODULUS:
        raise UserError(f"{rows} rows of {stack_size} frames are more than can be counted: lower feed.buffer_size")
    frames = allocate(jax.tree.map(lambda x: x[0], example.view.observation), slots, num_envs)
    newest_index, history_length, mismatch = (
        jnp.zeros((rows, num_envs), "int32"),
        jnp.zeros((rows, num_envs), "uint8"),
        jnp.zeros((1, num_envs), bool),
    )
    return FrameStackBuffer(
        allocate(_drop_observations(example), rows, num_envs),
        frames,
        newest_index,
        history_length,
        mismatch,
        stack_size,
    )


def _scatter_frames(frames: PyTree, slots: Int[Array, "time env frame"], content: PyTree) -> PyTree:
    """``frames[slots, env]`` replaced by ``content[time, env, frame, ...]``; slots out of range are dropped."""
    envs = jnp.arange(slots.shape[1])[:, None]

    def leaf(old: Array, new: Array) -> Array:
        return old.at[slots, envs].set(new, mode="drop", unique_indices=True)

    return jax.tree.map(leaf, frames, content)


def _drop_observations(steps: Transition) -> Transition:
    """The transitions without observations."""
    return _with_observations(steps, None, None)


def _with_observations(steps: Transition, now: PyTree, after: PyTree) -> Transition:
    """The transitions with other observations."""
    view, next_view = View(now, steps.view.action_mask), View(after, steps.next_view.action_mask)
    return dataclasses.replace(steps, view=view, next_view=next_view)


def _num_repeated_frames(stacks: PyTree) -> Int[Array, "time env"]:
    """Number of frames at the old end of each stack ``[time, env, frame, ...]`` that only repeat the oldest."""
    return jnp.sum(jnp.cumprod(_frames_equal(stacks, stacks, 1).astype("int32"), axis=2), axis=2)


def _frames_equal(a: PyTree, b: PyTree, shift: int) -> Bool[Array, "time env pair"]:
    """Whether frame ``i + shift`` of stack ``a`` equals frame ``i`` of stack ``b``, bit by bit, in all leaves."""

    def leaf(x: Array, y: Array) -> Array:
        x, y = _bitcast(x[:, :, shift:]), _bitcast(y[:, :, : y.shape[2] - shift])
        return jnp.all(x == y, axis=tuple(range(3, x.ndim)))

    equal = jax.tree.leaves(jax.tree.map(leaf, a, b))
    return jnp.stack(equal).all(axis=0)


def _bitcast(x: Array) -> Array:
    """Floats as integers of the same bits, as NaN does not equal itself."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    return jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")


def _history_lengths(before: Int[Array, " env"], new: Int[Array, "time env"], most: int) -> Int[Array, "time env"]:
    """The available history of each tick: one frame more with every step, reset at each first stack."""

    def tick(reach: Array, new: Array) -> tuple[Array, Array]:
        reach = jnp.where(new > 0, new - 1, jnp.minimum(reach + 1, most))
        return reach, reach

    return jax.lax.scan(tick, before, new)[1]
