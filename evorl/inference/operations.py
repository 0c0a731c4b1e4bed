"""The operations of torch as ONNX nodes of opset 15: one function for each that our policies consist of.

A function gets the graph, the operation, and its arguments: names of ONNX values, known tensors and plain numbers. It
adds nodes and returns the name of their result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from onnx import TensorProto
from torch import Tensor, fx

if TYPE_CHECKING:
    from evorl.inference.graph import Graph

aten = torch.ops.aten
TYPES = {
    torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE, torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32, torch.bool: TensorProto.BOOL, torch.uint8: TensorProto.UINT8,
}  # fmt: skip


class Batch:
    """The number of rows, or a product of it: the one size that is not known."""


class Untranslated(NotImplementedError):
    """An operation that has no translation."""


def dtype_of(node: fx.Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


Translation = Callable[..., Any]
TRANSLATIONS: dict[Any, Translation] = {}


def _translates(*targets: Any) -> Callable[[Translation], Translation]:
    def register(function: Translation) -> Translation:
        TRANSLATIONS.update(dict.fromkeys(targets, function))
        return function

    return register


def _plain(kind: str) -> Translation:
    """An ONNX operator with the same inputs."""
    return lambda graph, node, *args: graph.add(kind, node, *args)


def _of_two(kind: str) -> Translation:
    """An ONNX operator of two inputs, which must be of one dtype."""
    return lambda graph, node, *args: graph.add(kind, node, *_alike(graph, node, args))


def _alike(graph: Graph, node: fx.Node, args: Sequence[Any]) -> list[Any]:
    """The arguments of one dtype, as torch converts them."""
    tensors = [x for x in node.args if isinstance(x, fx.Node)]
    kinds = {dtype_of(x) for x in tensors if x.meta["val"].dim()} or {*map(dtype_of, tensors)}
    dtype = max(kinds, key=lambda kind: (kind.is_floating_point, kind.itemsize))
    if not dtype.is_floating_point and any(isinstance(x, float) for x in args):
        dtype = torch.float32
    return [
        x if isinstance(source, fx.Node) and dtype_of(source) == dtype
        else graph.add("Cast", node, x, to=TYPES[dtype]) if isinstance(x, str)
        else torch.as_tensor(x, dtype=dtype)
        for source, x in zip(node.args, args, strict=True)
    ]  # fmt: skip


TRANSLATIONS |= {
    aten.tanh.default: _plain("Tanh"), aten.sigmoid.default: _plain("Sigmoid"), aten.relu.default: _plain("Relu"),
    aten.exp.default: _plain("Exp"), aten.log.default: _plain("Log"), aten.erf.default: _plain("Erf"),
    aten.neg.default: _plain("Neg"), aten.abs.default: _plain("Abs"), aten.sqrt.default: _plain("Sqrt"),
    aten.sin.default: _plain("Sin"), aten.cos.default: _plain("Cos"),
    aten.sign.default: _plain("Sign"), aten.mm.default: _plain("MatMul"), aten.bmm.default: _plain("MatMul"),
    aten.where.self: _plain("Where"), aten.bitwise_and.Tensor: _plain("And"), aten.bitwise_not.default: _plain("Not"),
    aten.add.Tensor: _of_two("Add"), aten.sub.Tensor: _of_two("Sub"), aten.mul.Tensor: _of_two("Mul"),
    aten.div.Tensor: _of_two("Div"), aten.pow.Tensor_Tensor: _of_two("Pow"), aten.pow.Tensor_Scalar: _of_two("Pow"),
    aten.lt.Tensor: _of_two("Less"), aten.lt.Scalar: _of_two("Less"), aten.gt.Scalar: _of_two("Greater"),
    aten.eq.Scalar: _of_two("Equal"),
}  # fmt: skip


@_translates(aten.clone.default, aten.alias.default)
def _same(graph: Graph, node: fx.Node, x: str, *_: Any) -> str:
    return x


@_translates(aten._assert_tensor_metadata.default, aten.sym_constrain_range_for_size.default)
def _nothing(graph: Graph, node: fx.Node, *_: Any, **__: Any) -> None:
    return None


@_translates(aten.addmm.default)
def _addmm(graph: Graph, node: fx.Node, bias: Any, x: Any, weight: Any) -> Any:
    return graph.add("Gemm", node, x, weight, bias)


@_translates(aten.convolution.default)
def _convolution(graph: Graph, node: fx.Node, x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    stride, padding, dilation, _transposed, _output_padding, groups = options
    inputs = [x, weight, *(() if bias is None else (bias,))]
    form: dict[str, Any] = {"strides": stride, "pads": [*padding, *padding], "dilations": dilation, "group": groups}
    return graph.add("Conv", node, *inputs, kernel_shape=[*weight.shape[2:]], **form)


@_translates(aten.max_pool2d_with_indices.default)
def _max_pool(
    graph: Graph, node: fx.Node, x: Any, kernel: list[int], stride: Sequence[int] = (), padding: Sequence[int] = (0, 0)
) -> Any:
    pads = [*padding, *padding]
    return (graph.add("MaxPool", node, x, kernel_shape=kernel, strides=[*(stride or kernel)], pads=pads),)


@_translates(aten.view.default, aten.reshape.default, aten._unsafe_view.default)
def _view(graph: Graph, node: fx.Node, x: Any, _: list[Any]) -> Any:
    if node.all_input_nodes[0].meta["val"].shape == node.meta["val"].shape:
        return x
    return graph.add(
        "Reshape", node, x, [length if isinstance(length, int) else -1 for length in node.meta["val"].shape]
    )


@_translates(aten.permute.default)
def _permute(graph: Graph, node: fx.Node, x: Any, axes: list[int]) -> Any:
    """Leave out two permutations that undo each other: they only change how pictures lie in memory in between."""
    axes = [axis % len(axes) for axis in axes]
    source, before = graph.sources.get(x, (x, tuple(range(len(axes)))))
    axes = [before[axis] for axis in axes]
    if axes == sorted(axes):
        return source
    made = graph.add("Transpose", node, source, perm=axes)
    graph.sources[made] = (source, tuple(axes))
    return made


@_translates(aten.squeeze.dims)
def _squeeze(graph: Graph, node: fx.Node, x: Any, axes: list[int]) -> Any:
    return graph.add("Squeeze", node, x, [*axes])


@_translates(aten.unsqueeze.default)
def _unsqueeze(graph: Graph, node: fx.Node, x: Any, axis: int) -> Any:
    return graph.add("Unsqueeze", node, x, [axis])


@_translates(aten.select.int)
def _select(graph: Graph, node: fx.Node, x: Any, axis: int, index: int) -> Any:
    return graph.add("Gather", node, x, torch.tensor(index), axis=axis)


@_translates(aten.slice.Tensor)
def _slice(graph: Graph, node: fx.Node, x: Any, axis: int = 0, begin: int = 0, end: int = 2**62, step: int = 1) -> Any:
    if node.all_input_nodes[0].meta["val"].shape == node.meta["val"].shape:
        return x
    return graph.add("Slice", node, x, [begin or 0], [end], [axis], [step])


@_translates(aten.split_with_sizes.default)
def _split(graph: Graph, node: fx.Node, x: Any, sizes: list[int], axis: int = 0) -> Any:
    if len(sizes) == 1:
        return (x,)
    return graph.add("Split", node, x, [*sizes], outputs=len(sizes), axis=axis)


@_translates(aten.cat.default)
def _cat(graph: Graph, node: fx.Node, parts: Sequence[Any], axis: int = 0) -> Any:
    return graph.add("Concat", node, *parts, axis=axis)


@_translates(aten.expand.default)
def _expand(graph: Graph, node: fx.Node, x: Any, sizes: Sequence[Any]) -> Any:
    """What is known to be the same in all rows stays as it is, since ONNX broadcasts."""
    if isinstance(x, Tensor):
        return x
    raise Untranslated(f"{node.target} of a value that depends on the inputs")


@_translates(aten._to_copy.default)
def _cast(graph: Graph, node: fx.Node, x: Any, dtype: torch.dtype | None = None) -> Any:
    return x if dtype in (None, dtype_of(node.all_input_nodes[0])) else graph.add("Cast", node, x, to=TYPES[dtype])


@_translates(aten.clamp.default)
def _clamp(graph: Graph, node: fx.Node, x: Any, low: float | None = None, high: float | None = None) -> Any:
    dtype = dtype_of(node)
    limits = [torch.tensor(limit, dtype=dtype) for limit in (low, high) if limit is not None]
    if low is None:
        return graph.add("Min", node, x, *limits)
    return graph.add("Clip" if high is not None else "Max", node, x, *limits)


@_translates(aten.clamp.Tensor)
def _clamp_by(graph: Graph, node: fx.Node, x: Any, low: Any, high: Any) -> Any:
    """Each component within limits of its own."""
    if isinstance(low, Tensor) and isinstance(high, Tensor) and len({*low.tolist()}) == len({*high.tolist()}) == 1:
        return graph.add("Clip", node, x, low[0].clone(), high[0].clone())
    return graph.add("Min", node, graph.add("Max", node, x, low), high)


@_translates(aten.leaky_relu.default)
def _leaky_relu(graph: Graph, node: fx.Node, x: Any, slope: float = 0.01) -> Any:
    return graph.add("LeakyRelu", node, x, alpha=slope)


@_translates(aten.ne.Scalar)
def _differs(graph: Graph, node: fx.Node, x: Any, number: float) -> Any:
    return graph.add("Not", node, graph.add("Equal", node, *_alike(graph, node, (x, number))))


@_translates(aten.any.dim)
def _any(graph: Graph, node: fx.Node, x: Any, axis: int, keep: bool = False) -> Any:
    counted = graph.add("Cast", node, x, to=TensorProto.INT32)
    largest = graph.add("ReduceMax", node, counted, axes=[axis], keepdims=int(keep))
    return graph.add("Cast", node, largest, to=TensorProto.BOOL)


@_translates(aten.max.dim)
def _max(graph: Graph, node: fx.Node, x: Any, axis: int, keep: bool = False) -> Any:
    largest = graph.add("ReduceMax", node, x, axes=[axis], keepdims=int(keep))
    return largest, graph.add("ArgMax", node, x, axis=axis, keepdims=int(keep))


@_translates(aten.argmax.default)
def _argmax(graph: Graph, node: fx.Node, x: Any, axis: int = 0, keep: bool = False) -> Any:
    return graph.add("ArgMax", node, x, axis=axis, keepdims=int(keep))


@_translates(aten.sum.dim_IntList)
def _sum(graph: Graph, node: fx.Node, x: Any, axes: list[int], keep: bool = False) -> Any:
    if dtype_of(node.all_input_nodes[0]) != dtype_of(node):  # the number of those that are true
        x = graph.add("Cast", node, x, to=TYPES[dtype_of(node)])
    return graph.add("ReduceSum", node, x, [*axes], keepdims=int(keep))


@_translates(aten.mean.dim)
def _mean(graph: Graph, node: fx.Node, x: Any, axes: list[int], keep: bool = False) -> Any:
    return graph.add("ReduceMean", node, x, axes=axes, keepdims=int(keep))


@_translates(aten.native_layer_norm.default)
def _layer_norm(
    graph: Graph, node: fx.Node, x: Any, shape: Sequence[int], weight: Any, bias: Any, epsilon: float
) -> Any:
    axes = [*range(-len(shape), 0)]
    centred = graph.add("Sub", node, x, graph.add("ReduceMean", node, x, axes=axes, keepdims=1))
    variance = graph.add("ReduceMean", node, graph.add("Mul", node, centred, centred), axes=axes, keepdims=1)
    deviation = graph.add("Sqrt", node, graph.add("Add", node, variance, torch.tensor(epsilon)))
    out = graph.add("Div", node, centred, deviation)
    out = out if weight is None else graph.add("Mul", node, out, weight)
    return (out if bias is None else graph.add("Add", node, out, bias),)


@_translates(aten._softmax.default)
def _softmax(graph: Graph, node: fx.Node, x: Any, axis: int, half: bool = False) -> Any:
    return graph.add("Softmax", node, x, axis=axis)
