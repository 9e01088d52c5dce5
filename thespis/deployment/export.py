"""Exports the greedy policy of a run into a directory: the program, its description, and a parity certificate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import thespis
from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec
from thespis.data.space_json import space_to_json
from thespis.deployment import numpy_policy
from thespis.deployment.certificate import certify
from thespis.deployment.exported_policy import ExportedPolicy, PolicyFunction, export_policy
from thespis.deployment.graph import Tensor
from thespis.deployment.onnx_format import to_onnx
from thespis.evaluation.run import Run
from thespis.runs.serialization import to_jsonable
from thespis.runtime import disk

Format = Literal["onnx", "numpy", "safetensors"]

NUM_OBSERVATIONS, TOLERANCE = 1_000, 1e-4
"""Defaults of the certificate."""


def export_run(
    run: Run,
    out: Path | str,
    file_format: Format,
    seed: int | None = None,
    *,
    batch_size: int = 1,
    count: int = NUM_OBSERVATIONS,
    tolerance: float = TOLERANCE,
) -> dict[str, Any]:
    """Export the policy of one training seed (the first if ``None``); returns the certificate.

    ``batch_size``: the number of observations for which it acts in one call.

    Files: ``policy.json`` (inputs, outputs, memory, spaces, settings), ``certificate.json``, and ``policy.onnx``; or
    ``policy.py`` with ``policy.npz`` or ``policy.safetensors``. The files are also there if the certificate's
    ``passed`` is false, for inspection.

    Raises:
        UserError: for a policy that has no such program, a directory that is not empty or cannot be written, and a
            library that is missing.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not empty: choose another directory")
    chosen: int = run.config["seeds"][0] if seed is None else seed
    _require_libraries(file_format)
    state = jax.tree.map(lambda x: x[0], run.states_for_seeds([chosen]))
    function = PolicyFunction(run.method, state, run.spec, batch_size)
    policy = export_policy(function)
    origin = {"thespis": thespis.__version__, "run": str(run.path), "step": run.step, "seed": chosen}
    description = describe(run.method.name, run.spec, policy) | origin | {"settings": run.config["method"]}
    with disk.as_user_error("the exported policy", out):
        out.mkdir(parents=True, exist_ok=True)
        write_files(out, file_format, policy, description)
        certificate = certify(run, chosen, function, policy, out, count=count, tolerance=tolerance)
        certificate = {"format": file_format, "method": run.method.name} | origin | certificate
        _write(out / "certificate.json", _to_json(certificate))
    return certificate


def _require_libraries(file_format: Format) -> None:
    """Raises ``UserError`` if a library is missing, before anything is computed."""
    try:
        if file_format == "onnx":
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
        if file_format == "safetensors":
            import safetensors  # noqa: F401
    except ImportError as error:
        raise missing_extra(str(error.name), "export") from error


def describe(method_name: str, spec: EnvSpec, policy: ExportedPolicy) -> dict[str, Any]:
    """What a caller must know to run a policy."""
    return {
        "format_version": 1,
        "method": method_name,
        "environment": spec.name,
        "batch_size": policy.batch_size,
        "observation_space": space_to_json(spec.observation_space),
        "action_space": space_to_json(spec.action_space),
        "inputs": [_describe_tensor(tensor.name, tensor) for tensor in policy.graph.inputs],
        "outputs": [_describe_tensor(name, tensor) for name, tensor in policy.graph.results.items()],
        "action": policy.action,
        "memory": [
            {"input": part.input, "output": part.output, "initial": _compact(part.initial)} for part in policy.memory
        ],
        "parameters": {name: {"shape": x.shape, "dtype": str(x.dtype)} for name, x in policy.parameters.items()},
    }


def _describe_tensor(name: str, tensor: Tensor) -> dict[str, Any]:
    return {"name": name, "shape": tensor.shape, "dtype": tensor.dtype}


def _compact(array: np.ndarray) -> Any:
    """An array as lists, or as the one number that it consists of; infinities as text, since JSON has none."""
    flat = array.reshape(-1)
    if np.issubdtype(array.dtype, np.floating) and not np.all(np.isfinite(flat)):
        array, flat = array.astype(str), flat.astype(str)
    return flat[0].item() if flat.size and np.all(flat == flat[0]) else array.tolist()


def write_files(out: Path, file_format: Format, policy: ExportedPolicy, description: dict[str, Any]) -> None:
    """Write the policy and its description into an existing directory."""
    graph = policy.graph
    if file_format == "onnx":
        metadata = {"policy.json": json.dumps(to_jsonable(description), allow_nan=False)}
        _write(out / "policy.onnx", to_onnx(graph, "policy", metadata))
        _write(out / "policy.json", _to_json(description))
        return
    program = {
        "arrays": "policy.npz" if file_format == "numpy" else "policy.safetensors",
        "nodes": [[node.op, node.inputs, node.outputs, node.attributes] for node in graph.nodes],
        "results": {name: tensor.name for name, tensor in graph.results.items()},
    }
    if file_format == "numpy":
        with disk.atomic_write(out / "policy.npz") as file:
            arrays: Any = graph.constants
            np.savez(file, **arrays)
    else:
        from safetensors.numpy import save

        named = (policy.parameters | graph.constants).items()
        _write(out / "policy.safetensors", save({name: np.ascontiguousarray(array) for name, array in named}))
    _write(out / "policy.json", _to_json(description | {"program": program}))
    shutil.copyfile(numpy_policy.__file__, out / "policy.py")


def _to_json(document: dict[str, Any]) -> bytes:
    return (json.dumps(to_jsonable(document), indent=1, allow_nan=False) + "\n").encode()


def _write(path: Path, content: bytes) -> None:
    with disk.atomic_write(path) as file:
        file.write(content)
