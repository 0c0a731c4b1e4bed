"""The process that forks the workers of a group, waits for their ends and cleans up after the driver."""

from __future__ import annotations

import faulthandler
import gc
import os
import select
import shutil
import signal
import socket
import struct
from contextlib import suppress
from typing import NamedTuple

from evorl.cluster.core import Make
from evorl.cluster.processes import orphans, out_of_memory
from evorl.cluster.processes.fork import die_with_parent, fork, name_process
from evorl.cluster.processes.orphans import ProcessTable
from evorl.cluster.processes.pid import Pid, is_stopped
from evorl.cluster.workers.crash_trace import MAX_TRACE, CrashTrace
from evorl.cluster.workers.worker import serve
from evorl.util.poll import readable

NOTE = struct.Struct("<BIIiiB")  # kind, worker, life, exit status, member, cause; BORN and ALIVE append a `Pid`
FORK, KILL, HIRE, BORN, ALIVE, GONE = range(6)
ITSELF, STOPPED, STARVED = range(3)  # causes of an exit that the exit status does not show
SUPERVISOR = 0xFFFFFFFF  # the worker number that stands for a supervisor
SWEEP_MS = 50  # idle time before a search for programs that ended workers left behind
HEIR_S = 1.0  # seconds for one supervisor to clean up after the driver before the other one does, and kills it


class SupervisorPlan(NamedTuple):
    """The data that all supervisors of a group share."""

    make: Make
    endpoint: str
    directory: str  # of the endpoint; the name is unique to the group
    driver: Pid
    roll: ProcessTable


class Child(NamedTuple):
    """A process that a supervisor has forked."""

    pid: Pid
    worker: int  # SUPERVISOR: another supervisor
    life: int
    box: CrashTrace | None


