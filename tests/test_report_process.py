"""evorl.report as a process of its own: its page waits for the first run, and nothing is left when it is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from analysis.test_live import get
from test_report import write_run

from evorl.analysis.sweeps import write_index
from evorl.report import main

pytestmark = pytest.mark.slow

REPORT = [sys.executable, "-m", "evorl.report"]


@contextmanager
def live(sweep: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command on a sweep of which no job has begun, and the address of its page, which says so."""
    write_index(sweep, {"0": ["rl.lr=0.1"]})
    command = [*REPORT, str(sweep), "live=true", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as report:
        try:
            assert report.stdout
            url = report.stdout.readline().strip()
            assert f"no job in {sweep} has begun" in get(url)[1]
            yield report, url
        finally:
            report.kill()


def test_a_live_page_waits_for_the_first_job(tmp_path: Path) -> None:
    with live(tmp_path) as (report, url):
        write_run(tmp_path / "0", 0.1, 1)
        until(lambda: "1 run" in get(url)[1])
        report.send_signal(signal.SIGINT)
        assert report.wait(60) == 130


def test_a_key_that_the_first_run_lacks_is_refused_then(tmp_path: Path) -> None:
    with live(tmp_path, "by=rl.lrr") as (report, _):
        write_run(tmp_path / "0", 0.1, 1)
        assert report.wait(60) == 2 and report.stdout
        assert report.stdout.readline().startswith("evorl: by: no run has the key rl.lrr; did you mean rl.lr?")


def test_a_sweep_whose_jobs_failed_before_they_began_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_index(tmp_path, {"0": ["rl.lr=0.1"], "1": ["rl.lr=0.2"]})
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "failure.json").write_text(json.dumps({"reason": f"no memory {number}"}))
    assert main([str(tmp_path), "live=true"]) == 2
    assert capsys.readouterr() == ("", f"evorl: no job in {tmp_path} has begun; the first failed: no memory 0\n")


def test_no_process_is_left_when_a_report_is_killed(tmp_path: Path) -> None:
    for number in range(20):
        write_run(tmp_path / "runs" / str(number), 10.0 ** -(2 + number % 4), number)
    report = psutil.Popen([*REPORT, str(tmp_path / "runs"), f"out={tmp_path / 'report'}"], stdout=subprocess.DEVNULL)
    drawing: list[psutil.Process] = []
    until(lambda: bool(drawing.extend(report.children()) or drawing))
    report.kill()
    report.wait()
    until(lambda: ended(drawing[0]))
    assert not (tmp_path / "report").exists()


def ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(holds: Callable[[], bool]) -> None:
    last = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < last
        time.sleep(0.01)
