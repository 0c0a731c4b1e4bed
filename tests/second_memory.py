"""A device that every machine has: ``second``, a memory of its own, computed with the CPU's own kernels.

An operation that is given tensors of both memories fails there as it does on a GPU, and so does whoever reads a tensor
without moving it first, or what cannot be part of a CUDA graph where one would be recorded; a run on it must give the
bits of a run on the CPU. It shows neither a GPU's speed nor its own kernels.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, cast

import torch
from torch import Tensor, library
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from evorl.nets import capture
from evorl.nets.capture import InPlace, Trace, TraceCache
from evorl.nets.trees import leaves
from evorl.rl import network_learner
from evorl.rl.network_learner import NetworkLearner

CPU, SECOND = torch.device("cpu"), "second:0"
COPIES = {"_copy_from", "copy_"}
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "is_nonzero", "equal"}
"""The processor needs the result before it goes on."""
_performed: Counter[str] = Counter()
_recording: list[bool] = []


class Second(torch.Tensor):
    """A tensor there, around the one that holds its numbers."""

    inside: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # what becomes of it is for `_perform` to say

    def __new__(cls, inside: Tensor) -> Self:
        form = {"strides": inside.stride(), "storage_offset": inside.storage_offset(), "dtype": inside.dtype}
        self = torch.Tensor._make_wrapper_subclass(cls, inside.shape, **form, device=SECOND)
        self.inside = inside
        return self

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _perform(operation, *args, **(kwargs or {}))

    def tolist(self) -> Any:
        """Torch gives the numbers of any device's tensor, but of no subclass's."""
        return self.inside.tolist()


def _perform(operation: Any, *args: Any, **kwargs: Any) -> Any:
    _performed[operation.overloadpacket.__name__] += 1
    given = tree_leaves((args, kwargs))
    tensors = [x for x in given if isinstance(x, Tensor)]
    devices = [x for x in given if isinstance(x, torch.device)]
    if _recording and _no_part_of_a_graph(operation.overloadpacket.__name__, tensors, devices):
        raise RuntimeError(f"{operation} cannot be part of a graph")
    if operation is torch.ops.aten._copy_from.default:  # how torch moves tensors to a device from outside
        return args[1].copy_(args[0])
    moves = bool(devices) or operation in (torch.ops.aten.copy_.default, torch.ops.aten._foreach_copy_.default)
    if not moves and any(x.device == CPU and x.dim() for x in tensors):  # a number may come from anywhere
        raise RuntimeError(f"{operation} is given tensors of both memories")
    known = {id(x.inside): x for x in tensors if isinstance(x, Second)}  # what works in place returns its argument

    def enter(x: Any) -> Any:
        return x.inside if isinstance(x, Second) else CPU if isinstance(x, torch.device) else x

    def leave(x: Any) -> Any:
        stays = not isinstance(x, Tensor) or CPU in devices
        return x if stays else known[id(x)] if id(x) in known else Second(x)

    with torch.inference_mode(False):  # views of ordinary tensors are ordinary
        return tree_map(leave, operation(*tree_map(enter, args), **tree_map(enter, kwargs)))


def _no_part_of_a_graph(name: str, tensors: list[Tensor], devices: list[torch.device]) -> bool:
    """Whether the processor would wait for an operation, or one of its tensors is in the other memory."""
    return name in WAITS or CPU in devices or (name in COPIES and not all(isinstance(x, Second) for x in tensors))


def graph(record: Trace) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    """What stands in for `evorl.nets.capture.cuda_graph`: the record, performed anew in the same memory."""

    def perform() -> tuple[Tensor, ...]:
        _recording.append(True)
        try:
            return record.perform(*record.example)
        finally:
            _recording.clear()

    results = tuple(x.clone() for x in perform())

    def run() -> None:
        new = perform()
        for x, now in zip(results, new, strict=True):
            x.copy_(now)

    return run, results


def graphed(function: Callable[..., Any], *example: Any) -> InPlace:
    """What stands in for `evorl.nets.capture.capture` on a GPU."""
    device = next((x.device for x in leaves(example) if isinstance(x, Second)), CPU)
    return capture.by_graph(graph, device, function, *example)


def evorl(*commands: tuple[str, ...]) -> tuple[int, Counter[str]]:
    """The exit code of ``evorl run WORDS`` for each of the ``commands`` until one fails, with this device, and how
    often each operation was performed there, decisions (``act on DEVICE``) anywhere; in a process of its own, since a
    device is for life.
    """
    with TemporaryDirectory() as place:
        told = Path(place, "performed")
        process = multiprocessing.get_context("forkserver").Process(target=_commands, args=(commands, told))
        process.start()
        process.join()
        assert process.exitcode is not None
        return process.exitcode, Counter(json.loads(told.read_text()) if told.exists() else {})


def _memory(x: Tensor) -> int:
    return (x.inside if isinstance(x, Second) else x).untyped_storage().data_ptr()


def _commands(commands: tuple[tuple[str, ...], ...], told: Path) -> None:
    from evorl.run import main
    from evorl.training import train

    _setup_privateuseone_for_python_backend("second")
    kernels = library.Library("_", "IMPL")
    kernels.fallback(_perform, "PrivateUse1")
    train.device = lambda name: torch.device(SECOND)
    decided = NetworkLearner._by_record

    def counted(self: Any, *given: Any) -> Any:
        _performed[f"act on {self.theta.device.type}"] += 1
        return decided(self, *given)

    NetworkLearner._by_record = counted
    # as on a GPU
    capture._memory = _memory
    network_learner.capture = graphed
    cast(Any, TraceCache.__init__).__defaults__ = (graphed,)
    NetworkLearner._replay = lambda self, step, *given: self._updates.replay(step, *given)
    code = next((code for words in commands if (code := main(list(words)))), 0)
    told.write_text(json.dumps(_performed))
    sys.exit(code)
