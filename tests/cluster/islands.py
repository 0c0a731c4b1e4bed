"""A cluster of simulated hosts: processes of this machine that report different hosts and do not share memory."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import zmq

from evorl.cluster.core import Cluster, Group, Make
from evorl.cluster.processes.fork import die_with_parent, exit_reason, fork
from evorl.cluster.transport.authentication import bind_to_free_port
from evorl.cluster.transport.curve import Credentials, Keys
from evorl.cluster.workers.group import RemoteGroup
from evorl.cluster.workers.launcher import Exit
from evorl.cluster.workers.worker import serve


@dataclass(frozen=True, kw_only=True)
class Islands(Cluster):
    """A cluster whose worker w is on host w mod len(hosts); all connect over loopback, with keys."""

    in_process: ClassVar[bool] = False

    workers: int = 6
    hosts: tuple[str, ...] = ("a", "b", "c")
    deadline_s: float = 60.0
    ip: str = "127.0.0.1"

    def spawn(self, make: Make, size: int, plain: Sequence[type[Exception]] = ()) -> Group:
        launcher = IslandLauncher(make, min(self.workers, size), self.hosts, self.ip)
        return RemoteGroup(launcher, size, self.deadline_s, plain)


class IslandLauncher:
    """A launcher (see `evorl.cluster.workers.launcher`) of workers on simulated hosts."""

    host = "the driver's"

    def __init__(self, make: Make, workers: int, hosts: Sequence[str], ip: str) -> None:
        self.make, self.workers, self.hosts, self.ip = make, workers, hosts, ip
        self.endpoint = ""
        self.lives: dict[int, tuple[int, int, int, Credentials]] = {}  # worker -> life, process, pidfd, keys
        self.epoll = select.epoll()

    @property
    def watch(self) -> int:
        return self.epoll.fileno()

    def bind(self, socket: zmq.Socket[bytes]) -> Collection[bytes]:
        self.keys = Keys(socket)
        self.endpoint = bind_to_free_port(socket, self.ip)
        return self.keys.admitted

    def start(self, token: bytes, worker: int, life: int) -> None:
        keys = self.keys.admit()
        pid = fork(partial(self._work, os.getpid(), token, worker, life, keys), keep=-1)
        self.lives[worker] = life, pid, os.pidfd_open(pid), keys
        self.epoll.register(self.lives[worker][2], select.EPOLLIN)

    def _work(self, parent: int, token: bytes, worker: int, life: int, keys: Credentials) -> None:
        die_with_parent(parent)
        alive: Callable[[], bool] = lambda: os.getppid() == parent  # noqa: E731
        host = self.hosts[worker % len(self.hosts)]
        serve(self.make, self.endpoint, token, worker, life, alive, driver=self.host, host=host, keys=keys)

    def kill(self, worker: int, life: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.lives[worker][1], signal.SIGKILL)

    def exits(self, closing: bool = False) -> list[Exit]:
        ready = {fd for fd, _ in self.epoll.poll(0)}
        return [self._end(worker) for worker, (_, _, fd, _) in [*self.lives.items()] if fd in ready]

    def _end(self, worker: int) -> Exit:
        life, pid, fd, keys = self.lives.pop(worker)
        self.epoll.unregister(fd)
        os.close(fd)
        self.keys.revoke(keys)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return Exit(worker, life, exit_reason(status), status == -signal.SIGKILL)

    def close(self) -> None:
        for worker in [*self.lives]:
            self.kill(worker, 0)
            self._end(worker)
        self.epoll.close()


def worker_pool(group: Group) -> Any:
    assert isinstance(group, RemoteGroup)
    return group.pool
