"""Workers in processes that Ray places.

Ray's actors hold the workers. Each actor imports what its members need, forks the worker, waits for its end and reports
how it ended. So a worker that dies is replaced by a fork, within milliseconds and on the same machine. An actor dies
with its machine, and its worker with it (PR_SET_PDEATHSIG); then Ray places another.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import ray
import zmq
from ray.exceptions import RayActorError, RayError

from evorl.cluster.core import Make
from evorl.cluster.processes.fork import die_with_parent, exit_reason, fork, name_process
from evorl.cluster.processes.pid import Pid, is_stopped
from evorl.cluster.ray.head import GONE_S, HeadLost, HeadMonitor
from evorl.cluster.ray.options import RayOptions
from evorl.cluster.ray.own_ray import main_line
from evorl.cluster.ray.session import Session
from evorl.cluster.transport.authentication import bind_to_free_port
from evorl.cluster.transport.curve import Credentials, Keys
from evorl.cluster.transport.host import host_id
from evorl.cluster.workers.crash_trace import CrashTrace
from evorl.cluster.workers.launcher import Exit
from evorl.cluster.workers.worker import serve
from evorl.util.poll import readable

RETRY_S = (
    1.0  # seconds before an actor that never started is requested again: Ray may not know yet that a machine is gone
)
NEWS_S = 0.2  # seconds after the end of an actor in which the end of Ray itself shows

STACK_S = 0.5  # seconds for an actor to tell where its worker hangs; the driver waits for it

End = tuple[int, int | None, str]
"""How a worker ended: exit status, the member that it was running, and its stack."""


class Hang(NamedTuple):
    """Where a worker hangs."""

    member: int | None = None
    trace: str = ""
    stopped: bool = False  # by a signal


class ForkedWorker(NamedTuple):
    """The worker of an actor."""

    pid: int
    pidfd: int
    box: CrashTrace


class WorkerActor:
    """The actor: forks a worker and waits for it. Two calls run at once, so that it can be asked meanwhile."""

    def __init__(self, make: Make, endpoint: str, driver: str) -> None:
        self.make, self.endpoint, self.driver = make, endpoint, driver
        self._worker: ForkedWorker | None = None
        self._lock = threading.Lock()  # while it is held the worker is not reaped

    def where(self) -> tuple[str, Pid]:
        """The machine whose shared memory it can read, and its process."""
        return host_id(), Pid.of(os.getpid())

    def run_worker(self, token: bytes, worker: int, life: int, keys: Credentials | None) -> End:
        """Run a worker until it ends; return how it ended."""
        actor, box = os.getpid(), CrashTrace()

        def work() -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles it
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            die_with_parent(actor)
            name_process(f"worker {worker}")
            alive = partial(_is_parent, actor)
            serve(self.make, self.endpoint, token, worker, life, alive, driver=self.driver, keys=keys, mark=box.mark)

        try:
            pid = fork(partial(box.record, work), keep=box.fd)
            self._worker = ForkedWorker(pid, os.pidfd_open(pid), box)
            readable([self._worker.pidfd])
            with self._lock:
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(self._worker.pidfd)
                self._worker = None
                return status, box.member, box.trace
        finally:
            box.close()

    def hang(self) -> Hang:
        """Where its worker hangs, if it has one."""
        with self._lock:
            if self._worker is None:
                return Hang()
            pid, pidfd, box = self._worker
            if is_stopped(pid):
                return Hang(box.member, stopped=True)
            box.request_stack(pidfd)
            return Hang(box.member, box.trace)


def _is_external(end: End | Exception) -> bool:
    """Whether an actor is gone for a reason outside it: not by an error in its imports or its factory."""
    return isinstance(end, RayActorError) and not end.actor_init_failed


def _is_parent(pid: int) -> bool:
    return os.getppid() == pid


class WakeUp:
    """A file descriptor that any thread can make readable, even after it was closed."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()  # once it is closed the number may belong to another file

    def fileno(self) -> int:
        return self._fd

    def wake(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def close(self) -> None:
        with self._lock:
            os.close(self._fd)
            self._fd = -1


class RunningWorker(NamedTuple):
    """A running worker."""

    number: int
    keys: Credentials | None
    hang: Hang = Hang()  # where it hung, if it was killed


class ActorLauncher:
    """A launcher (see `evorl.cluster.workers.launcher`) of workers in Ray's actors, one in each."""

    def __init__(self, make: Make, workers: int, config: RayOptions) -> None:
        """Raises `BadRequest` if Ray does not start, is not reachable or lacks resources."""
        self.workers, self.config, self.host = workers, config, host_id()
        self.endpoint = ""
        self._keys: Keys | None = None
        self._actors: dict[int, Any] = {}
        self._places: dict[int, Future[tuple[str, Pid]]] = {}  # the actors' replies to `where`
        self._lives: dict[int, RunningWorker] = {}
        self._ended: deque[tuple[int, int, Any]] = deque()  # worker, life, result of its call; added by Ray's threads
        self.make = make
        self._session = Session(config, workers)
        self._bell, self._epoll = WakeUp(), select.epoll()
        self._head: HeadMonitor | None = None
        try:
            self._epoll.register(self._bell, select.EPOLLIN)
            if not self._session.alone:
                self._head = HeadMonitor(self._session.head, self._head_is_gone)
            self._settle()
        except BaseException:
            self.close()
            raise

    def _settle(self) -> None:
        self._made = ray.put(self.make)
        # once: Ray stores it at the head, and would wait for a head that is gone
        self._kind: Any = ray.remote(WorkerActor)
        if self._session.owner is not None:
            self._epoll.register(self._session.owner, select.EPOLLIN)

    @property
    def watch(self) -> int:
        return self._epoll.fileno()

    # -------------------------------------------------------------- the endpoint

    def bind(self, socket: zmq.Socket[bytes]) -> Collection[bytes] | None:
        """Bind in a private directory if all workers are on this machine; else on the network, with CURVE keys."""
        if self._session.alone:
            self.endpoint = f"ipc://{self._session.directory}/group"
            socket.bind(self.endpoint)
            return None
        self._keys = Keys(socket)
        self.endpoint = bind_to_free_port(socket, self._session.ip)
        return self._keys.admitted

    # -------------------------------------------------------------- lives

    def start(self, token: bytes, worker: int, life: int) -> None:
        keys = None if self._keys is None else self._keys.admit()
        self._lives[worker] = RunningWorker(life, keys)
        if worker not in self._actors:
            self._actors[worker] = actor = self._new_actor(worker, again=life > 0)
            self._places[worker] = actor.where.remote().future()
        call = self._actors[worker].run_worker.remote(token, worker, life, keys)
        call.future().add_done_callback(partial(self._worker_ended, worker, life))

    def _new_actor(self, worker: int, again: bool) -> Any:
        options = self._session.place(worker, again)
        return self._kind.options(max_restarts=0, max_concurrency=2, **options).remote(
            self._made, self.endpoint, self.host
        )

    def _worker_ended(self, worker: int, life: int, answer: Any) -> None:
        """Called by a thread of Ray when a worker has ended or its actor is gone."""
        end = answer.exception() or answer.result()
        if self._never_started(worker, end):
            pause = threading.Timer(RETRY_S, self._note, (worker, life, end))
            pause.daemon = True
            pause.start()
        else:
            self._note(worker, life, end)

    def _note(self, worker: int, life: int, end: End | Exception) -> None:
        if life == self._lives[worker].number:
            self._ended.append((worker, life, end))
            self._bell.wake()

    def _never_started(self, worker: int, end: End | Exception) -> bool:
        """Whether Ray could not start a worker's actor for a reason outside the actor."""
        place = self._places.get(worker)  # None: `kill` ended it
        return _is_external(end) and place is not None and not (place.done() and place.exception() is None)

    def _head_is_gone(self) -> None:
        """Called by the monitor's thread when the head of a joined cluster is gone."""
        self._session.lost = True
        self._bell.wake()

    def exits(self, closing: bool = False) -> list[Exit]:
        """Return the workers that ended. Raises `HeadLost`, but not where the group is ``closing``."""
        self._bell.clear()
        if closing and (self._session.lost or self._ray_is_gone()):
            return self._gone_with_ray()
        if self._session.lost:
            raise HeadLost(f"the Ray at {self._session.head} is gone: its head has not been there for {GONE_S:g} s")
        if self._ray_is_gone():
            return self._renew()
        exits = []
        while self._ended:
            worker, life, end = self._ended.popleft()
            if life == self._lives[worker].number:
                exits.append(self._exit(worker, life, end))
        return exits

    def _ray_is_gone(self) -> bool:
        """Whether the run's own Ray is gone; then an actor's end has this cause, and no call may go to Ray."""
        owner = self._session.owner
        # a copy, since Ray's threads add to it
        suspect = any(isinstance(end, Exception) for _, _, end in self._ended.copy())
        return owner is not None and owner.gone(NEWS_S if suspect else 0.0)

    def _renew(self) -> list[Exit]:
        """The run's own Ray is gone with all workers: start another. Raises `HeadLost` if it does not start."""
        exits = self._gone_with_ray()
        self._actors.clear()
        self._places.clear()
        self._session.renew()
        self._ended.clear()
        self._settle()
        return exits

    def _gone_with_ray(self) -> list[Exit]:
        return [
            Exit(worker, life.number, "lost the Ray that carried it", external=True)
            for worker, life in self._lives.items()
        ]

    def _exit(self, worker: int, life: int, end: End | Exception) -> Exit:
        self._stop_actor(worker)
        if not isinstance(end, Exception):
            status, member, trace = end
            return Exit(worker, life, exit_reason(status), status == -signal.SIGKILL, member, trace)
        self._forget(worker)
        why = f"lost the process that carried it ({main_line(end)})"
        return Exit(worker, life, why, _is_external(end), *self._lives[worker].hang)

    def kill(self, worker: int, life: int) -> None:
        """Kill the actor, and its worker with it; Ray alone would wait for a stopped process."""
        if life == self._lives[worker].number:
            place = self._places.get(worker)
            self._lives[worker] = self._lives[worker]._replace(hang=self._hang(worker))
            self._stop_actor(worker)
            self._forget(worker)
            if place is not None and place.done() and place.exception() is None:
                host, pid = place.result()
                if host == self.host:
                    pid.kill()

    def _hang(self, worker: int) -> Hang:
        """Where a worker hangs, as far as its actor can tell."""
        if worker in self._actors and not self._session.lost:
            with suppress(RayError):  # it is gone, has not started, or is stopped itself
                hang: Hang = ray.get(self._actors[worker].hang.remote(), timeout=STACK_S)
                return hang
        return Hang()

    def _stop_actor(self, worker: int) -> None:
        keys = self._lives[worker].keys
        if self._keys is not None and keys is not None:
            self._keys.revoke(keys)

    def _forget(self, worker: int) -> None:
        if worker in self._actors and not self._session.lost:
            ray.kill(self._actors.pop(worker))
            self._places.pop(worker, None)

    def close(self) -> None:
        for worker in [*self._actors]:
            self._stop_actor(worker)
            self._forget(worker)
        if self._head is not None:
            self._head.close()
        self._session.close()
        self._epoll.close()
        self._bell.close()
