"""evorl.report as a process of its own: it waits for the first run, and leaves nothing when it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from test_report import write_run

from evorl.analysis.sweeps import write_index

REPORT = [sys.executable, "-m", "evorl.report"]


def test_a_live_page_waits_for_the_first_job(tmp_path: Path) -> None:
    write_index(tmp_path, {"0": ["rl.lr=0.1"]})
    command = [*REPORT, str(tmp_path), "live=true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as report:
        assert report.stdout and report.stderr
        assert report.stderr.readline() == f"evorl: none of the 1 jobs in {tmp_path} has begun; the page comes then\n"
        write_run(tmp_path / "0", 0.1, 1)
        assert report.stdout.readline().startswith("http://127.0.0.1:")
        report.send_signal(signal.SIGINT)
        assert report.wait(60) == 130


def test_no_process_is_left_when_a_report_is_killed(tmp_path: Path) -> None:
    for number in range(20):
        write_run(tmp_path / "runs" / str(number), 10.0 ** -(2 + number % 4), number)
    report = psutil.Popen([*REPORT, str(tmp_path / "runs"), f"out={tmp_path / 'report'}"], stdout=subprocess.DEVNULL)
    until(lambda: len(report.children()) == 1 and report.children()[0].cpu_times().user > 0)
    second = report.children()[0]  # it draws
    report.kill()
    report.wait()
    until(lambda: not second.is_running())
    assert not (tmp_path / "report").exists()


def until(holds: Callable[[], bool]) -> None:
    last = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < last
        time.sleep(0.01)
