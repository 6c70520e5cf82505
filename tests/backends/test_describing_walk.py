"""The walk over Keras layers counts what a trace of the same network in torch counts."""

from __future__ import annotations

from typing import Any

import keras
import pytest

import vmselect as vs
from vmselect.describing.keras import _sort_nodes, read_graph
from vmselect.records.work import Work

torch = pytest.importorskip("torch")
nn = torch.nn


def convert(layer: Any, channels: int, shape: Any) -> Any:
    """The layer as a module or function of torch."""
    kind = type(layer).__name__
    if kind == "Conv2D":
        padding = "same" if layer.padding == "same" and layer.strides == (1, 1) else 0
        return nn.Conv2d(channels, layer.filters, layer.kernel_size, layer.strides, padding, bias=layer.use_bias)
    if kind == "Dense":
        return nn.Linear(shape[-1], layer.units)
    if kind == "BatchNormalization":
        return nn.BatchNorm2d(channels)
    if kind == "MaxPooling2D":
        return nn.MaxPool2d(layer.pool_size, layer.strides)
    if kind == "AveragePooling2D":
        return nn.AvgPool2d(layer.pool_size, layer.strides, padding=1)
    functions = {
        "ZeroPadding2D": lambda x: nn.functional.pad(x, [part for pair in layer.padding[::-1] for part in pair]),
        "GlobalAveragePooling2D": lambda x: x.mean((2, 3)),
        "Flatten": lambda x: x.flatten(1),
        "Activation": lambda x: x,
        "Add": lambda *parts: parts[0] + parts[1],
        "Concatenate": lambda *parts: torch.cat(parts, 1),
    }
    return functions[kind]


class Converted(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        inputs, outputs = read_graph(model)
        self.start, self.end = id(inputs[0]), id(outputs[0])
        self.steps, modules = [], []
        for node in _sort_nodes(inputs, outputs):
            shape = node.input_tensors[0].shape
            part = convert(node.operation, shape[-1], shape)
            modules += [part] if isinstance(part, nn.Module) else []
            name = getattr(getattr(node.operation, "activation", None), "__name__", "linear")
            self.steps.append((part, name, [id(tensor) for tensor in node.input_tensors], id(node.outputs[0])))
        self.parts = nn.ModuleList(modules)

    def forward(self, x: Any) -> Any:
        values = {self.start: x}
        activations = {"relu": torch.relu, "softmax": lambda y: y.softmax(-1), "linear": lambda y: y}
        copies = iter(self.parts)  # those of a copy of this module
        for part, name, inputs, output in self.steps:
            call = next(copies) if isinstance(part, nn.Module) else part
            values[output] = activations[name](call(*(values[key] for key in inputs)))
        return values[self.end]


@pytest.mark.parametrize("name", ["ResNet50", "VGG16", "InceptionV3"])
def test_the_walk_agrees_with_the_trace(name: str) -> None:
    model = getattr(keras.applications, name)(weights=None)
    shape = model.input_shape
    walk = vs.describe(model, batch_size=8).work
    trace = vs.describe(Converted(model), batch_size=8, inputs=(shape[3], shape[1], shape[2])).work
    assert isinstance(walk, Work)
    assert isinstance(trace, Work)
    assert walk.product_flops == pytest.approx(trace.product_flops, rel=0.02)
    assert walk.moved_bytes == pytest.approx(trace.moved_bytes, rel=0.10)
    assert sum(walk.operations.count) == pytest.approx(sum(trace.operations.count), rel=0.20)
    assert walk.saved_bytes == pytest.approx(trace.saved_bytes, rel=0.25)
