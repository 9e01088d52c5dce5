"""How each of JAX's primitives is built from operators of ONNX: one rule per primitive, in :data:`RULES`.

A rule takes the builder, the jaxpr's equation and the operands, and returns the result (a tuple if there are several).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from thespis.deployment.graph import Constant, GraphBuilder, Operand, UnsupportedValue, constant, size

Rule = Callable[..., Any]


class UnsupportedOperation(Exception):
    """An operation that has no counterpart; the text says what, for an error message."""


def select(builder: GraphBuilder, values: Sequence[Any]) -> Any:
    """``select_n``: of the values after the first, the one that the first says, element by element.

    If that is a constant, the other values may be unsupported.
    """
    which, *cases = values
    if isinstance(which, UnsupportedValue):
        return which
    if isinstance(which, Constant) and which.array.size and np.all(which.array == which.array.flat[0]):
        return cases[int(which.array.flat[0])]
    for case in cases:
        if isinstance(case, UnsupportedValue):
            return case
    if which.dtype == "bool":
        return builder.where(which, cases[1], cases[0])
    result = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        result = builder.where(builder.binary("LessOrEqual", which, constant(i, which.dtype), "bool"), cases[i], result)
    return result


def _unary(op: str) -> Rule:
    return lambda builder, equation, x: builder.unary(op, x)


def _same(builder: GraphBuilder, equation: Any, *operands: Operand) -> Any:
    return tuple(operands)


def _binary(op: str) -> Rule:
    return lambda builder, equation, a, b: builder.binary(op, a, b)


def _comparison(op: str) -> Rule:
    """A comparison; two bools are compared as numbers."""

    def rule(builder: GraphBuilder, equation: Any, a: Operand, b: Operand) -> Operand:
        if a.dtype in ("bool", "int8", "uint8"):
            a, b = builder.cast(a, "int32"), builder.cast(b, "int32")
        return builder.binary(op, a, b, "bool")

    return rule


def _logical(op: str) -> Rule:
    def rule(builder: GraphBuilder, equation: Any, *operands: Operand) -> Operand:
        if operands[0].dtype != "bool":
            raise UnsupportedOperation(f"its action needs the bitwise operation {equation.primitive.name}")
        return builder.unary(op, operands[0]) if len(operands) == 1 else builder.binary(op, operands[0], operands[1])

    return rule


def _not_equal(builder: GraphBuilder, equation: Any, a: Operand, b: Operand) -> Operand:
    return builder.unary("Not", _comparison("Equal")(builder, equation, a, b))


def _number(x: Operand, value: float | int) -> Constant:
    return constant(value, x.dtype)


def _rsqrt(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    return builder.binary("Div", _number(x, 1), builder.unary("Sqrt", x))


def _log1p(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    """``log(1 + x)``, exact for small ``x``: ``x log(u) / (u - 1)`` with ``u = 1 + x`` (Kahan)."""
    u = builder.binary("Add", x, _number(x, 1))
    difference = builder.binary("Sub", u, _number(x, 1))
    is_zero = builder.binary("Equal", difference, _number(x, 0), "bool")
    safe = builder.where(is_zero, _number(x, 1), difference)
    ratio = builder.binary("Div", x, safe)
    is_infinite = builder.binary("Greater", u, _number(x, float(np.finfo(x.dtype).max)), "bool")
    log = builder.unary("Log", u)
    scaled = builder.binary("Mul", log, builder.where(is_infinite, _number(x, 1), ratio))
    return builder.where(is_zero, x, scaled)


def _expm1(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    """``exp(x) - 1 = 2 tanh(x / 2) / (1 - tanh(x / 2))``, exact for small ``x``; directly where ``|x| > 1``."""
    t = builder.unary("Tanh", builder.binary("Mul", x, _number(x, 0.5)))
    small = builder.binary("Div", builder.binary("Mul", t, _number(x, 2)), builder.binary("Sub", _number(x, 1), t))
    large = builder.binary("Sub", builder.unary("Exp", x), _number(x, 1))
    is_large = builder.binary("Greater", builder.unary("Abs", x), _number(x, 1), "bool")
    return builder.where(is_large, large, small)


def _square(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    return builder.binary("Mul", x, x)


def _integer_pow(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    exponent = equation.params["y"]
    power, result, remaining = x, None, abs(exponent)
    while remaining:
        if remaining & 1:
            result = power if result is None else builder.binary("Mul", result, power)
        power, remaining = builder.binary("Mul", power, power), remaining >> 1
    if result is None:
        return Constant(np.ones(x.shape, x.dtype))
    return builder.binary("Div", _number(x, 1), result) if exponent < 0 else result


def _is_finite(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    unusual = builder.binary(
        "Or", builder.emit("IsInf", [x], x.shape, "bool"), builder.emit("IsNaN", [x], x.shape, "bool")
    )
    return builder.unary("Not", unusual)


def _clamp(builder: GraphBuilder, equation: Any, low: Operand, x: Operand, high: Operand) -> Operand:
    return builder.binary("Min", builder.binary("Max", x, low), high)


def _erfc(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    return builder.binary("Sub", _number(x, 1), builder.unary("Erf", x))


def _exp2(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    return builder.binary("Pow", _number(x, 2), x)


def _round(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    if equation.params["rounding_method"] != jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        raise UnsupportedOperation("its action rounds halves away from zero")
    return builder.unary("Round", x)


def _cast(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    return builder.cast(x, str(equation.outvars[0].aval.dtype))


def _reshape(builder: GraphBuilder, equation: Any, x: Operand, *rest: Operand) -> Operand:
    if equation.params.get("dimensions") is not None:
        x = builder.transpose(x, equation.params["dimensions"])
    return builder.reshape(x, equation.outvars[0].aval.shape)


def _broadcast_in_dim(builder: GraphBuilder, equation: Any, x: Operand, *rest: Operand) -> Operand:
    shape = equation.outvars[0].aval.shape
    aligned = [1] * len(shape)
    for axis, target in enumerate(equation.params["broadcast_dimensions"]):
        aligned[target] = x.shape[axis]
    return builder.expand(builder.reshape(x, tuple(aligned)), shape)


def _transpose(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    return builder.transpose(x, equation.params["permutation"])


def _slice(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    params = equation.params
    return builder.slice(x, params["start_indices"], params["limit_indices"], params["strides"] or [1] * len(x.shape))


def _rev(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    reverse = equation.params["dimensions"]
    starts = [n - 1 if axis in reverse else 0 for axis, n in enumerate(x.shape)]
    ends = [-1 if axis in reverse else n for axis, n in enumerate(x.shape)]
    return builder.slice(x, starts, ends, [-1 if axis in reverse else 1 for axis in range(len(x.shape))])


def _concatenate(builder: GraphBuilder, equation: Any, *parts: Operand) -> Operand:
    return builder.concatenate(list(parts), equation.params["dimension"])


def _stack(builder: GraphBuilder, equation: Any, *parts: Operand) -> Operand:
    axis = equation.params["axis"]
    shape = parts[0].shape
    return builder.concatenate([builder.reshape(part, (*shape[:axis], 1, *shape[axis:])) for part in parts], axis)


def _split(builder: GraphBuilder, equation: Any, x: Operand) -> tuple[Operand, ...]:
    axis, pieces, start = equation.params["axis"], [], 0
    for length in equation.params["sizes"]:
        starts, ends = [0] * len(x.shape), list(x.shape)
        starts[axis], ends[axis] = start, start + length
        pieces.append(builder.slice(x, starts, ends, [1] * len(x.shape)))
        start += length
    return tuple(pieces)


def _pad(builder: GraphBuilder, equation: Any, x: Operand, value: Operand) -> Operand:
    config = equation.params["padding_config"]
    if any(interior for _, _, interior in config):
        raise UnsupportedOperation("its action pads between elements")
    ends = [n + min(high, 0) for n, (_, high, _) in zip(x.shape, config, strict=True)]
    x = builder.slice(x, [max(-low, 0) for low, _, _ in config], ends, [1] * len(config))
    pads = [max(low, 0) for low, _, _ in config] + [max(high, 0) for _, high, _ in config]
    if not any(pads):
        return x
    if x.dtype in ("bool", "uint8", "int8"):
        x, value = builder.cast(x, "int32"), builder.cast(value, "int32")
    padded = builder.emit("Pad", [x, value], equation.outvars[0].aval.shape, x.dtype, pads=pads)
    return builder.cast(padded, str(equation.outvars[0].aval.dtype))


def _iota(builder: GraphBuilder, equation: Any, *rest: Operand) -> Operand:
    aval, axis = equation.outvars[0].aval, equation.params["dimension"]
    counted = np.arange(aval.shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(aval.shape))])
    return constant(np.broadcast_to(counted, aval.shape), str(aval.dtype))


def _reduce(op: str) -> Rule:
    return lambda builder, equation, x: builder.reduce(op, x, equation.params["axes"])


def _reduce_bool(op: str) -> Rule:
    """A reduction of bools, which operators of ONNX do not take: as numbers."""

    def rule(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
        if x.dtype != "bool":
            raise UnsupportedOperation(f"its action needs the bitwise operation {equation.primitive.name}")
        return builder.cast(builder.reduce(op, builder.cast(x, "int32"), equation.params["axes"]), "bool")

    return rule


def _arg_reduce(op: str) -> Rule:
    def rule(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
        (axis,) = equation.params["axes"]
        x = builder.cast(x, "int32") if x.dtype in ("bool", "int8", "uint8") else x
        index = builder.emit(op, [x], equation.outvars[0].aval.shape, "int64", axis=int(axis))
        return builder.cast(index, str(equation.outvars[0].aval.dtype))

    return rule


def _cumsum(builder: GraphBuilder, equation: Any, x: Operand) -> Operand:
    params = equation.params
    return builder.emit("CumSum", [x], x.shape, x.dtype, axis=int(params["axis"]), reverse=int(params["reverse"]))


def _sort(builder: GraphBuilder, equation: Any, *operands: Operand) -> Any:
    if equation.params["num_keys"] != 1:
        raise UnsupportedOperation("its action sorts by several keys")
    keys, axis = operands[0], int(equation.params["dimension"]) % len(operands[0].shape)
    length = keys.shape[axis]
    whole = builder.cast(keys, "int32") if keys.dtype in ("bool", "int8", "uint8") else keys
    ordered, order = builder.emit_many(
        "TopK", [whole], [(keys.shape, whole.dtype), (keys.shape, "int64")], axis=axis, k=length, largest=0
    )
    results = [builder.cast(ordered, keys.dtype)]
    if len(operands) > 1:  # the other operands in the same order, by their numbers in the flat array
        flat = np.arange(size(keys.shape)).reshape(keys.shape)
        first = np.take(flat, [0], axis)
        step = size(keys.shape[axis + 1 :])
        index = builder.binary("Add", builder.binary("Mul", order, constant(step, "int64")), constant(first, "int64"))
        results += [builder.take(builder.reshape(x, (size(x.shape),)), index) for x in operands[1:]]
    return tuple(results)


def _top_k(builder: GraphBuilder, equation: Any, x: Operand) -> Any:
    shape, axis = equation.outvars[0].aval.shape, len(x.shape) - 1
    values, order = builder.emit_many(
        "TopK", [x], [(shape, x.dtype), (shape, "int64")], axis=axis, k=int(equation.params["k"]), largest=1
    )
    return values, builder.cast(order, str(equation.outvars[1].aval.dtype))


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "copy",
            "copy_p",
            "layout_constraint",
            "optimization_barrier",
            "reduce_precision",
            "sharding_constraint",
            "stop_gradient",
            "xla_metadata_value",
        ),
        _same,
    ),
    **{
        name: _unary(op)
        for name, op in {
            "abs": "Abs",
            "ceil": "Ceil",
            "cos": "Cos",
            "erf": "Erf",
            "exp": "Exp",
            "floor": "Floor",
            "log": "Log",
            "logistic": "Sigmoid",
            "neg": "Neg",
            "sign": "Sign",
            "sin": "Sin",
            "sqrt": "Sqrt",
            "tanh": "Tanh",
        }.items()
    },
    **{
        name: _binary(op)
        for name, op in {
            "add": "Add",
            "add_any": "Add",
            "div": "Div",
            "max": "Max",
            "min": "Min",
            "mul": "Mul",
            "pow": "Pow",
            "rem": "Mod",
            "sub": "Sub",
        }.items()
    },
    **{
        name: _comparison(op)
        for name, op in {
            "eq": "Equal",
            "ge": "GreaterOrEqual",
            "gt": "Greater",
            "le": "LessOrEqual",
            "le_to": "LessOrEqual",
            "lt": "Less",
            "lt_to": "Less",
        }.items()
    },
    **{name: _logical(op) for name, op in {"and": "And", "not": "Not", "or": "Or", "xor": "Xor"}.items()},
    **{
        name: _reduce(op)
        for name, op in {
            "reduce_max": "ReduceMax",
            "reduce_min": "ReduceMin",
            "reduce_prod": "ReduceProd",
            "reduce_sum": "ReduceSum",
        }.items()
    },
    "argmax": _arg_reduce("ArgMax"),
    "argmin": _arg_reduce("ArgMin"),
    "broadcast_in_dim": _broadcast_in_dim,
    "clamp": _clamp,
    "concatenate": _concatenate,
    "convert_element_type": _cast,
    "cumsum": _cumsum,
    "erfc": _erfc,
    "exp2": _exp2,
    "expand_dims": _reshape,
    "expm1": _expm1,
    "integer_pow": _integer_pow,
    "iota": _iota,
    "is_finite": _is_finite,
    "log1p": _log1p,
    "ne": _not_equal,
    "pad": _pad,
    "reduce_and": _reduce_bool("ReduceMin"),
    "reduce_or": _reduce_bool("ReduceMax"),
    "reshape": _reshape,
    "rev": _rev,
    "round": _round,
    "rsqrt": _rsqrt,
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "square": _square,
    "squeeze": _reshape,
    "stack": _stack,
    "top_k": _top_k,
    "transpose": _transpose,
}
