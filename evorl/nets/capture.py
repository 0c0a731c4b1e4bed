"""Record a function of tensors once, replay it without Python or autograd in between.

A small network's update is a few hundred tiny operations, and most of its time is their overhead.
Autograd still derives every gradient: `capture` lets it run once, records the operations it performed,
forward and backward, and replays that straight line. The replay calls the same kernels in the same order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

Function = Callable[..., tuple[Tensor, ...]]


def capture(function: Function, *example: Tensor) -> Function:
    """A replay of ``function`` for arguments of exactly the example's shapes and dtypes.

    The function must be straight-line: no branch on a tensor's value, no random numbers; whatever
    is not an argument is frozen into the record. Arguments keep their values while recording.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    example = tuple(x.detach().clone() for x in example)
    with torch.enable_grad():
        graph = make_fx(function)(*example)
    for node in list(graph.graph.nodes):  # bookkeeping of autograd, not arithmetic
        if node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            node.replace_all_uses_with(node.args[0])
    graph.graph.eliminate_dead_code()
    graph.recompile()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.export, the successor, has no such light executor
        traced: Any = torch.jit.trace(graph, example, check_trace=False)
    run, optimized_execution = traced.forward, cast(Any, torch.jit).optimized_execution

    def replay(*arguments: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad(), optimized_execution(False):  # one executor from the first call on: same bits
            out: tuple[Tensor, ...] = run(*arguments)
        return out

    return replay
