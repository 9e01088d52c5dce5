"""Time of fitting a dynamics model: our ensemble against mbrl-lib's, with the same networks, minibatches and updates.

    python benchmarks/model_fit.py --peer PYTHON         # a Python with the packages of peers/mbrl.txt
    python benchmarks/model_fit.py --peer PYTHON --busy  # also on a busy machine: not for results

Both fit 7 networks of 4 hidden layers of 200 units to random transitions of the shape of Hopper, of which a fifth is
held out, for a fixed number of epochs. Rounds alternate; each is a process of its own, in which one fit warms up
(compiles) and the next is measured. Writes ``results/model-fit.json``, with the time of every round and the ratio of
the medians. ``--threads 1`` and the processor time, which is printed too, say most on a machine that is busy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULT = HERE / "results" / "model-fit.json"
TRANSITIONS, OBSERVATION, ACTION, BATCH, EPOCHS = 10_000, 11, 3, 256, 10
BAR = 3.0
"""The goal: mbrl-lib takes at least this many times as long."""


def clocks() -> Any:
    """Wall clock and processor time, in seconds."""
    import numpy as np

    return np.asarray([time.perf_counter(), time.process_time()])


def measure_ours() -> Any:
    """Seconds of one fit with Thespis: by the clock and of the processor."""
    import jax
    import jax.numpy as jnp

    from thespis.core.records import EnvSpec, Transition, View
    from thespis.core.spaces import Box
    from thespis.data.ring_buffer import RingBuffer
    from thespis.data.stored_steps import BufferSteps
    from thespis.learners.model_based.dynamics import DynamicsModel
    from thespis.runtime.keys import seed_key

    keys = jax.random.split(jax.random.key(0), 4)
    x, following = (jax.random.normal(key, (TRANSITIONS, 1, OBSERVATION)) for key in keys[:2])
    action = jax.random.uniform(keys[2], (TRANSITIONS, 1, ACTION), minval=-1.0)
    false = jnp.zeros((TRANSITIONS, 1), bool)
    reward = jax.random.normal(keys[3], (TRANSITIONS, 1))
    steps = Transition(View(x), action, reward, false, false, View(following), false)
    stored = BufferSteps(RingBuffer(steps), jnp.asarray(TRANSITIONS, "int32"))
    model = DynamicsModel(termination=None, patience=EPOCHS, max_epochs=EPOCHS, batch_size=BATCH)
    spec = EnvSpec("random", Box((OBSERVATION,)), Box((ACTION,), -1.0, 1.0))
    state, fit = model.init(spec, seed_key(0)), jax.jit(model.fit)
    state = jax.block_until_ready(fit(state, stored, seed_key(1)))
    start = clocks()
    state = jax.block_until_ready(fit(state, stored, seed_key(2)))
    assert int(state.num_epochs) == EPOCHS
    return clocks() - start


def measure_peer() -> Any:
    """The same with mbrl-lib."""
    import mbrl.models as models
    import mbrl.util.common as common
    import numpy as np
    import torch
    from mbrl.util.replay_buffer import ReplayBuffer

    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(TRANSITIONS, (OBSERVATION,), (ACTION,), rng=rng)
    for _ in range(TRANSITIONS):
        buffer.add(
            rng.normal(size=OBSERVATION), rng.uniform(-1, 1, ACTION), rng.normal(size=OBSERVATION), 0.0, False, False
        )
    network = models.GaussianMLP(
        OBSERVATION + ACTION,
        OBSERVATION + 1,
        torch.device("cpu"),
        num_layers=4,
        ensemble_size=7,
        hid_size=200,
        propagation_method="random_model",
        learn_logvar_bounds=True,
        activation_fn_cfg={"_target_": "torch.nn.SiLU"},
    )
    model = models.OneDTransitionRewardModel(network, normalize=True, learned_rewards=True, num_elites=5)
    trainer = models.ModelTrainer(model, optim_lr=1e-3, weight_decay=5e-5)
    seconds = None
    for _ in range(2):
        model.update_normalizer(buffer.get_all())
        batches = common.get_basic_buffer_iterators(buffer, BATCH, 0.2, ensemble_size=7)
        start = clocks()
        losses, _ = trainer.train(*batches, num_epochs=EPOCHS, patience=EPOCHS, silent=True)
        seconds = clocks() - start
        assert len(losses) == EPOCHS
    return seconds


def run_process(python: str, side: str, threads: int) -> list[float]:
    """Seconds of one fit in a process of its own: by the clock and of the processor."""
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    }
    if threads:
        environ["OMP_NUM_THREADS"] = str(threads)
        os.sched_setaffinity(0, range(threads))
    command = [python, str(Path(__file__).resolve()), "--measure", side]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of fitting a dynamics model, against mbrl-lib.")
    parser.add_argument("--peer", default=sys.executable, help="Python with the packages of peers/mbrl.txt")
    parser.add_argument("--pairs", type=int, default=5, help="rounds")
    parser.add_argument("--threads", type=int, default=0, help="threads of both; 0: one per core")
    parser.add_argument("--busy", action="store_true", help="measure even on a busy machine")
    parser.add_argument("--measure", choices=["ours", "peer"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(list(measure_ours() if args.measure == "ours" else measure_peer())))
        return
    from bench import machine, refuse_busy_machine

    if not args.busy:
        refuse_busy_machine()
    ours, peer = [], []
    for i in range(args.pairs):
        ours.append(run_process(sys.executable, "ours", args.threads))
        peer.append(run_process(args.peer, "peer", args.threads))
        times = [f"{wall:.2f} s ({processor:.2f} s of the processor)" for wall, processor in (ours[-1], peer[-1])]
        print(f"round {i}: {' against '.join(times)}", flush=True)
    ratio, processor = (statistics.median(x[i] for x in peer) / statistics.median(x[i] for x in ours) for i in (0, 1))
    print(f"mbrl-lib takes {ratio:.2f} times as long, and {processor:.2f} times of the processor (goal: {BAR:g})")
    if not args.busy:
        result = {"machine": machine(), "seconds": {"thespis": ours, "mbrl": peer}, "ratio": ratio, "bar": BAR}
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
