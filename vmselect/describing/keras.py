"""Counts the operations of a Keras model, on any backend, by a walk over its layers.

A functional or sequential model has a graph of layers. For a subclass, or a layer without a rule, the graph is made by
a call with symbolic tensors, which computes shapes only. If that fails, because the code calls functions of the backend
directly, the call is traced by the backend (see :mod:`vmselect.describing.tracing`). Nothing of the model is changed.
"""

from __future__ import annotations

import copy
import copyreg
import inspect
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from vmselect.describing import tracing
from vmselect.describing.layers import CHANGES_LOOK_ONLY, UNCOUNTED, Call, Edge, Layer, find_rule
from vmselect.describing.tally import SECONDS, OutOfTimeError, Shape, Tally, check_time, count_elementwise, size
from vmselect.errors import DescriptionError
from vmselect.records.work import Caveat, Work

Model: TypeAlias = Any
SymbolicTensor: TypeAlias = Any
Node: TypeAlias = Any

MAX_DEPTH = 30
"""Largest number of layers inside of each other."""

GENERATOR = "global_seed_generator"
"""Name of the random generator that Keras makes for functions without a seed."""

LOSS_OPERATIONS = 2
"""Element-wise operations of a loss, in each direction, such as a logarithm of a softmax and the choice of a class."""


def describe_model(
    model: Model, *, batch_size: int, inputs: Any = None, optimizer: str | None = None, seconds: float = SECONDS
) -> Work:
    """Count the operations of one training step of a Keras ``model``.

    ``inputs`` are shapes without the batch dimension, arrays or tensors; by default, those of the model. A model that
    has no weights yet is described by a copy.
    """
    began = time.perf_counter()
    walk = Walk(batch_size, deadline=began + seconds)
    with unchanged(model):
        built = model if model.built or _calls_nothing(model) else _build_copy(model, batch_size, inputs)
        with unchanged(built):
            walk.count_model(built, inputs)
    trained = [size(weight.shape) for weight in built.trainable_weights]
    tally = walk.tally
    if not tally.rows:
        reason = f" (layers: {', '.join(tally.unknown_layers[:5])})" if tally.unknown_layers else ""
        reason += f": {_line(walk.problem).rstrip('.')}" if walk.problem is not None else ""
        raise DescriptionError(
            f"No operation of the model {model.name!r} could be counted{reason}. "
            "Pass inputs=, or build the model from layers of Keras."
        )
    tally.caveats |= read_caveats(model)
    if tally.unknown_layers:
        tally.caveats.add("unknown_layers")
    return tally.work(
        batch_size=batch_size,
        trained=trained,
        constants=sum(size(weight.shape) for weight in built.non_trainable_weights),
        optimizer=optimizer,
        method=next(iter(sorted(tally.methods)), "layers"),
        seconds=time.perf_counter() - began,
    )


def read_caveats(model: Model) -> set[Caveat]:
    """What the definition of a ``model`` leaves open: an own training step, a compiled step."""
    caveats: set[Caveat] = set()
    names = ("train_step", "make_train_function", "compute_loss_and_updates", "_train_step")
    if any(_is_overridden(model, name) for name in names):
        caveats.add("custom_step")
    if _keras().backend.backend() == "jax" or getattr(model, "jit_compile", None) is True:
        caveats.add("compiled")
    return caveats


def _is_overridden(model: Model, name: str) -> bool:
    method = getattr(type(model), name, None)
    return method is not None and getattr(method, "__module__", "keras").partition(".")[0] != "keras"


def _keras() -> Any:
    return sys.modules["keras"]


# -- the model stays as it is ------------------------------------------------------------------------------------------


