"""What `evorl.reproduce` and the speed programs start does not outlive them, not even where they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT
from test_cluster_orphans import check_gone

SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
STARTS = {
    "a sweep": "from evorl.reproduction.parts import _run; _run([sys.executable, sys.argv[1]])",
    "a peer": "from benchmarks.speed.common import Path, start; child = start(Path(sys.executable), sys.argv[1]); "
    "print(child.stdout.readline(), end='', flush=True); child.wait()",
}


@pytest.mark.fault
@pytest.mark.parametrize("what", STARTS)
def test_a_killed_parent_leaves_nothing_behind(what: str, tmp_path: Path) -> None:
    program = tmp_path / "sleeps.py"
    program.write_text(SLEEPS)
    command = [sys.executable, "-c", f"import sys; {STARTS[what]}", str(program)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        parent.send_signal(signal.SIGKILL)
    check_gone(child)
