"""A Ray of the run's own, kept by a process that does nothing else.

It lives in a session of its own, so that a signal to the run's process group stops the driver and not Ray under it;
and whatever ends the driver, the keeper ends Ray and whatever Ray has left.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray._raylet import Config  # type: ignore[attr-defined]

from evorl.cluster.child import fork

PR_SET_CHILD_SUBREAPER = 36
STORE = 80 << 20  # bytes of Ray's object store, nearly the least it takes: only factories go through it
MOST = 4096  # bytes of what a keeper says
MOST_DEEP = 35  # letters of the directory in which Ray's sockets, some 70 more, are still within Linux's 107
CLOSE_S = 15.0  # seconds that Ray gets to end
QUIET: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}


class Keeper:
    """The process. It also removes a directory of its driver's when that is gone."""

    def __init__(self, cpus: int, directory: str) -> None:
        """Raises RuntimeError where Ray does not start."""
        _ask_for_token()
        self._socket, theirs = socket.socketpair()
        self._pid = fork(partial(_keep, theirs, cpus, directory), keep=theirs.fileno())
        theirs.close()
        try:
            fine, _, said = self._socket.recv(MOST).decode(errors="replace").partition(" ")
            if fine != "at":
                raise RuntimeError(said or "its keeper was killed")
        except BaseException:
            self.close()
            raise
        self.address = said

    def close(self) -> None:
        self._socket.close()
        fd = os.pidfd_open(self._pid)
        if not select.select([fd], [], [], CLOSE_S)[0]:
            os.kill(self._pid, signal.SIGKILL)  # Ray's processes die with it
        os.close(fd)
        os.waitpid(self._pid, 0)


def _ask_for_token() -> None:
    """Ray listens on every interface: what it starts here asks for its token, unless the person said otherwise."""
    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
        Config.initialize("")


def _keep(driver: socket.socket, cpus: int, directory: str) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(one) for one in sys.path)  # what the driver can import
    try:
        _start(driver, cpus)
        driver.recv(1)  # until it closes its end
        ray.shutdown()
    finally:
        _end_children()
        shutil.rmtree(directory, ignore_errors=True)


def _start(driver: socket.socket, cpus: int) -> None:
    calm = {"worker_niceness": 0}  # nearly the lowest priority is Ray's default: any other program would starve them
    try:
        ray.init(
            "local", num_cpus=cpus, object_store_memory=STORE, _system_config=calm, _temp_dir=_temporary(), **QUIET
        )
        driver.send(f"at {ray.get_runtime_context().gcs_address}".encode())
    except Exception as error:  # of many kinds, some of them plain RuntimeErrors
        driver.send(f"not {gist(error)}".encode()[:MOST])


def _temporary() -> str | None:
    """Where Ray keeps its session: as usual, but where that is too deep for the names of its sockets."""
    usual = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return None if len(usual) <= MOST_DEEP else "/tmp/ray"


def gist(error: Exception) -> str:
    """The one line that matters of an error of Ray's, which may be a page: the first, or what ends a traceback."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1 if any("Traceback" in line or line.startswith("  File") for line in lines) else 0]


def _end_children() -> None:
    """Kill what is left, until nothing is: as their subreaper this process inherits its children's children."""
    while True:
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return
