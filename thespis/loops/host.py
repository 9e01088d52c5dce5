"""The host loop: environments outside JAX step while the learner learns.

Acting and learning are two jitted programs, vmapped over seeds as in the compiled loop, and both use the same
functions. Unless the pace says otherwise, the acting policy is a fixed number of blocks (``lag``) behind the learner,
so what is learnt never depends on which of the two finishes first.
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
        self._policy = jax.jit(self._policies)
        self._learn = jax.jit(self._learn_all, static_argnames="train", donate_argnames="held")
        # how the bare leaves that the programs are given are put together
        self._fixed = jax.tree.structure(acting_shapes(self.parts, self.spec))
        self._held: Any = None

    def _here(self, worlds: HostEnvironment) -> Worlds:
        return WorldsHere(self.parts, worlds, self.envs, len(self.seeds), self.store.feed.ticks)

    # -- programs ------------------------------------------------------------------------------------------

    def _init_learners(self, seeds):
        learner = jax.vmap(lambda r: init_learner(self.parts, self.spec, self.store, self.envs, r))(seeds)
        tally = jax.vmap(lambda _: empty_tally(self.metrics))(seeds)
        policy = self._policies(self.parts, learner)
        memory = jax.vmap(lambda p: self.parts.method.begin(p, self.envs), axis_size=len(self.seeds))(policy)
        return learner, tally, policy, memory

    def _policies(self, parts, learner):
        return jax.vmap(lambda s: parts.method.policy(s, Mode.EXPLORE), axis_size=len(self.seeds))(learner.method)

    def _learn_all(self, held, fixed, rows, memory, ends, ticks, updates, *, train):
        parts, _, seeds = self._fixed.unflatten(fixed)

        def one(learner, tally, steps, memory, outcomes, root):
            return learn(parts, self.store, learner, tally, steps, memory, outcomes, root, ticks, updates, train=train)

        steps, outcomes = self._cut(self._row.unflatten(rows)), self._cut(self._end.unflatten(ends))
        learner, tally = self._held.unflatten(held)
        learner, tally = jax.vmap(one)(learner, tally, steps, memory, outcomes, seeds)
        return jax.tree.leaves((learner, tally)), jax.tree.leaves((parts, self._policies(parts, learner), seeds))

    def _cut(self, rows):
        """``[tick, seed * env, ...]`` to ``[seed, tick, env, ...]``."""
        shape = (len(self.seeds), self.envs)
        return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(x.shape[0], *shape, *x.shape[2:]), 1, 0), rows)

    # -- state ---------------------------------------------------------------------------------------------

    def shapes(self) -> PyTree:
        """Shapes of what lives on the device, nothing allocated."""
        return jax.eval_shape(self._init_learners, roots(self.seeds))

    def init(self, worker: int = 0) -> HostCarry:
        """A fresh carry, another one for every ``worker``; every world begins an episode."""
        seeds = roots(self.seeds, worker)
        with self.clock.compiling():
            learner, tally, policy, memory = jax.block_until_ready(jax.jit(self._init_learners)(seeds))
        policies, world, zero = (policy,) * (self.pace.lag + 1), self.worlds.begin(seeds, memory, 0), np.int32(0)
        return HostCarry(seeds, learner, tally, policies, world, zero, zero)

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: HostCarry, blocks: int) -> HostCarry:
        """Run ``blocks`` blocks; the carry given is used up. Warm-up blocks, which learn nothing, come first."""
        feed, world, ticks, updates = self.store.feed, carry.world, carry.ticks, carry.updates
        desk, self._held = jax.tree.flatten((carry.learner, carry.tally))
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
                    learning = thread.submit(self._study, desk, policy, rows, memory, ends, ticks, updates, train=train)
                    policies.append(learning)
                updates = np.int32(updates + (feed.updates if train else 0))
                ticks = np.int32(ticks + feed.ticks)
            with self.clock.spent_on("learning"):
                newest = [self._fixed.unflatten(x)[1] for x in jax.block_until_ready(settled(policies, self.pace.lag))]
        learner, tally = self._held.unflatten(desk)
        self.store.check(learner.store)
        return HostCarry(carry.roots, learner, tally, tuple(newest), world, ticks, updates)

    def _study(
        self, desk: list, fixed: list, rows: Rows, memory: PyTree, ends: Rows, *counted: Any, train: bool
    ) -> list:
        """Learn from one block, waiting for nothing: the desk's learner and tally are replaced. The newest policy."""
        delay(self.jitter)
        given = (desk[:], fixed, _stack(rows), memory, _stack(ends), *counted)
        desk[:], newest = self.clock.call(("learn", train), self._learn, *given, train=train)
        return newest

    def taught(self, carry: HostCarry, learner: Learner) -> HostCarry:
        """The carry with another learner, who also acts."""
        policy = self.clock.call("policy", self._policy, self.parts, learner)
        return dataclasses.replace(carry, learner=learner, policies=(policy,) * (self.pace.lag + 1))

    # -- what the driver reads -----------------------------------------------------------------------------

    def steps(self, carry: HostCarry) -> int:
        """Environment steps per seed so far."""
        return int(carry.ticks) * self.envs

    def take_tally(self, carry: HostCarry) -> tuple[HostCarry, Tally]:
        """The tally since the last call, on the host, and the carry with it cleared."""
        tally = jax.device_get(carry.tally)
        return eqx.tree_at(lambda c: c.tally, carry, jax.tree.map(jnp.zeros_like, carry.tally)), tally

    def learner(self, carry: HostCarry) -> Learner:
        """All learnt states, leading axis ``[seed]``."""
        return carry.learner

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
        device = (saved.roots, saved.learner, saved.tally, saved.policies, saved.world.memory)
        seeds, learner, tally, policies, memory = jax.tree.map(jnp.array, device)
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


def _stack(rows: Rows) -> list[np.ndarray]:
    """Leaves ``[tick, seed * env, ...]``: in the learner's thread, as it takes a while."""
    return rows.stacked()
