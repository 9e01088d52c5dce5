"""A trained policy that runs with NumPy alone.

This file is complete: it needs neither JAX nor the package that trained the policy. It reads ``policy.json``, and
``policy.npz`` or ``policy.safetensors``, from its own directory::

    from policy import Policy

    policy = Policy()
    policy.reset()  # at the start of every episode
    action = policy(observation)  # in the environment's units

A policy that was exported for a batch acts for ``batch_size`` environments in one call: arrays have a leading axis of
that size, and ``policy.reset(done)`` clears the memory of those whose episode has ended.

``policy.json`` describes the program: its operators are those of ONNX (opset 18) with all static arguments as
attributes, in the order in which they run.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Arrays = dict[str, np.ndarray]


class Policy:
    """A policy for ``batch_size`` environments at once (1 unless exported otherwise), with its memory inside."""

    def __init__(self, directory: str | Path | None = None):
        directory = Path(__file__).parent if directory is None else Path(directory)
        self.description = json.loads((directory / "policy.json").read_text())
        self.batch_size = int(self.description["batch_size"])
        self._dtypes = {tensor["name"]: tensor["dtype"] for tensor in self.description["inputs"]}
        program = self.description["program"]
        self._constants = read_arrays(directory / program["arrays"])
        self._steps = [
            (functools.partial(OPERATORS[op], **attributes), inputs, outputs)
            for op, inputs, outputs, attributes in program["nodes"]
        ]
        self._results = program["results"]
        self.reset()

    def reset(self, done: Any = None) -> None:
        """Start an episode: clear the memory of a recurrent policy.

        ``done`` ``[batch_size]``: the environments that start one; by default all of them.
        """
        start = initial_memory(self.description)
        self.memory = start if done is None else select_rows(np.asarray(done, bool), start, self.memory)

    def run(self, inputs: Arrays) -> Arrays:
        """All outputs by name for all inputs by name, memory included: a pure function, leading axis the batch."""
        values = self._constants | {name: np.asarray(inputs[name], dtype) for name, dtype in self._dtypes.items()}
        with np.errstate(all="ignore"):
            for function, names, outputs in self._steps:
                result = function(*(values[name] for name in names))
                values.update(zip(outputs, result if isinstance(result, tuple) else (result,), strict=True))
        return {name: values[source] for name, source in self._results.items()}

    def step(self, inputs: Arrays) -> Arrays:
        """Outputs for one time step, with batch axis; the memory is kept for the next call."""
        outputs = self.run(inputs | self.memory)
        self.memory = {memory["input"]: outputs[memory["output"]] for memory in self.description["memory"]}
        return outputs

    def __call__(self, observation: Any, action_mask: Any = None, alive: Any = None) -> Any:
        """The action for an observation, as nested as the action space.

        With ``batch_size`` 1 without batch axis, else for observations ``[batch_size, ...]``.
        """
        view = flatten({"observation": observation, "action_mask": action_mask, "alive": alive})
        inputs = {name: np.asarray(value) for name, value in view.items()}
        if self.batch_size > 1:
            return unflatten(self.description["action"], self.step(inputs))
        outputs = self.step({name: value[None] for name, value in inputs.items()})
        return unflatten(self.description["action"], {name: value[0] for name, value in outputs.items()})


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Leaves of nested dicts and tuples by dotted name; ``None`` has none."""
    if isinstance(value, dict):
        parts = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, tuple):
        parts = [(str(i), part) for i, part in enumerate(value)]
    else:
        return {} if value is None else {name: value}
    return {leaf: v for key, part in parts for leaf, v in flatten(part, f"{name}.{key}" if name else key).items()}


def unflatten(template: Any, values: Arrays) -> Any:
    """Nested values from the nested names in ``template``; a list stands for a tuple."""
    if isinstance(template, dict):
        return {key: unflatten(part, values) for key, part in template.items()}
    if isinstance(template, list):
        return tuple(unflatten(part, values) for part in template)
    return values[template]


def initial_memory(description: dict[str, Any]) -> Arrays:
    """The memory at the start of an episode, by input name."""
    shapes = {tensor["name"]: (tensor["shape"], tensor["dtype"]) for tensor in description["inputs"]}
    return {
        memory["input"]: np.broadcast_to(
            np.asarray(memory["initial"], shapes[memory["input"]][1]), shapes[memory["input"]][0]
        )
        for memory in description["memory"]
    }


def select_rows(rows: np.ndarray, chosen: Arrays, others: Arrays) -> Arrays:
    """Arrays ``[batch_size, ...]`` by name: those of ``chosen`` in the marked rows, those of ``others`` elsewhere."""
    return {
        name: np.where(rows.reshape(-1, *[1] * (value.ndim - 1)), value, others[name]) for name, value in chosen.items()
    }


