"""Program of an exported policy: named tensors and operators of ONNX, with static arguments as attributes.

:class:`GraphBuilder` makes one. It computes whatever depends on constants alone, drops operations without effect, and
uses equal operations and equal constants once.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np

from thespis.deployment.numpy_policy import OPERATORS

Shape = tuple[int, ...]

DERIVED = ".derived"
"""Ending of the names of constants that were computed from one parameter alone, such as its transpose."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A named tensor that is known when the program runs; ``dtype`` is NumPy's name."""

    name: str
    shape: Shape
    dtype: str


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """Constant tensor of the graph, as ONNX's operator ``Constant`` gives.

    ``name`` is that of the parameter from which it comes, if it is one alone.
    """

    array: Any
    name: str = ""

    @property
    def shape(self) -> Shape:
        """Shape of the constant array."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> str:
        """NumPy's name of the constant array's dtype."""
        return str(self.array.dtype)


@dataclasses.dataclass(frozen=True)
class UnsupportedValue:
    """A value that cannot be exported, and why. It is an error only if an output depends on it."""

    reason: str


Operand = Tensor | Constant


@dataclasses.dataclass(frozen=True)
class Node:
    """Node of the graph: one operator of ONNX with the names of its inputs and outputs (ONNX's ``NodeProto``)."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Graph:
    """A program: ``results`` maps names of outputs to the tensors or constants that they are."""

    inputs: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    constants: dict[str, np.ndarray]
    results: dict[str, Tensor]


class GraphBuilder:
    """Builds a :class:`Graph`, operation by operation; every method returns the result."""

    def __init__(self, inputs: tuple[Tensor, ...]):
        self.inputs = inputs
        self._input_names = {tensor.name for tensor in inputs}
        self._nodes: list[Node] = []
        self._constants: dict[str, np.ndarray] = {}
        self._names: dict[Any, str] = {}
        self._known: dict[Any, tuple[Tensor, ...]] = {}

    def build(self, results: dict[str, Operand]) -> Graph:
        """The graph of everything that the ``results`` need."""
        named = {name: self._reference(value) for name, value in results.items()}
        needed, nodes = set(named.values()), []
        for node in reversed(self._nodes):
            if needed.intersection(node.outputs):
                nodes.append(node)
                needed.update(node.inputs)
        constants = {name: array for name, array in self._constants.items() if name in needed}
        outputs = {name: Tensor(named[name], value.shape, value.dtype) for name, value in results.items()}
        return Graph(self.inputs, tuple(reversed(nodes)), constants, outputs)

    def inputs_of(self, results: dict[str, Operand]) -> set[str]:
        """Names of the inputs on which the ``results`` depend."""
        needed = {value.name for value in results.values() if isinstance(value, Tensor)}
        for node in reversed(self._nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
        return needed & {tensor.name for tensor in self.inputs}

    def emit(self, op: str, operands: list[Operand], shape: Shape, dtype: str, /, **attributes: Any) -> Operand:
        """The result of one operation, computed at once if all operands are constants."""
        return self.emit_many(op, operands, [(shape, dtype)], **attributes)[0]

    def emit_many(
        self, op: str, operands: list[Operand], results: list[tuple[Shape, str]], /, **attributes: Any
    ) -> tuple[Operand, ...]:
        """The results of an operation that has several."""
        attributes = json.loads(json.dumps(attributes, default=int))  # numpy's integers become Python's
        known = [operand for operand in operands if isinstance(operand, Constant)]
        if len(known) == len(operands):
            with np.errstate(all="ignore"):
                values = OPERATORS[op](*(np.asarray(operand.array) for operand in known), **attributes)
            sources = {operand.name for operand in known if operand.name}
            name = f"{sources.pop().removesuffix(DERIVED)}{DERIVED}" if len(sources) == 1 else ""
            arrays = values if isinstance(values, tuple) else (values,)
            return tuple(
                Constant(np.asarray(array, dtype), name) for array, (_, dtype) in zip(arrays, results, strict=True)
            )
        inputs = tuple(self._reference(operand) for operand in operands)
        key = op, inputs, json.dumps(attributes, sort_keys=True)
        if key not in self._known:
            start = len(self._known)
            tensors = tuple(Tensor(f"t{start}_{i}", *result) for i, result in enumerate(results))
            self._nodes.append(Node(op, inputs, tuple(tensor.name for tensor in tensors), attributes))
            self._known[key] = tensors
        return self._known[key]

    def _reference(self, operand: Operand) -> str:
        """The name of an operand; a constant is stored under one."""
        if isinstance(operand, Tensor):
            return operand.name
        array = np.asarray(operand.array)
        key = operand.dtype, operand.shape, array.tobytes()
        if key not in self._names:
            base = operand.name or "constant"
            name, count = base, 1
            while name in self._constants or name in self._input_names:
                name, count = f"{base}#{count}", count + 1
            self._names[key], self._constants[name] = name, array
        return self._names[key]

    def unary(self, op: str, x: Operand) -> Operand:
        """An elementwise operation that keeps the dtype."""
        return self.emit(op, [x], x.shape, x.dtype)

    def binary(self, op: str, a: Operand, b: Operand, dtype: str | None = None) -> Operand:
        """An elementwise operation of two operands, which are broadcast; ``dtype`` is that of ``a`` by default."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        for zero in (a, b) if op in ("Mul", "And") else ():  # also ends what is multiplied by an exploration rate of 0
            if isinstance(zero, Constant) and zero.array.size and not np.any(zero.array):
                return Constant(np.zeros(shape, dtype or a.dtype))
        return self.emit(op, [a, b], shape, dtype or a.dtype)

    def where(self, condition: Operand, a: Operand, b: Operand) -> Operand:
        """``a`` where ``condition`` holds, else ``b``."""
        if a.dtype == "bool":  # which Where does not take everywhere
            picked = self.binary("And", condition, a)
            return self.binary("Or", picked, self.binary("And", self.unary("Not", condition), b))
        return self.emit("Where", [condition, a, b], np.broadcast_shapes(condition.shape, a.shape, b.shape), a.dtype)

    def cast(self, x: Operand, dtype: str) -> Operand:
        """``x`` in another dtype."""
        return x if x.dtype == dtype else self.emit("Cast", [x], x.shape, dtype, to=dtype)

    def reshape(self, x: Operand, shape: Shape) -> Operand:
        """``x`` in another shape of as many elements."""
        shape = tuple(int(n) for n in shape)
        return x if x.shape == shape else self.emit("Reshape", [x], shape, x.dtype, shape=list(shape))

    def expand(self, x: Operand, shape: Shape) -> Operand:
        """``x`` broadcast to ``shape``."""
        shape = tuple(int(n) for n in shape)
        return x if x.shape == shape else self.emit("Expand", [x], shape, x.dtype, shape=list(shape))

    def transpose(self, x: Operand, perm: Any) -> Operand:
        """``x`` with its axes in another order."""
        perm = [int(axis) for axis in perm]
        if perm == sorted(perm):
            return x
        return self.emit("Transpose", [x], tuple(x.shape[axis] for axis in perm), x.dtype, perm=perm)

    def slice(self, x: Operand, starts: Any, ends: Any, steps: Any) -> Operand:
        """Evenly spaced elements along every axis."""
        bounds = [(int(a), int(b), int(s)) for a, b, s in zip(starts, ends, steps, strict=True)]
        shape = tuple(len(range(*bound)) for bound in bounds)
        if shape == x.shape and all(step > 0 for *_, step in bounds):
            return x
        starts, ends, steps = (list(column) for column in zip(*bounds, strict=True))
        return self.emit("Slice", [x], shape, x.dtype, starts=starts, ends=ends, steps=steps)

    def concatenate(self, parts: list[Operand], axis: int) -> Operand:
        """The parts one after another along ``axis``."""
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.emit("Concat", parts, tuple(shape), parts[0].dtype, axis=int(axis))

    def reduce(self, op: str, x: Operand, axes: Any) -> Operand:
        """A reduction over ``axes``, which are removed."""
        axes = sorted(int(axis) for axis in axes)
        if not axes:
            return x
        shape = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
        return self.emit(op, [x], shape, x.dtype, axes=axes)

    def take(self, x: Operand, indices: Operand) -> Operand:
        """Elements of the flat ``x`` by their numbers."""
        return self.emit("Gather", [x, indices], indices.shape, x.dtype)

    def matmul(self, a: Operand, b: Operand) -> Operand:
        """Batched matrix product of operands with equal leading axes."""
        return self.emit("MatMul", [a, b], (*a.shape[:-1], b.shape[-1]), a.dtype)


def constant(value: Any, dtype: str) -> Constant:
    """Constant tensor of a dtype from an array or a number."""
    return Constant(np.asarray(value, dtype))


def size(shape: Shape) -> int:
    """Number of elements of an array of this shape."""
    return math.prod(shape)
