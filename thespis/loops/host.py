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
from thespis.core.records import Outcomes, Transition, View
from thespis.data.stores import store_for
from thespis.loops.clock import Clock
from thespis.loops.pace import FixedLag, Pace, delay, learner_thread, settled
from thespis.loops.parts import (
    Learner,
    Parts,
    Tally,
    act,
    empty_tally,
    init_learner,
    learn,
    metric_names,
    with_array_leaves,
)
from thespis.runs.checkpoint import OPEN


class HostWorld(eqx.Module):
    """Where the environments stand, leaves ``[seed, env, ...]``: memory on the device, the rest in numpy."""

    memory: Any
    view: View
    first: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray


class HostCarry(eqx.Module):
    """The whole state of a run; leaves of ``learner``, ``tally`` and ``policies`` are ``[seed, ...]`` on the device."""

    roots: Any
    learner: Learner
    tally: Tally
    policies: tuple[PyTree, ...]
    world: HostWorld
    ticks: np.int32
    updates: np.int32


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
        self._act, self._policy = jax.jit(self._act_all), jax.jit(self._policies)
        self._learn = jax.jit(self._learn_all, static_argnames="train", donate_argnames=("learner", "tally"))

    # -- programs ------------------------------------------------------------------------------------------

    def _init_learners(self, seeds):
        learner = jax.vmap(lambda r: init_learner(self.parts, self.spec, self.store, self.envs, r))(seeds)
        tally = jax.vmap(lambda _: empty_tally(self.metrics))(seeds)
        policy = self._policies(self.parts, learner)
        memory = jax.vmap(lambda p: self.parts.method.begin(p, self.envs), axis_size=len(self.seeds))(policy)
        return learner, tally, policy, memory

    def _policies(self, parts, learner):
        return jax.vmap(lambda s: parts.method.policy(s, Mode.EXPLORE), axis_size=len(self.seeds))(learner.method)

    def _act_all(self, parts, policy, memory, view, first, seeds, tick):
        def one(policy, memory, view, first, root):
            return act(parts, self.spec, policy, memory, view, first, fold(root, "act", tick))

        return jax.vmap(one)(policy, memory, view, first, seeds)

    def _learn_all(self, parts, learner, tally, steps, memory, outcomes, seeds, ticks, updates, *, train):
        def one(learner, tally, steps, memory, outcomes, root):
            return learn(parts, self.store, learner, tally, steps, memory, outcomes, root, ticks, updates, train=train)

        learner, tally = jax.vmap(one)(learner, tally, steps, memory, outcomes, seeds)
        return learner, tally, self._policies(parts, learner)

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
        view = self._by_seed(self.environment.start(world_seeds).view)
        shape = (len(self.seeds), self.envs)
        return HostWorld(memory, view, np.ones(shape, bool), np.zeros(shape, np.float32), np.zeros(shape, np.int32))

    def _by_seed(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: np.asarray(x).reshape(len(self.seeds), self.envs, *np.shape(x)[1:]), tree)

    def _flat(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *np.shape(x)[2:]), tree)

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: HostCarry, blocks: int) -> HostCarry:
        """Run ``blocks`` blocks; the carry given is used up. Warm-up blocks, which learn nothing, come first."""
        feed, policies, world = self.store.feed, collections.deque(carry.policies), carry.world
        ticks, updates, desk = carry.ticks, carry.updates, [carry.learner, carry.tally]
        with learner_thread(self.pace.lag) as thread:
            for _ in range(blocks):
                with self.clock.spent_on("learning"):
                    policy, memory = self.pace.take(policies), world.memory
                delay(self.jitter)
                world, rows, ends = self._collect(policy, world, carry.roots, ticks)
                train = int(ticks) // feed.ticks >= self.warmup
                learning = (desk, rows, memory, ends, carry.roots, ticks, updates)
                with self.clock.spent_on("learning"):
                    policies.append(thread.submit(self._study, *learning, train=train))
                updates = np.int32(updates + (feed.updates if train else 0))
                ticks = np.int32(ticks + feed.ticks)
            with self.clock.spent_on("learning"):
                newest = settled(policies, self.pace.lag)
        return HostCarry(carry.roots, desk[0], desk[1], newest, world, ticks, updates)

    def _study(self, desk: list[PyTree], rows, memory, ends, *counted, train: bool) -> PyTree:
        """Learn from one block: what lies on the desk, learner and tally, is replaced. Returns the newest policy."""
        delay(self.jitter)
        given = (self.parts, *desk, _stack(rows), memory, _stack(ends), *counted)
        *desk[:], newest = self.clock.call(("learn", train), self._learn, *given, train=train)
        return jax.block_until_ready(newest)

    def _collect(self, policy: PyTree, world: HostWorld, seeds: Any, ticks: np.int32) -> tuple[HostWorld, list, list]:
        """One block of acting."""
        rows, ends = [], []
        for t in range(self.store.feed.ticks):
            world, row, end = self._tick(policy, world, seeds, np.int32(ticks + t))
            rows.append(row)
            ends.append(end)
        return world, rows, ends

    def _tick(self, policy: PyTree, world: HostWorld, seeds: Any, tick: np.int32) -> tuple[HostWorld, Any, Any]:
        with self.clock.spent_on("acting"):
            given = (policy, world.memory, world.view, world.first, seeds, tick)
            sent, action, memory, extras = self.clock.call("act", self._act, self.parts, *given)
            sent = self._flat(sent)
        with self.clock.spent_on("environment"):
            step, following = self.environment.step(sent)

        step, following = self._by_seed(step), self._by_seed(following)
        ended = step.terminated | step.truncated
        row = Transition(
            world.view, action, step.reward, step.terminated, step.truncated, step.view, world.first, extras
        )
        returns, lengths = world.returns + step.reward, world.lengths + 1
        end = Outcomes(ended, returns, lengths, ())
        returns = np.where(ended, np.float32(0), returns)
        lengths = np.where(ended, 0, lengths).astype(np.int32)
        return HostWorld(memory, following, ended, returns, lengths), row, end

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


def _stack(rows: list[PyTree]) -> PyTree:
    """Rows ``[seed, env, ...]``, one a tick, to ``[seed, tick, env, ...]``."""
    return jax.tree.map(lambda *x: np.stack([np.asarray(part) for part in x], axis=1), *rows)
