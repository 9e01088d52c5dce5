"""A ring of transitions whose observations are stacks of frames: each frame is kept once.

Beside transitions without observations stand the frames, ``[slots, env, ...]``, of each environment in a row: at the
start of an episode the frames of its first stack, equal ones at its old end only once, and with every step the newest
frame of the next observation. A stack is the frame that its row points ``at`` and those before it, as far back as the
row can ``reach``; beyond that the farthest is repeated. So every stack comes back as it was, however an
environment fills the first one of an episode: with copies, with zeros or with frames of its own.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int32, Key, PyTree, UInt8

from thespis.core.apart import together
from thespis.core.errors import UserError
from thespis.core.records import Transition, View
from thespis.core.spread import each_its_own, pick
from thespis.data.replay import overwritten, room, rows_for, until_end, windows

SPARE = 32
"""One slot more for every so many rows: starts of episodes take some. Where they take more, less is held."""
MOST = 256
"""Frames of a stack, at most: how far a row reaches is kept in a byte."""
CYCLE = 2**30
"""Slots are counted up to about this number and then from 0 again, so that a run may be as long as it likes."""


class FrameRing(eqx.Module):
    """Transitions ``[rows, env]`` without their observations, and the frames that these are made of.

    ``at`` is where the newest frame of a row's observation lies, counted modulo a multiple of the slots that is
    near ``CYCLE``; that of its next observation lies one further. ``torn`` is true once an observation was no stack.
    """

    steps: Transition
    frames: PyTree
    at: Int32[Array, "row env"]
    reach: UInt8[Array, "row env"]
    torn: Bool[Array, "one env"]
    count: int = eqx.field(static=True)

    @property
    def rows(self) -> int:
        """Ticks it holds where starts of episodes leave room for all."""
        return self.at.shape[0]

    @property
    def slots(self) -> int:
        """Frames it holds of each environment."""
        return jax.tree.leaves(self.frames)[0].shape[0]

    @property
    def _cycle(self) -> int:
        return CYCLE // self.slots * self.slots

    def write(self, steps: Transition, written: Int[Array, ""]) -> FrameRing:
        """The ring with ``[chunk, env]`` transitions written after ``written`` ticks, over the oldest."""
        now, after = steps.view.observation, steps.next_view.observation
        last = (written - 1) % self.rows
        new = jnp.where(steps.first, self.count - _repeats(now), 0)
        at = (self.at[last] + jnp.cumsum(1 + new, axis=0)) % self._cycle
        reach = _reaches(self.reach[last].astype("int32"), new, self.count - 1)

        back = jnp.arange(self.count - 1, -1, -1)
        slots = jnp.concatenate([at[..., None] - back, at[..., None] + 1], axis=-1) % self.slots
        keep = jnp.concatenate([back < new[..., None], jnp.ones((*at.shape, 1), bool)], axis=-1)
        nowhere = self.slots + jnp.arange(at.shape[0] * (self.count + 1)).reshape(-1, 1, self.count + 1)
        content = jax.tree.map(lambda x, y: jnp.concatenate([x, y[:, :, -1:]], axis=2), now, after)
        frames = each_its_own(_put, self.frames, jnp.where(keep, slots, nowhere), content)

        torn = self.torn | ~_all_same(now, after, 1).all(axis=(0, 2))
        old, fresh = (self.steps, self.at, self.reach), (_bare(steps), at, reach.astype("uint8"))
        bare, at, reach = overwritten(old, fresh, written % self.rows)
        return FrameRing(bare, frames, at, reach, torn, self.count)

    def sample(
        self, written: Int[Array, ""], key: Key[Array, ""], batch: int, length: int
    ) -> tuple[Transition, Bool[Array, "length batch"]]:
        """What a ring of whole transitions gives for this ``key``, as long as starts of episodes left room for all.

        Steps whose frames have been overwritten are not drawn, nor steps of other environments that are as old.
        """
        rows, envs = windows(self.steps, written, self.held(written), key, batch, length)
        steps, at, reach = pick((self.steps, self.at, self.reach), rows, envs)
        back, reach = jnp.arange(self.count - 1, -1, -1), reach.astype("int32")[..., None]
        now = at[..., None] - jnp.minimum(back, reach)
        after = at[..., None] + 1 - jnp.minimum(back, reach + 1)
        return _dressed(steps, self._stacks(now, envs), self._stacks(after, envs)), until_end(steps.ended)

    def _stacks(self, slots: Int[Array, "length batch frame"], envs: Int[Array, " batch"]) -> PyTree:
        """Stacks ``[length, batch, frame, ...]``: every frame is copied from where it lies to where it is wanted."""
        flat = pick(self.frames, (slots % self.slots).reshape(slots.shape[0], -1), jnp.repeat(envs, self.count))
        return jax.tree.map(lambda x: x.reshape(*slots.shape, *x.shape[2:]), flat)

    def held(self, written: Int[Array, ""]) -> Int[Array, ""]:
        """How many of the newest ticks can be put together again, of all environments.

        A binary search: rows are older the further back, and so are the frames that they need.
        """
        end = self.at[(written - 1) % self.rows] + 2

        def whole(ticks: Array) -> Array:
            row = (written - ticks) % self.rows
            oldest = self.at[row] - self.reach[row]
            return ((end - oldest) % self._cycle <= self.slots).all()

        def halve(i: Array, held: Array) -> Array:
            more = held + (1 << (bits - 1 - i))
            return jnp.where((more <= jnp.minimum(written, self.rows)) & whole(more), more, held)

        bits = self.rows.bit_length()
        return jax.lax.fori_loop(0, bits, halve, jnp.zeros_like(written))

    def check(self) -> None:
        """Look whether all observations were stacks.

        Raises:
            UserError: if one was not.
        """
        if bool(jnp.any(together(self.torn))):
            raise UserError(
                f"feed.frames={self.count}, but an observation is not the {self.count} newest frames, oldest first, of "
                "which each step adds one: set feed.frames=0 to keep observations whole"
            )


def empty(example: Transition, capacity: int, envs: int, chunk: int, length: int, count: int) -> FrameRing:
    """Room for ``capacity`` transitions of ``envs`` environments, whose observations stack ``count`` frames.

    ``chunk`` is how many ticks are written at a time, ``length`` how many the longest window has.

    Raises:
        UserError: if the observations of the ``example`` transition cannot be stacks of ``count`` frames.
    """
    rows = rows_for(capacity, envs, chunk)
    shapes = [x.shape for x in jax.tree.leaves(example.view.observation)]
    if not 1 <= count <= MOST:
        raise UserError(f"feed.frames={count}: it is 0, to keep observations whole, or 1 to {MOST}")
    for shape in shapes:
        if shape[:1] != (count,):
            raise UserError(
                f"feed.frames={count} needs observations [{count}, ...], {count} frames along their first axis; these "
                f"are {list(shape)}: set feed.frames=0 to keep them whole"
            )
    # a tick that begins an episode takes a whole stack and one frame; a window, or what is written at once, must fit
    slots = max(rows + count + math.ceil(rows / SPARE), (count + 1) * max(chunk, length))
    if slots * (count + 4) > CYCLE:
        raise UserError(f"{rows} rows of {count} frames are more than can be counted: lower feed.capacity")
    frames = room(jax.tree.map(lambda x: x[0], example.view.observation), slots, envs)
    at, reach, torn = jnp.zeros((rows, envs), "int32"), jnp.zeros((rows, envs), "uint8"), jnp.zeros((1, envs), bool)
    return FrameRing(room(_bare(example), rows, envs), frames, at, reach, torn, count)


def _put(frames: PyTree, slots: Int[Array, "time env frame"], content: PyTree) -> PyTree:
    """``frames[slots, env]`` replaced by ``content[time, env, frame, ...]``; slots beyond the last are nowhere."""
    envs = jnp.arange(slots.shape[1])[:, None]

    def leaf(old: Array, new: Array) -> Array:
        return old.at[slots, envs].set(new, mode="drop", unique_indices=True)

    return jax.tree.map(leaf, frames, content)


def _bare(steps: Transition) -> Transition:
    """Without observations."""
    return _dressed(steps, None, None)


def _dressed(steps: Transition, now: PyTree, after: PyTree) -> Transition:
    """With these observations."""
    view, next_view = View(now, steps.view.legal), View(after, steps.next_view.legal)
    return dataclasses.replace(steps, view=view, next_view=next_view)


def _repeats(stacks: PyTree) -> Int[Array, "time env"]:
    """How many frames at the old end of each stack ``[time, env, frame, ...]`` only repeat the oldest."""
    return jnp.sum(jnp.cumprod(_all_same(stacks, stacks, 1).astype("int32"), axis=2), axis=2)


def _all_same(a: PyTree, b: PyTree, shift: int) -> Bool[Array, "time env pair"]:
    """Whether frame ``i + shift`` of stack ``a`` is frame ``i`` of stack ``b``, bit by bit, in all leaves."""

    def leaf(x: Array, y: Array) -> Array:
        x, y = _bits(x[:, :, shift:]), _bits(y[:, :, : y.shape[2] - shift])
        return jnp.all(x == y, axis=tuple(range(3, x.ndim)))

    found = jax.tree.leaves(jax.tree.map(leaf, a, b))
    return jnp.stack(found).all(axis=0)


def _bits(x: Array) -> Array:
    """Numbers as integers of the same bits, as not every number equals itself."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    return jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")


def _reaches(before: Int[Array, " env"], new: Int[Array, "time env"], most: int) -> Int[Array, "time env"]:
    """How far back each tick can reach: one frame further with every step, anew from each first stack."""

    def tick(reach: Array, new: Array) -> tuple[Array, Array]:
        reach = jnp.where(new > 0, new - 1, jnp.minimum(reach + 1, most))
        return reach, reach

    return jax.lax.scan(tick, before, new)[1]
