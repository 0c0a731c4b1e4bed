"""How the end of a child process is told."""

from __future__ import annotations

import signal

import pytest

from evorl.cluster.processes.fork import exit_reason
from evorl.util.parents import ending


@pytest.mark.parametrize(
    ("status", "output", "line"),
    [
        (0, b"", "ended with exit code 0"),
        (3, b"one\n\x1b[31mtwo\n\n", r"ended with exit code 3; it said last: \x1b[31mtwo"),
        (-signal.SIGSEGV, b"\xff", "was killed by SIGSEGV; it said last: \N{REPLACEMENT CHARACTER}"),
        (-(signal.SIGRTMIN + 3), b" \n", f"was killed by signal {signal.SIGRTMIN + 3}"),
    ],
)
def test_an_ending_is_one_line(status: int, output: bytes, line: str) -> None:
    assert ending(status, output) == line


def test_workers_end_by_signals_without_a_name_too() -> None:
    assert exit_reason(-(signal.SIGRTMIN + 3)) == f"was killed by signal {signal.SIGRTMIN + 3}"
