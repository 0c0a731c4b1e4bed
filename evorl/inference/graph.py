"""A traced function as an ONNX model.

Torch's own exporter writes opset 18 and newer, and Unity's importer reads up to 15, so the operations that our policies
consist of are translated here (`evorl.inference.operations`). What depends on no input is computed here: weights that
are transposed or joined, and whatever multiplies the absent noise of a deterministic policy.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper
from torch import Tensor, fx

from evorl.inference.module import Port
from evorl.inference.operations import TRANSLATIONS, Batch, Untranslated

OPSET = 15
"""The newest that Unity's Sentis 2.1 documents; everyone else reads older ones."""
IR_VERSION = 8
"""Of the files that belong to this opset."""
aten = torch.ops.aten
SMALL = 8
"""Numbers of a tensor that is written once, however often it occurs."""


def onnx_model(program: torch.export.ExportedProgram, inputs: Sequence[Port], outputs: Sequence[Port]) -> ModelProto:
    """The model of a function with these ports, its weights inside. Raises `Untranslated`."""
    with torch.no_grad():
        program = program.run_decompositions()
        graph = Graph(program, [port.name for port in inputs], [port.name for port in outputs])
    model = helper.make_model(
        helper.make_graph(
            graph.live(), "policy", [_info(port) for port in inputs], [_info(port) for port in outputs], graph.weights()
        ),
        producer_name="evorl",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    checker.check_model(model, full_check=True)
    return model


def _info(port: Port) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype))
    shape: list[str | int] = [*(() if port.role == "constant" else ("batch",)), *port.shape]
    return helper.make_tensor_value_info(port.name, kind, shape)


