"""Record a function of tensors once, replay it without Python or autograd in between.

A small network's update is a few hundred tiny operations, and most of its time is their overhead.
Autograd still derives every gradient: `capture` lets it run once and tapes the operations it performed,
forward and backward; the replay calls the same kernels in the same order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

Result = TypeVar("Result", tuple[Tensor, ...], dict[str, Tensor])

_BOOKKEEPING = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)  # autograd's, no arithmetic


class Records:
    """Functions that are captured at their first call with arguments of new shapes, and replayed from then on."""

    def __init__(self) -> None:
        self._replays: dict[Any, Callable[..., Any]] = {}

    def replay(self, function: Callable[..., Result], *arguments: Tensor) -> Result:
        """``function(*arguments)``; see `capture`. Two functions of one name must not share their records."""
        key = (function.__name__, *[x.shape for x in arguments])
        found: Callable[..., Result] | None = self._replays.get(key)
        if found is None:
            with torch.inference_mode(False):
                found = self._replays[key] = capture(function, *arguments)
        return found(*arguments)


def capture(function: Callable[..., Result], *example: Tensor) -> Callable[..., Result]:
    """A replay of ``function`` for arguments of exactly the example's shapes and dtypes.

    The function must be straight-line: no branch on a tensor's value, no random numbers; whatever
    is not an argument is frozen into the record, the names of its results as well. The example's
    tensors keep their values.
    Raises RuntimeError for the gradient of a convolution, whose arguments the tracer does not know.
    """
    example = tuple(x.detach().clone() for x in example)
    with torch.enable_grad(), _Tape() as tape:
        results = function(*example)
    names, leaves = (None, results) if isinstance(results, tuple) else (tuple(results), tuple(results.values()))

    def straight_line(*arguments: Tensor) -> tuple[Tensor, ...]:
        now = {id(old): new for old, new in zip(example, arguments, strict=True)}

        def present(x: Any) -> Any:
            return now.get(id(x), x) if isinstance(x, Tensor) else x

        for operation, args, kwargs, out in tape.calls:
            if operation in _BOOKKEEPING:
                now[id(out)] = present(args[0])
                continue
            new = operation(*tree_map(present, args), **tree_map(present, kwargs))
            now.update({id(o): n for o, n in zip(tree_leaves(out), tree_leaves(new), strict=True)})
        return tuple(present(x) for x in leaves)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated for torch.export, which has no executor as light as this one
        run = cast(Any, torch.jit.trace)(straight_line, example, check_trace=False)
    one_executor = cast(Any, torch.jit).optimized_execution

    def replay(*arguments: Tensor) -> Any:
        with torch.no_grad(), one_executor(False):  # the same executor from the first call on: the same bits
            out: tuple[Tensor, ...] = run(*arguments)
        return out if names is None else dict(zip(names, out, strict=True))

    return replay


class _Tape(TorchDispatchMode):
    """Every operation performed while it is entered, with its arguments and results (kept, so that ids stay theirs)."""

    def __init__(self) -> None:
        cast(Any, super()).__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing here is ever compiled; the default would import the compiler, seconds of start-up

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out