@contextmanager
def unchanged(model: Model) -> Iterator[None]:
    """Context in which symbolic calls of ``model`` and of its layers leave no trace.

    Restores the attributes of every layer, such as losses, a counter of the user, and the graph of calls that Keras
    notes, the numbers in automatic names, and the random states of Python and numpy. Keras collects updates of
    variables in its scope instead of applying them.
    """
    attributes = [_Attributes(vars(layer)) for layer in model._flatten_layers()]
    names, pending = _global_attribute("object_name_uids"), _global_attribute("uninitialized_variables")
    kept_names, kept_pending = dict(names or {}), list(pending or ())
    states = random.getstate(), _numpy_state()
    has_generator = _global_attribute(GENERATOR) is not None
    try:
        with warnings.catch_warnings(), _keras().StatelessScope():
            warnings.simplefilter("ignore")  # Keras warns of symbolic calls that fail, which are traced instead
            yield
    finally:
        for kept in attributes:
            kept.restore()
        if names is not None:
            names.clear()
            names.update(kept_names)
        pending = _global_attribute("uninitialized_variables")
        if pending is not None:
            pending[:] = kept_pending
        if not has_generator:  # one that was made in this scope has no value
            sys.modules["keras.src.backend.common.global_state"].set_global_attribute(GENERATOR, None)
        random.setstate(states[0])
        if states[1] is not None:
            sys.modules["numpy"].random.set_state(states[1])


class _Attributes:
    """The attributes of a layer, with the contents of those that are lists, dicts or sets."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self._attributes, self._kept = attributes, dict(attributes)
        kinds = [(value, _container_kind(value)) for value in attributes.values()]
        self._contents = [(value, kind, kind(value)) for value, kind in kinds if kind is not None]

    def restore(self) -> None:
        """Undo all changes since this object was made. The methods of Keras' own containers would act on the layer."""
        for name in self._attributes.keys() - self._kept.keys():
            del self._attributes[name]
        self._attributes.update(self._kept)
        for value, kind, content in self._contents:
            kind.clear(value)
            (list.extend if kind is list else kind.update)(value, content)


def _container_kind(value: Any) -> Any:
    for kind in (list, dict, set):
        if isinstance(value, kind) and (type(value) is kind or type(value).__module__.partition(".")[0] == "keras"):
            return kind
    return None


def _numpy_state() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()


def _global_attribute(name: str) -> Any:
    """State that Keras keeps for the whole program: numbers for automatic names, or variables without values."""
    state = sys.modules.get("keras.src.backend.common.global_state")
    return None if state is None else state.get_global_attribute(name)


def _build_copy(model: Model, batch_size: int, inputs: Any) -> Model:
    """A copy of ``model`` with weights, after a symbolic call."""
    arguments = _make_inputs(model, batch_size, inputs)
    try:
        copied = _copy_layers(model)
        copied(*arguments)
    except Exception as problem:  # noqa: BLE001 - code of the user
        raise DescriptionError(
            f"The model {model.name!r} has no weights yet, and calling a copy of it failed ({_line(problem)}). "
            "Call it on a batch first: model(batch)."
        ) from None
    return copied


def _copy_layers(model: Model) -> Model:
    """A deep copy of ``model``. Keras would copy it by its configuration, which most subclasses do not have."""
    layers, keras = list(model._flatten_layers()), _keras()
    kinds = {type(layer) for layer in layers}
    kept = {kind: copyreg.dispatch_table[kind] for kind in kinds if kind in copyreg.dispatch_table}
    copyreg.dispatch_table.update(dict.fromkeys(kinds, _reduce))
    # Layers refer to modules, which cannot be copied. What compile() adds is not called here, and may have no copy.
    training = (keras.optimizers.Optimizer, keras.losses.Loss, keras.metrics.Metric)
    values = [value for layer in layers for value in (*vars(layer).values(), *layer._metrics)]
    shared = [*sys.modules.values(), *(value for value in values if isinstance(value, training))]
    try:
        return copy.deepcopy(model, {id(part): part for part in shared})
    finally:
        for kind in kinds:
            del copyreg.dispatch_table[kind]
        copyreg.dispatch_table.update(kept)


def _reduce(layer: Layer) -> tuple[Any, ...]:
    # Keras puts wrapped methods into every new layer. Those of the original would act on the original.
    state = {
        name: value
        for name, value in vars(layer).items()
        if not (inspect.isfunction(value) and hasattr(type(layer), name))
    }
    return _new, (type(layer),), state


def _new(kind: Any) -> Any:
    return kind.__new__(kind)


def _line(problem: Exception) -> str:
    """The first line of a problem that states it: Keras begins with the layer, and writes in bold."""
    plain = re.sub("\x1b\\[[0-9;]*m", "", str(problem))
    lines = [line for line in plain.splitlines() if line.strip() and not line.startswith("Exception encountered")]
    return f"{type(problem).__name__}: {lines[0][:200]}" if lines else type(problem).__name__


# -- walk --------------------------------------------------------------------------------------------------------------


