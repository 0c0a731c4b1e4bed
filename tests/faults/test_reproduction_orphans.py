"""What `evorl.reproduce` starts does not outlive it, not even where it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT
from test_cluster_orphans import check_gone

SLEEPS = """
import os, pathlib, signal, sys, time
def stop(number, frame):
    pathlib.Path(__file__).with_name("stopped").touch()
    sys.exit()
signal.signal(signal.SIGTERM, stop)
pathlib.Path(__file__).with_name("pid.new").write_text(str(os.getpid()))
os.rename(pathlib.Path(__file__).with_name("pid.new"), pathlib.Path(__file__).with_name("pid"))
time.sleep(600)
"""
STARTS = {
    "a sweep": "from evorl.reproduction.parts import _run; _run([sys.executable, sys.argv[1]])",
    "a peer": "from benchmarks.speed.common import answer; answer(pathlib.Path(sys.executable), sys.argv[1])",
    "evorl.run": "from benchmarks.speed import common; common.start_run(['--sleep']).wait()",
    "evorl.evaluate": "from evorl.reproduction import judging; judging.judge(None, [], False)",
}
INSTEAD = "import pathlib, subprocess, sys; sleeps = sys.argv[1]; real = subprocess.Popen; "
INSTEAD += "subprocess.Popen = lambda command, **options: real([sys.executable, sleeps], **options); "


@pytest.mark.fault
@pytest.mark.parametrize("what", STARTS)
def test_a_killed_parent_leaves_nothing_behind(what: str, tmp_path: Path) -> None:
    """A sweep is told to stop, as by Ctrl-C, and all else is killed."""
    program, pid = tmp_path / "sleeps.py", tmp_path / "pid"
    program.write_text(SLEEPS)
    command = [sys.executable, "-c", INSTEAD + STARTS[what], str(program)]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}) as parent:
        while not pid.exists():
            assert parent.poll() is None
        child = int(pid.read_text())
        parent.send_signal(signal.SIGKILL)
    check_gone(child)
    assert (tmp_path / "stopped").exists() == (what == "a sweep")
