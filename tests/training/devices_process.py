"""Training on several devices compared with one device; prints JSON. Run by test_devices.py.

A separate process, because the number of CPU devices is fixed when JAX starts.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from method_cases import CASES, SMALL, Case, replay
from small_envs import Stacks, Walk

from thespis.core.laws.assertions import to_numpy
from thespis.core.spaces import Discrete
from thespis.curricula.fixed import FixedCurriculum
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.dqn import DQN
from thespis.runs import checkpoint
from thespis.runtime.keys import seed_key
from thespis.runtime.vmap_exact import DEVICE_AXIS, map_shards, take_sharded
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.placement import SeedSharding

BEFORE, AFTER = 6, 2
FEED = replay(batch_size=8, buffer_size=80, sequence_length=2, frame_stack=2)
ALL_CASES = CASES | {"dqn on frames": Case(DQN(hidden_sizes=SMALL, feed=FEED), Stacks(Walk(Discrete(4))))}


def make_loop(name: str, seeds: list[int], envs: int, devices: int) -> CompiledLoop:
    case = ALL_CASES[name]
    method = case.method
    # sizes divisible by the number of devices, so that updates are sharded too
    if name.startswith("ppo"):
        method = dataclasses.replace(
            method, minibatch_size=16, feed=dataclasses.replace(method.feed, num_envs=envs)
        )  # as a run does
    elif method.feed.collect_steps and name in ("sac", "sac with hindsight", "r2d2", "dqn"):
        method = dataclasses.replace(method, feed=dataclasses.replace(method.feed, batch_size=8, buffer_size=80))
    return CompiledLoop(
        Components(method, EnvironmentReward(), FixedCurriculum()), case.env, envs, seeds, 1000, devices
    )


def max_difference(a, b) -> float:
    """The largest difference of two trees, relative to 1 or to the larger number."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(
        float(np.max(np.abs(x.astype(float) - y) / np.maximum(1.0, np.abs(y)), initial=0.0)) for x, y in pairs if x.size
    )


def train_and_save(loop: CompiledLoop):
    carry, _ = loop.pop_metric_sums(loop.advance(loop.init(), BEFORE))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.ckpt"
        checkpoint.save(path, loop.snapshot(carry), {})
        snapshot = checkpoint.load(path, loop.checkpoint_template())[0]
    return snapshot, to_numpy(loop.advance(carry, AFTER))


def resume(loop: CompiledLoop, snapshot):
    return to_numpy(loop.advance(loop.restore(snapshot)[0], AFTER))


def seeds_are_independent(name: str, seeds: list[int], envs: int, sharded) -> bool:
    """Whether every seed's learner has the same bits as in a run with this seed alone."""
    for i, seed in enumerate(seeds):
        _, single = train_and_save(make_loop(name, [seed], envs, 1))
        in_batch = jax.tree.map(lambda x, i=i: x[i : i + 1], sharded.learner)
        equal = [
            x.tobytes() == y.tobytes() for x, y in zip(*map(jax.tree.leaves, (in_batch, single.learner)), strict=True)
        ]
        if not all(equal):
            return False
    return True


def gathered_shapes(loop: CompiledLoop) -> list[str]:
    """Shapes of all-gather results in the training program."""
    text = loop.timer._programs[True].as_text()
    return re.findall(r"= (\w+\[[\d,]*\])\S* all-gather\(", text)


def compare(name: str, axis: str) -> dict:
    seeds, envs = ([0, 3, 4, 7], 3) if axis == "seeds" else ([0, 3], 8)
    sharded, single = make_loop(name, seeds, envs, 4), make_loop(name, seeds, envs, 1)
    snapshot, end = train_and_save(sharded)
    _, end_single = train_and_save(single)
    result = {
        "placement": type(sharded.placement).__name__,
        "moved": max_difference(end.learner, to_numpy(single.init()).learner),
        "from_single": max_difference(end, end_single),
        "resumed": max_difference(resume(sharded, snapshot), end),
        "resumed_on_single": max_difference(resume(single, snapshot), end),
        "env_shard": [
            list(x.addressable_shards[0].data.shape) for x in [sharded.restore(snapshot)[0].env_state.returns]
        ],
    }
    if isinstance(sharded.placement, SeedSharding):
        return result | {"independent": seeds_are_independent(name, seeds, envs, end)}
    return result | {"gathered": gathered_shapes(sharded), "rows": _num_rows(sharded)}


def _num_rows(loop: CompiledLoop) -> list[int]:
    """Numbers of rows of the replay columns."""
    return sorted({leaf.shape[1] for leaf in jax.tree.leaves(loop.shapes().learner.store)} - {1})


def check_sharded_indexing() -> dict:
    """Whether reads from and writes to sharded columns equal plain indexing."""
    mesh = jax.make_mesh((4,), (DEVICE_AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    shape = (5, 8)
    bits = jax.random.bits(seed_key(0), (*shape, 3), "uint32")
    kinds = {"float": bits.astype("float32") / 7 - 3e8, "int": bits.astype("int32"), "byte": bits.astype("uint8")}
    kinds |= {"flag": bits[..., 0] % 2 == 0}
    equal = {}
    for batch in (8, 6):
        rows = jax.random.randint(seed_key(1), (2, batch), 0, 5)
        columns = jax.random.randint(seed_key(2), (batch,), 0, 8)
        with jax.set_mesh(mesh):
            sharded = jax.jit(take_sharded)(kinds, rows, columns)
        plain = {kind: x[rows, columns[None]] for kind, x in kinds.items()}
        equal |= {f"{kind} {batch}": bool(jnp.array_equal(sharded[kind], plain[kind])) for kind in kinds}

    def put(x, rows):
        return x.at[rows, jnp.arange(rows.shape[1])].set(7, mode="drop")

    rows = jax.random.randint(seed_key(3), (2, 8), 0, 7)  # some are out of range
    with jax.set_mesh(mesh):
        sharded = jax.jit(lambda *args: map_shards(put, *args))(kinds["byte"], rows)
    return equal | {"map_shards": bool(jnp.array_equal(sharded, put(kinds["byte"], rows)))}


if __name__ == "__main__":
    for word in sys.argv[1:]:
        print(json.dumps(check_sharded_indexing() if word == "indexing" else compare(*word.rsplit(":", 1))), flush=True)
