"""Workers as plain processes, forked by a process that does nothing else.

The driver forks two nurses while it is small. The first one forks the workers, which so begin with everything
imported and with the factory in their memory (nothing is pickled), and replaces them in milliseconds. The second one
waits: when the first is killed it takes over and forks a new second one, since the driver may be large by then and
full of threads. Each is also a janitor: when the driver ends, however it ends, it kills what is left and removes the
directory of the group's socket. Workers die with their nurse (PR_SET_PDEATHSIG); a nurse has a session of its own, so
that what is meant for the driver's terminal or process group does not reach it.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import zmq

from evorl.cluster.blackbox import DUMP, MOST_TRACE, BlackBox
from evorl.cluster.child import die_with_parent, fork, why
from evorl.cluster.core import Make
from evorl.cluster.host import here
from evorl.cluster.launch import Exit
from evorl.cluster.serve import serve

NOTE = struct.Struct("<BIIii")  # what, worker, life, exit status (ALIVE: process id), member
FORK, KILL, HIRE, ALIVE, GONE = range(5)
NOBODY = 0xFFFFFFFF  # the worker that a nurse is
ANSWER_S = 3.0  # seconds after which a nurse that says nothing is taken for dead
DUMP_S = 0.1  # seconds that a hung worker gets to say where it hangs
LONGEST = 107  # bytes of a socket's path


class Nursery:
    """A launcher (see `evorl.cluster.launch`) of processes on this machine."""

    def __init__(self, make: Make, workers: int) -> None:
        self.make, self.workers = make, workers
        self.directory = _unused()
        self.endpoint, self.host = f"ipc://{self.directory}/group", here()
        self._begun: dict[int, int] = {}  # worker -> life of the process that runs
        self._nurses: list[_Contact] = []  # the one at work, and the one that waits
        self._epoll = select.epoll()
        try:
            self._staff()
            os.mkdir(self.directory, 0o700)  # last: from its first moment there is somebody to remove it
        except BaseException:
            self.close()
            raise

    def _staff(self) -> None:
        while len(self._nurses) < 2:
            nurse = self._hire()
            self._epoll.register(nurse.socket, select.EPOLLIN)
            self._nurses.append(nurse)

    def _hire(self) -> _Contact:
        """A new nurse, forked by the present one; by this process where there is none, or where it does not answer."""
        for forker in [*self._nurses, None]:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                if forker is not None:
                    forker.say(HIRE, hand=(theirs.fileno(),))
                else:
                    # in a thread of its own: the OpenMP pool of one that has one would be without its threads in a
                    # child, which would wait for them for ever in its first parallel sum
                    one = _Nurse(theirs, self.make, self.endpoint, self.directory)
                    with ThreadPoolExecutor(1) as aside:
                        aside.submit(fork, one.run, theirs.fileno()).result()
            nurse = _Contact(ours)
            if nurse.hear(ANSWER_S):
                return nurse
            ours.close()
            if forker is not None:
                forker.kill()
        raise OSError("a process that was forked to start the workers does not answer")

    @property
    def watch(self) -> int:
        return self._epoll.fileno()

    def bind(self, socket: zmq.Socket[bytes]) -> None:
        socket.bind(self.endpoint)

    def start(self, token: bytes, worker: int, life: int) -> None:
        self._begun[worker] = life
        self._nurses[0].say(FORK, worker, life, token)

    def kill(self, worker: int, life: int) -> None:
        nurse = self._nurses[0]
        nurse.say(KILL, worker, life)
        if not select.select([nurse.socket], [], [], ANSWER_S)[0]:  # not even that it is gone: the nurse hangs itself
            nurse.kill()

    def exits(self) -> list[Exit]:
        gone: list[Exit] = []
        while ready := self._epoll.poll(0):
            for nurse in [one for one in self._nurses if one.socket.fileno() in dict(ready)]:
                note = nurse.hear()
                gone += [self._gone(note)] if note else self._bereaved(nurse)
        return gone

    def _gone(self, note: bytes) -> Exit:
        _, worker, life, status, member = NOTE.unpack_from(note)
        if self._begun.get(worker) == life:
            del self._begun[worker]
        trace = note[NOTE.size :].decode(errors="replace")
        killed = status == -signal.SIGKILL
        return Exit(worker, life, why(status), killed, None if member < 0 else member, trace)

    def _bereaved(self, nurse: _Contact) -> list[Exit]:
        """A nurse was killed, and with it its workers."""
        gone: list[Exit] = []
        if nurse is self._nurses[0]:
            gone = [Exit(worker, life, "died with its nurse", True) for worker, life in self._begun.items()]
            self._begun.clear()
        self._nurses.remove(nurse)
        nurse.bury(0)
        self._staff()
        return gone

    def close(self) -> None:
        for nurse in self._nurses:
            nurse.socket.close()  # which ends it
        for nurse in self._nurses:
            nurse.bury(ANSWER_S)
        self._nurses.clear()
        self._epoll.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _unused() -> str:
    """A name for a directory that nobody else has or guesses; its socket's path has a small limit."""
    name = f"evorl-{secrets.token_hex(8)}"
    places = [os.path.join(place, name) for place in (tempfile.gettempdir(), "/tmp")]
    return next((one for one in places if len(os.fsencode(one)) <= LONGEST - len("/group")), places[-1])


