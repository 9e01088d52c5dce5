"""Rules of products, convolutions and indexing: how those primitives of JAX are built from operators of ONNX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from thespis.deployment.graph import Constant, GraphBuilder, Operand, constant, size
from thespis.deployment.rules import Rule, UnsupportedOperation


def dot_general(builder: GraphBuilder, equation: Any, a: Operand, b: Operand) -> Operand:
    """A product with batch and contracted axes, as one batched product of matrices."""
    (a_contract, b_contract), (a_batch, b_batch) = equation.params["dimension_numbers"]
    dtype = str(equation.outvars[0].aval.dtype)
    a, b = builder.cast(a, dtype), builder.cast(b, dtype)
    a_free = [axis for axis in range(len(a.shape)) if axis not in (*a_batch, *a_contract)]
    b_free = [axis for axis in range(len(b.shape)) if axis not in (*b_batch, *b_contract)]
    batch = tuple(a.shape[axis] for axis in a_batch)
    summed = size(tuple(a.shape[axis] for axis in a_contract))
    a_shape, b_shape = (tuple(x.shape[axis] for axis in free) for x, free in ((a, a_free), (b, b_free)))
    left = builder.transpose(a, (*a_batch, *a_free, *a_contract))
    right = builder.transpose(b, (*b_batch, *b_contract, *b_free))
    product = builder.matmul(
        builder.reshape(left, (*batch, size(a_shape), summed)), builder.reshape(right, (*batch, summed, size(b_shape)))
    )
    return builder.reshape(product, (*batch, *a_shape, *b_shape))


def conv2d(builder: GraphBuilder, equation: Any, images: Operand, kernel: Operand) -> Operand:
    """The package's own convolution, channels last."""
    stride, padding = equation.params["stride"], equation.params["padding"]
    pads = jax.lax.padtype_to_pads(images.shape[1:3], kernel.shape[:2], (stride, stride), padding)
    images = builder.transpose(builder.cast(images, kernel.dtype), (0, 3, 1, 2))
    kernel = builder.transpose(kernel, (3, 2, 0, 1))
    result = _conv(builder, images, kernel, (stride, stride), pads, (1, 1), 1)
    return builder.transpose(result, (0, 2, 3, 1))


def conv_general_dilated(builder: GraphBuilder, equation: Any, images: Operand, kernel: Operand) -> Operand:
    """JAX's convolution; transposed ones are not supported."""
    params = equation.params
    if any(d != 1 for d in params["lhs_dilation"]) or params["batch_group_count"] != 1:
        raise UnsupportedOperation("its action needs a transposed convolution")
    if any(low < 0 or high < 0 for low, high in params["padding"]):
        raise UnsupportedOperation("its action needs a convolution with negative padding")
    numbers = params["dimension_numbers"]
    result = _conv(
        builder,
        builder.transpose(images, numbers.lhs_spec),
        builder.transpose(kernel, numbers.rhs_spec),
        params["window_strides"],
        params["padding"],
        params["rhs_dilation"],
        params["feature_group_count"],
    )
    return builder.transpose(result, np.argsort(numbers.out_spec))


