"""A recorded function as machine code, kept on this machine for later runs that record the same function.

`evorl.nets.capture` replays a gradient step operation by operation, and at small widths handing each of them over costs
more than its work. PyTorch's ahead-of-time compiler (AOTInductor; Ansel et al. 2024) joins them into few loops,
called from one C++ function. Compilation needs a C++ compiler and half a minute, so its result is kept in
``$XDG_CACHE_HOME/evorl`` (``~/.cache/evorl``), named after the operations, the processor, torch and evorl; another
compiler does not make it anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn

from evorl import __version__
from evorl.nets.capture import Replay, Trace
from evorl.nets.trees import Tree, rebuild
from evorl.util.errors import BadRequest
from evorl.util.files import replace


def compiled(function: Callable[..., Tree], *example: Tree) -> Replay:
    """A replay of ``function`` for arguments of exactly the example's form, shapes and dtypes; see `Trace`.

    It equals `capture`'s up to rounding, and itself bit for bit on the same machine. Raises torch's error of a compiler
    that fails, OSError where the library cannot be kept, RuntimeError where it alone would not do.
    """
    record = Trace.of(function, *example)
    run, form = _loaded(_library(record)), record.form

    def replay(*arguments: Tensor) -> Any:
        return rebuild(form, iter(run([x.contiguous() for x in arguments])))

    return replay


def require_compiler(device: torch.device) -> None:
    """Make the folder of what is kept. Raises `BadRequest` where a step on this device cannot be compiled here, and
    where others own the folder or may write into it."""
    if device.type != "cpu":
        raise BadRequest("compiles for the CPU: device=cpu", "rl.compile")
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(name) is None:
        raise BadRequest(f"needs a C++ compiler, and there is no {name}: apt install g++", "rl.compile")
    try:
        folder = _folder()
    except (OSError, RuntimeError) as error:  # no place to write, no home
        raise BadRequest(f"has no place for what it makes: {error}", "rl.compile") from None
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:  # a user who can write there can run code here
        raise BadRequest(f"{folder} is not yours alone: chmod 700, or another XDG_CACHE_HOME", "rl.compile")


def _folder() -> Path:
    """Where libraries are kept, made if need be."""
    path = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = (path if path.is_absolute() else Path.home() / ".cache") / "evorl"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@cache  # one copy for all learners of a process: it has no state
def _loaded(library: Path) -> Callable[[list[Tensor]], list[Tensor]]:
    runner = cast(Any, torch._C)._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
    return cast(Callable[[list[Tensor]], list[Tensor]], runner.run)


def _library(record: Trace) -> Path:
    """The record's shared library, made now unless it is there."""
    made_from = (record.text, torch.get_num_threads(), torch.__version__, __version__, _processor())
    name = hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]
    library = _folder() / f"{name}.so"
    if library.exists():
        return library
    with open(library.with_name(f".{name}.lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of many workers one compiles; the others wait for what it makes
        if not library.exists():
            replace(library, _compile(record))
        Path(lock.name).unlink(missing_ok=True)  # it kept the others out until the library was there
    return library


def _processor() -> str:
    """The name of the processor; the code is made for this one only."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    features = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    return f"{torch.backends.cpu.get_cpu_capability()} {sorted(features)}"


def _compile(record: Trace) -> bytes:
    """Compile in a thread that blocks SIGINT and SIGTERM, and so does the compiler that it starts: these signals are
    for the run, which saves first."""
    blocked = partial(signal.pthread_sigmask, signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with ThreadPoolExecutor(1, initializer=blocked) as pool:
        return pool.submit(_compile_here, record).result()


def _compile_here(record: Trace) -> bytes:
    module = type("Step", (nn.Module,), {"forward": lambda _, *arguments: record.perform(*arguments)})
    with _own_folder() as folder, torch.no_grad(), warnings.catch_warnings():
        from torch._inductor import aot_compile, config  # here: it is large, and needed the first time only
        from torch._inductor.utils import fresh_cache

        warnings.simplefilter("ignore")
        # it warns about a folder that is already removed
        logging.getLogger("torch._inductor.utils").setLevel(logging.ERROR)
        exported = torch.export.export(module(), record.example).module()
        # nothing outside the folder: no header compiled beforehand for others, no pool of processes
        options = {"aot_inductor.precompile_headers": False, "compile_threads": 1}
        with fresh_cache(dir=folder, delete=False), config.patch(options):
            made = Path(cast(str, aot_compile(cast(Any, exported), record.example)))
        if made.with_suffix(".json").exists():
            raise RuntimeError("the compiled step would call operations of PyTorch by a table that is not kept")
        return made.read_bytes()


@contextmanager
def _own_folder() -> Iterator[str]:
    """A folder for all files of the compiler, set before it is imported, since it reads the setting then."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    with TemporaryDirectory(prefix="evorl-compile-") as folder:
        os.environ[name] = folder
        try:
            yield folder
        finally:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before
