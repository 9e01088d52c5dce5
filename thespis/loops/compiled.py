"""The compiled loop: acting, storing and learning as one XLA program, in chunks, seed by seed on CPUs, else vmapped.

No host callback stands inside. The carry is donated, so a replay ring exists once. Between chunks the driver
looks at tallies, evaluates, saves.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core import apart
from thespis.core.contracts import Environment, Mode
from thespis.core.keys import fold, per_index, roots
from thespis.core.records import Each, Outcomes, Transition, View
from thespis.core.separate import separate
from thespis.data.stores import store_for
from thespis.loops.clock import Clock
from thespis.loops.devices import Programs, placement
from thespis.loops.parts import (
    Learner,
    Parts,
    Tally,
    act,
    empty_tally,
    init_learner,
    learn,
    learnt,
    metric_names,
    where,
    with_array_leaves,
)
from thespis.loops.processes import fetched


class World(eqx.Module):
    """Where the environments of one seed stand, leaves ``[env, ...]``."""

    state: PyTree
    view: View
    privileged: PyTree
    memory: Any
    first: Bool[Array, "*seed env"]
    returns: Float[Array, "*seed env"]
    lengths: Int[Array, "*seed env"]
    params: PyTree
    each: dict[str, Array] | None
    """Returns of every agent so far, by group ``[env, agent]``; ``None`` where there is one."""


class Carry(eqx.Module):
    """The whole state of a run: leading axis ``[seed]``, but for the two counters that all seeds share."""

    roots: Key[Array, " seed"]
    learner: Learner
    world: World
    tally: Tally
    ticks: Int[Array, ""]
    updates: Int[Array, ""]


class CompiledLoop:
    """Trains ``parts`` in a compiled environment."""

    kind = "compiled"

    def __init__(
        self, parts: Parts, environment: Environment, envs: int, seeds: list[int], steps: int, devices: int = 1
    ):
        self.parts = with_array_leaves(parts)
        self.environment, self.spec, self.envs, self.seeds = environment, environment.spec, envs, seeds
        self.store = store_for(parts.method.feed, steps)
        self.warmup = self.store.warmup_blocks(envs)
        self.block_steps = self.store.feed.ticks * envs
        self.metrics = metric_names(self.parts, self.spec, self.store, envs)
        self.clock = Clock("program")
        self.timing = self.clock.seconds
        self._reset, self._step = (separate(jax.vmap(f)) for f in (environment.reset, environment.step))
        self.placement = placement(Programs(self._init, self.chunk, self._axes(), seeds), envs, devices)

    # -- state ---------------------------------------------------------------------------------------------

    def shapes(self) -> Carry:
        """Shapes of the carry, nothing allocated."""
        return jax.eval_shape(self._init, roots(self.seeds))

    def init(self, worker: int = 0) -> Carry:
        """A fresh carry; another one for every ``worker``."""
        with self.clock.compiling():
            return jax.block_until_ready(self.placement.begin(worker))

    def _axes(self) -> Carry:
        """Which axis of each leaf of the carry counts environments; -1: none does."""
        counted = {".learner.store": 2, ".world": 1}

        def axis(where: tuple[Any, ...]) -> int:
            name = jax.tree_util.keystr(where)
            return next((axis for start, axis in counted.items() if name.startswith(start)), -1)

        return jax.tree_util.tree_map_with_path(lambda where, _: axis(where), self.shapes())

    def _init(self, seeds: Key[Array, " seed"]) -> Carry:
        learner, world = jax.vmap(self._init_one)(seeds)
        tally = jax.vmap(lambda _: empty_tally(self.metrics))(seeds)
        return Carry(seeds, learner, world, tally, jnp.zeros((), "int32"), jnp.zeros((), "int32"))

    def _init_one(self, root: Key[Array, ""]) -> tuple[Learner, World]:
        learner = init_learner(self.parts, self.spec, self.store, self.envs, root)
        memory = self.parts.method.begin(self.parts.method.policy(learner.method, Mode.EXPLORE), self.envs)
        return learner, self._begun(self.parts, learner.curriculum, root, jnp.zeros((), "int32"), memory)

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: Carry, blocks: int) -> Carry:
        """Run ``blocks`` blocks; the carry given is used up. Warm-up blocks, which learn nothing, come first."""
        done = int(carry.ticks) // self.store.feed.ticks
        warm = min(max(self.warmup - done, 0), blocks)
        for train, count in ((False, warm), (True, blocks - warm)):
            if count:
                with self.clock.spent_on("program"):
                    carry = self.placement.run(self.clock, self.parts, carry, count, train=train)
                    jax.block_until_ready(carry)
        self.store.check(carry.learner.store)
        return carry

    def chunk(self, parts: Parts, carry: Carry, blocks: Int[Array, ""], *, train: bool) -> Carry:
        """The program of :meth:`advance`: ``blocks`` blocks, of which all train or none."""
        return apart.each_in_place(lambda piece: self._chunk(parts, piece, blocks, train), carry, carry.roots.shape[0])

    def _chunk(self, parts: Parts, carry: Carry, blocks: Int[Array, ""], train: bool) -> Carry:
        feed = self.store.feed

        def block(_, carry: Carry) -> Carry:
            def one(root, learner, world, tally):
                return self._block(parts, root, learner, world, tally, carry.ticks, carry.updates, train)

            learner, world, tally = jax.vmap(one)(carry.roots, carry.learner, carry.world, carry.tally)
            updates = carry.updates + (feed.updates if train else 0)
            return Carry(carry.roots, learner, world, tally, carry.ticks + feed.ticks, updates)

        return jax.lax.fori_loop(0, blocks, block, carry)

    def _block(self, parts, root, learner, world, tally, ticks, updates, train):
        policy = parts.method.policy(learner.method, Mode.EXPLORE)
        if self.store.group:
            world = self._begun(parts, learner.curriculum, root, ticks, world.memory)
        memory = world.memory

        def tick(world, t):
            return self._tick(parts, root, policy, learner.curriculum, world, t)

        world, (steps, outcomes) = jax.lax.scan(tick, world, ticks + jnp.arange(self.store.feed.ticks))
        learner, tally = learn(
            parts, self.store, learner, tally, steps, memory, outcomes, root, ticks, updates, train=train
        )
        return learner, world, tally

    def _begun(self, parts: Parts, curriculum: PyTree, root: Key[Array, ""], ticks: Array, memory: Any) -> World:
        """Fresh episodes everywhere after ``ticks`` ticks; those of a group begin alike."""
        group = max(self.store.group, 1)
        beginnings = self.envs // group
        params = parts.curriculum.draw(curriculum, fold(root, "draw", ticks), beginnings)
        drawn = params, per_index(fold(root, "reset", ticks), beginnings)
        params, keys = jax.tree.map(lambda x: x[jnp.arange(self.envs) // group], drawn) if group > 1 else drawn
        state, step = self._reset(params, keys)
        n = self.envs
        each = {agents.name: jnp.zeros((n, agents.count)) for agents in self.spec.groups} or None
        return World(
            state, step.view, step.privileged, memory,
            jnp.ones(n, bool), jnp.zeros(n), jnp.zeros(n, "int32"), params, each,
        )  # fmt: skip

    def _tick(self, parts: Parts, root, policy, curriculum, world: World, t) -> tuple[World, Any]:
        sent, action, memory, extras = act(
            parts, self.spec, policy, world.memory, world.view, world.first, fold(root, "act", t)
        )
        keys = per_index(fold(root, "step", t), self.envs)
        state, step = self._step(world.state, sent, keys)
        transition = Transition(
            world.view, action, step.reward, step.terminated, step.truncated, step.view, world.first, extras,
            world.privileged, step.privileged, step.each,
        )  # fmt: skip
        returns, lengths = world.returns + step.reward, world.lengths + 1
        ended = transition.ended
        each = _with(world.each, step.each)
        outcomes = Outcomes(ended, returns, lengths, world.params, each=each)

        params = parts.curriculum.draw(curriculum, fold(root, "draw", t + 1), self.envs)
        reset_keys = per_index(fold(root, "reset", t + 1), self.envs)
        fresh_state, fresh = self._reset(params, reset_keys)
        state, view, privileged, params, each = where(
            ended,
            (fresh_state, fresh.view, fresh.privileged, params, jax.tree.map(jnp.zeros_like, each)),
            (state, step.view, step.privileged, world.params, each),
        )
        returns, lengths = jnp.where(ended, 0.0, returns), jnp.where(ended, 0, lengths)
        world = World(state, view, privileged, memory, ended, returns, lengths, params, each)
        return world, (transition, outcomes)

    # -- what the driver reads -----------------------------------------------------------------------------

    def steps(self, carry: Carry) -> int:
        """Environment steps per seed so far."""
        return int(carry.ticks) * self.envs

    def take_tally(self, carry: Carry) -> tuple[Carry, Tally]:
        """The tally since the last call, on the host, and the carry with it cleared."""
        tally = jax.device_get(fetched(carry.tally))
        return eqx.tree_at(lambda c: c.tally, carry, jax.tree.map(apart.zeros_like, carry.tally)), tally

    def learner(self, carry: Carry) -> Learner:
        """All learnt states, leading axis ``[seed]``; what is stored stays where it lies."""
        return learnt(carry.learner)

    def snapshot(self, carry: Carry) -> PyTree:
        """What a checkpoint holds: everything."""
        return {"carry": carry}

    def like(self) -> PyTree:
        """What a checkpoint of this loop looks like."""
        return {"carry": self.shapes()}

    def restore(self, snapshot: PyTree) -> tuple[Carry, list[str]]:
        """The carry of a checkpoint, and what could not be restored: nothing."""
        return self.placement.place(snapshot["carry"]), []

    def news(self) -> list[str]:
        """Nothing: what goes wrong here is an error."""
        return []

    def close(self) -> None:
        """Nothing is held."""


def _with(sums: dict[str, Array] | None, each: dict[str, Each] | None) -> dict[str, Array] | None:
    """Returns of every agent, a step's rewards added; nothing where there is one agent."""
    return None if sums is None or each is None else {name: sums[name] + each[name].reward for name in sums}