class Walk:
    """Walk over the layers of a model, for steps of ``batch_size`` examples, until the clock reads ``deadline``."""

    def __init__(self, batch_size: int, *, deadline: float) -> None:
        self.batch_size = batch_size
        self._deadline = deadline
        self.tally = Tally()
        self._uses: dict[Hashable, int] = {}
        self._edges: dict[int, Edge] = {}
        self._alive: list[Any] = []
        """Symbolic tensors whose ``id`` is a key: they must not be deleted."""
        self._sizes: dict[Hashable, int] = {}
        """Elements of each tensor that needs a gradient, by its key."""
        self._depth = self._visits = self._visit = 0
        self.problem: Exception | None = None
        """Why the first layer could not be called with symbolic tensors."""

    def count_model(self, model: Model, inputs: Any) -> None:
        """Count a training step of ``model``."""
        graph = None if inputs is not None else read_graph(model)
        if graph is not None and self._sizes_are_known(*graph):
            outputs = self._count_graph(*graph, edges=None)
        elif _calls_nothing(model):
            outputs = self._count_parts(model)
        else:
            arguments = _make_inputs(model, self.batch_size, inputs)
            edges = [self._note(tensor) for tensor in _flatten(arguments)]
            outputs = self._open(model, arguments, {}, edges)
        for edge in outputs:
            self._count_loss(edge)
        self._count_accumulations()

    def _count_parts(self, model: Model) -> list[Edge]:
        """Count the models inside of a model that is never called itself, such as the two models of a GAN."""
        outputs: list[Edge] = []
        for part in model.layers:
            graph = read_graph(part)
            if graph is not None:
                outputs += self._count_graph(*graph, edges=None)
            else:
                self.tally.unknown_layers.append(part.name)
        return outputs

    def _count_loss(self, edge: Edge) -> None:
        if edge.wanted:
            for _ in range(LOSS_OPERATIONS):
                count_elementwise(self.tally, edge.size, backward=True)
            self.tally.save((edge.key, "loss"), edge.size)

    def _count_accumulations(self) -> None:
        """Gradients of a tensor that several operations use are added up."""
        for key, uses in self._uses.items():
            if uses > 1 and key in self._sizes:
                elements = self._sizes[key]
                self.tally.move("elem", 3 * elements, flops=elements, count=uses - 1)

    # -- graphs --------------------------------------------------------------------------------------------------------

    def _sizes_are_known(self, inputs: Sequence[SymbolicTensor], outputs: Sequence[SymbolicTensor]) -> bool:
        """Whether only the batch size is open in the shapes of a graph."""
        tensors = [tensor for node in _sort_nodes(inputs, outputs) for tensor in node.output_tensors]
        return all(None not in tensor.shape[1:] for tensor in (*inputs, *tensors))

    def _count_graph(
        self,
        inputs: Sequence[SymbolicTensor],
        outputs: Sequence[SymbolicTensor],
        *,
        edges: Sequence[Edge] | None,
    ) -> list[Edge]:
        """Count all operations between ``inputs`` and ``outputs``. ``edges`` are the inputs as seen from outside."""
        self._alive += [*inputs, *outputs]
        self._visits += 1  # a model may be called several times: its tensors are others each time
        outer, self._visit = self._visit, self._visits
        for position, tensor in enumerate(inputs):
            edge = edges[position] if edges is not None else Edge(self._fill(tensor.shape), (self._visit, id(tensor)))
            self._edges[id(tensor)] = edge
        for node in _sort_nodes(inputs, outputs):
            self._alive.append(node)
            self._count_node(node)
        self._visit = outer
        return [self._edges[id(tensor)] for tensor in outputs]

    def _fill(self, shape: Sequence[int | None]) -> Shape:
        return tuple(self.batch_size if extent is None else int(extent) for extent in shape)

    def _note(self, tensor: SymbolicTensor, *, wanted: bool = False) -> Edge:
        self._alive.append(tensor)
        edge = self._edges[id(tensor)] = Edge(self._fill(tensor.shape), id(tensor), wanted)
        return edge

    def _count_node(self, node: Node) -> None:
        check_time(self._deadline)
        layer = node.operation
        edges = tuple(self._edges.get(id(tensor)) or self._note(tensor) for tensor in node.input_tensors)
        weights = [value for value in _flatten((node.arguments.args, node.arguments.kwargs)) if _is_variable(value)]
        trained = bool(getattr(layer, "trainable_weights", ())) or any(weight.trainable for weight in weights)
        wanted = trained or any(edge.wanted for edge in edges)
        alias = edges[0].key if edges and type(layer).__name__ in CHANGES_LOOK_ONLY else None
        outputs = []
        for tensor in node.output_tensors:
            shape = self._shape_of_output(layer, tensor, edges)
            outputs.append(Edge(shape, (self._visit, id(tensor)) if alias is None else alias, wanted))
            if wanted:
                self._sizes[outputs[-1].key] = outputs[-1].size
        for edge in edges if alias is None else ():
            self._uses[edge.key] = self._uses.get(edge.key, 0) + 1
        named = self._name_inputs(node) if len(edges) > 1 else {}
        call = Call(layer, edges, tuple(outputs), self._operands(node), trained, named)
        inner = self._count_call(call, node)
        for tensor, edge in zip(node.output_tensors, inner or outputs, strict=True):
            self._edges[id(tensor)] = edge

    def _shape_of_output(self, layer: Layer, tensor: SymbolicTensor, edges: Sequence[Edge]) -> Shape:
        shape = self._fill(tensor.shape)
        if len(edges) == 1 and tensor.shape[:1] == (None,) and type(layer).__name__ in ("Reshape", "Ravel"):
            # A reshape may merge the batch with other dimensions.
            shape = (edges[0].size // max(1, size(shape[1:])), *shape[1:])
        return shape

    def _name_inputs(self, node: Node) -> dict[str, list[Edge]]:
        """Inputs of a call by the names of the arguments of the layer; empty if these are not known."""
        try:
            signature = inspect.signature(node.operation.call)
            values = signature.bind_partial(*node.arguments.args, **node.arguments.kwargs).arguments
        except (TypeError, ValueError):
            return {}
        return {
            name: [self._edges[id(part)] for part in _flatten(value) if id(part) in self._edges]
            for name, value in values.items()
        }

    def _operands(self, node: Node) -> tuple[Shape, ...]:
        flat = _flatten((node.arguments.args, node.arguments.kwargs))
        shapes = []
        for value in flat:
            edge = self._edges.get(id(value))
            if edge is not None:
                shapes.append(edge.shape)
            elif hasattr(value, "shape") and hasattr(value, "dtype"):
                shapes.append(self._fill(value.shape))
        return tuple(shapes)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _count_call(self, call: Call, node: Node) -> list[Edge] | None:
        """Count a call. Return the outputs of the graph inside of it; None if it was counted as a whole."""
        layer, name = call.layer, type(call.layer).__name__
        graph = read_graph(layer)
        if graph is not None:
            return self._count_inner(call, node, graph)
        if name == "TimeDistributed":
            self._count_wrapped(call)
            return None
        rule = find_rule(layer)
        if rule is not None:
            rule(call, self.tally)
            return None
        if not hasattr(layer, "trainable_weights"):  # an operation of keras.ops
            if name in UNCOUNTED:
                self.tally.unknown_layers.append(name)
                self.tally.caveats.add("data_dependent")
            elif call.inputs:
                _count_unlisted(call, self.tally)
            return None
        return self._open_call(call, node)

    def _count_inner(
        self, call: Call, node: Node, graph: tuple[list[SymbolicTensor], list[SymbolicTensor]]
    ) -> list[Edge]:
        inputs, outputs = graph
        matching = len(inputs) == len(call.inputs) and all(
            None not in tensor.shape[1:] and self._fill(tensor.shape) == edge.shape
            for tensor, edge in zip(inputs, call.inputs, strict=True)
        )
        if not matching or not self._sizes_are_known(inputs, outputs):
            return self._open_call(call, node) or list(call.outputs)
        self._depth += 1
        try:
            return self._count_graph(inputs, outputs, edges=call.inputs)
        finally:
            self._depth -= 1

    def _count_wrapped(self, call: Call) -> None:
        """Count the layer inside of a wrapper that merges time steps with the batch."""
        batch, steps, *rest = call.inputs[0].shape
        tensor = _keras().KerasTensor((batch * steps, *rest))
        edge = self._note(tensor, wanted=call.inputs[0].wanted)
        self._open(call.layer.layer, [tensor], {}, [edge], whole=True)

    def _open_call(self, call: Call, node: Node) -> list[Edge] | None:
        """Count what is inside of a layer without a rule."""
        tensors: dict[int, SymbolicTensor] = {}
        edges: list[Edge] = []
        for tensor in node.input_tensors:
            outer = self._edges[id(tensor)]
            if id(tensor) not in tensors:
                tensors[id(tensor)] = _keras().KerasTensor(outer.shape, dtype=tensor.dtype)
                self._alive.append(tensors[id(tensor)])
                self._edges[id(tensors[id(tensor)])] = outer
                edges.append(outer)
        replace = _keras().tree.map_structure
        args, kwargs = (
            replace(lambda value: tensors.get(id(value), value), part)
            for part in (node.arguments.args, node.arguments.kwargs)
        )
        outputs = self._open(call.layer, args, kwargs, edges)
        return outputs if len(outputs) == len(call.outputs) else None

    def _open(
        self,
        layer: Layer,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        edges: Sequence[Edge],
        *,
        whole: bool = False,
    ) -> list[Edge]:
        """Count the operations inside of a layer by a call with symbolic tensors; with ``whole``, the layer itself."""
        self._depth += 1
        inputs = [value for value in _flatten((args, kwargs)) if _is_symbolic(value)]
        inputs = list({id(tensor): tensor for tensor in inputs}.values())
        kept = self._snapshot()
        try:
            if self._depth > MAX_DEPTH:
                raise DescriptionError("Too many layers inside of each other.")
            function: Callable[..., Any] = layer if whole else layer.call
            outputs = [
                tensor for tensor in _flatten(function(*args, **_training(layer, kwargs))) if _is_symbolic(tensor)
            ]
            return self._count_graph(inputs, outputs, edges=edges)
        except OutOfTimeError:
            raise
        except Exception as problem:  # noqa: BLE001 - code of the user that was not written for symbolic tensors
            self._restore(kept)
            return self._trace(layer, args, kwargs, edges, problem)
        finally:
            self._depth -= 1

    def _trace(
        self, layer: Layer, args: Sequence[Any], kwargs: Mapping[str, Any], edges: Sequence[Edge], problem: Exception
    ) -> list[Edge]:
        """Count the products of a layer by tracing it with the backend."""
        self.tally.unknown_layers.append(layer.name)
        self.problem = self.problem or problem
        trained = bool(layer.trainable_weights)
        wanted = trained or any(edge.wanted for edge in edges)
        traced = tracing.trace_layer(layer, args, kwargs)
        if traced is None:
            self.tally.caveats.add("unknown_layers")
            return []
        self.tally.methods.add(traced.method)
        self.tally.caveats |= traced.caveats
        for kind, m, n, k, b, count in traced.products:
            part = Tally()
            part.matrix(m, n, k, b=b, wanted=wanted, trained=wanted, kind=kind)
            # Other operations are not counted: one element-wise operation per product stands for them.
            count_elementwise(part, m * n * b, backward=wanted)
            self.tally.rows += [row._replace(count=row.count * count) for row in part.rows]
            if wanted:
                self.tally.save((id(layer), len(self.tally.saved)), 2.0 * m * n * b * count)
        return [Edge(shape, (id(layer), self._visit, number), wanted) for number, shape in enumerate(traced.outputs)]

    def _snapshot(self) -> tuple[int, dict[Hashable, float], int]:
        return len(self.tally.rows), dict(self.tally.saved), len(self.tally.unknown_layers)

    def _restore(self, kept: tuple[int, dict[Hashable, float], int]) -> None:
        del self.tally.rows[kept[0] :], self.tally.unknown_layers[kept[2] :]
        self.tally.saved = kept[1]


def _count_unlisted(call: Call, tally: Tally) -> None:
    """Count an operation of ``keras.ops`` without a rule: it reads its inputs and writes its outputs."""
    moved = sum(edge.size for edge in call.inputs) + call.elements
    tally.move("elem", moved, flops=call.elements)
    if call.wanted:
        tally.move("elem", moved + sum(edge.size for edge in call.inputs), flops=call.elements)
        call.save(tally, call.inputs)


def read_graph(layer: Layer) -> tuple[list[SymbolicTensor], list[SymbolicTensor]] | None:
    """Inputs and outputs of the graph of a functional or sequential model; None for all others."""
    keras = _keras()
    if isinstance(layer, keras.Sequential):
        layer = layer._functional
    if layer is None or not hasattr(layer, "_nodes_by_depth"):
        return None
    call = type(layer).call
    # A subclass of a functional model may compute something else.
    if call.__module__.partition(".")[0] != "keras":
        return None
    return list(layer._inputs), list(layer._outputs)


def _calls_nothing(model: Model) -> bool:
    """Whether ``model`` is a subclass without a method ``call``, which only its own training step uses."""
    if isinstance(model, _keras().Sequential):  # without a graph, it is not built yet
        return False
    return type(model).call.__module__.partition(".")[0] == "keras" and read_graph(model) is None


def _sort_nodes(inputs: Sequence[SymbolicTensor], outputs: Sequence[SymbolicTensor]) -> list[Node]:
    """All calls between ``inputs`` and ``outputs``, each after those whose outputs it uses."""
    ends, seen, ordered = {id(tensor) for tensor in inputs}, set(), []
    waiting = [(tensor, False) for tensor in reversed(outputs)]
    while waiting:
        tensor, done = waiting.pop()
        history = getattr(tensor, "_keras_history", None)
        if id(tensor) in ends or history is None or history.operation is None:
            continue
        node = history.operation._inbound_nodes[history.node_index]
        if done:
            if id(node) not in seen:
                seen.add(id(node))
                ordered.append(node)
        elif id(node) not in seen:
            waiting.append((tensor, True))
            waiting += [(before, False) for before in reversed(node.input_tensors)]
    return ordered


def _make_inputs(model: Model, batch_size: int, inputs: Any) -> list[Any]:
    """Symbolic arguments of a call of ``model``."""
    keras = _keras()
    if inputs is None:
        shape = getattr(model, "input_shape", None) if model.built else None
        declared = getattr(model, "_build_shapes_dict", None)
        shape = shape or (next(iter(declared.values()), None) if declared else None)
        if shape is None:
            raise DescriptionError(
                f"The shape of the inputs of {model.name!r} is unknown. Pass inputs=, a batch or its shape without the "
                "batch size, such as inputs=(224, 224, 3)."
            )
        return [_symbolic(shape, batch_size, keras)]
    return [_symbolic_like(inputs, batch_size, keras)]


def _symbolic(shape: Any, batch_size: int, keras: Any) -> Any:
    """Symbolic tensors for a declared ``shape`` with a batch dimension, or for a list or dict of them."""
    if isinstance(shape, Mapping):
        return {name: _symbolic(part, batch_size, keras) for name, part in shape.items()}
    if shape and all(isinstance(part, Sequence) for part in shape):
        return [_symbolic(part, batch_size, keras) for part in shape]
    if None in shape[1:]:
        raise DescriptionError(
            f"The input shape {tuple(shape)} has open dimensions. Pass inputs=, a batch or its shape without the batch "
            "size."
        )
    return keras.KerasTensor((batch_size, *shape[1:]))


def _symbolic_like(value: Any, batch_size: int, keras: Any) -> Any:
    """Symbolic tensors for ``value``: a batch, a shape without the batch size, or a list or dict of them."""
    if isinstance(value, Mapping):
        return {name: _symbolic_like(part, batch_size, keras) for name, part in value.items()}
    if hasattr(value, "shape"):
        dtype = keras.backend.standardize_dtype(value.dtype) if hasattr(value, "dtype") else "float32"
        return keras.KerasTensor((batch_size, *(int(extent) for extent in tuple(value.shape)[1:])), dtype=dtype)
    if isinstance(value, Sequence) and all(isinstance(part, int) for part in value):
        return keras.KerasTensor((batch_size, *value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_symbolic_like(part, batch_size, keras) for part in value]
    raise DescriptionError(
        f"inputs contains {type(value).__name__}. Pass arrays, tensors or shapes, nested as the model takes them."
    )


def _training(layer: Layer, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call during training."""
    try:
        accepted = "training" in inspect.signature(layer.call).parameters
    except (TypeError, ValueError):
        accepted = False
    return {**kwargs, "training": True} if accepted else dict(kwargs)


def _flatten(structure: Any) -> list[Any]:
    flat: list[Any] = _keras().tree.flatten(structure)
    return flat


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, _keras().KerasTensor)


def _is_variable(value: Any) -> bool:
    return isinstance(value, _keras().Variable)