def read_arrays(path: Path) -> Arrays:
    """Arrays by name from an ``.npz`` or ``.safetensors`` file."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            return dict(file)
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    dtypes = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I8": "i1", "U8": "u1", "BOOL": "?"}
    arrays = {}
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            flat = np.frombuffer(content[start + first : start + last], dtypes[entry["dtype"]])
            arrays[name] = flat.reshape(entry["shape"])
    return arrays


def _div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if np.issubdtype(a.dtype, np.floating):
        return np.asarray(a / b)
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)))  # integers are rounded toward zero


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.dtype.type(0.5) * (np.tanh(x.dtype.type(0.5) * x) + x.dtype.type(1)))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def _slice(x: np.ndarray, starts: list[int], ends: list[int], steps: list[int]) -> np.ndarray:
    bounds = zip(starts, ends, steps, strict=True)
    return x[tuple(slice(a, None if b < 0 else b, s) for a, b, s in bounds)]


def _pad(x: np.ndarray, value: np.ndarray, pads: list[int]) -> np.ndarray:
    half = len(pads) // 2
    return np.pad(x, list(zip(pads[:half], pads[half:], strict=True)), constant_values=value)


def _cumsum(x: np.ndarray, axis: int, reverse: int) -> np.ndarray:
    if reverse:
        return np.flip(np.cumsum(np.flip(x, axis), axis, dtype=x.dtype), axis)
    return np.cumsum(x, axis, dtype=x.dtype)


def _topk(x: np.ndarray, axis: int, k: int, largest: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-x if largest else x, axis, kind="stable")  # of equal values, the first comes first
    order = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order


def _conv(
    images: np.ndarray, kernel: np.ndarray, strides: list[int], pads: list[int], dilations: list[int], group: int
) -> np.ndarray:
    """Convolution, channels first: ``images`` [image, in, ...], ``kernel`` [out, in / group, ...]."""
    rank = len(strides)
    images = np.pad(images, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    axes = tuple(range(2, 2 + rank))
    sizes = tuple((n - 1) * d + 1 for n, d in zip(kernel.shape[2:], dilations, strict=True))
    windows = sliding_window_view(images, sizes, axes)
    windows = windows[(..., *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilations))]
    width, filters = kernel.shape[1], len(kernel) // group
    over = (1, *range(2 + rank, 2 + 2 * rank)), tuple(range(1, 2 + rank))
    results = [
        np.tensordot(windows[:, g * width : (g + 1) * width], kernel[g * filters : (g + 1) * filters], over)
        for g in range(group)
    ]
    return np.moveaxis(np.concatenate(results, axis=-1), -1, 1)


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes: np.asarray(function(x, axis=tuple(axes)), x.dtype)


def _keep_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: np.asarray(function(x, *rest), x.dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    **{
        name: _keep_dtype(function)
        for name, function in {
            "Abs": np.abs,
            "Add": np.add,
            "Ceil": np.ceil,
            "Cos": np.cos,
            "Div": _div,
            "Erf": _erf,
            "Exp": np.exp,
            "Floor": np.floor,
            "Log": np.log,
            "MatMul": np.matmul,
            "Max": np.maximum,
            "Min": np.minimum,
            "Mod": np.fmod,
            "Mul": np.multiply,
            "Neg": np.negative,
            "Pow": np.power,
            "Round": np.rint,
            "Sigmoid": _sigmoid,
            "Sign": np.sign,
            "Sin": np.sin,
            "Sqrt": np.sqrt,
            "Sub": np.subtract,
            "Tanh": np.tanh,
        }.items()
    },
    "And": np.logical_and,
    "ArgMax": lambda x, axis: np.argmax(x, axis),
    "ArgMin": lambda x, axis: np.argmin(x, axis),
    "Cast": lambda x, to: x.astype(to),
    "Concat": lambda *x, axis: np.concatenate(x, axis),
    "Conv": _conv,
    "CumSum": _cumsum,
    "Equal": np.equal,
    "Expand": lambda x, shape: np.broadcast_to(x, shape),
    "Gather": lambda x, indices: np.take(x, indices, axis=0),
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "IsInf": np.isinf,
    "IsNaN": np.isnan,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pad": _pad,
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": lambda x, shape: x.reshape(shape),
    "Slice": _slice,
    "TopK": _topk,
    "Transpose": lambda x, perm: x.transpose(perm),
    "Where": np.where,
    "Xor": np.logical_xor,
}
"""The operators of ONNX that programs use."""
