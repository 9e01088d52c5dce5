"""Where a compiled loop's carry lies and runs: on one device, or shared out by seeds or by environments.

Seeds know nothing of each other: each device runs the program of a run with its seeds alone, bit for bit. Environments
of one seed share a learner: one program runs on all devices, and XLA adds up what each found of a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from thespis.core import apart
from thespis.core.errors import UserError
from thespis.core.keys import roots
from thespis.core.spread import DEVICES
from thespis.loops.clock import Clock


class Programs(NamedTuple):
    """What runs: ``init(roots)`` makes a carry, ``chunk(parts, carry, blocks, train=...)`` moves it on."""

    init: Callable[..., Any]
    chunk: Callable[..., Any]
    axes: PyTree
    """For each leaf of a carry, which of its axes counts environments; -1: none does."""
    seeds: list[int]


class Here:
    """Everything on JAX's own choice of a device."""

    def __init__(self, programs: Programs):
        self.programs = programs
        self._begin, self._chunk = jax.jit(programs.init), _donating(programs.chunk)

    def begin(self, worker: int) -> PyTree:
        """A fresh carry."""
        return self._begin(roots(self.programs.seeds, worker))

    def place(self, whole: PyTree) -> PyTree:
        """A copy, as what is given may lie where it cannot be donated."""
        return apart.placed(whole, 1)

    def run(self, clock: Clock, parts: PyTree, carry: PyTree, blocks: int, *, train: bool) -> PyTree:
        """The carry ``blocks`` later."""
        return clock.call(train, self._chunk, parts, carry, jnp.asarray(blocks, "int32"), train=train)


class SeedsInTurn:
    """Each seed has buffers and a program call of its own, as many at a time as there are cores."""

    def __init__(self, programs: Programs):
        self.programs, self._threads = programs, apart.threads("seed")
        self._begin, self._chunk = jax.jit(programs.init), _donating(programs.chunk)

    def begin(self, worker: int) -> PyTree:
        """A fresh carry."""
        return apart.joined([self._begin(roots([seed], worker)) for seed in self.programs.seeds])

    def place(self, whole: PyTree) -> PyTree:
        """Each seed copied to buffers of its own."""
        return apart.placed(whole, len(self.programs.seeds))

    def run(self, clock: Clock, parts: PyTree, carry: PyTree, blocks: int, *, train: bool) -> PyTree:
        """The carry ``blocks`` later."""

        def go(piece: PyTree) -> PyTree:
            given = (parts, piece, jnp.asarray(blocks, "int32"))
            return jax.block_until_ready(clock.call(train, self._chunk, *given, train=train))

        return apart.joined(apart.in_turn(self._threads, go, apart.pieces(carry, len(self.programs.seeds))))


class SeedsApart:
    """Each device has its share of the seeds and a program of its own; none waits for another."""

    def __init__(self, programs: Programs, mesh: Mesh):
        self.programs, self.mesh = programs, mesh
        self._begin, self._chunk = jax.jit(programs.init), _donating(programs.chunk)
        devices = list(mesh.devices.flat)
        self.mine = [(i, device) for i, device in enumerate(devices) if device.process_index == jax.process_index()]

    def begin(self, worker: int) -> PyTree:
        """A fresh carry."""
        share = len(self.programs.seeds) // self.mesh.size
        keys = [roots(self.programs.seeds[i * share : (i + 1) * share], worker) for i, _ in self.mine]
        return self._joined([self._begin(jax.device_put(k, d)) for k, (_, d) in zip(keys, self.mine, strict=True)])

    def place(self, whole: PyTree) -> PyTree:
        """Each device's seeds, copied to it."""
        share = len(self.programs.seeds) // self.mesh.size

        def cut(leaf: Any, i: int, device: Any) -> Any:
            return jax.device_put(jnp.array(leaf[i * share : (i + 1) * share] if leaf.ndim else leaf), device)

        return self._joined([jax.tree.map(lambda x, i=i, d=d: cut(x, i, d), whole) for i, d in self.mine])

    def run(self, clock: Clock, parts: PyTree, carry: PyTree, blocks: int, *, train: bool) -> PyTree:
        """The carry ``blocks`` later."""

        def go(device: Any, piece: PyTree) -> PyTree:
            given = (parts, piece, np.int32(blocks))
            return jax.block_until_ready(clock.call((train, device.id), self._chunk, *given, train=train))

        with ThreadPoolExecutor(len(self.mine), "device") as threads:
            return self._joined(list(threads.map(go, [device for _, device in self.mine], self._pieces(carry))))

    def _pieces(self, carry: PyTree) -> list[PyTree]:
        """What lies on each of this process's devices; nothing is copied."""
        leaves, tree = jax.tree.flatten(carry)
        held = [{shard.device: shard.data for shard in leaf.addressable_shards} for leaf in leaves]
        return [tree.unflatten([leaf[device] for leaf in held]) for _, device in self.mine]

    def _joined(self, pieces: list[PyTree]) -> PyTree:
        """One carry of arrays that lie on many devices; nothing is copied."""
        by_seed, same = (NamedSharding(self.mesh, PartitionSpec(*axes)) for axes in ((DEVICES,), ()))

        def leaf(*parts: Any) -> jax.Array:
            shape = (len(self.programs.seeds), *parts[0].shape[1:]) if parts[0].ndim else ()
            return jax.make_array_from_single_device_arrays(shape, by_seed if shape else same, list(parts))

        return jax.tree.map(leaf, *pieces)


