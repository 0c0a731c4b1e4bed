"""A device that every machine has: ``second``, a memory of its own, computed with the CPU's own kernels.

An operation that is given tensors of both memories fails there as it does on a GPU, and so does whoever reads a tensor
without moving it first; a run on it must give the bits of a run on the CPU. It shows neither a GPU's speed nor its own
kernels.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch
from torch import Tensor, library
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

CPU, SECOND = torch.device("cpu"), "second:0"
_performed: Counter[str] = Counter()


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
    if operation is torch.ops.aten._copy_from.default:  # how torch moves tensors to a device from outside
        return args[1].copy_(args[0])
    moves = bool(devices) or operation is torch.ops.aten.copy_.default
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


def evorl(*commands: tuple[str, ...], captured: bool = True) -> tuple[int, Counter[str]]:
    """The exit code of ``evorl run WORDS`` for each of the ``commands`` until one fails, with this device, and how
    often each operation was performed there, decisions (``act on DEVICE``) anywhere; in a process of its own, since a
    device is for life.

    ``captured``: as everywhere else, by records (`evorl.nets.capture`). The tracer knows no convolution of this device.
    """
    with TemporaryDirectory() as place:
        told = Path(place, "performed")
        process = multiprocessing.get_context("forkserver").Process(target=_commands, args=(commands, told, captured))
        process.start()
        process.join()
        assert process.exitcode is not None
        return process.exitcode, Counter(json.loads(told.read_text()) if told.exists() else {})


def _commands(commands: tuple[tuple[str, ...], ...], told: Path, captured: bool) -> None:
    from evorl.nets.capture import TraceCache
    from evorl.rl.policy_gradient import PolicyGradient
    from evorl.run import main
    from evorl.training import train

    _setup_privateuseone_for_python_backend("second")
    kernels = library.Library("_", "IMPL")
    kernels.fallback(_perform, "PrivateUse1")
    train.device = lambda name: torch.device(SECOND)
    act = PolicyGradient.act

    def counted(self: Any, *given: Any) -> Any:
        _performed[f"act on {self.theta.device.type}"] += 1
        return act(self, *given)

    PolicyGradient.act = counted
    if not captured:
        TraceCache.replay = lambda self, function, *arguments: function(*arguments)
    code = next((code for words in commands if (code := main(list(words)))), 0)
    told.write_text(json.dumps(_performed))
    sys.exit(code)
