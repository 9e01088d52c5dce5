"""The logged loop: updates on a dataset that does not grow, scanned in chunks, seed by seed on CPUs, else vmapped.

One block is one update. The dataset is one long column of transitions, shared by all seeds; the feed says whether
windows, whole episodes or pairs of them are drawn from it. Windows are drawn as from replay, so a method fed by replay
runs on logged data unchanged.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core import apart
from thespis.core.errors import UserError
from thespis.core.feeds import Episodes, Rollouts
from thespis.core.keys import fold, key_of, roots
from thespis.core.records import Batch, EnvSpec, Report, Transition
from thespis.core.spaces import Text
from thespis.data.logged import Source, source_for
from thespis.loops.clock import Clock
from thespis.loops.devices import Programs, placement
from thespis.loops.parts import (
    Learner,
    Parts,
    Tally,
    collected_metrics,
    count_metrics,
    empty_tally,
    improve,
    learnt,
    with_array_leaves,
)


class LoggedCarry(eqx.Module):
    """The whole state of a run: leading axis ``[seed]``, but for the counter."""

    roots: Key[Array, " seed"]
    learner: Learner
    tally: Tally
    updates: Int[Array, ""]


class LoggedLoop:
    """Trains ``parts`` on ``steps``, transitions ``[time]`` with canonical actions.

    ``together``: how many episodes behind each other belong together, where the feed draws pairs; 0: those that begin
    alike.
    """

    kind = "logged"

    def __init__(self, parts: Parts, spec: EnvSpec, steps: Transition, seeds: list[int], together: int = 0):
        feed = parts.method.feed
        if isinstance(feed, Rollouts | Episodes):
            other = "sft" if isinstance(spec.action, Text) else "bc"
            raise UserError(
                f"this method learns from its own fresh rollouts and cannot learn from a dataset: use {other}"
            )
        self.parts, self.spec, self.seeds = with_array_leaves(parts), spec, seeds
        self.data = source_for(feed, steps, together)
        self.warmup, self.block_steps = 0, 1
        self.metrics = tuple(self._trace_metrics())
        self.clock = Clock("program")
        self.timing = self.clock.seconds
        self.placement = placement(Programs(self._init, self._chunk, (), seeds), 1, 1)

    def _trace_metrics(self) -> dict[str, Any]:
        def trace(data, root):
            learner = self._init_one(root)
            zero = jnp.zeros((), "int32")
            return self._update(self.parts, data, root, (learner.method, learner.feedback), zero)[2]

        return jax.eval_shape(trace, self.data, key_of(0))

    def shapes(self) -> LoggedCarry:
        """Shapes of the carry, nothing allocated."""
        return jax.eval_shape(self._init, roots(self.seeds))

    def init(self) -> LoggedCarry:
        """A fresh carry."""
        return jax.block_until_ready(self.placement.begin(0))

    def _init(self, seeds: Key[Array, " seed"]) -> LoggedCarry:
        learner = jax.vmap(self._init_one)(seeds)
        tally = jax.vmap(lambda _: empty_tally(self.metrics))(seeds)
        return LoggedCarry(seeds, learner, tally, jnp.zeros((), "int32"))

    def _init_one(self, root: Key[Array, ""]) -> Learner:
        method = self.parts.method.init(self.spec, fold(root, "method"))
        return Learner(method, self.parts.feedback.init(self.spec, fold(root, "feedback")), (), ())

    def _update(self, parts: Parts, data: Source, root, states, index):
        steps, mask = data.draw(fold(root, "batch", index))
        batch = Batch(steps, mask, (), index)
        method, feedback = states
        update_key, feedback_key = fold(root, "update", index), fold(root, "feedback", index)
        method, feedback, report, signal = improve(parts, method, feedback, batch, update_key, feedback_key)
        return (method, feedback), (report, signal), collected_metrics(report, signal, Report({}))

    def advance(self, carry: LoggedCarry, blocks: int) -> LoggedCarry:
        """Make ``blocks`` updates; the carry given is used up."""
        with self.clock.spent_on("program"):
            given = (self.parts, self.data)
            return jax.block_until_ready(self.placement.run(self.clock, given, carry, blocks, train=True))

    def _chunk(
        self, given: tuple[Parts, Source], carry: LoggedCarry, blocks: Int[Array, ""], *, train: bool
    ) -> LoggedCarry:
        parts, data = given

        def one(root, learner: Learner, tally: Tally, index):
            states, (report, signal), _ = self._update(parts, data, root, (learner.method, learner.feedback), index)
            return Learner(*states, (), ()), count_metrics(tally, report, signal, Report({}))

        def block(_, carry: LoggedCarry) -> LoggedCarry:
            step = jax.vmap(one, in_axes=(0, 0, 0, None))
            learner, tally = step(carry.roots, carry.learner, carry.tally, carry.updates)
            return LoggedCarry(carry.roots, learner, tally, carry.updates + 1)

        return jax.lax.fori_loop(0, blocks, block, carry)

    def steps(self, carry: LoggedCarry) -> int:
        """Updates so far: in this loop, that is what a step is."""
        return int(carry.updates)

    def take_tally(self, carry: LoggedCarry) -> tuple[LoggedCarry, Tally]:
        """The tally since the last call, on the host, and the carry with it cleared."""
        tally = jax.device_get(carry.tally)
        return eqx.tree_at(lambda c: c.tally, carry, jax.tree.map(apart.zeros_like, carry.tally)), tally

    def learner(self, carry: LoggedCarry) -> Learner:
        """All learnt states, leading axis ``[seed]``."""
        return learnt(carry.learner)

    def snapshot(self, carry: LoggedCarry) -> PyTree:
        """What a checkpoint holds: everything but the dataset."""
        return {"carry": carry}

    def like(self) -> PyTree:
        """What a checkpoint of this loop looks like."""
        return {"carry": self.shapes()}

    def restore(self, snapshot: PyTree) -> tuple[LoggedCarry, list[str]]:
        """The carry of a checkpoint, and what could not be restored: nothing."""
        return self.placement.place(snapshot["carry"]), []

    def news(self) -> list[str]:
        """Nothing: what goes wrong here is an error."""
        return []

    def close(self) -> None:
        """Nothing is held."""
