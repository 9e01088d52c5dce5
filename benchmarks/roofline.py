"""Roofline: the minimum time of an update's matrix products on this machine."""

from __future__ import annotations

import subprocess
import sys

_PROBE = """
import sys, time, jax, jax.numpy as jnp
rows, inner, columns = map(int, sys.argv[1:])
a, b = jnp.ones((rows, inner)), jnp.ones((inner, columns))
repeat = max(1, int(2e9 / (2 * rows * inner * columns)))

@jax.jit
def many(a, b):
    return jax.lax.fori_loop(0, repeat, lambda i, a: (a @ b) @ b.T * 1e-3, a)

jax.block_until_ready(many(a, b))
best = 1e9
for _ in range(7):
    since = time.perf_counter()
    jax.block_until_ready(many(a, b))
    best = min(best, time.perf_counter() - since)
print(4 * rows * inner * columns * repeat / best)
"""


def matmul_rate(rows: int, inner: int, columns: int) -> float:
    """Floating-point operations per second of the best of several matrix products of this shape."""
    command = [sys.executable, "-c", _PROBE, *map(str, (rows, inner, columns))]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def floor_seconds(work) -> dict[str, float] | None:
    """Counted operations of one step's update, the machine's rate at the widest layer, and their quotient.

    For SAC, TD3 and behaviour cloning only: in other cases layers are small and arithmetic is a small part of the time.
    """
    if work.algorithm not in ("sac", "td3", "bc"):
        return None
    counted = update_flops(work) * work.updates
    rate = matmul_rate(work.batch, work.hidden, work.hidden)
    return {"flops": counted, "rate": rate, "seconds": counted / rate}


def update_flops(work) -> float:
    """Floating-point operations in the matrix products of an update of SAC or TD3 with twin critics, or of cloning.

    A forward pass is 1, the gradient of its weights 1, that of its inputs 1. Critics: two targets forward (1 each), two
    critics with their weights' gradient (3 each). Actor: once forward for the targets, once with its weights' gradient
    (3), through the critics (two of SAC's, one of TD3's) forward and back to the action (2 each). The gradient
    of the first layers' inputs is not needed where these are data. TD3 updates its actor every second time. Cloning is
    the actor's own 3 alone.
    """
    sizes = {"HalfCheetah-v5": (17, 6), "Pendulum-v1": (3, 1)}
    observation, action = sizes[work.env.rpartition(":")[2]]
    soft = work.algorithm == "sac"
    wide = work.hidden * work.hidden
    critic_first, actor_first = (observation + action) * work.hidden, observation * work.hidden
    critic = critic_first + wide + work.hidden
    actor = actor_first + wide + (2 if soft else 1) * action * work.hidden
    own = 3 * actor - actor_first
    if work.algorithm == "bc":
        return 2.0 * work.batch * own
    critics = 2 * critic + 2 * (3 * critic - critic_first)
    actor_update = own + (2 if soft else 1) * 2 * critic
    return 2.0 * work.batch * (critics + actor + actor_update * (1.0 if soft else 0.5))
