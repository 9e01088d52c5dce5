"""The host loop: environments outside JAX step while the learner learns.

Acting is one jitted program for all seeds. Learning is one that is called for every seed on CPUs, else for all of them.
Both are made of the functions that the compiled loop uses. Unless the pace says otherwise, the acting policy is a fixed
number of blocks (``lag``) behind the learner, so what is learnt never depends on which of the two finishes first.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core import apart
from thespis.core.contracts import HostEnvironment, Mode
from thespis.core.keys import roots
from thespis.data.stores import store_for
from thespis.loops.acting import Rows, Worlds, WorldsHere, acting_shapes
from thespis.loops.clock import Clock
from thespis.loops.host_state import HostCarry, HostWorld
from thespis.loops.pace import FixedLag, Pace, Policies, delay, learner_thread, settled
from thespis.loops.parts import (
    Learner,
    Parts,
    Tally,
    empty_tally,
    init_learner,
    kinds_of_rows,
    learn,
    learnt,
    metric_names,
    with_array_leaves,
)
from thespis.loops.workers import Workers
from thespis.runs.checkpoint import OPEN


class HostLoop:
    """Trains ``parts`` in ``seeds * envs`` host environments side by side."""

    kind = "host"

    def __init__(
        self,
        parts: Parts,
        worlds: HostEnvironment | Workers,
        envs: int,
        seeds: list[int],
        steps: int,
        pace: Pace | None = None,
        jitter: float = 0.0,
    ):
        self.parts = with_array_leaves(parts)
        self.spec, self.envs, self.seeds = worlds.spec, envs, seeds
        self.store = store_for(parts.method.feed, steps)
        self.pace, self.jitter = pace or FixedLag(self.store.feed.lag), jitter
        self.warmup = self.store.warmup_blocks(envs)
        self.block_steps = self.store.feed.ticks * envs
        self.metrics = metric_names(self.parts, self.spec, self.store, envs)
        self.clock = Clock("acting", "environment", "learning")
        self.timing = self.clock.seconds
        self._row, self._end = kinds_of_rows(self.parts, self.spec)
        self.worlds = worlds if isinstance(worlds, Workers) else self._here(worlds)
        self._count = apart.programs(len(seeds))
        self._threads = apart.threads("seed")
        self._policy = jax.jit(self._policies, static_argnames="seeds")
        self._learn = jax.jit(self._learn_piece, static_argnames="train", donate_argnames="held")
        # how the bare leaves that the programs are given are put together
        self._bare, self._parts = jax.tree.flatten(self.parts)
        self._fixed = jax.tree.structure(acting_shapes(self.parts, self.spec))
        self._held: Any = None

    def _here(self, worlds: HostEnvironment) -> Worlds:
        feed = self.store.feed
        return WorldsHere(self.parts, worlds, self.envs, len(self.seeds), feed.ticks, group=self.store.group)

    # -- programs ------------------------------------------------------------------------------------------

    def _init_learners(self, seeds):
        learner = jax.vmap(lambda r: init_learner(self.parts, self.spec, self.store, self.envs, r))(seeds)
        tally = jax.vmap(lambda _: empty_tally(self.metrics))(seeds)
        policy = self._policies(self.parts, learner.method, len(seeds))
        memory = jax.vmap(lambda p: self.parts.method.begin(p, self.envs), axis_size=len(seeds))(policy)
        return learner, tally, policy, memory

    def _policies(self, parts, states, seeds):
        return jax.vmap(lambda state: parts.method.policy(state, Mode.EXPLORE), axis_size=seeds)(states)

    def _learn_piece(self, held, parts, rows, memory, ends, seeds, ticks, updates, *, train):
        parts = self._parts.unflatten(parts)

        def one(learner, tally, steps, memory, outcomes, root):
            return learn(parts, self.store, learner, tally, steps, memory, outcomes, root, ticks, updates, train=train)

        steps, outcomes = (_cut(x, len(seeds)) for x in (self._row.unflatten(rows), self._end.unflatten(ends)))
        learner, tally = self._held.unflatten(held)
        learner, tally = jax.vmap(one)(learner, tally, steps, memory, outcomes, seeds)
        return jax.tree.leaves((learner, tally)), jax.tree.leaves(self._policies(parts, learner.method, len(seeds)))

    # -- state ---------------------------------------------------------------------------------------------

    def shapes(self) -> PyTree:
        """Shapes of what lives on the device, nothing allocated."""
        return jax.eval_shape(self._init_learners, roots(self.seeds))

    def init(self, worker: int = 0) -> HostCarry:
        """A fresh carry, another one for every ``worker``; every world begins an episode."""
        seeds = roots(self.seeds, worker)
        begin = jax.jit(self._init_learners)
        with self.clock.compiling():
            found = apart.joined([jax.block_until_ready(begin(root)) for root in apart.pieces(seeds, self._count)])
        learner, tally, (policy, memory) = found[0], found[1], apart.together(found[2:])
        policies, world, zero = (policy,) * (self.pace.lag + 1), self.worlds.begin(seeds, memory, 0), np.int32(0)
        return HostCarry(seeds, learner, tally, policies, world, zero, zero)

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: HostCarry, blocks: int) -> HostCarry:
        """Run ``blocks`` blocks; the carry given is used up. Warm-up blocks, which learn nothing, come first."""
        feed, world, ticks, updates = self.store.feed, carry.world, carry.ticks, carry.updates
        desks = self._desks(carry)
        given = (jax.tree.leaves((self.parts, policy, carry.roots)) for policy in carry.policies)
        policies: Policies = collections.deque(given)
        with learner_thread(self.pace.lag) as thread:
            for _ in range(blocks):
                with self.clock.spent_on("learning"):
                    policy, memory = self.pace.take(policies), world.memory
                delay(self.jitter)
                world, rows, ends = self.worlds.collect(policy, world, ticks, self.clock)
                train = int(ticks) // feed.ticks >= self.warmup
                with self.clock.spent_on("learning"):
                    block = Block(rows, memory, ends, ticks, updates)
                    policies.append(thread.submit(self._study, desks, block, carry.roots, train=train))
                updates = np.int32(updates + (feed.updates if train else 0))
                ticks = np.int32(ticks + feed.ticks)
            with self.clock.spent_on("learning"):
                newest = [self._fixed.unflatten(x)[1] for x in jax.block_until_ready(settled(policies, self.pace.lag))]
        learner, tally = apart.joined([self._held.unflatten(desk.held) for desk in desks])
        self.store.check(learner.store)
        return HostCarry(carry.roots, learner, tally, tuple(newest), world, ticks, updates)

    def _desks(self, carry: HostCarry) -> list[Desk]:
        """A desk for each piece of the seeds."""
        found = apart.pieces((carry.learner, carry.tally), self._count)
        self._held = jax.tree.structure(found[0])
        return [Desk(jax.tree.leaves(x), r) for x, r in zip(found, apart.pieces(carry.roots, self._count), strict=True)]

    def _study(self, desks: list[Desk], block: Block, roots: Any, *, train: bool) -> list:
        """Learn from one block, waiting for nothing: what lies on the desks is replaced. What acts next, bare."""
        delay(self.jitter)
        width = self.envs * len(self.seeds) // self._count
        rows, ends, memories = _stack(block.rows), _stack(block.ends), apart.pieces(block.memory, self._count)

        def one(i: int) -> list:
            mine = np.s_[:, i * width : (i + 1) * width]
            seen = [x[mine] for x in rows], memories[i], [x[mine] for x in ends]
            given = (desks[i].held, self._bare, *seen, desks[i].roots, block.ticks, block.updates)
            desks[i].held, policy = self.clock.call(("learn", train), self._learn, *given, train=train)
            return policy

        policies = apart.together(apart.joined(apart.in_turn(self._threads, one, range(self._count))))
        return [*self._bare, *policies, roots]

    def taught(self, carry: HostCarry, learner: Learner) -> HostCarry:
        """The carry with another learner, who also acts."""
        policy = self.clock.call("policy", self._policy, self.parts, learner.method, seeds=len(self.seeds))
        return dataclasses.replace(carry, learner=learner, policies=(policy,) * (self.pace.lag + 1))

    # -- what the driver reads -----------------------------------------------------------------------------

    def steps(self, carry: HostCarry) -> int:
        """Environment steps per seed so far."""
        return int(carry.ticks) * self.envs

    def take_tally(self, carry: HostCarry) -> tuple[HostCarry, Tally]:
        """The tally since the last call, on the host, and the carry with it cleared."""
        tally = jax.device_get(carry.tally)
        return eqx.tree_at(lambda c: c.tally, carry, jax.tree.map(apart.zeros_like, carry.tally)), tally

    def learner(self, carry: HostCarry) -> Learner:
        """All learnt states, leading axis ``[seed]``; what is stored stays where it lies."""
        return learnt(carry.learner)

    def snapshot(self, carry: HostCarry) -> PyTree:
        """What a checkpoint holds: the carry and, where the worlds can be saved, the worlds."""
        return {"carry": carry, "worlds": self.worlds.save()}

    def like(self) -> PyTree:
        """What a checkpoint of this loop looks like."""
        carry = self.init()
        saves = self.worlds.save() is not None
        return {"carry": carry, "worlds": OPEN if saves else None}

    def restore(self, snapshot: PyTree) -> tuple[HostCarry, list[str]]:
        """The carry of a checkpoint, and what could not be restored."""
        saved: HostCarry = snapshot["carry"]
        seeds, policies, memory = jax.tree.map(jnp.array, (saved.roots, saved.policies, saved.world.memory))
        learner, tally = apart.placed((saved.learner, saved.tally), self._count)
        old, ticks = saved.world, int(saved.ticks)
        world = HostWorld(memory, old.view, old.first, old.returns, old.lengths)
        world, anew = self.worlds.load(snapshot["worlds"], seeds, world, ticks)
        lost = [f"{anew} environments of {self.spec.name} could not save their state: new episodes"] if anew else []
        return HostCarry(seeds, learner, tally, policies, world, np.int32(ticks), np.int32(saved.updates)), lost

    def news(self) -> list[str]:
        """What the user should know of the last blocks, a line each."""
        return self.worlds.news()

    def close(self) -> None:
        """Close the environments."""
        self.worlds.close()


@dataclasses.dataclass
class Desk:
    """What learning works on, for the seeds of one program."""

    held: list[Any]
    """Leaves of learner and tally."""
    roots: Any


@dataclasses.dataclass(frozen=True)
class Block:
    """What was collected after ``ticks`` ticks and ``updates`` updates; ``memory`` is that before the first tick."""

    rows: Rows
    memory: PyTree
    ends: Rows
    ticks: np.int32
    updates: np.int32


def _cut(rows: PyTree, seeds: int) -> PyTree:
    """``[tick, seed * env, ...]`` to ``[seed, tick, env, ...]``."""
    return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(x.shape[0], seeds, -1, *x.shape[2:]), 1, 0), rows)


def _stack(rows: Rows) -> list[np.ndarray]:
    """Leaves ``[tick, seed * env, ...]``: in the learner's thread, as it takes a while."""
    return rows.stacked()
