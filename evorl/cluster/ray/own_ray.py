"""The Ray that a run or sweep starts for itself, owned by a separate process.

The owner process has its own session, so a signal to the run's process group reaches the driver and not Ray. When the
driver ends for any reason, the owner stops Ray and kills what Ray leaves behind. A child of the owner starts Ray, which
takes seconds, so that the owner can detect the end of the driver at any time.
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from evorl.cluster.processes.fork import die_with_parent, fork
from evorl.cluster.ray.private_files import ensure_token, session_directory
from evorl.util.poll import readable

PR_SET_CHILD_SUBREAPER = 36
STORE = 80 << 20  # bytes of Ray's object store, close to its minimum: only factories go through it
MOST = 4096  # maximum bytes of an owner's message
VITAL = ("/gcs_server", "/raylet")  # the two processes that Ray cannot lose
REPLACED = b"r"
CLOSE_S = 15.0  # seconds for the owner to stop Ray
QUIET: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}


class RayOwner:
    """The owner process. It also removes the driver's directory, if one is given, when the driver is gone."""

    def __init__(self, options: Mapping[str, Any], directory: str = "") -> None:
        """``options`` are passed to ``ray.init``. Raises RuntimeError if Ray does not start."""
        require_token()
        self._socket, other_end = socket.socketpair()
        # not a fork: Ray does not work in a forked child of a process that used it
        words = [sys.executable, "-m", __name__, str(other_end.fileno()), json.dumps(options), directory]
        paths = os.pathsep.join(os.path.abspath(place) for place in sys.path)  # workers can import what the driver can
        self._process = subprocess.Popen(
            words, pass_fds=[other_end.fileno()], start_new_session=True, env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        other_end.close()
        try:
            fine, _, answer = self._socket.recv(MOST).decode(errors="replace").partition(" ")
            if fine != "at":
                raise RuntimeError(answer or "its owner was killed")
        except BaseException:
            self.close()
            raise
        self.address = answer

    def fileno(self) -> int:
        """Becomes readable when Ray is gone."""
        return self._socket.fileno()

    def gone(self, timeout_s: float = 0.0) -> bool:
        """Whether Ray is gone, after waiting at most ``timeout_s``."""
        return bool(readable([self._socket], timeout_s))

    def close(self, replaced: bool = False) -> None:
        """Stop Ray; ``replaced`` keeps the directory for the next owner."""
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
    """Make Ray require its token, unless the user set it otherwise: other users of this machine can reach its ports."""
    import ray._raylet

    if os.environ.setdefault("RAY_AUTH_MODE", "token").lower() == "token":
        compiled: Any = ray._raylet  # without stubs
        compiled.Config.initialize("")
        if ensure_token():
            compiled.AuthenticationTokenLoader.instance().reset_cache()  # it may know that there was none


@contextmanager
def on_loopback() -> Iterator[None]:
    """Make Ray listen on 127.0.0.1 only.

    Ray does this by default only on systems without clusters; elsewhere it uses the machine's address.
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
        ray = os.pidfd_open(child)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans that it inherits leave no zombies
        readable([driver, ray])  # until one of them is gone
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _kill_children()
        with suppress(OSError):
            driver.shutdown(socket.SHUT_WR)  # tells a living driver
        if directory and not _is_replaced(driver):
            shutil.rmtree(directory, ignore_errors=True)


def _run_ray(driver: socket.socket, options: dict[str, Any], owner: int) -> None:
    """Start Ray, report to the driver, and exit when a vital process of Ray has ended."""
    die_with_parent(owner)
    import ray  # here: the owner watches the driver from the start

    # Ray's default is nearly the lowest priority: any other program would starve the workers
    calm = {"worker_niceness": 0}
    own = {
        "_system_config": {**calm, **(options.get("_system_config") or {})},
        "_temp_dir": options.get("_temp_dir") or session_directory(),
    }
    try:
        with on_loopback():
            ray.init("local", **{**QUIET, **options, **own})
        answer = f"at {ray.get_runtime_context().gcs_address}"
    except Exception as error:  # of many kinds, some of them plain RuntimeErrors
        answer = f"not {main_line(error)}"
    driver.send(answer.encode()[:MOST])
    vital = []
    for child in _children():
        words = Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8", errors="replace")
        if words.partition("\0")[0].endswith(VITAL):
            vital.append(os.pidfd_open(child))
    readable(vital)  # empty if Ray did not start; then the driver leaves


def _is_replaced(driver: socket.socket) -> bool:
    """Whether another owner follows, known once the driver has closed its end."""
    try:
        return driver.recv(1) == REPLACED
    except ConnectionError:  # it died with unread messages
        return False


def main_line(error: Exception) -> str:
    """The main line of an error of Ray: the first one, or the last one of a traceback."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1 if any("Traceback" in line or line.startswith("  File") for line in lines) else 0]


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8").split()]


def _kill_children() -> None:
    """Kill all descendants; as their subreaper this process inherits the children of its children."""
    while True:
        for child in _children():
            with suppress(ProcessLookupError):  # only this process waits for them, so no number is reused
                os.kill(child, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    _own_ray(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]), sys.argv[3])