class _Contact:
    """What the driver knows of a nurse. Whatever is said to a dead one is lost; `hear` notices."""

    def __init__(self, ours: socket.socket) -> None:
        self.socket, self.pid = ours, 0

    def say(self, what: int, worker: int = 0, life: int = 0, token: bytes = b"", hand: tuple[int, ...] = ()) -> None:
        note = NOTE.pack(what, worker, life, 0, -1) + token
        with suppress(OSError):
            socket.send_fds(self.socket, [note], hand, socket.MSG_DONTWAIT)

    def hear(self, timeout_s: float = 0) -> bytes:
        """The next note; nothing where there is none in time, or will never be one."""
        if not select.select([self.socket], [], [], timeout_s)[0]:
            return b""
        try:
            note = self.socket.recv(NOTE.size + MOST_TRACE)
        except OSError:  # it died with something unread
            return b""
        if note and note[0] == ALIVE:
            self.pid = NOTE.unpack_from(note)[3]
        return note

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def bury(self, patience_s: float) -> None:
        """Wait for its end, and bring it about where it does not come."""
        self.socket.close()
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(self.pid)
            if not select.select([fd], [], [], patience_s)[0]:
                self.kill()
                select.select([fd], [], [])
            os.close(fd)
        with suppress(ChildProcessError):  # another nurse's child
            os.waitpid(self.pid, 0)


class _Nurse:
    """The nurse's own process."""

    def __init__(self, driver: socket.socket, make: Make, endpoint: str, directory: str) -> None:
        self.driver, self.make, self.endpoint, self.directory = driver, make, endpoint, directory
        self.poller = select.poll()
        self.children: dict[int, _Child] = {}  # by pidfd

    def run(self) -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver's to answer; so it is in all that is forked here
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        faulthandler.disable()  # the file that it would write to is closed
        self._tell(ALIVE, NOBODY, 0, os.getpid())
        gc.collect()
        gc.freeze()  # so that collections in the workers leave these pages shared
        self.poller.register(self.driver, select.POLLIN)
        while True:
            for fd, _ in self.poller.poll():
                if fd != self.driver.fileno():
                    self._bury(fd)
                elif not self._heed():
                    return self._end()

    def _tell(self, what: int, worker: int, life: int, status: int, member: int | None = None, trace: str = "") -> None:
        note = NOTE.pack(what, worker, life, status, -1 if member is None else member)
        with suppress(OSError):
            self.driver.send(note + trace.encode()[:MOST_TRACE])

    def _heed(self) -> bool:
        """Do what the driver says; False when it is gone."""
        try:
            note, hand, *_ = socket.recv_fds(self.driver, NOTE.size + 16, 1)
        except OSError:
            return False
        if not note:
            return False
        what, worker, life, *_ = NOTE.unpack_from(note)
        if what == FORK:
            self._fork(worker, life, note[NOTE.size :])
        elif what == KILL:
            self._kill(worker, life)
        elif what == HIRE:
            with socket.socket(fileno=hand[0]) as theirs:
                nurse = _Nurse(theirs, self.make, self.endpoint, self.directory)
                self._watch(_Child(fork(nurse.run, theirs.fileno()), NOBODY, 0, None))
        return True

    def _fork(self, worker: int, life: int, token: bytes) -> None:
        nurse, box = os.getpid(), BlackBox()

        def work() -> None:
            os.setpgid(0, 0)
            die_with_parent(nurse)
            alive = lambda: os.getppid() == nurse  # noqa: E731
            box.record(lambda: serve(self.make, self.endpoint, token, worker, life, alive, mark=box.mark))

        try:
            self._watch(_Child(fork(work, box.fd), worker, life, box))
        except OSError as error:  # too many processes, too little memory
            self._tell(GONE, worker, life, 1, trace=str(error))
            box.close()

    def _watch(self, child: _Child) -> None:
        fd = os.pidfd_open(child.pid)
        self.children[fd] = child
        self.poller.register(fd, select.POLLIN)

    def _kill(self, worker: int, life: int) -> None:
        """End a worker that hangs, once it has said where."""
        for child in self.children.values():
            if (child.worker, child.life) == (worker, life) and child.box is not None:
                os.kill(child.pid, DUMP)
                ends = time.monotonic() + DUMP_S
                while not child.box.trace and time.monotonic() < ends:
                    time.sleep(0.005)
                os.kill(child.pid, signal.SIGKILL)

    def _bury(self, fd: int) -> None:
        child = self.children.pop(fd)
        self.poller.unregister(fd)
        os.close(fd)
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)  # what its world has started
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        if child.box is not None:
            self._tell(GONE, child.worker, child.life, status, child.box.member, child.box.trace)
            child.box.close()

    def _end(self) -> None:
        for child in self.children.values():
            os.kill(child.pid, signal.SIGKILL)
        for fd in list(self.children):
            self._bury(fd)
        shutil.rmtree(self.directory, ignore_errors=True)


class _Child(NamedTuple):
    """A process that a nurse has forked."""

    pid: int
    worker: int  # NOBODY: another nurse
    life: int
    box: BlackBox | None
