"""A Ray of the run's or sweep's own, kept by a process that does nothing else.

It lives in a session of its own, so that a signal to the run's process group stops the driver and not Ray under it;
and whatever ends the driver, the owner ends Ray and whatever Ray has left. It is a child of the owner's that begins
Ray, so that the owner hears of its driver's end also in the seconds that this takes.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from evorl.cluster.processes.fork import die_with_parent, fork
from evorl.cluster.transport.host import short_directory
from evorl.util.poll import readable

PR_SET_CHILD_SUBREAPER = 36
STORE = 80 << 20  # bytes of Ray's object store, nearly the least it takes: enough where only factories go through it
MOST = 4096  # bytes of what a owner says
BELOW = 71  # letters that Ray adds to the directory of its sessions, in the paths of its sockets
VITAL = ("/gcs_server", "/raylet")  # without these two processes there is no Ray
REPLACED = b"r"
CLOSE_S = 15.0  # seconds that the owner gets to end Ray
QUIET: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}


class RayOwner:
    """The process. It also removes a directory of its driver's, where one is given, when that is gone."""

    def __init__(self, options: Mapping[str, Any], directory: str = "") -> None:
        """``options`` of ``ray.init`` are those of the Ray that begins. Raises RuntimeError where it does not."""
        require_token()
        self._socket, theirs = socket.socketpair()
        # not a fork: Ray does not work in the child of a process that has used it
        words = [sys.executable, "-m", __name__, str(theirs.fileno()), json.dumps(options), directory]
        paths = os.pathsep.join(os.path.abspath(one) for one in sys.path)  # workers can import what the driver can
        self._process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], start_new_session=True, env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        try:
            fine, _, said = self._socket.recv(MOST).decode(errors="replace").partition(" ")
            if fine != "at":
                raise RuntimeError(said or "its owner was killed")
        except BaseException:
            self.close()
            raise
        self.address = said

    def fileno(self) -> int:
        """Becomes readable when Ray is gone."""
        return self._socket.fileno()

    def gone(self, timeout_s: float = 0.0) -> bool:
        """Whether Ray is gone, or goes within so many seconds."""
        return bool(readable([self._socket], timeout_s))

    def close(self, replaced: bool = False) -> None:
        """End Ray; the directory stays where another owner is to follow."""
        if replaced:
            with suppress(OSError):
                self._socket.send(REPLACED)
        self._socket.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # Ray's processes die with it
            self._process.wait()


def require_token() -> None:
    """Others on this machine can reach what Ray starts: it asks for its token, unless the person said otherwise."""
    import ray._raylet

    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
        compiled: Any = ray._raylet  # without stubs
        compiled.Config.initialize("")


@contextmanager
def on_loopback() -> Iterator[None]:
    """A Ray that begins here, or is joined, is at 127.0.0.1 and listens there alone.

    Ray does so by itself on systems where it knows no clusters; elsewhere it takes 127.0.0.1 for the machine's address.
    """
    import ray._private.ray_constants

    constants: Any = ray._private.ray_constants
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _own_ray(driver: socket.socket, options: dict[str, Any], directory: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        child = fork(partial(_run_ray, driver, options, os.getpid()), keep=driver.fileno())
        readable([driver, os.pidfd_open(child)])  # until the driver is gone, or Ray
    finally:
        _kill_children()
        with suppress(OSError):
            driver.shutdown(socket.SHUT_WR)  # so a driver that lives hears of it
        if directory and not _is_replaced(driver):
            shutil.rmtree(directory, ignore_errors=True)


def _run_ray(driver: socket.socket, options: dict[str, Any], owner: int) -> None:
    """Begin Ray, tell the driver, and end when Ray is no longer whole."""
    die_with_parent(owner)
    import ray  # here: the owner listens from its first moment

    calm = {"worker_niceness": 0}  # nearly the lowest priority is Ray's default: any other program would starve them
    own = {
        "_system_config": {**calm, **(options.get("_system_config") or {})},
        "_temp_dir": options.get("_temp_dir") or _temporary_directory(),
    }
    try:
        with on_loopback():
            ray.init("local", **{**QUIET, **options, **own})
        said = f"at {ray.get_runtime_context().gcs_address}"
    except Exception as error:  # of many kinds, some of them plain RuntimeErrors
        said = f"not {main_line(error)}"
    driver.send(said.encode()[:MOST])
    vital = []
    for child in _children():
        words = Path(f"/proc/{child}/cmdline").read_text()
        if words.partition("\0")[0].endswith(VITAL):
            vital.append(os.pidfd_open(child))
    readable(vital)  # of a Ray that did not start there may be none; but then the driver leaves


def _is_replaced(driver: socket.socket) -> bool:
    """Whether another owner is to follow, once the driver has closed its end."""
    try:
        return driver.recv(1) == REPLACED
    except ConnectionError:  # it died before it had read what we sent
        return False


def _temporary_directory() -> str | None:
    """Where Ray keeps its session: as usual, but where that is too deep for the names of its sockets."""
    usual = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return None if short_directory("x" * BELOW, usual) == usual else "/tmp/ray"


def main_line(error: Exception) -> str:
    """The one line that matters of an error of Ray's, which may be a page: the first, or what ends a traceback."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1 if any("Traceback" in line or line.startswith("  File") for line in lines) else 0]


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _kill_children() -> None:
    """Kill what is left, until nothing is: as their subreaper this process inherits its children's children."""
    while True:
        for child in _children():
            with suppress(ProcessLookupError):  # nobody else waits for them, so each number is still its own
                os.kill(child, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    _own_ray(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]), sys.argv[3])