def _conv(
    builder: GraphBuilder,
    images: Operand,
    kernel: Operand,
    strides: Any,
    pads: Any,
    dilations: Any,
    group: int,
) -> Operand:
    """A convolution, channels first."""
    spatial = zip(images.shape[2:], kernel.shape[2:], strides, pads, dilations, strict=True)
    sizes = [(n + low + high - (k - 1) * d - 1) // s + 1 for n, k, s, (low, high), d in spatial]
    return builder.emit(
        "Conv",
        [images, kernel],
        (images.shape[0], kernel.shape[0], *sizes),
        images.dtype,
        strides=[int(s) for s in strides],
        pads=[int(low) for low, _ in pads] + [int(high) for _, high in pads],
        dilations=[int(d) for d in dilations],
        group=int(group),
    )


def gather(builder: GraphBuilder, equation: Any, x: Operand, indices: Operand) -> Operand:
    """Windows of ``x`` at the positions in ``indices``, as single elements of the flat ``x``."""
    numbers, window = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    shape = equation.outvars[0].aval.shape
    batch, depth = indices.shape[:-1], indices.shape[-1]
    starts, valid = _starts(builder, x, indices, numbers.start_index_map, window)
    strides = [size(x.shape[axis + 1 :]) for axis in range(len(x.shape))]
    first: Operand = constant(np.zeros(batch), "int64")
    for i in range(depth):
        first = builder.binary(
            "Add", first, builder.binary("Mul", starts[i], _i64(strides[numbers.start_index_map[i]]))
        )
    for axis, batch_axis in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        counted = np.arange(x.shape[axis]).reshape([-1 if j == batch_axis else 1 for j in range(len(batch))])
        first = builder.binary("Add", first, _i64(np.broadcast_to(counted * strides[axis], batch)))
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [axis for axis in range(len(x.shape)) if axis not in dropped]
    inner = tuple(window[axis] for axis in kept)
    offsets = np.zeros(inner, "int64")
    for i, axis in enumerate(kept):
        offsets += np.arange(window[axis]).reshape([-1 if j == i else 1 for j in range(len(kept))]) * strides[axis]
    outer = builder.reshape(first, (*batch, *[1] * len(inner)))
    result = builder.take(builder.reshape(x, (size(x.shape),)), builder.binary("Add", outer, _i64(offsets)))
    if equation.params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP:
        fill = equation.params["fill_value"]
        missing = constant(_default_fill(x.dtype) if fill is None else fill, x.dtype)
        result = builder.where(builder.reshape(valid, (*batch, *[1] * len(inner))), result, missing)
    order = iter(range(len(batch)))
    inside = {axis: len(batch) + i for i, axis in enumerate(numbers.offset_dims)}
    return builder.transpose(result, [inside[axis] if axis in inside else next(order) for axis in range(len(shape))])


def _starts(
    builder: GraphBuilder, x: Operand, indices: Operand, axes: Any, window: Any
) -> tuple[list[Operand], Operand]:
    """Each axis's first position, moved inside, and whether all were inside."""
    batch, starts = indices.shape[:-1], []
    valid: Operand = constant(np.ones(batch), "bool")
    for i, axis in enumerate(axes):
        begin, end = [0] * len(batch) + [i], [*batch, i + 1]
        column = builder.reshape(builder.slice(indices, begin, end, [1] * len(end)), batch)
        column = builder.cast(column, "int64")
        last = _i64(x.shape[axis] - window[axis])
        inside = builder.binary(
            "And",
            builder.binary("GreaterOrEqual", column, _i64(0), "bool"),
            builder.binary("LessOrEqual", column, last, "bool"),
        )
        valid = builder.binary("And", valid, inside)
        starts.append(builder.binary("Min", builder.binary("Max", column, _i64(0)), last))
    return starts, valid


def dynamic_slice(builder: GraphBuilder, equation: Any, x: Operand, *positions: Operand) -> Operand:
    """A window of ``x`` whose position is computed; it is moved inside."""
    window = equation.params["slice_sizes"]
    index = _window_index(builder, x, positions, window)
    return builder.take(builder.reshape(x, (size(x.shape),)), index)


def _window_index(builder: GraphBuilder, x: Operand, positions: Any, window: Any) -> Operand:
    """The numbers, in the flat ``x``, of a window's elements."""
    index: Operand = _i64(np.zeros(window))
    for axis, position in enumerate(positions):
        stride, last = size(x.shape[axis + 1 :]), _i64(x.shape[axis] - window[axis])
        start = builder.binary("Min", builder.binary("Max", builder.cast(position, "int64"), _i64(0)), last)
        counted = np.arange(window[axis]).reshape([-1 if j == axis else 1 for j in range(len(window))])
        along = builder.binary("Mul", builder.binary("Add", start, _i64(counted)), _i64(stride))
        index = builder.binary("Add", index, along)
    return index


def dynamic_update_slice(builder: GraphBuilder, equation: Any, x: Operand, update: Operand, *positions: Any) -> Operand:
    """``x`` with a window replaced, whose position is computed: each element is of ``x`` or of ``update``."""
    source: Operand = _i64(np.zeros(x.shape))
    inside: Operand = constant(np.ones(x.shape), "bool")
    for axis, position in enumerate(positions):
        last = _i64(x.shape[axis] - update.shape[axis])
        start = builder.binary("Min", builder.binary("Max", builder.cast(position, "int64"), _i64(0)), last)
        counted = np.arange(x.shape[axis]).reshape([-1 if j == axis else 1 for j in range(len(x.shape))])
        offset = builder.binary("Sub", _i64(counted), start)
        within = builder.binary(
            "And",
            builder.binary("GreaterOrEqual", offset, _i64(0), "bool"),
            builder.binary("Less", offset, _i64(update.shape[axis]), "bool"),
        )
        inside = builder.binary("And", inside, within)
        clipped = builder.binary("Min", builder.binary("Max", offset, _i64(0)), _i64(update.shape[axis] - 1))
        source = builder.binary("Add", source, builder.binary("Mul", clipped, _i64(size(update.shape[axis + 1 :]))))
    return builder.where(inside, builder.take(builder.reshape(update, (size(update.shape),)), source), x)


def _default_fill(dtype: str) -> Any:
    """What an index outside reads by default: NaN, or the smallest integer (largest, if unsigned)."""
    if np.issubdtype(dtype, np.floating):
        return np.nan
    if dtype == "bool":
        return True
    info = np.iinfo(dtype)
    return info.min if info.min < 0 else info.max


def _i64(value: Any) -> Constant:
    return constant(value, "int64")


LINEAR_RULES: dict[str, Rule] = {
    "conv2d": conv2d,
    "conv_general_dilated": conv_general_dilated,
    "dot_general": dot_general,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
}
