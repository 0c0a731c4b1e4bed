"""A Ray cluster started with scripts/ as docs/cluster.md says, a run that joins it, and its end by process id."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.fault

ROOT = Path(__file__).parents[2]
STORE = f"--object-store-memory={80 << 20}"
LONGEST_S = 60


def until(what: Callable[[], object]) -> None:
    ends = time.monotonic() + LONGEST_S
    while not what():
        assert time.monotonic() < ends, "it did not come about"
        time.sleep(0.1)


def naming(text: str) -> list[int]:
    """The processes whose command line holds a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


class Node:
    """One of the scripts, at work."""

    def __init__(self, environment: dict[str, str], script: str, *words: str) -> None:
        command = [ROOT / "scripts" / f"{script}.sh", *words, "--num-cpus=1", STORE]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        self.log = Path(said.split("log in ")[1].strip())
        assert int(re.findall(r"pid (\d+)", said)[0]) == self.process.pid
        until(lambda: self.process.poll() is not None or "Ray runtime started" in self.text())
        assert self.process.poll() is None, self.text()

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(LONGEST_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    folder = tempfile.mkdtemp(prefix="evorl-", dir="/tmp")  # short: sockets lie in it
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield {**ours, "HOME": str(tmp_path), "EVORL_RAY_DIR": folder, "PATH": path, "PYTHONPATH": str(ROOT)}
    shutil.rmtree(folder)


def test_two_nodes_started_by_hand(tmp_path: Path, environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    head = Node(environment, "ray_head", f"--port={address.split(':')[1]}")
    nodes = [head]
    try:
        token = tmp_path / ".ray" / "auth_token"
        assert token.stat().st_mode & 0o77 == 0
        nodes.append(Node(environment, "ray_worker", address))
        words = ["evorl.run", "mdp=pendulum", "cluster=ray", "cluster.workers=2", "rl.members=2", "+debug=tiny"]
        command = [sys.executable, "-m", *words, f"cluster.address={address}", "hydra.run.dir=run"]

        def run(mode: str) -> subprocess.CompletedProcess[str]:
            given = {**environment, "RAY_AUTH_MODE": mode}
            return subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True)

        refused = run("disabled")
        assert refused.returncode == 2 and "cluster.address" in refused.stderr
        assert not (tmp_path / "run").exists()
        done = run("token")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "run" / "result.json").exists()
    finally:
        for node in reversed(nodes):
            node.end()
    until(lambda: not naming(environment["EVORL_RAY_DIR"]))