class Supervisor:
    """The supervisor's own process."""

    def __init__(self, plan: SupervisorPlan, place: int, driver: socket.socket) -> None:
        self.plan, self.place, self.driver = plan, place, driver
        self.at_work = False  # False: it is the standby
        self.poller = select.poll()
        self.children: dict[int, Child] = {}  # by pidfd
        self.stopped: set[Pid] = set()  # processes that hung because a signal had stopped them
        self.leavers: list[str] = []  # tags of ended workers whose programs were not searched for yet
        self.starved = 0  # `out_of_memory.kill_count` at the last look

    def begin(self) -> Pid:
        """Fork the supervisor's process."""
        pid = Pid.of(fork(self._run, self.driver.fileno()))
        self.plan.roll.set_supervisor(self.place, pid)
        return pid

    def _run(self) -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles it; forked processes inherit this
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        faulthandler.disable()  # its file is closed
        self.starved = out_of_memory.kill_count()
        self._notify(ALIVE, SUPERVISOR, more=Pid.of(os.getpid()).pack())
        gc.freeze()  # so that collections in workers keep these pages shared and finalise nothing of the driver
        with suppress(ProcessLookupError):  # its exit may not close the socket: a stopped child may hold a copy
            self._register(self.plan.driver.open())
            self._register(self.driver.fileno())
            self._serve()
        self._end()

    def _register(self, fd: int) -> None:
        self.poller.register(fd, select.POLLIN)

    def _serve(self) -> None:
        """Serve until the driver is gone."""
        while True:
            ready = self.poller.poll(SWEEP_MS if self.leavers else None)
            if not ready:
                orphans.kill_tagged(*self.leavers)
                self.leavers.clear()
            for fd, _ in ready:
                if fd in self.children:
                    self._handle_exit(fd)
                elif fd != self.driver.fileno() or not self._handle_command():
                    return

    def _notify(
        self, what: int, worker: int, life: int = 0, status: int = 0, member: int = -1, how: int = ITSELF,
        more: bytes = b"",
    ) -> None:  # fmt: skip
        with suppress(OSError):
            self.driver.send(NOTE.pack(what, worker, life, status, member, how) + more[:MAX_TRACE])

    def _handle_command(self) -> bool:
        """Handle one command of the driver; return False when the driver is gone."""
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
            self._fork_supervisor(worker, hand[0])
        return True

    def _fork_supervisor(self, place: int, hand: int) -> None:
        """Fork another supervisor, and send its pid in case it never sends anything itself."""
        with socket.socket(fileno=hand) as contact:
            pid = Supervisor(self.plan, place, contact).begin()
            with suppress(OSError):
                contact.send(NOTE.pack(BORN, SUPERVISOR, 0, 0, -1, ITSELF) + pid.pack())
        self._watch(Child(pid, SUPERVISOR, 0, None))

    def _fork(self, worker: int, life: int, token: bytes) -> None:
        supervisor, box, plan = os.getpid(), CrashTrace(), self.plan
        self.at_work = True

        def work() -> None:
            os.setpgid(0, 0)
            die_with_parent(supervisor)
            name_process(f"worker {worker}")
            out_of_memory.prefer_as_victim()
            orphans.tag_children(_name(plan, worker, life))
            alive = lambda: os.getppid() == supervisor  # noqa: E731
            box.record(lambda: serve(plan.make, plan.endpoint, token, worker, life, alive, mark=box.mark))

        try:
            pid = Pid.of(fork(work, box.fd))
        except OSError as error:  # too many processes, too little memory
            self._notify(GONE, worker, life, 1, more=str(error).encode())
            box.close()
            return
        plan.roll.worker(worker, pid)
        self._watch(Child(pid, worker, life, box))

    def _watch(self, child: Child) -> None:
        fd = child.pid.open()
        self.children[fd] = child
        self._register(fd)

    def _kill(self, worker: int, life: int) -> None:
        """Kill a worker that hangs, after it has written its stack."""
        for fd, child in self.children.items():
            if (child.worker, child.life) == (worker, life) and child.box is not None:
                if is_stopped(child.pid.number):  # safe: a child that was not waited for keeps its number
                    self.stopped.add(child.pid)
                else:
                    child.box.request_stack(fd)
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def _handle_exit(self, fd: int) -> None:
        child = self.children.pop(fd)
        self.poller.unregister(fd)
        os.close(fd)
        orphans.kill_group(child.pid)  # programs that its world started
        if child.box is not None:
            self.plan.roll.remove(child.worker, child.pid)
        _, status = os.waitpid(child.pid.number, 0)  # a child: up to here its number was not reused
        status = os.waitstatus_to_exitcode(status)
        if child.box is None:
            return
        member = -1 if child.box.member is None else child.box.member
        how, trace = self._exit_kind(child, status), child.box.trace.encode()
        self._notify(GONE, child.worker, child.life, status, member, how, trace)
        child.box.close()
        if status:
            self.leavers.append(_name(self.plan, child.worker, child.life))

    def _exit_kind(self, child: Child, status: int) -> int:
        before, self.starved = self.starved, out_of_memory.kill_count()
        if child.pid in self.stopped:
            self.stopped.remove(child.pid)
            return STOPPED
        return STARVED if status == -signal.SIGKILL and self.starved > before else ITSELF

    def _end(self) -> None:
        """The driver is gone: kill everything that belongs to the group."""
        if not self.at_work:
            self._await_other(HEIR_S * (1 + self.place))  # if both are standbys they must not kill each other
        for pid in self._others():
            orphans.kill_group(pid)
        for fd in self.children:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        for fd in list(self.children):
            self._handle_exit(fd)
        self.plan.roll.end_workers()
        orphans.kill_tagged(f"{self.plan.directory}/")
        shutil.rmtree(self.plan.directory, ignore_errors=True)

    def _others(self) -> list[Pid]:
        return [pid for pid in self.plan.roll.supervisors() if pid.number != os.getpid()]

    def _await_other(self, patience_s: float) -> None:
        for pid in self._others():
            with suppress(ProcessLookupError):
                fd = pid.open()
                readable([fd], patience_s)
                os.close(fd)


def _name(plan: SupervisorPlan, worker: int, life: int) -> str:
    return f"{plan.directory}/{worker}/{life}/"