class EnvironmentsApart:
    """Each device has its share of every seed's environments, replay included, and all of the learner."""

    def __init__(self, programs: Programs, mesh: Mesh):
        def sharding(axis: int) -> NamedSharding:
            return NamedSharding(mesh, PartitionSpec(*[*[None] * axis, DEVICES] if axis >= 0 else ()))

        self.programs, self.mesh = programs, mesh
        self.shardings = jax.tree.map(sharding, programs.axes)
        self._chunk = _donating(programs.chunk, out_shardings=self.shardings)

    def begin(self, worker: int) -> PyTree:
        """A fresh carry."""
        seeds = self.programs.seeds
        return jax.jit(lambda: self.programs.init(roots(seeds, worker)), out_shardings=self.shardings)()

    def place(self, whole: PyTree) -> PyTree:
        """Each device's environments, copied to it."""

        def cut(leaf: Any, to: NamedSharding) -> jax.Array:
            shares = to.addressable_devices_indices_map(leaf.shape).items()
            pieces = [jax.device_put(jnp.array(leaf[index]), device) for device, index in shares]
            return jax.make_array_from_single_device_arrays(leaf.shape, to, pieces)

        return jax.tree.map(cut, whole, self.shardings)

    def run(self, clock: Clock, parts: PyTree, carry: PyTree, blocks: int, *, train: bool) -> PyTree:
        """The carry ``blocks`` later."""
        given = (jax.tree.map(np.asarray, parts), carry, np.int32(blocks))
        with jax.set_mesh(self.mesh):
            return clock.call(train, self._chunk, *given, train=train)


Placement = Here | SeedsInTurn | SeedsApart | EnvironmentsApart
"""How the programs of a loop run: ``begin(worker)``, ``place(whole)`` and ``run`` mean the same for all."""


def _donating(chunk: Callable[..., Any], **more: Any) -> Any:
    return jax.jit(chunk, static_argnames="train", donate_argnames="carry", **more)


def placement(programs: Programs, envs: int, count: int) -> Placement:
    """How to run on ``count`` devices: seeds apart if they divide by the devices, else environments.

    Raises:
        UserError: if there are fewer devices, or neither seeds nor environments divide by them.
    """
    if count == 1 and jax.process_count() == 1:
        return Here(programs) if apart.programs(len(programs.seeds)) == 1 else SeedsInTurn(programs)
    mesh = _mesh(count)
    if len(programs.seeds) % count == 0:
        return SeedsApart(programs, mesh)
    if envs % count == 0:
        return EnvironmentsApart(programs, mesh)
    raise UserError(
        f"{len(programs.seeds)} seeds of {envs} environments cannot be shared out to {count} devices: "
        f"--envs or --seeds must be a multiple of {count}"
    )


def _mesh(count: int) -> Mesh:
    """The first ``count`` devices, as many of every process."""
    found, processes = jax.devices(), jax.process_count()
    if not 1 <= count <= len(found):
        flag = f"; XLA_FLAGS=--xla_force_host_platform_device_count={count} cuts the CPU into that many"
        there = f"{len(found)} {found[0].platform} device" + "s" * (len(found) > 1)
        hint = flag if found[0].platform == "cpu" and count > 0 else ""
        raise UserError(f"--devices {count} asks for another number of devices than there are, {there}{hint}")
    each = [[device for device in found if device.process_index == p][: count // processes] for p in range(processes)]
    used = [device for own in each for device in own]
    if len(used) < count:
        raise UserError(f"{processes} processes cannot have {count} devices, as many each: --devices N, a multiple")
    return Mesh(np.array(used), (DEVICES,), axis_types=(AxisType.Auto,))
