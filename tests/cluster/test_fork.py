"""A forked child beside a block: its bytes arrive, its failure is told, and none outlives the block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from evorl.cluster.processes.fork import forked


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = {*psutil.Process().children()}  # other tests may have some
    yield
    assert {*psutil.Process().children()} <= before


def test_more_bytes_than_a_pipe_holds_arrive() -> None:
    sent = os.urandom(1_000_000)
    with forked(lambda: sent) as result:
        assert result() == sent


def test_an_error_is_printed_by_the_child_and_raised_here() -> None:
    code = "from evorl.cluster.processes.fork import forked\nwith forked(lambda: 1 // 0) as result: result()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    cause, told = done.stderr.find("ZeroDivisionError"), done.stderr.find("a child process left with exit code 1")
    assert done.returncode == 1 and 0 <= cause < told


def test_a_killed_child_is_told() -> None:
    def work() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b"never"

    with pytest.raises(RuntimeError, match="a child process was killed by SIGKILL"), forked(work) as result:
        result()


def test_a_child_ends_with_its_block() -> None:
    with pytest.raises(KeyError), forked(lambda: time.sleep(600) or b""):
        raise KeyError
