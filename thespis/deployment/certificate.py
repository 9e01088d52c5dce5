"""Parity certificate: an exported policy against the original, observation by observation.

The exported program runs in a process in which JAX and Thespis cannot be imported (:mod:`.parity_process`). Recurrent
policies are compared over whole episodes, each side with its own memory.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_view
from thespis.core.records import View
from thespis.deployment import parity_process
from thespis.deployment.exported_policy import ExportedPolicy, PolicyFunction, named_view, reference
from thespis.envs.rollout import select_rows
from thespis.evaluation.rollout import play_episodes
from thespis.evaluation.run import Run
from thespis.runs.system_info import package_versions
from thespis.runtime.keys import fold, seed_key

MIN_EQUAL_SHARE = 0.999
"""Smallest share of equal discrete actions: rounding decides between values that are almost equal."""

MAX_EPISODES = 1024
"""Episodes that are played for observations, at most."""


@dataclasses.dataclass(frozen=True)
class ObservationSequence:
    """Views ``[step, batch, ...]`` in the order of play; ``is_first`` where an episode starts; where they are from."""

    views: View
    is_first: np.ndarray
    source: str


def collect_observations(run: Run, seed: int, count: int, batch_size: int) -> ObservationSequence:
    """``count`` views of greedy play, or random ones from the space for a run without an environment.

    They are played back as ``batch_size`` sequences side by side; ``count`` is rounded up to a multiple of it.
    """
    count = -(-count // batch_size) * batch_size
    if run.config["env"] is None:
        views = random_view(run.spec, np.random.default_rng(0), (count,))
        source = "random values of the observation space"
        return _side_by_side(ObservationSequence(views, np.ones(count, bool), source), batch_size)
    states, pieces, firsts, total, episodes = run.states_for_seeds([seed]), [], [], 0, 4
    while total < count and episodes <= MAX_EPISODES:
        envs = run.make_envs(episodes)
        try:
            played = play_episodes(
                run.method,
                states,
                envs,
                [seed],
                Mode.EXPLOIT,
                num_kept=episodes,
                stream=f"export/{episodes}",
                max_steps=-(-count // 4),
            ).episodes[0]
        finally:
            envs.close()
        for episode in played:
            pieces.append(episode.view)
            firsts.append(np.asarray(episode.is_first))
            total += len(firsts[-1])
        episodes *= 4
    views = jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *pieces)
    is_first = np.concatenate(firsts)[:count]
    source = f"greedy play of seed {seed} in {run.spec.name}, {int(is_first.sum())} episodes"
    return _side_by_side(ObservationSequence(views, is_first, source), batch_size)


def _side_by_side(sequence: ObservationSequence, batch_size: int) -> ObservationSequence:
    """A sequence ``[step, ...]`` cut into ``batch_size`` pieces, each of which starts with an empty memory."""
    views, is_first = jax.tree.map(
        lambda x: np.asarray(x).reshape(batch_size, -1, *x.shape[1:]).swapaxes(0, 1),
        (sequence.views, sequence.is_first),
    )
    is_first[0] = True
    return ObservationSequence(views, is_first, sequence.source)


def certify(
    run: Run,
    seed: int,
    function: PolicyFunction,
    policy: ExportedPolicy,
    directory: Path,
    *,
    count: int,
    tolerance: float,
) -> dict[str, Any]:
    """Compare the files in ``directory`` with the original; the certificate as JSON, ``passed`` being its verdict.

    Raises :class:`UserError` if the original's action is random, so that there is nothing to compare with.
    """
    sequence = collect_observations(run, seed, count, policy.batch_size)
    expected = _play_original(function, policy, sequence, "first")
    again = _play_original(function, policy, sequence, "second")
    if any(not np.array_equal(expected[name], again[name], equal_nan=True) for name in expected):
        raise UserError(f"{function.method.name} cannot be exported: its greedy action is random")
    actual = _play_exported(policy, sequence, directory)
    outputs = {name: _compare(expected[name], actual[name], tolerance) for name in expected}
    milliseconds = 1e3 * actual["seconds"]
    return {
        "passed": all(output["passed"] for output in outputs.values()),
        "observations": sequence.is_first.size,
        "source": sequence.source,
        "tolerance": tolerance,
        "min_equal_share": MIN_EQUAL_SHARE,
        "outputs": outputs,
        "latency_ms": {
            "median": float(np.median(milliseconds)),
            "p99": float(np.percentile(milliseconds, 99)),
            "what": f"{describe_call(policy.batch_size)}, on one core, by a process without JAX",
        },
        "versions": package_versions() | _optional_versions(),
    }


def _play_original(
    function: PolicyFunction, policy: ExportedPolicy, sequence: ObservationSequence, stream: str
) -> dict[str, np.ndarray]:
    """Outputs of the original policy, stacked; its memory too, where the exported one has it."""
    step, memory, rows = reference(function), function.initial_memory, []
    key, numbers = fold(seed_key(0), stream), [int(part.input.split(".")[1]) for part in policy.memory]
    for i, first in enumerate(sequence.is_first):
        view = jax.tree.map(lambda x, i=i: x[i], sequence.views)
        memory = select_rows(jnp.asarray(first), function.initial_memory, memory)
        outputs, memory = step(view, memory, fold(key, "act", i))
        leaves = jax.tree.leaves(memory)
        parts = {part.output: leaves[n] for part, n in zip(policy.memory, numbers, strict=True)}
        rows.append({name: np.asarray(value) for name, value in (outputs | parts).items()})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def describe_call(count: int) -> str:
    """One call of a policy for so many observations, in words."""
    return "one observation" if count == 1 else f"{count} observations in one call"


def _play_exported(policy: ExportedPolicy, sequence: ObservationSequence, directory: Path) -> dict[str, np.ndarray]:
    """Outputs of the exported policy, stacked, and ``seconds``."""
    memory = {part.input for part in policy.memory}
    names = {tensor.name for tensor in policy.graph.inputs} - memory
    columns: PyTree = {name: np.asarray(column) for name, column in named_view(sequence.views).items() if name in names}
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as temporary:
        inputs, outputs = Path(temporary) / "inputs.npz", Path(temporary) / "outputs.npz"
        np.savez(inputs, is_first=sequence.is_first, **columns)
        command = [sys.executable, "-I", parity_process.__file__, str(directory.resolve()), str(inputs), str(outputs)]
        result = subprocess.run(command, capture_output=True, text=True, env=os.environ | single)
        if result.returncode:
            lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
            raise UserError(f"the exported policy in {directory} does not run: {lines[-1]}")
        with np.load(outputs) as file:
            return dict(file)


def _compare(expected: np.ndarray, actual: np.ndarray, tolerance: float) -> dict[str, Any]:
    """How far an output is from the original: numbers by their largest difference, choices by the share of equal ones.

    The difference may be ``tolerance`` times the largest number, or times 1 where all are smaller.
    """
    if not np.issubdtype(expected.dtype, np.floating):
        equal = float(np.mean(expected == actual))
        return {"equal_share": equal, "passed": bool(equal >= MIN_EQUAL_SHARE)}
    same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    difference = float(np.max(np.where(same, 0.0, np.abs(expected - actual)), initial=0.0))
    scale = float(np.max(np.abs(expected), initial=1.0, where=np.isfinite(expected)))
    return {"max_abs_difference": difference, "passed": bool(difference <= tolerance * scale)}


def _optional_versions() -> dict[str, str]:
    """Versions of the libraries that write and run exported models, where installed."""
    versions = {}
    for name in ("onnx", "onnxruntime", "safetensors"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
