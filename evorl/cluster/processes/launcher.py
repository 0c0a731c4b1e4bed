"""Workers as plain processes, forked by a process that does nothing else.

The driver forks two nurses (`evorl.cluster.processes.supervisor`) while it is small. The first one forks the workers, which so
begin with everything imported and with the factory in their memory (nothing is pickled), and replaces them in milliseconds.
The second one waits: when the first is killed it takes over and forks a new second one, since the driver may be large
by then and full of threads. Each is also a janitor: when the driver ends, however it ends, it kills what is left and
removes the directory of the group's socket. Workers die with their nurse (PR_SET_PDEATHSIG); a nurse has a session of
its own, so that what is meant for the driver's terminal or process group does not reach it.

Whether a process lives is asked of the kernel (pidfd) and not of its socket: a child that was stopped right after its
fork holds its parent's sockets open, whatever becomes of the parent.
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
from evorl.cluster.processes.fork import why
from evorl.cluster.processes.orphans import NURSES, Roll
from evorl.cluster.processes.pid import Pid
from evorl.cluster.processes.supervisor import ALIVE, FORK, GONE, HIRE, KILL, NOTE, STARVED, STOPPED, Nurse, Plan
from evorl.cluster.transport.host import host_id, short_directory
from evorl.cluster.workers.crash_trace import MAX_TRACE
from evorl.cluster.workers.launcher import Exit
from evorl.util.poll import readable

ANSWER_S = 10.0  # seconds after which a nurse that says nothing is taken for dead, however busy the machine is
TRIES = 3  # at forking a nurse from the driver


class Nursery:
    """A launcher (see `evorl.cluster.workers.launcher`) of processes on this machine."""

    def __init__(self, make: Make, workers: int) -> None:
        self.workers, self.host = workers, host_id()
        self.directory = _unused()
        self.endpoint = f"ipc://{self.directory}/group"
        self._plan = Plan(make, self.endpoint, self.directory, Pid.of(os.getpid()), Roll(workers))
        self._begun: dict[int, int] = {}  # worker -> life of the process that runs
        self._gone: list[Exit] = []  # heard of, and not asked for yet
        self._nurses: list[_Contact] = []  # the one at work, and the one that waits
        self._epoll = select.epoll()
        try:
            self._staff()
            os.mkdir(self.directory, 0o700)  # last: from its first moment there is somebody to remove it
        except BaseException:
            self.close()
            raise

    def _staff(self) -> None:
        while len(self._nurses) < NURSES:
            nurse = self._hire()
            for fd in nurse.watched():
                self._epoll.register(fd, select.EPOLLIN)
            self._nurses.append(nurse)

    def _hire(self) -> _Contact:
        """A new nurse, forked by the present one; by this process where there is none, or where it does not answer."""
        place = 1 - self._nurses[0].place if self._nurses else 0
        for forker in [*self._nurses, *[None] * TRIES]:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            nurse = _Contact(ours, place)
            with theirs:
                if forker is not None:
                    forker.say(HIRE, place, hand=(theirs.fileno(),))
                else:
                    nurse.is_process(self._fork(theirs, place))
            if nurse.begins():
                return nurse
            if forker is not None and nurse.pid is None:
                forker.kill()
            nurse.bury(0)
            self._plan.roll.nurse(place, None)
        raise OSError("a process that was forked to start the workers does not answer")

    def _fork(self, theirs: socket.socket, place: int) -> Pid:
        # in a thread of its own: the OpenMP pool of one that has one would be without its threads in a child, which
        # would wait for them for ever in its first parallel sum
        with ThreadPoolExecutor(1) as aside:
            return aside.submit(Nurse(self._plan, place, theirs).begin).result()

    @property
    def watch(self) -> int:
        return self._epoll.fileno()

    def bind(self, socket: zmq.Socket[bytes]) -> None:
        socket.bind(self.endpoint)

    def start(self, token: bytes, worker: int, life: int) -> None:
        self._begun[worker] = life
        self._nurses[0].say(FORK, worker, life, token)

    def kill(self, worker: int, life: int) -> None:
        nurse, ends = self._nurses[0], time.monotonic() + ANSWER_S
        nurse.say(KILL, worker, life)
        while self._begun.get(worker) == life and (left := ends - time.monotonic()) > 0:
            readable(nurse.watched(), left)
            self._listen()
        if self._begun.get(worker) == life:  # not even that it is gone: the nurse hangs itself
            nurse.kill()

    def exits(self) -> list[Exit]:
        self._listen()
        gone, self._gone = self._gone, []
        return gone

    def _listen(self) -> None:
        """Note who is gone, and replace nurses."""
        while ready := {fd for fd, _ in self._epoll.poll(0)}:
            for nurse in [one for one in self._nurses if ready & {*one.watched()}]:
                if not (note := nurse.hear()):
                    self._bereaved(nurse)
                elif note[0] == GONE:
                    self._gone.append(self._ended(note))

    def _ended(self, note: bytes) -> Exit:
        _, worker, life, status, member, how = NOTE.unpack_from(note)
        if self._begun.get(worker) == life:
            del self._begun[worker]
        trace = note[NOTE.size :].decode(errors="replace")
        blameless = how == STOPPED or (status == -signal.SIGKILL and how != STARVED)
        reason = f"{why(status)} for want of memory" if how == STARVED else why(status)
        return Exit(worker, life, reason, blameless, None if member < 0 else member, trace, how == STOPPED)

    def _bereaved(self, nurse: _Contact) -> None:
        """A nurse was killed, and with it its workers."""
        for fd in nurse.watched():
            self._epoll.unregister(fd)
        if nurse.pid is not None:
            orphans.end(nurse.pid)  # with children that had not left its group yet
        nurse.bury(0)
        self._plan.roll.nurse(nurse.place, None)
        if nurse is self._nurses[0]:
            self._end_workers()
            self._gone += [
                Exit(worker, life, "died with its nurse", blameless=True) for worker, life in self._begun.items()
            ]
            self._begun.clear()
        self._nurses.remove(nurse)
        self._staff()

    def _end_workers(self) -> None:
        self._plan.roll.end_workers()
        orphans.end_marked(f"{self.directory}/")

    def close(self) -> None:
        for nurse in self._nurses:
            nurse.leave()  # which ends it
        for nurse in self._nurses:
            nurse.bury(ANSWER_S)
        self._nurses.clear()
        self._epoll.close()
        self._end_workers()  # of nurses that were killed at this moment
        shutil.rmtree(self.directory, ignore_errors=True)


def _unused() -> str:
    """A name for a directory that nobody else has or guesses."""
    name = f"evorl-{secrets.token_hex(8)}"
    return os.path.join(short_directory(f"{name}/group"), name)


class _Contact:
    """What the driver knows of a nurse. Whatever is said to a dead one is lost; `hear` notices."""

    def __init__(self, ours: socket.socket, place: int) -> None:
        self.socket, self.place = ours, place
        self.pid: Pid | None = None
        self.end = -1  # a pidfd, which becomes readable when it has ended

    def watched(self) -> tuple[int, int]:
        return self.socket.fileno(), self.end

    def is_process(self, pid: Pid) -> None:
        self.pid = pid
        self.end = pid.open()

    def begins(self) -> bool:
        """Whether it says so. Who forked it may have said before which process it is."""
        with suppress(ProcessLookupError):  # it has ended already
            while note := self.hear(ANSWER_S):
                if self.pid is None:
                    self.is_process(Pid.unpack(note[NOTE.size :]))
                if note[0] == ALIVE:
                    return True
        return False

    def say(self, what: int, worker: int = 0, life: int = 0, token: bytes = b"", hand: tuple[int, ...] = ()) -> None:
        note = NOTE.pack(what, worker, life, 0, -1, 0) + token
        with suppress(OSError):
            socket.send_fds(self.socket, [note], hand, socket.MSG_DONTWAIT)

    def hear(self, timeout_s: float = 0) -> bytes:
        """The next note; nothing where there is none in time, or will never be one."""
        if not readable([self.socket], timeout_s):
            return b""
        try:
            return self.socket.recv(NOTE.size + MAX_TRACE)
        except OSError:  # it died with something unread
            return b""

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.end, signal.SIGKILL)

    def leave(self) -> None:
        """Hang up, also where a process that was just forked has a copy of the socket."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def bury(self, patience_s: float) -> None:
        """Wait for its end, and bring it about where it does not come."""
        self.leave()
        if self.end < 0:
            return
        if not readable([self.end], patience_s):
            self.kill()
            readable([self.end])
        with suppress(ChildProcessError):  # another nurse's child, whose number may be anybody's by now
            os.waitid(os.P_PIDFD, self.end, os.WEXITED)
        os.close(self.end)
