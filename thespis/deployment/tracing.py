"""Conversion of a JAX function into a :class:`~thespis.deployment.graph.Graph`, by its jaxpr.

What depends on constants alone is computed during conversion. Loops are unrolled: the number of their iterations must
not depend on the inputs. An operation without a counterpart makes its result
:class:`~thespis.deployment.graph.UnsupportedValue`, which is an error only if an output needs it: a greedy policy may
contain a random choice that it never takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jaxtyping import PyTree

from thespis.deployment.graph import Constant, Graph, GraphBuilder, Operand, Tensor, UnsupportedValue
from thespis.deployment.linear_rules import LINEAR_RULES
from thespis.deployment.rules import RULES, UnsupportedOperation, select

Value = Operand | UnsupportedValue

MAX_ITERATIONS = 512
"""Loops with more iterations are not unrolled."""

DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool")
"""Dtypes of tensors in exported programs."""


def trace(
    function: Callable[[PyTree, dict[str, Any]], dict[str, Any]],
    parameters: dict[str, Any],
    inputs: dict[str, jax.ShapeDtypeStruct],
    opaque: dict[str, str],
) -> tuple[GraphBuilder, dict[str, Value]]:
    """Convert ``function(parameters, inputs)``, whose outputs are named arrays, with constant ``parameters``.

    ``inputs`` in ``opaque`` are unavailable where the program runs: what depends on them is unsupported, for the reason
    given. Returns the builder, for :func:`finish`, and every output's value.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(parameters, inputs)
    tensors = {
        name: Tensor(name, tuple(leaf.shape), str(leaf.dtype)) for name, leaf in inputs.items() if name not in opaque
    }
    builder = GraphBuilder(tuple(tensors.values()))
    values: list[Value] = [Constant(_host_array(parameters[name]), name) for name in sorted(parameters)]
    values += [tensors[name] if name in tensors else UnsupportedValue(opaque[name]) for name in sorted(inputs)]
    outputs = _Interpreter(builder).closed(closed, values)
    return builder, dict(zip(sorted(shapes), outputs, strict=True))


def finish(builder: GraphBuilder, values: dict[str, Value]) -> Graph:
    """The graph of supported values. Raises :class:`UnsupportedOperation` with the reason if one is not."""
    results: dict[str, Operand] = {}
    for name, value in values.items():
        if isinstance(value, UnsupportedValue):
            raise UnsupportedOperation(value.reason)
        results[name] = value
    return builder.build(results)


def _host_array(array: Any) -> Any:
    """A numpy array; random keys stay JAX arrays."""
    return array if _is_key(array) else np.asarray(array)


