"""Placement of the compiled loop on devices: one device, sharded by seeds, or sharded by environments.

Seeds are independent: each device runs an ordinary program with its own seeds, bit for bit. Environments
of one seed share a learner: one program runs on all devices, and XLA sums their gradients.
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

from thespis.core.errors import UserError
from thespis.runtime import vmap_exact
from thespis.runtime.keys import root_keys
from thespis.runtime.timer import PhaseTimer
from thespis.runtime.vmap_exact import DEVICE_AXIS


class LoopPrograms(NamedTuple):
    """Compiled programs of a loop.

    ``init(root_keys)`` makes a carry, ``chunk(components, carry, blocks, train=...)`` runs it.
    """

    init: Callable[..., Any]
    chunk: Callable[..., Any]
    env_axes: PyTree
    """For each leaf of a carry, the axis that indexes environments; -1: none."""
    seeds: list[int]


class SingleDevice:
    """Placement on one device: all seeds in one program on JAX's default device."""

    def __init__(self, programs: LoopPrograms):
        self.programs = programs
        self._begin, self._chunk = jax.jit(programs.init), _jit_donating(programs.chunk)

    def init(self, worker: int) -> PyTree:
        """The loop carry before the first step."""
        return self._begin(root_keys(self.programs.seeds, worker))

    def place(self, carry: PyTree) -> PyTree:
        """A copy of the carry, as the original may not be donatable."""
        return vmap_exact.copy_per_seed(carry, 1)

    def run(self, timer: PhaseTimer, components: PyTree, carry: PyTree, blocks: int, *, train: bool) -> PyTree:
        """The carry after ``blocks`` more blocks."""
        return timer.call_compiled(train, self._chunk, components, carry, jnp.asarray(blocks, "int32"), train=train)


class SeedThreads:
    """Placement in threads: one program call and own buffers for each seed, as many at a time as there are cores."""

    def __init__(self, programs: LoopPrograms):
        self.programs, self._threads = programs, vmap_exact.thread_pool("seed")
        self._begin, self._chunk = jax.jit(programs.init), _jit_donating(programs.chunk)

    def init(self, worker: int) -> PyTree:
        """The loop carry before the first step."""
        return vmap_exact.join_seeds([self._begin(root_keys([seed], worker)) for seed in self.programs.seeds])

    def place(self, carry: PyTree) -> PyTree:
        """The carry with each seed copied to buffers of its own."""
        return vmap_exact.copy_per_seed(carry, len(self.programs.seeds))

    def run(self, timer: PhaseTimer, components: PyTree, carry: PyTree, blocks: int, *, train: bool) -> PyTree:
        """The carry after ``blocks`` more blocks."""

        def run_seed(piece: PyTree) -> PyTree:
            args = (components, piece, jnp.asarray(blocks, "int32"))
            return jax.block_until_ready(timer.call_compiled(train, self._chunk, *args, train=train))

        return vmap_exact.join_seeds(
            vmap_exact.thread_map(self._threads, run_seed, vmap_exact.split_seeds(carry, len(self.programs.seeds)))
        )


class SeedSharding:
    """Placement by seeds: they are split among devices, with one program for each device; none waits for another."""

    def __init__(self, programs: LoopPrograms, mesh: Mesh):
        self.programs, self.mesh = programs, mesh
        self._begin, self._chunk = jax.jit(programs.init), _jit_donating(programs.chunk)
        devices = list(mesh.devices.flat)
        self.local_devices = [
            (i, device) for i, device in enumerate(devices) if device.process_index == jax.process_index()
        ]

    def init(self, worker: int) -> PyTree:
        """The loop carry before the first step."""
        share = len(self.programs.seeds) // self.mesh.size
        keys = [root_keys(self.programs.seeds[i * share : (i + 1) * share], worker) for i, _ in self.local_devices]
        return self._joined(
            [self._begin(jax.device_put(k, d)) for k, (_, d) in zip(keys, self.local_devices, strict=True)]
        )

    def place(self, carry: PyTree) -> PyTree:
        """The carry with each device's seeds copied to it."""
        share = len(self.programs.seeds) // self.mesh.size

        def cut(leaf: Any, i: int, device: Any) -> Any:
            return jax.device_put(jnp.array(leaf[i * share : (i + 1) * share] if leaf.ndim else leaf), device)

        return self._joined([jax.tree.map(lambda x, i=i, d=d: cut(x, i, d), carry) for i, d in self.local_devices])

    def run(self, timer: PhaseTimer, components: PyTree, carry: PyTree, blocks: int, *, train: bool) -> PyTree:
        """The carry after ``blocks`` more blocks."""

        def run_device(device: Any, piece: PyTree) -> PyTree:
            args = (components, piece, np.int32(blocks))
            return jax.block_until_ready(timer.call_compiled((train, device.id), self._chunk, *args, train=train))

        with ThreadPoolExecutor(len(self.local_devices), "device") as threads:
            return self._joined(
                list(threads.map(run_device, [device for _, device in self.local_devices], self._pieces(carry)))
            )

    def _pieces(self, carry: PyTree) -> list[PyTree]:
        """The parts of the carry on this process's devices; nothing is copied."""
        leaves, tree = jax.tree.flatten(carry)
        shards = [{shard.device: shard.data for shard in leaf.addressable_shards} for leaf in leaves]
        return [tree.unflatten([leaf[device] for leaf in shards]) for _, device in self.local_devices]

    def _joined(self, pieces: list[PyTree]) -> PyTree:
        """One carry of arrays sharded by seed; nothing is copied."""
        by_seed, same = (NamedSharding(self.mesh, PartitionSpec(*axes)) for axes in ((DEVICE_AXIS,), ()))

        def leaf(*parts: Any) -> jax.Array:
            shape = (len(self.programs.seeds), *parts[0].shape[1:]) if parts[0].ndim else ()
            return jax.make_array_from_single_device_arrays(shape, by_seed if shape else same, list(parts))

        return jax.tree.map(leaf, *pieces)


