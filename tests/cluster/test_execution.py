"""A whole run on workers unpickles nothing, from the socket or elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import QUICK, ROOT, WORLDS, rows

GUARD = """
import os, sys

def audit(event, arguments):
    if event == "pickle.find_class":
        os.write(2, f"{event} {arguments}\\n".encode())
        os._exit(77)  # not an exception, which could be caught

"""
RUN = "from evorl.run import main; sys.addaudithook(audit); sys.exit(main(sys.argv[1:]))"
CONTROL = """
import pickle, collections
from evorl.cluster.processes import Processes
from evorl.cluster.core import MemberLost

class Careless:
    def __init__(self, index): self.index = index
    def read(self, content): return str(pickle.loads(content))

sys.addaudithook(audit)
group = Processes(workers=1).spawn(Careless, 1)
try:
    group.all("read", pickle.dumps(collections.OrderedDict, 0))
except MemberLost as error:
    print(error)
finally:
    group.close()
"""


def python(code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the code in a process; it and its forks exit with code 77 when they look up a class for a pickle."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", GUARD + code, *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def test_the_audit_hook_detects_unpickling_in_a_worker(tmp_path: Path) -> None:
    done = python(CONTROL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "exit code 77" in done.stdout
    assert "pickle.find_class ('collections', 'OrderedDict')" in done.stderr


@pytest.mark.slow_cases(but=("words1",))
@pytest.mark.parametrize("words", [("rl.members=2",), ("rl.members=2", "rl.asynchronous=true")])
def test_a_run_on_workers_unpickles_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    quick = [*WORLDS["pong"], *QUICK, "budget.steps=3000", "cluster=processes", "cluster.workers=2", *words]
    done = python(RUN, *quick, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "pickle" not in done.stderr
    assert rows(tmp_path / "run")
