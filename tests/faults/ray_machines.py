"""Nodes of a Ray cluster, started with scripts/ as docs/cluster.md says, on machines that this one plays."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness import ROOT

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


@contextmanager
def surroundings(home: Path) -> Iterator[dict[str, str]]:
    """The environment of somebody who lives in ``home``; afterwards nothing of their Ray may run."""
    folder = tempfile.mkdtemp(prefix="evorl-", dir="/tmp")  # short: sockets lie in it
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    modules = f"{ROOT}:{ROOT / 'tests'}"
    try:
        yield {**ours, "HOME": str(home), "EVORL_RAY_DIR": folder, "PATH": path, "PYTHONPATH": modules}
        until(lambda: not naming(folder))
    finally:
        shutil.rmtree(folder)


class Node:
    """One of the scripts, at work; ``where``: the words that run it on another machine."""

    def __init__(self, environment: dict[str, str], script: str, *words: str, where: Sequence[str] = ()) -> None:
        command = [*where, str(ROOT / "scripts" / f"{script}.sh"), *words, "--num-cpus=1", STORE]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        self.log = Path(said.split("log in ")[1].strip())
        assert where or int(re.findall(r"pid (\d+)", said)[0]) == self.process.pid
        until(lambda: self.process.poll() is not None or "Ray runtime started" in self.text())
        assert self.process.poll() is None, self.text()

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(LONGEST_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


# ------------------------------------------------------------------ networks


class Unpermitted(Exception):
    """This machine does not let us have networks of our own."""


class Networks:
    """Two network namespaces that reach each other, and nobody else, by a cable (a veth pair)."""

    addresses = ("10.209.17.1", "10.209.17.2")  # nobody else sees them

    def __init__(self) -> None:
        """Raises `Unpermitted`."""
        mark = secrets.token_hex(3)
        self.names = (f"evorl-{mark}-0", f"evorl-{mark}-1")
        self.ends = (f"ev{mark}-0", f"ev{mark}-1")
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("-n", self.names[0], "link", "add", self.ends[0], "type", "veth", "peer", self.ends[1])
            ip("-n", self.names[0], "link", "set", self.ends[1], "netns", self.names[1])
            for name, end, address in zip(self.names, self.ends, self.addresses, strict=True):
                ip("-n", name, "address", "add", f"{address}/24", "dev", end)
                ip("-n", name, "link", "set", end, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except Unpermitted:
            self.close()
            raise

    def within(self, number: int) -> list[str]:
        """The words before a command that is to run there."""
        return ["ip", "netns", "exec", self.names[number]]

    def apart(self, number: int) -> list[str]:
        """The same, and with processes of its own, which end with the first: as on another machine."""
        words = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"]
        return [*self.within(number), *words]

    def cut(self) -> None:
        """Pull out the cable: whatever is sent is lost, and nobody is told."""
        ip("-n", self.names[1], "link", "set", self.ends[1], "down")

    def close(self) -> None:
        for name in self.names:
            if (Path("/run/netns") / name).exists():
                for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                    subprocess.run(["kill", "-9", pid], capture_output=True)
                ip("netns", "delete", name)


def ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Unpermitted("there is no ip (on Debian and Ubuntu: apt install iproute2)") from error
    if done.returncode:
        raise Unpermitted(f"ip {' '.join(words)}: {done.stderr.strip()}")
