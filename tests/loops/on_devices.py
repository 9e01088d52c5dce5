"""Trains a case on several devices and on one, and prints what the two have in common. Run by test_devices.py.

A process of its own: how many devices a CPU is cut into is settled when JAX starts.
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
from cases import CASES, SMALL, Case, replay
from worlds import Stacks, Walk

from thespis.core.keys import key_of
from thespis.core.laws import as_numpy
from thespis.core.spaces import Discrete
from thespis.core.spread import DEVICES, each_its_own, pick
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.devices import SeedsApart
from thespis.loops.parts import Parts
from thespis.methods.online.dqn import DQN
from thespis.runs import checkpoint

BEFORE, AFTER = 6, 2
FEED = replay(batch=8, capacity=80, length=2, frames=2)
HERE = CASES | {"dqn on frames": Case(DQN(hidden=SMALL, feed=FEED), Stacks(Walk(Discrete(4))))}


def loop(name: str, seeds: list[int], envs: int, devices: int) -> CompiledLoop:
    case = HERE[name]
    method = case.method
    # sizes that divide by the devices, so that updates are shared too
    if name.startswith("ppo"):
        method = dataclasses.replace(method, minibatch=16)
    elif method.feed.ticks and name in ("sac", "dqn"):
        method = dataclasses.replace(method, feed=dataclasses.replace(method.feed, batch=8, capacity=80))
    return CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), case.world, envs, seeds, 1000, devices)


def furthest(a, b) -> float:
    """The largest difference of two trees, relative to 1 or to the larger number."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(
        float(np.max(np.abs(x.astype(float) - y) / np.maximum(1.0, np.abs(y)), initial=0.0)) for x, y in pairs if x.size
    )


def trained(which: CompiledLoop):
    carry, _ = which.take_tally(which.advance(which.init(), BEFORE))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.ckpt"
        checkpoint.save(path, which.snapshot(carry), {})
        snapshot = checkpoint.load(path, which.like())[0]
    return snapshot, as_numpy(which.advance(carry, AFTER))


def resumed(which: CompiledLoop, snapshot):
    return as_numpy(which.advance(which.restore(snapshot)[0], AFTER))


def alone(name: str, seeds: list[int], envs: int, many) -> bool:
    """Whether every seed's learner has the bits that it has in a run of its own."""
    for i, seed in enumerate(seeds):
        _, one = trained(loop(name, [seed], envs, 1))
        among = jax.tree.map(lambda x, i=i: x[i : i + 1], many.learner)
        equal = [x.tobytes() == y.tobytes() for x, y in zip(*map(jax.tree.leaves, (among, one.learner)), strict=True)]
        if not all(equal):
            return False
    return True


def exchanged(which: CompiledLoop) -> list[str]:
    """The shapes that are gathered from all devices in the program that trains."""
    text = which.clock._programs[True].as_text()
    return re.findall(r"= (\w+\[[\d,]*\])\S* all-gather\(", text)


def told(name: str, way: str) -> dict:
    seeds, envs = ([0, 3, 4, 7], 3) if way == "seeds" else ([0, 3], 8)
    many, one = loop(name, seeds, envs, 4), loop(name, seeds, envs, 1)
    snapshot, end = trained(many)
    _, end_of_one = trained(one)
    answer = {
        "placement": type(many.placement).__name__,
        "moved": furthest(end.learner, as_numpy(one.init()).learner),
        "from_one": furthest(end, end_of_one),
        "resumed": furthest(resumed(many, snapshot), end),
        "resumed_on_one": furthest(resumed(one, snapshot), end),
        "world": [list(x.addressable_shards[0].data.shape) for x in [many.restore(snapshot)[0].world.returns]],
    }
    if isinstance(many.placement, SeedsApart):
        return answer | {"alone": alone(name, seeds, envs, end)}
    return answer | {"gathered": exchanged(many), "rows": _rows(many)}


def _rows(which: CompiledLoop) -> list[int]:
    """How many rows the columns of replay have."""
    return sorted({leaf.shape[1] for leaf in jax.tree.leaves(which.shapes().learner.store)} - {1})


def picked() -> dict:
    """Whether picking from shared columns, and writing to them, gives what plain indexing does."""
    mesh = jax.make_mesh((4,), (DEVICES,), axis_types=(jax.sharding.AxisType.Auto,))
    shape = (5, 8)
    bits = jax.random.bits(key_of(0), (*shape, 3), "uint32")
    kinds = {"float": bits.astype("float32") / 7 - 3e8, "int": bits.astype("int32"), "byte": bits.astype("uint8")}
    kinds |= {"flag": bits[..., 0] % 2 == 0}
    equal = {}
    for batch in (8, 6):
        rows = jax.random.randint(key_of(1), (2, batch), 0, 5)
        columns = jax.random.randint(key_of(2), (batch,), 0, 8)
        with jax.set_mesh(mesh):
            found = jax.jit(pick)(kinds, rows, columns)
        plain = {kind: x[rows, columns[None]] for kind, x in kinds.items()}
        equal |= {f"{kind} {batch}": bool(jnp.array_equal(found[kind], plain[kind])) for kind in kinds}

    def put(x, rows):
        return x.at[rows, jnp.arange(rows.shape[1])].set(7, mode="drop")

    rows = jax.random.randint(key_of(3), (2, 8), 0, 7)  # some are past the last
    with jax.set_mesh(mesh):
        found = jax.jit(lambda *given: each_its_own(put, *given))(kinds["byte"], rows)
    return equal | {"apart": bool(jnp.array_equal(found, put(kinds["byte"], rows)))}


if __name__ == "__main__":
    for word in sys.argv[1:]:
        print(json.dumps(picked() if word == "pick" else told(*word.rsplit(":", 1))), flush=True)
