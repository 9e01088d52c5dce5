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
from thespis.core.keys import fold, roots, world_seed
from thespis.core.records import View
from thespis.data.stores import store_for
from thespis.loops.clock import Clock
from thespis.loops.host_state import HostCarry, HostWorld
from thespis.loops.pace import FixedLag, Pace, Policies, delay, learner_thread, settled
from thespis.loops.parts import (
    Learner,
    Parts,
    Tally,
    act,
    empty_tally,
    init_learner,
    kinds_of_rows,
    learn,
    metric_names,
    with_array_leaves,
)
from thespis.runs.checkpoint import OPEN


class HostLoop:
    """Trains ``parts`` in ``seeds * envs`` host environments side by side."""

    kind = "host"

    def __init__(
        self,
        parts: Parts,
        environment: HostEnvironment,
        envs: int,
        seeds: list[int],
        steps: int,
        pace: Pace | None = None,
        jitter: float = 0.0,
    ):
        self.parts = with_array_leaves(parts)
        self.environment, self.spec, self.envs, self.seeds = environment, environment.spec, envs, seeds
        self.store = store_for(parts.method.feed, steps)
        self.pace, self.jitter = pace or FixedLag(self.store.feed.lag), jitter
        self.warmup = self.store.warmup_blocks(envs)
        self.block_steps = self.store.feed.ticks * envs
        self.metrics = metric_names(self.parts, self.spec, self.store, envs)
        self.clock = Clock("acting", "environment", "learning")
        self.timing = self.clock.seconds
        self._row, self._end = kinds_of_rows(self.parts, self.spec)
        self._act, self._policy = jax.jit(self._act_all), jax.jit(self._policies)
        self._learn = jax.jit(self._learn_all, static_argnames="train", donate_argnames="held")
        # how the bare leaves that the programs are given are put together
        self._fixed: Any = None
        self._held: Any = None

    # -- programs ------------------------------------------------------------------------------------------

    def _init_learners(self, seeds):
        learner = jax.vmap(lambda r: init_learner(self.parts, self.spec, self.store, self.envs, r))(seeds)
        tally = jax.vmap(lambda _: empty_tally(self.metrics))(seeds)
        policy = self._policies(self.parts, learner)
        memory = jax.vmap(lambda p: self.parts.method.begin(p, self.envs), axis_size=len(self.seeds))(policy)
        return learner, tally, policy, memory

    def _policies(self, parts, learner):
        return jax.vmap(lambda s: parts.method.policy(s, Mode.EXPLORE), axis_size=len(self.seeds))(learner.method)

    def _act_all(self, fixed, memory, view, first, tick):
        parts, policy, seeds = self._fixed.unflatten(fixed)

        def one(policy, memory, view, first, root):
            return act(parts, self.spec, policy, memory, View(*view), first, fold(root, "act", tick))

        shape = (len(self.seeds), self.envs)
        view, first = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), (view, first))
        sent, action, memory, extras = jax.vmap(one)(policy, memory, view, first, seeds)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (sent, action, extras))
        return *flat, memory

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
        policies, world, zero = (policy,) * (self.pace.lag + 1), self._begin(seeds, memory, 0), np.int32(0)
        return HostCarry(seeds, learner, tally, policies, world, zero, zero)

    def _begin(self, seeds: Any, memory: Any, ticks: int) -> HostWorld:
        """Fresh episodes everywhere, begun after ``ticks`` ticks."""
        world_seeds = [world_seed(fold(root, "worlds", ticks), i) for root in seeds for i in range(self.envs)]
        view, n = self.environment.start(world_seeds).view, len(world_seeds)
        return HostWorld(memory, view, np.ones(n, bool), np.zeros(n, np.float32), np.zeros(n, np.int32))

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: HostCarry, blocks: int) -> HostCarry:
        """Run ``blocks`` blocks; the carry given is used up. Warm-up blocks, which learn nothing, come first."""
        feed, world, ticks, updates = self.store.feed, carry.world, carry.ticks, carry.updates
        desk, self._held = jax.tree.flatten((carry.learner, carry.tally))
        given = [jax.tree.flatten((self.parts, policy, carry.roots)) for policy in carry.policies]
        policies: Policies = collections.deque(leaves for leaves, _ in given)
        self._fixed = given[0][1]
        with learner_thread(self.pace.lag) as thread:
            for _ in range(blocks):
                with self.clock.spent_on("learning"):
                    policy, memory = self.pace.take(policies), world.memory
                delay(self.jitter)
                world, rows, ends = self._collect(policy, world, ticks)
                train = int(ticks) // feed.ticks >= self.warmup
                with self.clock.spent_on("learning"):
                    learning = thread.submit(self._study, desk, policy, rows, memory, ends, ticks, updates, train=train)
                    policies.append(learning)
                updates = np.int32(updates + (feed.updates if train else 0))
                ticks = np.int32(ticks + feed.ticks)
            with self.clock.spent_on("learning"):
                newest = [self._fixed.unflatten(x)[1] for x in jax.block_until_ready(settled(policies, self.pace.lag))]
        learner, tally = self._held.unflatten(desk)
        return HostCarry(carry.roots, learner, tally, tuple(newest), world, ticks, updates)

    def _study(
        self, desk: list, fixed: list, rows: list, memory: PyTree, ends: list, *counted: Any, train: bool
    ) -> list:
        """Learn from one block, waiting for nothing: the desk's learner and tally are replaced. The newest policy."""
        delay(self.jitter)
        given = (desk[:], fixed, _stack(rows), memory, _stack(ends), *counted)
        desk[:], newest = self.clock.call(("learn", train), self._learn, *given, train=train)
        return newest

    def _collect(self, fixed: list, world: HostWorld, ticks: np.int32) -> tuple[HostWorld, list, list]:
        """One block of acting: the worlds after it, and the leaves of every tick's transitions and outcomes.

        Between the programs stand lists of arrays: building one record of ours takes longer than a step of many worlds.
        """
        memory, view, first = world.memory, (world.view.observation, world.view.legal), world.first
        returns, lengths = world.returns, world.lengths
        rows: list[list[Any]] = []
        ends: list[list[Any]] = []
        for t in range(self.store.feed.ticks):
            with self.clock.spent_on("acting"):
                given = (fixed, memory, view, first, np.int32(ticks + t))
                sent, action, extras, memory = self.clock.call("act", self._act, *given)
            with self.clock.spent_on("learning"):
                jax.block_until_ready(fixed if t == 0 else ())  # the policy may still be in the making
            with self.clock.spent_on("acting"):
                sent = jax.tree.map(np.asarray, sent)
            with self.clock.spent_on("environment"):
                step, following = self.environment.step(sent)
            ended = np.logical_or(step.terminated, step.truncated)
            led = (step.reward, step.terminated, step.truncated, (step.observation, step.legal))
            rows.append(jax.tree.leaves((view, action, *led, first, extras)))
            returns, lengths = returns + step.reward, lengths + np.int32(1)
            ends.append([ended, returns, lengths])
            view, first = (following.observation, following.legal), ended
            if ended.any():
                returns, lengths = np.where(ended, np.float32(0), returns), np.where(ended, np.int32(0), lengths)
        return HostWorld(memory, View(*view), first, returns, lengths), rows, ends

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
        return {"carry": carry, "worlds": self.environment.save()}

    def like(self) -> PyTree:
        """What a checkpoint of this loop looks like."""
        carry = self.init()
        saves = self.environment.save() is not None
        return {"carry": carry, "worlds": OPEN if saves else None}

    def restore(self, snapshot: PyTree) -> tuple[HostCarry, list[str]]:
        """The carry of a checkpoint, and what could not be restored."""
        saved: HostCarry = snapshot["carry"]
        device = (saved.roots, saved.learner, saved.tally, saved.policies, saved.world.memory)
        seeds, learner, tally, policies, memory = jax.tree.map(jnp.array, device)
        old, lost = saved.world, []
        world = HostWorld(memory, old.view, old.first, old.returns, old.lengths)
        if snapshot["worlds"] is None:
            count = len(self.seeds) * self.envs
            lost = [f"{count} environments of {self.spec.name} cannot save their state: new episodes"]
            world = self._begin(seeds, memory, int(saved.ticks))
        else:
            self.environment.load(snapshot["worlds"])
        return HostCarry(seeds, learner, tally, policies, world, np.int32(saved.ticks), np.int32(saved.updates)), lost

    def close(self) -> None:
        """Close the environments."""
        self.environment.close()


def _stack(rows: list[list[Any]]) -> list[np.ndarray]:
    """Leaves ``[seed * env, ...]`` of every tick to leaves ``[tick, seed * env, ...]``."""
    return [np.stack([np.asarray(leaf) for leaf in column]) for column in zip(*rows, strict=True)]
