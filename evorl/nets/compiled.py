"""A recorded function as machine code, kept on this machine for whoever records the same one again.

`evorl.nets.capture` replays a gradient step operation by operation, and at small widths handing each of them over costs
more than its work. PyTorch's ahead-of-time compiler (AOTInductor; Ansel et al. 2024) joins them into few loops,
called from one C++ function. It wants a C++ compiler and half a minute, so what it makes is kept in
``$XDG_CACHE_HOME/evorl`` (``~/.cache/evorl``), named after all that it was made from.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from evorl.nets.capture import Record, Result, named
from evorl.record.files import replace
from evorl.record.provenance import machine
from evorl.util.errors import BadRequest


def compiled(function: Callable[..., Result], *example: Tensor) -> Callable[..., Result]:
    """A replay of ``function`` for arguments of exactly the example's shapes and dtypes; see `Record`.

    It equals `capture`'s up to rounding, and itself bit for bit on the same machine. Raises torch's error of a compiler
    that fails.
    """
    record = Record.of(function, *example)
    run, names = _loaded(_library(record)), record.names

    def replay(*arguments: Tensor) -> Any:
        return named(names, tuple(run([x.contiguous() for x in arguments])))

    return replay


def require_compiler(device: torch.device) -> None:
    """Raise `BadRequest` where a step on this device cannot be compiled here."""
    if device.type != "cpu":
        raise BadRequest("compiles steps on the CPU; add device=cpu, or leave it out", "rl.compile")
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(name) is None:
        raise BadRequest(f"needs a C++ compiler, and there is no {name}: apt install g++", "rl.compile")


@cache  # one copy for all learners of a process: it has no state
def _loaded(library: Path) -> Callable[[list[Tensor]], list[Tensor]]:
    run: Callable[[list[Tensor]], list[Tensor]] = (
        cast(Any, torch._C)._aoti.AOTIModelContainerRunnerCpu(str(library), 1).run
    )
    return run


def _library(record: Record) -> Path:
    """The record's shared library, made now unless it is there."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evorl"
    made_from = (str(record), torch.__version__, torch.get_num_threads(), platform.machine(), machine()["cpu"])
    library = kept / f"{hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]}.so"
    kept.mkdir(parents=True, exist_ok=True)
    with open(kept / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of many workers one compiles; the others wait for what it makes
        if not library.exists():
            making = kept / "making"
            shutil.rmtree(making, ignore_errors=True)  # left by one that was killed
            making.mkdir()
            try:
                replace(library, _compile(record, making).read_bytes())
            finally:
                shutil.rmtree(making)
    return library


def _compile(record: Record, folder: Path) -> Path:
    from torch._inductor import aot_compile, config  # here, since this imports the compiler: needed the first time only
    from torch._inductor.utils import fresh_cache

    module = type("Step", (nn.Module,), {"forward": lambda _, *arguments: record.perform(*arguments)})
    with torch.no_grad(), warnings.catch_warnings(), _uninterrupted():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module(), record.example).module()
        with fresh_cache(dir=str(folder), delete=False), config.patch(compile_threads=1):  # in this process
            return Path(cast(str, aot_compile(cast(Any, exported), record.example)))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Keep a terminal's Ctrl-C from the processes begun here: it is for this one, which saves its run first."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
