"""Launches workers as plain processes, forked by supervisors that do nothing else.

The driver forks two supervisors (`evorl.cluster.processes.supervisor`) while it is still small. The first one forks the
workers. They begin with everything imported and with the factory in memory (nothing is pickled), and a lost worker is
replaced in milliseconds. The second supervisor is a standby: when the first is killed, it takes over and forks a new
standby, since by then the driver may be large and full of threads. When the driver ends for any reason, the supervisors
kill what is left and remove the directory of the group's socket. Workers die with their supervisor (PR_SET_PDEATHSIG).
A supervisor has its own session, so signals to the driver's terminal or process group do not reach it.

Whether a process is alive is read from the kernel (pidfd), not from its socket: a child that was stopped right after
its fork holds its parent's sockets open.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import zmq

from evorl.cluster.core import Make
from evorl.cluster.processes import orphans
from evorl.cluster.processes.fork import exit_reason
from evorl.cluster.processes.orphans import SUPERVISORS, ProcessTable
from evorl.cluster.processes.pid import Pid
from evorl.cluster.processes.supervisor import (
    ALIVE,
    FORK,
    GONE,
    HIRE,
    KILL,
    NOTE,
    STARVED,
    STOPPED,
    Supervisor,
    SupervisorPlan,
)
from evorl.cluster.transport.host import host_id, short_directory
from evorl.cluster.workers.crash_trace import MAX_TRACE
from evorl.cluster.workers.launcher import Exit
from evorl.util.poll import readable

ANSWER_S = 10.0  # seconds without a message after which a supervisor counts as dead
TRIES = 3  # attempts to fork a supervisor from the driver


class ProcessLauncher:
    """A launcher (see `evorl.cluster.workers.launcher`) of processes on this machine."""

    def __init__(self, make: Make, workers: int) -> None:
        self.workers, self.host = workers, host_id()
        self.directory = _unused_name()
        self.endpoint = f"ipc://{self.directory}/group"
        self._plan = SupervisorPlan(make, self.endpoint, self.directory, Pid.of(os.getpid()), ProcessTable(workers))
        self._begun: dict[int, int] = {}  # worker -> life of the process that runs
        self._gone: list[Exit] = []  # exits that were received and not returned yet
        self._supervisors: list[_SupervisorContact] = []  # the active one and the standby
        self._epoll = select.epoll()
        try:
            self._ensure_supervisors()
            os.mkdir(self.directory, 0o700)  # last: the supervisors that remove it already run
        except BaseException:
            self.close()
            raise

    def _ensure_supervisors(self) -> None:
        while len(self._supervisors) < SUPERVISORS:
            supervisor = self._fork_supervisor()
            for fd in supervisor.watched():
                self._epoll.register(fd, select.EPOLLIN)
            self._supervisors.append(supervisor)

    def _fork_supervisor(self) -> _SupervisorContact:
        """Fork a new supervisor from the present one, or from this process if there is none or it does not reply."""
        place = 1 - self._supervisors[0].place if self._supervisors else 0
        for forker in [*self._supervisors, *[None] * TRIES]:
            own_end, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            supervisor = _SupervisorContact(own_end, place)
            with other_end:
                if forker is not None:
                    forker.say(HIRE, place, hand=(other_end.fileno(),))
                else:
                    supervisor.is_process(self._fork(other_end, place))
            if supervisor.begins():
                return supervisor
            if forker is not None and supervisor.pid is None:
                forker.kill()
            supervisor.wait_for_exit(0)
            self._plan.roll.set_supervisor(place, None)
        raise OSError("a process that was forked to start the workers does not answer")

    def _fork(self, contact: socket.socket, place: int) -> Pid:
        # in a new thread: an OpenMP pool belongs to the thread that made it, and a child would lack the pool's threads
        # and wait for them for ever in its first parallel sum
        with ThreadPoolExecutor(1) as aside:
            return aside.submit(Supervisor(self._plan, place, contact).begin).result()

    @property
    def watch(self) -> int:
        return self._epoll.fileno()

    def bind(self, socket: zmq.Socket[bytes]) -> None:
        socket.bind(self.endpoint)

    def start(self, token: bytes, worker: int, life: int) -> None:
        self._begun[worker] = life
        self._supervisors[0].say(FORK, worker, life, token)

    def kill(self, worker: int, life: int) -> None:
        supervisor, ends = self._supervisors[0], time.monotonic() + ANSWER_S
        supervisor.say(KILL, worker, life)
        while self._begun.get(worker) == life and (left := ends - time.monotonic()) > 0:
            readable(supervisor.watched(), left)
            self._listen()
        if self._begun.get(worker) == life:  # no message even of its exit: the supervisor itself hangs
            supervisor.kill()

    def exits(self, closing: bool = False) -> list[Exit]:
        self._listen()
        exits, self._gone = self._gone, []
        return exits

    def _listen(self) -> None:
        """Read messages, note workers that ended, and replace supervisors that ended."""
        while ready := {fd for fd, _ in self._epoll.poll(0)}:
            for supervisor in [watching for watching in self._supervisors if ready & {*watching.watched()}]:
                if not (note := supervisor.hear()):
                    self._handle_supervisor_death(supervisor)
                elif note[0] == GONE:
                    self._gone.append(self._ended(note))

    def _ended(self, note: bytes) -> Exit:
        _, worker, life, status, member, how = NOTE.unpack_from(note)
        if self._begun.get(worker) == life:
            del self._begun[worker]
        trace = note[NOTE.size :].decode(errors="replace")
        external = how == STOPPED or (status == -signal.SIGKILL and how != STARVED)
        reason = f"{exit_reason(status)} for want of memory" if how == STARVED else exit_reason(status)
        return Exit(worker, life, reason, external, None if member < 0 else member, trace, how == STOPPED)

    def _handle_supervisor_death(self, supervisor: _SupervisorContact) -> None:
        """Handle a supervisor that was killed, and its workers with it."""
        for fd in supervisor.watched():
            self._epoll.unregister(fd)
        if supervisor.pid is not None:
            orphans.kill_group(supervisor.pid)  # with children that are still in its process group
        supervisor.wait_for_exit(0)
        self._plan.roll.set_supervisor(supervisor.place, None)
        if supervisor is self._supervisors[0]:
            self._end_workers()
            self._gone += [
                Exit(worker, life, "died with its supervisor", external=True) for worker, life in self._begun.items()
            ]
            self._begun.clear()
        self._supervisors.remove(supervisor)
        self._ensure_supervisors()

    def _end_workers(self) -> None:
        self._plan.roll.end_workers()
        orphans.kill_tagged(f"{self.directory}/")

    def close(self) -> None:
        for supervisor in self._supervisors:
            supervisor.leave()  # it exits when the socket closes
        for supervisor in self._supervisors:
            supervisor.wait_for_exit(ANSWER_S)
        self._supervisors.clear()
        self._epoll.close()
        self._end_workers()  # workers of supervisors that were killed just now
        shutil.rmtree(self.directory, ignore_errors=True)


def _unused_name() -> str:
    """A random name for a directory."""
    name = f"evorl-{secrets.token_hex(8)}"
    return os.path.join(short_directory(f"{name}/group"), name)


class _SupervisorContact:
    """The driver's connection to a supervisor. Messages to a dead one are lost; `hear` detects that."""

    def __init__(self, own_end: socket.socket, place: int) -> None:
        self.socket, self.place = own_end, place
        self.pid: Pid | None = None
        self.end = -1  # a pidfd, readable when the process has ended

    def watched(self) -> tuple[int, int]:
        return self.socket.fileno(), self.end

    def is_process(self, pid: Pid) -> None:
        self.pid = pid
        self.end = pid.open()

    def begins(self) -> bool:
        """Wait for its first message. The process that forked it may have sent its pid before."""
        with suppress(ProcessLookupError):  # it has ended already
            while note := self.hear(ANSWER_S):
                if self.pid is None:
                    self.is_process(Pid.unpack(note[NOTE.size :]))
                if note[0] == ALIVE:
                    return True
        return False

    def say(self, what: int, worker: int = 0, life: int = 0, token: bytes = b"", hand: tuple[int, ...] = ()) -> None:
        note = NOTE.pack(what, worker, life, 0, -1, 0) + token
        with suppress(OSError):  # it has ended, which `hear` finds out
            socket.send_fds(self.socket, [note], hand)

    def hear(self, timeout_s: float = 0) -> bytes:
        """The next message; empty after the timeout, or if the supervisor has ended."""
        if not readable([self.socket], timeout_s):
            return b""
        try:
            return self.socket.recv(NOTE.size + MAX_TRACE)
        except OSError:  # it died with unread messages
            return b""

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.end, signal.SIGKILL)

    def leave(self) -> None:
        """Shut the connection down, even if a newly forked process still has a copy of the socket."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def wait_for_exit(self, patience_s: float) -> None:
        """Wait for its exit; kill it after ``patience_s``."""
        self.leave()
        if self.end < 0:
            return
        if not readable([self.end], patience_s):
            self.kill()
            readable([self.end])
        with suppress(ChildProcessError):  # another supervisor's child, whose pid may be reused by now
            os.waitid(os.P_PIDFD, self.end, os.WEXITED)
        os.close(self.end)
