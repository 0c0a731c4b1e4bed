"""Record a function of tensors once, replay it without Python or autograd in between.

A small network's update is a few hundred tiny operations, and most of its time is their overhead.
Autograd still derives every gradient: `Trace` lets it run once and tapes the operations it performed,
forward and backward; `capture` calls the same kernels in the same order (`evorl.nets.compiled` makes code of them).
On a GPU it is a CUDA graph: launching each of these operations would take longer than what it computes.
"""

from __future__ import annotations

import gc
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from evorl.nets.trees import Tree, flatten, leaves, mapped, outline, rebuild

Result = TypeVar("Result")
Replay = Callable[..., Any]
"""It takes the tensors of a function's arguments, in order, and returns what the function would."""

_ATEN = torch.ops.aten
_MOVE = _ATEN._to_copy.default
_VIEW, _RESHAPE = _ATEN.view.default, _ATEN.reshape.default
_BOOKKEEPING = (_ATEN.detach.default, _ATEN.alias.default, _ATEN.lift_fresh.default)  # autograd's, no arithmetic


def capture(function: Callable[..., Tree], *example: Tree) -> Replay:
    """A replay of ``function`` for arguments of exactly the example's form, shapes and dtypes; see `Trace`.

    Raises RuntimeError for the gradient of a convolution on the CPU, whose arguments the tracer does not know.
    """
    gpu = next((x.device for x in leaves(example) if x.is_cuda), None)
    if gpu is not None:
        return by_graph(cuda_graph, gpu, function, *example)
    record = Trace.of(function, *example).without_views()
    # torch.jit.trace would keep its functions for ever, megabytes for each learner that a population trains; it is
    # deprecated, too, for torch.export, which has no executor as light as this one
    tracer = cast(Any, torch._C)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of shapes that become constants: they are
        graph, _ = tracer._create_graph_by_tracing(record.perform, record.example, lambda _: "", True, False)
    run = tracer._create_function_from_graph("replay", graph)
    form = record.form

    def replay(*arguments: Tensor) -> Any:
        # as `torch.no_grad` and `torch.jit.optimized_execution` do, which would take a tenth of a decision
        graded, optimised = torch.is_grad_enabled(), tracer._get_graph_executor_optimize()
        tracer._set_grad_enabled(False)
        tracer._set_graph_executor_optimize(False)  # the same executor from the first call on: the same bits
        try:
            out: tuple[Tensor, ...] = run(*arguments)
        finally:
            tracer._set_graph_executor_optimize(optimised)
            tracer._set_grad_enabled(graded)
        return rebuild(form, iter(out))

    return replay


def by_graph(
    graph: Callable[[Trace], tuple[Callable[[], None], tuple[Tensor, ...]]],
    device: torch.device,
    function: Callable[..., Tree],
    *example: Tree,
) -> InPlace:
    """A replay by what ``graph`` makes of the record. All arguments are on the device: a graph would freeze others."""
    record = Trace.of(function, *mapped(lambda x: x.to(device), example)).of_one_device()
    with torch.no_grad(), _graphs, _no_garbage_collection():
        return InPlace(record, *graph(record))


_graphs = threading.Lock()  # all graphs share their memory, and each has its own arguments


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A learner that is gone gives its graphs back when it is collected, which CUDA forbids while it captures one."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


class InPlace:
    """A replay by ``run``, which computes ``results`` of the record's example, always in the same memory.

    Arguments are copied into the example, what a function writes in place is copied back.
    """

    def __init__(self, record: Trace, run: Callable[[], None], results: tuple[Tensor, ...]) -> None:
        self._run, self._results, self._form = run, results, record.form
        self._inside = list(record.example)
        self._written = [number for number, x in enumerate(self._inside) if _memory(x) in record.written]
        self.constants = record.constants  # a graph knows where they are, and does not keep them

    def __call__(self, *arguments: Tensor) -> Any:
        with torch.no_grad(), _graphs:
            torch._foreach_copy_(self._inside, arguments)
            self._run()
            for number in self._written:
                arguments[number].copy_(self._inside[number])
            return rebuild(self._form, (x.clone() for x in self._results))


