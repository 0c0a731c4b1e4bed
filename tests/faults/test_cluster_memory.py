"""Workers that the kernel ends for want of memory, where this system lets us make a control group of our own."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT

from evorl.cluster.processes import out_of_memory

LIMIT = 400 << 20  # bytes, of which a driver and its supervisors need a third
TOP = Path("/sys/fs/cgroup")

HUNGRY = """
import logging, os, sys
from pathlib import Path
from evorl.cluster.core import MemberLost
from evorl.cluster.processes import Processes

class Hungry:
    def __init__(self, index):
        self.index = index
    def eat(self, times):
        if self.index == 1 and len(os.listdir(sys.argv[2])) < times:
            Path(sys.argv[2], str(os.getpid())).touch()
            bytearray(b"x") * (1 << 30)
        return self.index

Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
group = Processes(workers=2).spawn(Hungry, 2)
try:
    print(group.all("eat", int(sys.argv[3])), group.counters()["cluster/replaced"])
except MemberLost as error:
    print(error)
finally:
    group.close()
"""


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group that has little memory. Making one takes root, and a cgroup file system that may be written:
    containers often have neither, and nothing else limits the memory of several processes together."""
    old = TOP / "memory"
    group = (old if old.exists() else TOP) / f"evorl-test-{secrets.token_hex(8)}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (group / ("memory.limit_in_bytes" if old.exists() else "memory.max")).write_text(str(LIMIT))
        yield group
    except OSError as error:
        pytest.skip(f"a control group's memory cannot be limited here: {error}")
    finally:
        group.rmdir()


def eat(times: int, group: Path, place: Path) -> str:
    command = [sys.executable, "-c", HUNGRY, str(group), str(place), str(times)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    return done.stdout.strip() or done.stderr


def test_a_worker_that_the_kernel_ended_once_is_replaced(limited: Path, tmp_path: Path) -> None:
    assert eat(1, limited, tmp_path) == "[0, 1] 1.0"


def test_who_needs_too_much_memory_ends_the_group_after_a_few_tries(limited: Path, tmp_path: Path) -> None:
    end = "was killed by SIGKILL for want of memory as eat ran, 3 times over the same work"
    assert eat(100, limited, tmp_path) == f"worker 1, busy with member 1, {end}"


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.events": "low 0\nhigh 2\nmax 9\noom 8\noom_kill 7\n"}),
        (
            "3:cpu:/x\n2:hugetlb,memory:/x\n0::/\n",
            {"sys/fs/cgroup/memory/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"},
        ),
        ("2:memory:/hidden\n", {"sys/fs/cgroup/memory/memory.oom_control": "under_oom 0\noom_kill 7\n"}),
        ("0::/\n", {"proc/vmstat": "nr_free_pages 1\noom_kill 7\n"}),
        ("0::/\n", {}),
    ],
)
def test_the_kernels_count_is_found(
    groups: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(out_of_memory, "Path", lambda name: tmp_path / name.removeprefix("/"))
    assert out_of_memory.kill_count() == (7 if files else 0)
