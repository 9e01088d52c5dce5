"""Runs an exported policy where neither JAX nor Thespis can be imported, on one core; a script of its own.

``python -I parity_process.py DIRECTORY INPUTS OUTPUTS``: ``INPUTS`` (npz) has every input except memory,
``[step, batch, ...]``, and ``is_first`` ``[step, batch]``, where an episode starts. ``OUTPUTS`` gets every output,
stacked, and ``seconds`` of each step.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCKED = ("equinox", "jax", "jaxlib", "optax", "thespis")


def main(directory: Path, inputs: Path, outputs: Path) -> None:
    """Play back the inputs and write the outputs."""
    modules: dict[str, Any] = sys.modules
    for name in BLOCKED:
        modules[name] = None  # importing it raises ImportError
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import numpy as np

    with np.load(inputs) as file:
        steps: dict[str, Any] = dict(file)
    is_first = steps.pop("is_first")
    description = json.loads((directory / "policy.json").read_text())
    run = onnx_model(directory) if (directory / "policy.onnx").exists() else numpy_model(directory)
    start = {
        part["input"]: np.broadcast_to(
            np.asarray(part["initial"], _dtype(description, part)), _shape(description, part)
        ).copy()
        for part in description["memory"]
    }
    rows, seconds, memory = [], [], start
    run({name: column[0] for name, column in steps.items()} | start)  # loads what is loaded at the first call
    for i, first in enumerate(is_first):
        memory = {
            name: np.where(first.reshape(-1, *[1] * (value.ndim - 1)), value, memory[name])
            for name, value in start.items()
        }
        step_inputs = {name: column[i] for name, column in steps.items()} | memory
        before = time.perf_counter()
        result = run(step_inputs)
        seconds.append(time.perf_counter() - before)
        memory = {part["input"]: result[part["output"]] for part in description["memory"]}
        rows.append(result)
    assert all(modules[name] is None for name in BLOCKED)
    columns: Any = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    np.savez(outputs, seconds=seconds, **columns)


def _tensor(description: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    return next(tensor for tensor in description["inputs"] if tensor["name"] == part["input"])


def _dtype(description: dict[str, Any], part: dict[str, Any]) -> str:
    return _tensor(description, part)["dtype"]


def _shape(description: dict[str, Any], part: dict[str, Any]) -> list[int]:
    return _tensor(description, part)["shape"]


def onnx_model(directory: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The model in ONNX Runtime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(directory / "policy.onnx", options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def numpy_model(directory: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The exported ``policy.py``."""
    spec: Any = importlib.util.spec_from_file_location("policy", directory / "policy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Policy().run


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
