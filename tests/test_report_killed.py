"""evorl.report draws in a second process, which ends with it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from test_report import write_run


def test_no_process_is_left_when_the_report_is_killed(tmp_path: Path) -> None:
    for number in range(20):
        write_run(tmp_path / "runs" / str(number), 10.0 ** -(2 + number % 4), number)
    command = [sys.executable, "-m", "evorl.report", str(tmp_path / "runs"), f"out={tmp_path / 'report'}"]
    report = psutil.Popen(command, stdout=subprocess.DEVNULL)
    until(lambda: len(report.children()) == 1 and report.children()[0].cpu_times().user > 0)
    second = report.children()[0]
    report.kill()
    report.wait()
    until(lambda: not second.is_running())
    assert not (tmp_path / "report").exists()


def until(holds: Callable[[], bool]) -> None:
    last = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < last
        time.sleep(0.01)
