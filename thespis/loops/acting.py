"""Acting in host worlds: whoever owns the worlds collects a block of experience in them. Here it is this process."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core.apart import each
from thespis.core.contracts import HostEnvironment, Mode
from thespis.core.keys import fold, key_of, world_seed
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.loops.clock import Clock
from thespis.loops.host_state import HostWorld
from thespis.loops.parts import Parts, act


@runtime_checkable
class Rows(Protocol):
    """One kind of row of a block, transitions or outcomes, as it was collected."""

    def stacked(self) -> list[np.ndarray]:
        """Leaves ``[tick, seed * env, ...]``."""
        ...


@runtime_checkable
class Worlds(Protocol):
    """Who owns the worlds of all seeds, and acts in them."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one world."""
        ...

    def begin(self, roots: Any, memory: Any, ticks: int) -> HostWorld:
        """Fresh episodes everywhere, begun after ``ticks`` ticks."""
        ...

    def collect(self, fixed: list, world: HostWorld, ticks: np.int32, clock: Clock) -> tuple[HostWorld, Rows, Rows]:
        """One block from ``world`` on: the worlds after it, transitions, and outcomes.

        ``fixed``: leaves of parts, policies and roots, as :func:`acting_shapes` puts them together.
        """
        ...

    def save(self) -> dict[str, Any] | None:
        """What the worlds will do next, as named arrays; ``None`` if they cannot tell."""
        ...

    def load(self, saved: dict[str, Any] | None, roots: Any, world: HostWorld, ticks: int) -> tuple[HostWorld, int]:
        """``world`` put back to where :meth:`save` found it, and how many environments begin new episodes instead."""
        ...

    def news(self) -> list[str]:
        """What the user should know of the last blocks, a line each, told once."""
        ...

    def close(self) -> None:
        """Release the worlds."""
        ...


@runtime_checkable
class Telling(Protocol):
    """Worlds that survive what goes wrong in some of them, and say so."""

    def news(self) -> list[str]:
        """What has happened since the last call, a line each."""
        ...


@dataclasses.dataclass(frozen=True)
class Ticks:
    """Rows of one process: a list of leaves ``[seed * env, ...]`` for every tick."""

    leaves: list[list[Any]]

    def stacked(self) -> list[np.ndarray]:
        """Leaves ``[tick, seed * env, ...]``."""
        return [np.stack([np.asarray(leaf) for leaf in column]) for column in zip(*self.leaves, strict=True)]


def acting_shapes(parts: Parts, spec: EnvSpec) -> tuple[Parts, PyTree, Any]:
    """How the leaves that acting is given are put together: parts, policies, roots. Shapes are those of one seed."""

    def example(key):
        return parts, parts.method.policy(parts.method.init(spec, key), Mode.EXPLORE), key

    return jax.eval_shape(example, key_of(0))


class WorldsHere:
    """Worlds of this process, ``envs`` for each of ``seeds`` seeds; a block is ``length`` ticks.

    With a ``group`` every block begins fresh episodes everywhere, and so many worlds in a row begin alike.

    Worker ``number`` holds its own share of a run's worlds: they begin as those of the same index would in one
    process, and their actions are drawn from keys of the worker's own. Number 0 draws as one process alone does.
    """

    def __init__(
        self, parts: Parts, environment: HostEnvironment, envs: int, seeds: int, length: int, number: int = 0,
        group: int = 0,
    ):  # fmt: skip
        self.environment, self.spec, self.envs, self.seeds = environment, environment.spec, envs, seeds
        self.length, self.number, self.group = length, number, group
        self._fixed = jax.tree.structure(acting_shapes(parts, self.spec))
        self._act = jax.jit(self._act_all)

    def _act_all(self, fixed, memory, view, first, tick):
        parts, policy, roots = self._fixed.unflatten(fixed)

        def one(policy, memory, view, first, root):
            root = fold(root, "worker", self.number) if self.number else root
            return act(parts, self.spec, policy, memory, View(*view), first, fold(root, "act", tick))

        shape = (self.seeds, self.envs)
        view, first = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), (view, first))
        sent, action, memory, extras = each(one, policy, memory, view, first, roots)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (sent, action, extras))
        return *flat, memory

    def begin(self, roots: Any, memory: Any, ticks: int) -> HostWorld:
        """Fresh episodes everywhere, begun after ``ticks`` ticks."""
        mine = range(self.number * self.envs, (self.number + 1) * self.envs)
        alike = max(self.group, 1)
        world_seeds = [world_seed(fold(root, "worlds", ticks), i // alike) for root in roots for i in mine]
        view, n = self.environment.start(world_seeds).view, len(world_seeds)
        return HostWorld(memory, view, np.ones(n, bool), np.zeros(n, np.float32), np.zeros(n, np.int32))

    def collect(self, fixed: list, world: HostWorld, ticks: np.int32, clock: Clock) -> tuple[HostWorld, Ticks, Ticks]:
        """One block of acting: the worlds after it, and the leaves of every tick's transitions and outcomes.

        Between the programs stand lists of arrays: building one record of ours takes longer than a step of many worlds.
        """
        if self.group:
            world = self.begin(self._fixed.unflatten(fixed)[2], world.memory, int(ticks))
        memory, view, first = world.memory, _bare(world.view), world.first
        returns, lengths = world.returns, world.lengths
        rows: list[list[Any]] = []
        ends: list[list[Any]] = []
        for t in range(self.length):
            with clock.spent_on("acting"):
                given = (fixed, memory, view, first, np.int32(ticks + t))
                sent, action, extras, memory = clock.call("act", self._act, *given)
            with clock.spent_on("learning"):
                jax.block_until_ready(fixed if t == 0 else ())  # the policy may still be in the making
            with clock.spent_on("acting"):
                sent = jax.tree.map(np.asarray, sent)
            with clock.spent_on("environment"):
                step, following = self.environment.step(sent)
            ended = np.logical_or(step.terminated, step.truncated)
            led = (step.reward, step.terminated, step.truncated, _bare(step))
            rows.append(jax.tree.leaves((view, action, *led, first, extras, step.each)))
            returns, lengths = returns + step.reward, lengths + np.int32(1)
            ends.append([ended, returns, lengths])
            view, first = _bare(following), ended
            if ended.any():
                returns, lengths = np.where(ended, np.float32(0), returns), np.where(ended, np.int32(0), lengths)
        return HostWorld(memory, View(*view), first, returns, lengths), Ticks(rows), Ticks(ends)

    def save(self) -> dict[str, Any] | None:
        """What the worlds will do next, as named arrays; ``None`` if they cannot tell."""
        return self.environment.save()

    def load(self, saved: dict[str, Any] | None, roots: Any, world: HostWorld, ticks: int) -> tuple[HostWorld, int]:
        """``world`` put back to where :meth:`save` found it, and how many environments begin new episodes instead."""
        if saved is not None:
            self.environment.load(saved)
        elif not self.group:  # with groups the next block begins new episodes anyway
            return self.begin(roots, world.memory, ticks), self.seeds * self.envs
        return world, 0

    def news(self) -> list[str]:
        """What the worlds have to tell, if they tell anything: what goes wrong here is an error."""
        return self.environment.news() if isinstance(self.environment, Telling) else []

    def close(self) -> None:
        """Close the environments."""
        self.environment.close()


def _bare(view: View | TimeStep) -> tuple[PyTree, ...]:
    """The fields of a view."""
    return view.observation, view.legal, view.alive, view.position