def cuda_graph(record: Trace) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    """What launches all of a record's operations on its example at once, and the tensors that it fills."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        record.perform(*record.example)  # libraries take their own memory at their first call, not within a graph
    shared = _first_graph().pool()  # one graph runs at a time, and results, which stay, have places of their own
    with torch.cuda.graph(graph, pool=shared, stream=stream, capture_error_mode="thread_local"):
        results = record.perform(*record.example)
    return graph.replay, results


@cache
def _first_graph() -> torch.cuda.CUDAGraph:
    """Keep the memory of all graphs allocated after the last of the others is gone."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        torch.zeros(1, device="cuda")
    return graph


class TraceCache:
    """Functions that are recorded at their first call with arguments of a new form, then replayed.

    ``make``: makes the replay, as `capture` does. Of methods of several objects there is one record, so what they read
    of their objects must be the same. Several threads may call it.
    """

    # a function that is recorded may put other parameters into a network for a moment, which several caches may share
    _recording: ClassVar[Any] = threading.RLock()

    def __init__(self, make: Callable[..., Replay] = capture) -> None:
        self._make = make
        self._replays: dict[Any, Replay] = {}

    def replay(self, function: Callable[..., Result], *arguments: Tree) -> Result:
        """``function(*arguments)``; see `Trace`."""
        tensors, form = flatten(arguments)
        key = (getattr(function, "__func__", function), *form)  # a method would keep its object
        result: Result = (self.known(key) or self.record(key, function, *arguments))(*tensors)
        return result

    def known(self, key: Any) -> Replay | None:
        """The replay that was made under this key."""
        return self._replays.get(key)

    def record(self, key: Any, function: Callable[..., Any], *arguments: Tree) -> Replay:
        """Make the replay of this key, if no other thread has made it by now."""
        with self._recording, torch.inference_mode(False):
            if key not in self._replays:
                self._replays[key] = self._make(function, *arguments)
            return self._replays[key]

    @classmethod
    def _renew_lock(cls) -> None:
        cls._recording = threading.RLock()


os.register_at_fork(after_in_child=TraceCache._renew_lock)  # a child lacks the thread that may have held it


class Call(NamedTuple):
    """An operation as it was performed."""

    operation: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any


