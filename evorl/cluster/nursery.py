"""Workers as plain processes, forked by a process that does nothing else.

The driver forks the nursery once, while it is small and has no threads to speak of; the nursery forks the workers,
which so begin with everything imported and with the factory in their memory (nothing is pickled), and replaces them
in milliseconds. It is also the janitor: when the driver ends, however it ends, the nursery kills what is left and
removes the directory of the group's socket. Workers die with their nursery (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import gc
import os
import select
import shutil
import signal
import socket
import struct
import tempfile
from contextlib import suppress

import zmq

from evorl.cluster.child import die_with_parent, fork, why
from evorl.cluster.core import Make
from evorl.cluster.crew import Exit
from evorl.cluster.host import here
from evorl.cluster.serve import serve

NOTE = struct.Struct("<BIIi")  # what, worker, life, exit status
FORK, KILL, GONE = range(3)
CLOSE_S = 5.0  # seconds that a nursery gets to end its workers


class Nursery:
    """A launcher (see `evorl.cluster.crew`) of processes on this machine."""

    def __init__(self, make: Make, workers: int) -> None:
        self.make, self.workers = make, workers
        self.directory = tempfile.mkdtemp(prefix="evorl-")  # mode 0700; short, since a socket's path is
        self.endpoint, self.host = f"ipc://{self.directory}/group", here()
        self._begun: dict[int, tuple[bytes, int]] = {}  # worker -> token and life of the processes that run
        self._end: list[Exit] = []
        self._begin()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = fork(lambda: _Nurse(theirs, self.make, self.endpoint, self.directory).run(), keep=theirs.fileno())
        theirs.close()
        self._socket = ours

    @property
    def watch(self) -> int:
        return self._socket.fileno()

    def bind(self, socket: zmq.Socket[bytes]) -> None:
        socket.bind(self.endpoint)

    def start(self, token: bytes, worker: int, life: int) -> None:
        self._begun[worker] = (token, life)
        self._say(FORK, worker, life, token)

    def kill(self, worker: int, life: int) -> None:
        self._say(KILL, worker, life)

    def _say(self, what: int, worker: int, life: int, token: bytes = b"") -> None:
        with suppress(OSError):  # a dead nursery is noticed by `exits`
            self._socket.send(NOTE.pack(what, worker, life, 0) + token)

    def exits(self) -> list[Exit]:
        gone, self._end = self._end, []
        while select.select([self._socket], [], [], 0)[0]:
            note = self._socket.recv(NOTE.size)
            if not note:
                return [*gone, *self._again()]
            _, worker, life, status = NOTE.unpack(note)
            if self._begun.get(worker, (b"", -1))[1] == life:
                del self._begun[worker]
            gone.append(Exit(worker, life, why(status), status == -signal.SIGKILL))
        return gone

    def _again(self) -> list[Exit]:
        """The nursery itself was killed, and its workers with it: begin anew."""
        self._socket.close()
        os.waitpid(self.pid, 0)
        gone = [Exit(worker, life, "died with its nursery", True) for worker, (_, life) in self._begun.items()]
        self._begun.clear()
        os.makedirs(self.directory, 0o700, exist_ok=True)
        self._begin()
        return gone

    def close(self) -> None:
        self._socket.close()
        _reap(self.pid)
        shutil.rmtree(self.directory, ignore_errors=True)


class _Nurse:
    """The nursery's own process."""

    def __init__(self, driver: socket.socket, make: Make, endpoint: str, directory: str) -> None:
        self.driver, self.make, self.endpoint, self.directory = driver, make, endpoint, directory
        self.children: dict[int, tuple[int, int, int]] = {}  # pidfd -> pid, worker, life

    def run(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to answer
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        gc.collect()
        gc.freeze()  # so that collections in the workers leave these pages shared
        poller = select.poll()
        poller.register(self.driver, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd != self.driver.fileno():
                    poller.unregister(fd)
                    self._gone(fd)
                elif not self._heed(poller):
                    self._end()
                    return

    def _heed(self, poller: select.poll) -> bool:
        """Do what the driver says; False when it is gone."""
        try:
            note = self.driver.recv(NOTE.size + 16)
        except OSError:
            return False
        if not note:
            return False
        what, worker, life, _ = NOTE.unpack(note[: NOTE.size])
        if what == FORK:
            pid = self._fork(worker, life, note[NOTE.size :])
            fd = os.pidfd_open(pid)
            self.children[fd] = (pid, worker, life)
            poller.register(fd, select.POLLIN)
        else:
            for pid, *of in self.children.values():
                if of == [worker, life]:
                    os.kill(pid, signal.SIGKILL)
        return True

    def _fork(self, worker: int, life: int, token: bytes) -> int:
        nursery = os.getpid()

        def work() -> None:
            die_with_parent(nursery)
            serve(self.make, self.endpoint, token, worker, life, lambda: os.getppid() == nursery)

        return fork(work, keep=-1)

    def _gone(self, fd: int) -> None:
        pid, worker, life = self.children.pop(fd)
        os.close(fd)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(OSError):
            self.driver.send(NOTE.pack(GONE, worker, life, status))

    def _end(self) -> None:
        for pid, *_ in self.children.values():
            os.kill(pid, signal.SIGKILL)
        for pid, *_ in self.children.values():
            os.waitpid(pid, 0)
        shutil.rmtree(self.directory, ignore_errors=True)


def _reap(pid: int) -> None:
    """Wait for a nursery that was told to end."""
    fd = os.pidfd_open(pid)
    if not select.select([fd], [], [], CLOSE_S)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(fd)
    os.waitpid(pid, 0)
