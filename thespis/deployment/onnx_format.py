"""Writes an exported program as an ONNX model."""

from __future__ import annotations

from typing import Any

import numpy as np

from thespis.core.errors import missing_extra
from thespis.deployment.graph import Graph, Node, Tensor

OPSET, IR_VERSION = 18, 9
"""Versions of ONNX from 2023: older runtimes read the models too."""

BEFORE_FIRST = -(2**62)
"""The end of a slice that runs backwards to the first element."""


def to_onnx(graph: Graph, name: str, metadata: dict[str, str]) -> bytes:
    """The model's bytes, checked by ``onnx``. Raises ``UserError`` if ``onnx`` is not installed."""
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ImportError as error:
        raise missing_extra("onnx", "export") from error
    writer = _Writer(helper)
    for node in graph.nodes:
        writer.add(node)
    for output, tensor in graph.results.items():
        writer.nodes.append(helper.make_node("Identity", [tensor.name], [output]))
    constants = graph.constants | writer.constants
    model = helper.make_model(
        helper.make_graph(
            writer.nodes,
            name,
            [_value_info(helper, tensor) for tensor in graph.inputs],
            [_value_info(helper, Tensor(output, t.shape, t.dtype)) for output, t in graph.results.items()],
            [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="thespis",
    )
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    return model.SerializeToString()


class _Writer:
    """Nodes of ONNX, with static arguments as constants where ONNX wants them as inputs."""

    def __init__(self, helper: Any):
        self.helper, self.nodes, self.constants = helper, [], {}

    def add(self, node: Node) -> None:
        """Append one operation."""
        attributes, inputs = dict(node.attributes), list(node.inputs)
        match node.op:
            case "Reshape" | "Expand":
                inputs.append(self._integers(attributes.pop("shape")))
            case "Slice":
                ends = [BEFORE_FIRST if end < 0 else end for end in attributes.pop("ends")]
                starts, steps = attributes.pop("starts"), attributes.pop("steps")
                axes = list(range(len(starts)))
                inputs += [self._integers(values) for values in (starts, ends, axes, steps)]
            case "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceSum":
                inputs.append(self._integers(attributes.pop("axes")))
                attributes["keepdims"] = 0
            case "ArgMax" | "ArgMin":
                attributes["keepdims"] = 0
            case "Pad":
                inputs.insert(1, self._integers(attributes.pop("pads")))
            case "CumSum":
                inputs.append(self._integers(attributes.pop("axis"), scalar=True))
            case "TopK":
                inputs.append(self._integers([attributes.pop("k")]))
            case "Cast":
                attributes["to"] = self.helper.np_dtype_to_tensor_dtype(np.dtype(attributes["to"]))
            case "Mod":
                attributes["fmod"] = 1
        self.nodes.append(self.helper.make_node(node.op, inputs, list(node.outputs), **attributes))

    def _integers(self, values: Any, scalar: bool = False) -> str:
        """The name of a constant of integers."""
        name = f"integers/{values}"
        self.constants[name] = np.asarray(values, "int64").reshape(() if scalar else (-1,))
        return name


def _value_info(helper: Any, tensor: Tensor) -> Any:
    return helper.make_tensor_value_info(
        tensor.name, helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)), tensor.shape
    )