@dataclass(frozen=True)
class Trace:
    """The operations that a function performed on an example.

    The function must be straight-line: no branch on a tensor's value, no random numbers; whatever
    is not an argument is frozen into the record, the form of its results as well.
    """

    example: tuple[Tensor, ...]
    calls: list[Call]
    results: tuple[Tensor, ...]
    form: Tree
    """The `outline` of the results as the function returned them."""

    @classmethod
    def of(cls, function: Callable[..., Tree], *example: Tree) -> Trace:
        """The example's tensors keep their values."""
        copy = mapped(lambda x: x.detach().clone(memory_format=torch.contiguous_format), example)
        with torch.enable_grad(), _Tape() as tape:
            results = function(*copy)
        return cls(tuple(leaves(copy)), tape.calls, tuple(leaves(results)), outline(results))

    def perform(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """The same operations on other arguments."""
        present_of = {id(old): new for old, new in zip(self.example, arguments, strict=True)}

        def present(x: Any) -> Any:
            return present_of.get(id(x), x) if isinstance(x, Tensor) else x

        for (operation, args, kwargs, out), done in zip(self.calls, self._last_needed, strict=True):
            if operation in _BOOKKEEPING:
                present_of[id(out)] = present(args[0])
            else:
                # the example was contiguous; an argument that is not, as a picture with channels last, may have no view
                if operation is _VIEW and _memory(out) not in self.written:  # a write must reach what was viewed
                    operation = _RESHAPE
                new = operation(*tree_map(present, args), **tree_map(present, kwargs))
                present_of.update({id(o): n for o, n in zip(tree_leaves(out), tree_leaves(new), strict=True)})
            for key in done:  # else all of them would be in memory at once
                del present_of[key]
        return tuple(present(x) for x in self.results)

    @cached_property
    def _last_needed(self) -> list[list[int]]:
        """For each operation, the tensors that nothing after it needs."""
        made = {id(x) for x in self.example}
        last = dict[int, int]()
        for number, (_, args, kwargs, out) in enumerate(self.calls):
            made |= {id(x) for x in tree_leaves(out)}
            last |= {id(x): number for x in tree_leaves((args, kwargs, out)) if id(x) in made}
        released: list[list[int]] = [[] for _ in self.calls]
        for key in last.keys() - {id(x) for x in self.results}:
            released[last[key]].append(key)
        return released

    def without_views(self) -> Trace:
        """The record without operations that only make views of what is no argument: one view will always do."""
        anew, kept = {id(x) for x in self.example}, list[Call]()
        results = {id(x) for x in self.results}
        for call in self.calls:
            read, made = ([x for x in tree_leaves(part) if isinstance(x, Tensor)] for part in (call[1:3], call.out))
            views = {_memory(x) for x in made} <= {_memory(x) for x in read}
            same = views and not call.operation._schema.is_mutable
            if not same or any(id(x) in anew for x in read) or any(id(x) in results for x in made):
                anew |= {id(x) for x in made}
                kept.append(call)
        return replace(self, calls=kept)

    def of_one_device(self) -> Trace:
        """The record for arguments on a GPU: what comes from the CPU is constant, and was moved when this was made."""
        moved = [call.operation is _MOVE and call.args[0].device.type == "cpu" for call in self.calls]
        assert (
            not {_memory(call.out) for call, is_moved in zip(self.calls, moved, strict=True) if is_moved} & self.written
        )
        return replace(self, calls=[call for call, is_moved in zip(self.calls, moved, strict=True) if not is_moved])

    @property
    def constants(self) -> list[Tensor]:
        """What operations read that is neither an argument nor made by them."""
        known = {id(x) for x in (*self.example, *tree_leaves([call.out for call in self.calls]))}
        read = tree_leaves([(call.args, call.kwargs) for call in self.calls])
        return [x for x in (*read, *self.results) if isinstance(x, Tensor) and id(x) not in known]

    @cached_property
    def written(self) -> set[int]:
        """The memory that operations write in place; versions of tensors do not show it, since Adam's kernel sets
        none."""
        outputs = list[Any]()
        for operation, args, kwargs, _ in self.calls:
            arguments = operation._schema.arguments
            values = {**{argument.name: x for argument, x in zip(arguments, args, strict=False)}, **kwargs}
            outputs += tree_leaves([values.get(argument.name) for argument in arguments if argument.is_write])
        return {_memory(x) for x in outputs if isinstance(x, Tensor)}

    @property
    def text(self) -> str:
        """A text of the whole record: equal texts mean equal functions."""
        called = {id(x): f"%{i}" for i, x in enumerate(self.example)}

        def name(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            constant = f"{x.dtype} {list(x.shape)} {x.tolist()}" if id(x) not in called else ""
            return called.get(id(x), constant)

        lines = [f"{x.dtype} {list(x.shape)}" for x in self.example]
        for i, (operation, args, kwargs, out) in enumerate(self.calls):
            lines.append(f"{operation} {tree_map(name, args)} {tree_map(name, kwargs)}")
            called.update({id(x): f"%{i}.{j}" for j, x in enumerate(tree_leaves(out))})
        return "\n".join([*lines, f"{rebuild(self.form, map(name, self.results))}"])


def _memory(x: Tensor) -> int:
    """Where a tensor and its views are."""
    return x.untyped_storage().data_ptr()


class _Tape(TorchDispatchMode):
    """Every operation performed while it is entered, with its arguments and results (kept, so that ids stay theirs)."""

    def __init__(self) -> None:
        cast(Any, super()).__init__()
        self.calls: list[Call] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled while it is entered; the default imports the compiler, seconds of start-up

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append(Call(func, args, kwargs or {}, out))
        return out