class Graph:
    """The operations of a program as ONNX nodes.

    A value is a tensor that is known, the name of an ONNX value, `Batch`, or a tuple of these.
    """

    def __init__(self, program: torch.export.ExportedProgram, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.nodes: list[NodeProto] = []
        self.outputs = [*outputs]
        self.known: dict[str, Tensor] = {}  # initialisers by name
        self._names: dict[int, tuple[str, Tensor]] = {}  # what a known tensor is called, by its identity
        self.sources: dict[str, tuple[str, tuple[int, ...]]] = {}  # of a transposed value
        self._made: dict[str, Any] = {}  # the outputs of each node, so that none is written twice
        self.taken = {*inputs, *outputs}
        self._values: dict[fx.Node, Any] = {}
        names = iter(inputs)
        tensors = {**program.state_dict, **program.constants}
        signature = program.graph_signature
        targets = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in targets:
                self._values[node] = self._called(tensors[targets[node.name]].detach(), targets[node.name])
            elif node.op == "placeholder":
                self._values[node] = next(names)
            elif node.op == "output":
                self._put_out(node.args[0])
            else:
                self._values[node] = self._value(node)

    # -------------------------------------------------------------- values

    def _value(self, node: fx.Node) -> Any:
        if isinstance(node.meta.get("val"), torch.SymInt):
            return Batch()
        args: Any = fx.map_arg(node.args, lambda x: self._values[x])
        kwargs = {name: x for name, x in node.kwargs.items() if name in ("dtype", "rounding_mode")}
        if node.target is operator.getitem:
            return args[0][args[1]]
        if not _depends(args):
            return self._computed(node, args)
        if (simple := _simplified(node, args)) is not None:
            return simple
        if node.target not in TRANSLATIONS:
            raise Untranslated(f"{node.target} has no translation to ONNX")
        return TRANSLATIONS[node.target](self, node, *args, **kwargs)

    def _computed(self, node: fx.Node, args: Any) -> Any:
        """The value of an operation on known tensors."""
        assert callable(node.target)
        value = node.target(*args, **node.kwargs)
        sources = [self._names[id(x)][0] for x in args if isinstance(x, Tensor) and id(x) in self._names]
        if isinstance(value, Tensor):
            return self._called(value, sources[0] if len(sources) == 1 else node.name)
        return value

    def _called(self, x: Tensor, name: str) -> Tensor:
        """Remember what a known tensor is called."""
        self._names[id(x)] = (name.removeprefix("network."), x)
        return x

    def name_of(self, x: Any) -> str:
        """The name of a value. Whole numbers become a tensor."""
        if isinstance(x, str):
            return x
        if not isinstance(x, Tensor):
            x = torch.tensor(x)
        for name, other in self.known.items():
            if other is x or (x.numel() <= SMALL and other.dtype == x.dtype and torch.equal(other, x)):
                return name
        name = self.fresh(self._names[id(x)][0] if id(x) in self._names else "constant")
        self.known[name] = x
        return name

    def fresh(self, name: str) -> str:
        """The name, or with a number behind it where it is taken."""
        unique, number = name, 2
        while unique in self.taken:
            unique, number = f"{name}_{number}", number + 1
        self.taken.add(unique)
        return unique

    # -------------------------------------------------------------- nodes

    def add(self, kind: str, node: fx.Node, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Add an ONNX node; return the name of its output, or a tuple of them."""
        names = [self.name_of(x) for x in inputs]
        same = (kind, *names, *sorted(attributes.items()))
        if repr(same) in self._made:
            return self._made[repr(same)]
        made = [self.fresh(node.name) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, names, made, made[0], **attributes))
        self._made[repr(same)] = result = made[0] if outputs == 1 else tuple(made)
        return result

    def _put_out(self, results: Sequence[fx.Node]) -> None:
        """Give the function's results the names of the outputs."""
        made = {name for node in self.nodes for name in node.output}
        renamed: dict[str, str] = {}
        for node, output in zip(results, self.outputs, strict=True):
            name = self.name_of(self._values[node])
            if name in made and name not in renamed:
                renamed[name] = output
            else:
                self.nodes.append(helper.make_node("Identity", [name], [output], output))
        for written in self.nodes:
            written.input[:] = [renamed.get(name, name) for name in written.input]
            written.output[:] = [renamed.get(name, name) for name in written.output]

    def live(self) -> list[NodeProto]:
        """The nodes that an output depends on."""
        needed, live = {*self.outputs}, []
        for node in reversed(self.nodes):
            if needed & {*node.output}:
                needed |= {*node.input}
                live.append(node)
        return live[::-1]

    def weights(self) -> list[TensorProto]:
        """The known tensors that the live nodes read."""
        read = {name for node in self.live() for name in node.input}
        return [numpy_helper.from_array(x.contiguous().numpy(), n) for n, x in self.known.items() if n in read]


def _depends(args: Any) -> bool:
    """Whether there is an ONNX value, or the number of rows, among these."""
    if isinstance(args, (tuple, list)):
        return any(map(_depends, args))
    return isinstance(args, (str, Batch))


# ------------------------------------------------------------------ simplifications


def _simplified(node: fx.Node, args: Sequence[Any]) -> Any:
    """The value of an operation in which a known argument decides, else None."""
    match node.target:
        case aten.mul.Tensor | aten.bitwise_and.Tensor if any(_is(x, 0) for x in args):
            result = node.meta["val"]
            return torch.zeros([1] * result.dim(), dtype=result.dtype)  # which ONNX broadcasts
        case aten.add.Tensor if any(_is(x, 0) for x in args):
            place = 1 if _is(args[0], 0) else 0
            return args[place] if _same_shape(node, place) else None
        case aten.where.self if _is(args[0], 0) or _is(args[0], 1):
            place = 2 if _is(args[0], 0) else 1
            return args[place] if _same_shape(node, place) else None
    return None


def _is(x: Any, number: int) -> bool:
    """Whether all of a known tensor is this number."""
    return isinstance(x, Tensor) and bool((x == number).all())


def _same_shape(node: fx.Node, place: int) -> bool:
    argument = node.args[place]
    return isinstance(argument, fx.Node) and argument.meta["val"].shape == node.meta["val"].shape
