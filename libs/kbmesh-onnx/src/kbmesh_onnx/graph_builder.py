"""Writing an ONNX graph node by node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from kbmesh_onnx.folder import WEIGHTS_FILE
from kbmesh_onnx.weights_file import StoredTensor

# LayerNormalization is standard from 17 on; TensorRT and old runtimes read 17.
OPSET = 17
IR_VERSION = 8
CONTRIB = "com.microsoft"


@dataclass
class GraphBuilder:
    """Collects nodes and the weights that they refer to."""

    stored: Mapping[str, StoredTensor]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and give the name of its first output."""
        return self.split(operator, *inputs, outputs=1, domain=domain, **attributes)[0]

    def split(self, operator: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node and give the names of its outputs."""
        name = f"{operator}_{len(self.nodes)}"
        names = [f"{name}.{output}" for output in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, name=name, domain=domain, **attributes))
        return names

    def weight(self, name: str) -> str:
        """Refer to a tensor of the weights file."""
        if name not in self.initializers:
            place = self.stored[name]
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=place.shape)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", WEIGHTS_FILE), ("offset", place.offset), ("length", place.length)):
                tensor.external_data.add(key=key, value=str(value))
            self.initializers[name] = tensor
        return name

    def integers(self, *values: int) -> str:
        """Refer to a one-dimensional int64 constant."""
        name = f"integers_{'_'.join(str(value) for value in values)}"
        self.initializers.setdefault(name, helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def number(self, value: float) -> str:
        """Refer to a float constant of no dimension."""
        name = f"number_{value!r}"
        self.initializers.setdefault(name, helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
        return name

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Refer to a constant that stands in the graph itself."""
        self.initializers.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def named(self, value: str, name: str) -> None:
        """Give a value the name that it has as an output of the graph."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=name))

    def model(
        self,
        name: str,
        inputs: Mapping[str, Sequence[str | int]],
        outputs: Mapping[str, Sequence[str | int]],
    ) -> onnx.ModelProto:
        """Finish: int64 inputs and float outputs by name, with their axes, a word for one that varies."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(each, TensorProto.INT64, axes) for each, axes in inputs.items()],
            [helper.make_tensor_value_info(each, TensorProto.FLOAT, axes) for each, axes in outputs.items()],
            list(self.initializers.values()),
        )
        domains = {node.domain for node in self.nodes}
        opsets = [helper.make_opsetid(domain, 1 if domain else OPSET) for domain in sorted(domains | {""})]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="kbmesh")
