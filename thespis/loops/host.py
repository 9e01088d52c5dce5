"""The host loop: environments outside JAX step while the learner learns.

Acting and learning are two jitted programs, vmapped over seeds as in the compiled loop, and both use the same
functions. The acting policy is a fixed number of blocks (``lag``) behind the learner, so what is learnt never
depends on which of the two finishes first.
"""

from __future__ import annotations

import collections
import time
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
        lag: int | None = None,
    ):
        self.parts = with_array_leaves(parts)
        self.environment, self.spec, self.envs, self.seeds = environment, environment.spec, envs, seeds
        self.store = store_for(parts.method.feed, steps)
        self.lag = self.store.feed.lag if lag is None else lag
        self.warmup = self.store.warmup_blocks(envs)
        self.block_steps = self.store.feed.ticks * envs
        self.metrics = metric_names(self.parts, self.spec, self.store, envs)
        self.timing = {"compile": 0.0, "acting": 0.0, "environment": 0.0, "learning": 0.0}
        self._act = jax.jit(self._act_all)
        self._learn = jax.jit(self._learn_all, static_argnames="train", donate_argnames=("learner", "tally"))
        self._compiled: dict[Any, Any] = {}

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

    def _call(self, name: Any, jitted: Any, *args: Any, **static: Any) -> Any:
        """Call a program compiled ahead, so that compile time is known apart."""
        if name not in self._compiled:
            began = time.perf_counter()
            self._compiled[name] = jitted.lower(*args, **static).compile()
            seconds = time.perf_counter() - began
            self.timing["compile"] += seconds
            self.timing["acting" if name == "act" else "learning"] -= seconds
        return self._compiled[name](*args)

    # -- state ---------------------------------------------------------------------------------------------

    def shapes(self) -> PyTree:
        """Shapes of what lives on the device, nothing allocated."""
        return jax.eval_shape(self._init_learners, roots(self.seeds))

    def init(self) -> HostCarry:
        """A fresh carry; every world begins an episode."""
        began = time.perf_counter()
        seeds = roots(self.seeds)
        learner, tally, policy, memory = jax.block_until_ready(jax.jit(self._init_learners)(seeds))
        self.timing["compile"] += time.perf_counter() - began
        zero = np.int32(0)
        return HostCarry(seeds, learner, tally, (policy,) * (self.lag + 1), self._begin(seeds, memory, 0), zero, zero)

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
        for _ in range(blocks):
            carry = self._block(carry)
        return carry

    def _block(self, carry: HostCarry) -> HostCarry:
        feed = self.store.feed
        policies = collections.deque(carry.policies)
        policy, world = policies.popleft(), carry.world
        rows, ends = [], []
        for t in range(feed.ticks):
            world, row, end = self._tick(policy, world, carry.roots, np.int32(carry.ticks + t))
            rows.append(row)
            ends.append(end)

        began = time.perf_counter()
        train = int(carry.ticks) // feed.ticks >= self.warmup
        learner, tally, newest = self._call(
            ("learn", train), self._learn, self.parts, carry.learner, carry.tally, _stack(rows), carry.world.memory,
            _stack(ends), carry.roots, carry.ticks, carry.updates, train=train,
        )  # fmt: skip
        if self.lag == 0:
            jax.block_until_ready(newest)
        self.timing["learning"] += time.perf_counter() - began
        policies.append(newest)
        updates = np.int32(carry.updates + (feed.updates if train else 0))
        ticks = np.int32(carry.ticks + feed.ticks)
        return HostCarry(carry.roots, learner, tally, tuple(policies), world, ticks, updates)

    def _tick(self, policy: PyTree, world: HostWorld, seeds: Any, tick: np.int32) -> tuple[HostWorld, Any, Any]:
        began = time.perf_counter()
        sent, action, memory, extras = self._call(
            "act", self._act, self.parts, policy, world.memory, world.view, world.first, seeds, tick
        )
        sent = self._flat(sent)
        acted = time.perf_counter()
        step, following = self.environment.step(sent)
        self.timing["acting"] += acted - began
        self.timing["environment"] += time.perf_counter() - acted

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
