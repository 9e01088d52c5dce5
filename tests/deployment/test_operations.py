"""The rules of single operations: programs in NumPy and in ONNX Runtime give what JAX gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.deployment.graph import Graph
from thespis.deployment.numpy_policy import OPERATORS
from thespis.deployment.onnx_format import to_onnx
from thespis.deployment.rules import UnsupportedOperation
from thespis.deployment.tracing import finish, trace
from thespis.nets.convolution import conv2d, max_pool

X = np.linspace(-2.5, 2.5, 24, dtype="float32").reshape(2, 3, 4)
N = np.array([[5, -3, 2], [0, 7, -1]], "int32")
B = np.array([True, False, True])
IMAGE = np.arange(7 * 6 * 2, dtype="uint8").reshape(7, 6, 2)
KERNEL = np.linspace(-1, 1, 3 * 3 * 2 * 5, dtype="float32").reshape(3, 3, 2, 5)
INPUTS = {"b": B, "image": IMAGE, "n": N, "x": X}


def elementwise(p, i):
    x, n, b = i["x"], i["n"], i["b"]
    functions = (jnp.tanh, jnp.exp, jax.nn.sigmoid, jnp.sign, jnp.floor, jnp.ceil, jnp.round, jnp.abs, jnp.sin, jnp.cos)
    functions += (jnp.expm1, jax.nn.softplus, jax.nn.gelu, jax.nn.silu, jnp.square, lambda x: x**3, lambda x: x**-2)
    functions += (jax.scipy.special.erf, jax.scipy.special.erfc, jnp.exp2, jax.nn.relu, jax.nn.elu)
    results = {function.__name__ + str(j): function(x) for j, function in enumerate(functions)}
    positive = jnp.abs(x) + 1e-7
    return results | {
        "logs": jnp.stack([jnp.log(positive), jnp.log1p(positive), jax.lax.rsqrt(positive), positive**0.7]),
        "integers": jnp.stack([n // 3, n % 3, jax.lax.rem(n, 2), jnp.maximum(n, 1), n * n - n]),
        "division": jax.lax.div(n, jnp.int32(2)),
        "bools": jnp.stack([b & ~b[::-1], b | (b != b[::-1]), b ^ b[::-1], b == b[::-1]]),
        "chosen": jnp.where(b, n, -n).astype("float32"),
        "chosen bools": jnp.where(b, n > 0, n < 3),
        "clipped": jnp.clip(x, -1, 0.5),
        "finite": jnp.isfinite(jnp.log(x)),
    }


def shapes(p, i):
    x, n, b = i["x"], i["n"], i["b"]
    return {
        "softmax": jax.nn.log_softmax(x, axis=1),
        "sums": jnp.sum(x, axis=(0, 2)) + jnp.prod(n, axis=0) + jnp.max(n) + jnp.min(x),
        "any": jnp.stack([jnp.any(b), jnp.all(b)]),
        "argmax": jnp.stack([jnp.argmax(n, axis=1), jnp.argmin(n, axis=1), jnp.argmax(n > 1, axis=1)]),
        "cumsum": jnp.cumsum(x, axis=1),
        "reverse cumsum": jax.lax.cumsum(n, axis=1, reverse=True),
        "pad": jnp.pad(x, ((0, 0), (1, 2), (0, 0)), constant_values=3.0),
        "cut": jax.lax.pad(n, jnp.int32(9), ((-1, 1, 0), (1, -1, 0))),
        "strided": x[:, ::2, 1:3][::-1],
        "reversed": x[..., ::-1],
        "split": jnp.concatenate(jnp.split(x, 2, axis=2)[::-1], axis=1),
        "einsum": jnp.einsum("abc,dbc->da", x, x),
        "batched": jnp.einsum("abc,adc->abd", x, x + 1),
        "sorted": jnp.sort(n, axis=1),
        "argsort": jnp.argsort(x[0] ** 2, axis=0),
        "top": jnp.stack(jax.lax.top_k(n, 2)),
        "one hot": jax.nn.one_hot(n[0], 6),
    }


def indices(p, i):
    x, n = i["x"], i["n"]
    return {
        "rows": p["table"][n % 5],
        "elements": jnp.take_along_axis(x, n[..., None] % 4, axis=2),
        "outside": jnp.take(p["table"], n, axis=0, mode="fill", fill_value=-1.0),
        "clipped": jnp.take(p["table"], n, axis=0, mode="clip"),
        "batch": jax.vmap(lambda row, j: row[:, j % 4])(x, n[:, 0]),
        "window": jax.lax.dynamic_slice(x, (n[0, 1], n[0, 2], n[0, 0]), (1, 2, 3)),
        "updated": jax.lax.dynamic_update_slice(x, jnp.zeros((1, 2, 2)), (n[0, 2], n[1, 2], n[0, 2])),
    }


def convolutions(p, i):
    image = i["image"].astype("float32")
    lax = jax.lax.conv_general_dilated(
        image[None], p["kernel"][..., :1, :4], (1, 2), ((1, 0), (2, 1)), rhs_dilation=(2, 1), feature_group_count=2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    return {
        "own": conv2d(i["image"], p["kernel"], stride=2),
        "same": conv2d(i["image"], p["kernel"], stride=2, padding="SAME"),
        "several": jax.vmap(lambda x: conv2d(x, p["kernel"]))(jnp.stack([image, image + 1])),
        "groups": lax,
        "pooled": max_pool(image, 3, 2, "SAME"),
    }


def control_flow(p, i):
    x, n = i["x"], i["n"]

    def cell(carry, row):
        carry = jnp.tanh(carry + row)
        return carry, carry.sum()

    carry, sums = jax.lax.scan(cell, x[0, 0], x[1])
    backwards = jax.lax.scan(cell, x[0, 0], x[1], reverse=True)[1]
    return {
        "carry": carry,
        "sums": sums + backwards,
        "loop": jax.lax.fori_loop(0, 3, lambda i, y: y * 0.5 + i, x[0]),
        "branch": jax.lax.cond(n[0, 0] > 3, lambda y: y + 1, lambda y: y * 2, x[0]),
        "switch": jax.lax.switch(n[0, 2], [jnp.sin, jnp.cos, jnp.tanh], x[0]),
        "known branch": jax.lax.cond(p["edges"][0] < 0, lambda y: y + 1, lambda y: y * 2, x[0]),
    }


PARAMETERS = {
    "edges": np.array([-2.0, 0.0, 0.1, 2.0], "float32"),
    "kernel": KERNEL,
    "table": np.linspace(0, 1, 20, dtype="float32").reshape(5, 4),
}


def run_numpy(graph: Graph, inputs):
    values = graph.constants | inputs
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            result = OPERATORS[node.op](*(values[name] for name in node.inputs), **node.attributes)
            values.update(zip(node.outputs, result if isinstance(result, tuple) else (result,), strict=True))
    return {name: values[tensor.name] for name, tensor in graph.results.items()}


def run_onnx(graph: Graph, inputs):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(graph, "test", {"purpose": "test"}))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


@pytest.mark.parametrize("function", [elementwise, shapes, indices, convolutions, control_flow])
def test_programs_give_what_jax_gives(function):
    expected = jax.jit(function)(PARAMETERS, INPUTS)
    structs = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in INPUTS.items()}
    graph = finish(*trace(function, PARAMETERS, structs, {}))
    used = {name for node in graph.nodes for name in node.inputs}
    for run in (run_numpy, run_onnx):
        inputs = INPUTS if run is run_numpy else {name: INPUTS[name] for name in INPUTS}
        actual = run(graph, inputs)
        for name, value in expected.items():
            assert actual[name].dtype == value.dtype and actual[name].shape == value.shape, name
            np.testing.assert_allclose(actual[name], value, rtol=3e-5, atol=2e-6, err_msg=f"{run.__name__} {name}")
    assert used & set(INPUTS)  # it was a program, not a constant


def test_only_what_an_output_needs_must_be_supported():
    def function(p, i):
        explore = jax.random.uniform(jax.random.key(0)) < p["epsilon"]
        random = jax.random.randint(jax.random.fold_in(jax.random.key(1), i["n"]), (), 0, 9)
        return {"action": jnp.where(explore, random, i["n"])}

    structs = {"n": jax.ShapeDtypeStruct((), "int32")}
    graph = finish(*trace(function, {"epsilon": np.float32(0)}, structs, {}))
    assert not graph.nodes and graph.results["action"].name == "n"
    with pytest.raises(UnsupportedOperation, match="random"):
        finish(*trace(function, {"epsilon": np.float32(1)}, structs, {}))


def test_equal_work_is_done_once_and_constants_are_computed_before():
    def function(p, i):
        return {"y": jnp.tanh(i["x"] @ p["w"].T) + jnp.tanh(i["x"] @ p["again"].T), "z": jnp.exp(p["w"]).sum() + i["x"]}

    w = np.ones((3, 4), "float32")
    graph = finish(*trace(function, {"w": w, "again": w}, {"x": jax.ShapeDtypeStruct((2, 4), "float32")}, {}))
    assert sorted(node.op for node in graph.nodes) == ["Add", "Add", "MatMul", "Tanh"]
    assert {name.split(".")[0].split("#")[0] for name in graph.constants} <= {"w", "again"}