class EnvSharding:
    """Placement by environments: those of every seed (and replay) are split among devices.

    The learner is replicated.
    """

    def __init__(self, programs: LoopPrograms, mesh: Mesh):
        def sharding(axis: int) -> NamedSharding:
            return NamedSharding(mesh, PartitionSpec(*[*[None] * axis, DEVICE_AXIS] if axis >= 0 else ()))

        self.programs, self.mesh = programs, mesh
        self.shardings = jax.tree.map(sharding, programs.env_axes)
        self._chunk = _jit_donating(programs.chunk, out_shardings=self.shardings)

    def init(self, worker: int) -> PyTree:
        """The loop carry before the first step."""
        seeds = self.programs.seeds
        return jax.jit(lambda: self.programs.init(root_keys(seeds, worker)), out_shardings=self.shardings)()

    def place(self, carry: PyTree) -> PyTree:
        """The carry with each device's environments copied to it."""

        def cut(leaf: Any, to: NamedSharding) -> jax.Array:
            shares = to.addressable_devices_indices_map(leaf.shape).items()
            pieces = [jax.device_put(jnp.array(leaf[index]), device) for device, index in shares]
            return jax.make_array_from_single_device_arrays(leaf.shape, to, pieces)

        return jax.tree.map(cut, carry, self.shardings)

    def run(self, timer: PhaseTimer, components: PyTree, carry: PyTree, blocks: int, *, train: bool) -> PyTree:
        """The carry after ``blocks`` more blocks."""
        args = (jax.tree.map(np.asarray, components), carry, np.int32(blocks))
        with jax.set_mesh(self.mesh):
            return timer.call_compiled(train, self._chunk, *args, train=train)


Placement = SingleDevice | SeedThreads | SeedSharding | EnvSharding
"""Where a loop's programs run: ``init(worker)``, ``place(carry)`` and ``run`` mean the same for all."""


def _jit_donating(chunk: Callable[..., Any], **more: Any) -> Any:
    return jax.jit(chunk, static_argnames="train", donate_argnames="carry", **more)


def choose_placement(programs: LoopPrograms, num_envs: int, num_devices: int) -> Placement:
    """Choose the placement on ``num_devices`` devices: by seeds if their number is divisible, else by environments.

    Raises:
        UserError: if there are fewer devices, or neither seeds nor environments are divisible by their number.
    """
    if num_devices == 1 and jax.process_count() == 1:
        return SingleDevice(programs) if vmap_exact.num_programs(len(programs.seeds)) == 1 else SeedThreads(programs)
    mesh = _device_mesh(num_devices)
    if len(programs.seeds) % num_devices == 0:
        return SeedSharding(programs, mesh)
    if num_envs % num_devices == 0:
        return EnvSharding(programs, mesh)
    raise UserError(
        f"{len(programs.seeds)} seeds of {num_envs} environments cannot be shared out to {num_devices} devices: "
        f"--envs or --seeds must be a multiple of {num_devices}"
    )


def _device_mesh(count: int) -> Mesh:
    """A mesh of ``count`` devices, the same number of every process."""
    devices, processes = jax.devices(), jax.process_count()
    if not 1 <= count <= len(devices):
        flag = f"; XLA_FLAGS=--xla_force_host_platform_device_count={count} cuts the CPU into that many"
        available = f"{len(devices)} {devices[0].platform} device" + "s" * (len(devices) > 1)
        hint = flag if devices[0].platform == "cpu" and count > 0 else ""
        raise UserError(f"--devices {count} asks for another number of devices than there are, {available}{hint}")
    by_process = [
        [device for device in devices if device.process_index == p][: count // processes] for p in range(processes)
    ]
    chosen = [device for process_devices in by_process for device in process_devices]
    if len(chosen) < count:
        raise UserError(f"{processes} processes cannot have {count} devices, as many each: --devices N, a multiple")
    return Mesh(np.array(chosen), (DEVICE_AXIS,), axis_types=(AxisType.Auto,))