def _is_key(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


class _Interpreter:
    """Walks through jaxprs and lets the rules build the graph."""

    def __init__(self, builder: GraphBuilder):
        self.builder = builder

    def closed(self, closed: Any, values: Sequence[Value]) -> list[Value]:
        """The outputs of a closed jaxpr."""
        jaxpr = closed.jaxpr
        known: dict[Any, Value] = {}
        known.update(zip(jaxpr.constvars, (Constant(_host_array(x)) for x in closed.consts), strict=True))
        known.update(zip(jaxpr.invars, values, strict=True))

        def read(atom: Any) -> Value:
            if isinstance(atom, jex.Literal):
                aval: Any = atom.aval
                return Constant(np.asarray(atom.val, aval.dtype))
            return known[atom]

        for equation in jaxpr.eqns:
            outputs = self.equation(equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation: Any, values: list[Value]) -> list[Value]:
        """The outputs of one operation."""
        name, params = equation.primitive.name, equation.params
        try:
            if name == "cond":
                return self.cond(params["branches"], values)
            if name == "while" and not _all_constant(values):
                return self.while_loop(params, values)
            if name == "scan" and not _all_constant(values):
                return self.scan(params, values)
            if _all_constant(values) and any(_is_key(value.array) for value in values):  # type: ignore[union-attr]
                return self.evaluate(equation, values)  # random numbers: in one program, not in many
            if (callee := _callee(params)) is not None and name not in ("while", "scan"):
                return self.closed(callee, values[len(values) - len(callee.jaxpr.invars) :])
            if name == "select_n":  # first, as what is not selected may be unsupported
                return [select(self.builder, values)]
            return self.operation(equation, values)
        except UnsupportedOperation as error:
            return [UnsupportedValue(str(error))] * len(equation.outvars)

    def operation(self, equation: Any, values: list[Value]) -> list[Value]:
        """The outputs of an operation that has no inner jaxpr."""
        name = equation.primitive.name
        if name.startswith("random_") and not _all_constant(values):
            raise UnsupportedOperation("its action depends on random numbers")
        operands: list[Operand] = []
        for value in values:
            if isinstance(value, UnsupportedValue):
                raise UnsupportedOperation(value.reason)
            operands.append(value)
        rule = RULES.get(name) or LINEAR_RULES.get(name)
        dtypes = [str(atom.aval.dtype) for atom in (*equation.invars, *equation.outvars)]
        if rule is not None and all(dtype in DTYPES for dtype in dtypes):
            result = rule(self.builder, equation, *operands)
            return list(result) if isinstance(result, tuple) else [result]
        if _all_constant(values):
            return self.evaluate(equation, values)
        unusual = [f" on {dtype}" for dtype in dtypes if dtype not in DTYPES][:1]
        raise UnsupportedOperation(f"its action needs the operation {name}{''.join(unusual)}, which has no counterpart")

    def evaluate(self, equation: Any, values: Sequence[Any]) -> list[Value]:
        """The outputs of an operation on constants, computed by JAX."""
        arrays = [value.array if _is_key(value.array) else jnp.asarray(value.array) for value in values]
        result = equation.primitive.bind(*arrays, **equation.params)
        outputs = result if equation.primitive.multiple_results else [result]
        return [Constant(_host_array(array)) for array in outputs]

    def cond(self, branches: Sequence[Any], values: list[Value]) -> list[Value]:
        """The branch that is taken, or all of them and a selection."""
        index, *operands = values
        if isinstance(index, Constant):
            return self.closed(branches[int(np.clip(index.array, 0, len(branches) - 1))], operands)
        results = [self.closed(branch, operands) for branch in branches]
        return [select(self.builder, [index, *cases]) for cases in zip(*results, strict=True)]

    def while_loop(self, params: Any, values: list[Value]) -> list[Value]:
        """A loop whose end does not depend on the inputs, unrolled."""
        count, rest = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        cond_values, body_values, carry = values[:count], values[count:rest], values[rest:]
        for _ in range(MAX_ITERATIONS):
            (proceed,) = self.closed(params["cond_jaxpr"], [*cond_values, *carry])
            if not isinstance(proceed, Constant):
                break
            if not proceed.array:
                return list(carry)
            carry = self.closed(params["body_jaxpr"], [*body_values, *carry])
        raise UnsupportedOperation(
            f"its action needs a loop of more than {MAX_ITERATIONS} iterations, or of a number that depends on inputs"
        )

    def scan(self, params: Any, values: list[Value]) -> list[Value]:
        """A scan, unrolled."""
        length, num_consts = params["length"], params["num_consts"]
        if length > MAX_ITERATIONS:
            raise UnsupportedOperation(f"its action needs a scan of more than {MAX_ITERATIONS} iterations")
        start = num_consts + params["num_carry"]
        consts, carry, xs = values[:num_consts], values[num_consts:start], values[start:]
        rows: list[list[Value]] = [[]] * length
        for i in reversed(range(length)) if params["reverse"] else range(length):
            outputs = self.closed(params["jaxpr"], [*consts, *carry, *(self.row(x, i) for x in xs)])
            carry, rows[i] = outputs[: len(carry)], outputs[len(carry) :]
        return [*carry, *(self.stack(list(column)) for column in zip(*rows, strict=True))]

    def row(self, value: Value, i: int) -> Value:
        """Row ``i`` of the leading axis."""
        if isinstance(value, UnsupportedValue):
            return value
        if isinstance(value, Constant):
            return Constant(value.array[i], value.name)
        tail = value.shape[1:]
        sliced = self.builder.slice(value, (i, *[0] * len(tail)), (i + 1, *tail), [1] * len(value.shape))
        return self.builder.reshape(sliced, tail)

    def stack(self, values: list[Value]) -> Value:
        """Rows as a new leading axis."""
        rows: list[Operand] = []
        for value in values:
            if isinstance(value, UnsupportedValue):
                return value
            rows.append(self.builder.reshape(value, (1, *value.shape)))
        return self.builder.concatenate(rows, 0)


def _all_constant(values: Sequence[Value]) -> bool:
    return all(isinstance(value, Constant) for value in values)


def _callee(params: dict[str, Any]) -> Any:
    """The inner jaxpr of an operation that only calls a function, closed; ``None`` if there is none."""
    inner = [p for key in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call") if (p := params.get(key)) is not None]
    if not inner:
        return None
    return inner[0] if isinstance(inner[0], jex.ClosedJaxpr) else jex.ClosedJaxpr(inner[0], ())
