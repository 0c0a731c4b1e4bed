"""Fork child processes, and describe how they ended."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from evorl.util.parents import die_with_parent as die_with_parent
from evorl.util.parents import signal_name
from evorl.util.parents import with_parent as with_parent
from evorl.util.text import say


def fork(work: Callable[[], None], keep: int) -> int:
    """Fork a child that runs ``work``. It keeps stdin, stdout, stderr and the files ``keep`` of the parent."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():  # newer Pythons warn of the parent's threads: see `ProcessLauncher._fork`
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _close_files(keep)
        work()
        code = 0
    except BaseException:
        say(traceback.format_exc().rstrip("\n"), sys.stderr)
    finally:
        _exit(code)


@contextmanager
def forked(work: Callable[[], bytes]) -> Iterator[Callable[[], bytes]]:
    """Do ``work`` in a forked child during the block. What is yielded waits for its bytes.

    It raises RuntimeError if the child ended otherwise, after the child has printed why. No child outlives the block.
    """
    parent = os.getpid()
    reading, writing = os.pipe()

    def send() -> None:
        die_with_parent(parent)
        with open(writing, "wb") as pipe:
            pipe.write(work())

    left = [fork(send, writing)]
    os.close(writing)
    with open(reading, "rb") as pipe:

        def result() -> bytes:
            answer = pipe.read()
            status = os.waitstatus_to_exitcode(os.waitpid(left.pop(), 0)[1])
            if status != 0:
                raise RuntimeError(f"a child process {exit_reason(status)}")
            return answer

        try:
            yield result
        finally:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _exit(code: int) -> NoReturn:
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # without the parent's exit handlers


def _close_files(keep: int) -> None:
    """Close the locks, sockets and pipes of the parent."""
    most = os.sysconf("SC_OPEN_MAX")
    if keep < 0:
        os.closerange(3, most)
    else:
        os.closerange(3, keep)
        os.closerange(keep + 1, most)


def name_process(name: str) -> None:
    """Set the name of this process that top, ps and the hardware metrics show (at most 15 characters)."""
    Path("/proc/self/comm").write_text(name, encoding="utf-8")


def exit_reason(status: int) -> str:
    """A description of an exit status: how the process ended."""
    return f"left with exit code {status}" if status >= 0 else f"was killed by {signal_name(-status)}"
