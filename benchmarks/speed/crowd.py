"""A launcher of many workers in one process, one thread each: what a driver has to do for hundreds, on a few cores."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from functools import partial
from typing import Any

from evorl.cluster.core import Make
from evorl.cluster.processes.fork import die_with_parent, fork
from evorl.cluster.transport.host import host_id
from evorl.cluster.workers.launcher import Exit
from evorl.cluster.workers.worker import serve


class Crowd:
    """See `evorl.cluster.workers.launcher`. Nobody in it dies or is replaced."""

    def __init__(self, make: Make, workers: int) -> None:
        self.make, self.workers, self.host = make, workers, host_id()
        self.directory = tempfile.mkdtemp(prefix="evorl-")
        self.endpoint = f"ipc://{self.directory}/group"
        self.watch = None
        self._child = 0

    def bind(self, socket: Any) -> None:
        socket.bind(self.endpoint)

    def start(self, token: bytes, worker: int, life: int) -> None:
        if worker < self.workers - 1:
            return
        self._child = fork(partial(self._serve, token, os.getpid()), keep=-1)

    def _serve(self, token: bytes, parent: int) -> None:
        die_with_parent(parent)
        threading.stack_size(1 << 18)
        threads = [
            threading.Thread(target=serve, args=(self.make, self.endpoint, token, n, 0, lambda: os.getppid() == parent))
            for n in range(self.workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def kill(self, worker: int, life: int) -> None:
        raise SystemExit("a worker of the crowd hangs")

    def exits(self, closing: bool = False) -> list[Exit]:
        return []

    def close(self) -> None:
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
        shutil.rmtree(self.directory)
