"""Gradient steps that N processes take together, each on its share of every minibatch (``rl.learners=N``).

Learner 0 is the run's own process: it collects, keeps the replay, draws the minibatches and saves. It forks the others
and sends each its rows. Every learner has the same weights and the same state of the optimiser, and computes the
gradient of the loss on its rows. The mean of these gradients, weighted by rows, is the gradient on the whole minibatch.
All take the same step along it. Sums over learners are `torch.distributed`'s: gloo, or nccl on GPUs.

A learner that ends, or is stopped for longer than `STOPPED_S`, ends the run with `LearnerLost`. The kernel ends the
others with the run's process. The learners find each other by a temporary file, which is gone once all have met.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import msgspec
import torch
import torch.distributed
from torch import Tensor

from evorl.cluster.processes import out_of_memory
from evorl.cluster.processes.fork import die_with_parent, exit_reason, fork, name_process
from evorl.cluster.processes.pid import is_stopped
from evorl.nets.trees import Tree, describe, described, leaves, mapped

JOIN = timedelta(seconds=60)  # for all learners to meet
FOREVER = timedelta(days=365)  # the end of a wait is for `Keeper` to decide, who sees the processes
STOPPED_S = 30.0  # seconds that a learner may be stopped by a signal
TICK_S = 1.0  # seconds between two looks at that
CAUSE_S = 10.0  # seconds to find out which learner broke a connection
LENGTH = struct.Struct("<I")

dist = cast(Any, torch.distributed)  # its classes have no types


class LearnerLost(RuntimeError):
    """A process that takes part in gradient steps ended or was stopped; the message names it and how."""


class Split(NamedTuple):
    """An argument of a gradient step with rows of a minibatch along an axis of each of its tensors; each learner takes
    its share of them."""

    tree: Tree
    axis: int


Argument = Tree | Split


class Step(msgspec.Struct):
    """The announcement of a gradient step to a learner; the tensors follow."""

    name: str  # the learner's method; empty: take over the tensors of learner 0
    first: int = 0  # the first row of this learner's share
    rows: int = 1
    total: int = 1  # of the minibatch
    arguments: list[Any] = msgspec.field(default_factory=list)
    """Each is the number of one of the learner's `own` trees, or what `describe` says of one whose tensors follow."""


class Parallel(Protocol):
    """A learner whose gradient steps can be shared."""

    collective: Collective | None
    device: torch.device

    def own(self) -> tuple[Tree, ...]:
        """What gradient steps change, in place."""
        ...


class Collective:
    """This process among the learners. Each method is called by all of them at the same point of a step."""

    _group: Any = None
    _nccl = False

    def __init__(self, store: str, rank: int, size: int, device: torch.device) -> None:
        """Join the others, who meet in the file ``store``. Raises ConnectionError."""
        self.rank, self.size = rank, size
        self.stale = True  # whether the other learners' tensors are not known to equal those of learner 0
        self.step = Step("")
        self.wait_seconds = self.reduce_seconds = 0.0
        self._nccl, self._device = device.type == "cuda", device
        met = dist.FileStore(store, size)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else it listens where other machines can reach it
        kind = dist.ProcessGroupNCCL if self._nccl else dist.ProcessGroupGloo
        try:
            self._group = kind(met, rank, size, JOIN)
        except RuntimeError as error:
            raise ConnectionError(str(error)) from None
        self._meet()  # from now on the store is not needed

    def take(self, learner: Parallel, step: Step, arguments: Sequence[Tree]) -> dict[str, Tensor]:
        """Take a gradient step on this learner's rows; return the statistics of the whole minibatch."""
        self.step = step
        return self._whole(getattr(learner, step.name)(*arguments))

    def mean(self, x: Tensor) -> Tensor:
        """The mean over the minibatch of what each learner computed as a mean over its rows."""
        return self._total(x * (self.step.rows / self.step.total))

    def _whole(self, stats: dict[str, Tensor]) -> dict[str, Tensor]:
        """The means of statistics []; those of single rows [..., N], side by side."""
        first, rows, total = self.step.first, self.step.rows, self.step.total
        parts = []
        for x in stats.values():
            part = x * (rows / total)
            if x.dim():
                part = x.new_zeros(*x.shape[:-1], total)
                part[..., first : first + rows] = x
            parts.append(part)
        flat = self._total(torch.cat([x.reshape(-1) for x in parts])).split([x.numel() for x in parts])
        return {name: x.view(part.shape) for name, x, part in zip(stats, flat, parts, strict=True)}

    def _total(self, x: Tensor) -> Tensor:
        """The sum over all learners, in place: the same bits in each."""
        began = time.monotonic()
        self._meet()
        met = time.monotonic()
        self._wait(self._group.allreduce, dist.AllreduceOptions(), [x])
        self.wait_seconds += met - began
        self.reduce_seconds += time.monotonic() - met
        return x

    def synchronise(self, learner: Parallel) -> None:
        """Give all learners the tensors of learner 0."""
        for x in leaves(learner.own()):
            self._wait(self._group.broadcast, dist.BroadcastOptions(), [x])
        self.stale = False

    def _meet(self) -> None:
        options = dist.BarrierOptions()
        if self._nccl:
            options.device_ids = [self._device.index]  # else nccl guesses it, with a warning
        self._wait(self._group.barrier, options)

    def _wait(self, operation: Callable[..., Any], options: Any, *arguments: Any) -> None:
        """Raises ConnectionError where another learner has ended."""
        options.timeout = FOREVER
        try:
            operation(*arguments, options).wait()
        except RuntimeError as error:
            raise ConnectionError(str(error)) from None

    def _abort(self) -> None:
        """End the waits of this process. Gloo ends them itself when the other end is gone, nccl does not."""
        if self._nccl and self._group is not None:
            self._group.abort()


class Leader(Collective):
    """Learner 0, which has forked the others."""

    def __init__(self, make: Callable[[torch.device], Any], devices: Sequence[torch.device], threads: int) -> None:
        """``make``: makes a learner (`Parallel`) on its device. Raises `LearnerLost`."""
        size = len(devices)
        number, path = tempfile.mkstemp(prefix="evorl-learners-")
        os.close(number)
        pairs = [socket.socketpair() for _ in range(1, size)]
        self._sockets = [ours for ours, _ in pairs]
        works = [
            partial(_serve, theirs, path, rank, size, devices[rank], make, threads)
            for rank, (_, theirs) in enumerate(pairs, 1)
        ]
        self._keeper = Keeper(works, [theirs.fileno() for _, theirs in pairs], self._abort)
        try:
            for _, theirs in pairs:
                theirs.close()
            with self._explained():
                super().__init__(path, 0, size, devices[0])
        except BaseException:
            self.close()
            raise
        finally:
            os.unlink(path)  # the store ends with this name: what it tidies up later, it looks for by name

    def lead(self, learner: Parallel) -> None:
        """Let this process's learner take its gradient steps with the others."""
        learner.collective = self

    def take_step(
        self, learner: Parallel, step: Callable[..., dict[str, Tensor]], arguments: Sequence[Argument]
    ) -> dict[str, Tensor]:
        """Take a gradient step with all learners; return its statistics. Raises `LearnerLost`.

        ``step``: a method of the learner. Arguments that are the learner's `own` are not sent: each has its own.
        """
        with self._explained():
            if self.stale:
                for ours in self._sockets:
                    _send(ours, Step(""), [])
                self.synchronise(learner)
            own = {id(tree): i for i, tree in enumerate(learner.own())}
            shares = self._shares(step.__name__, arguments)
            for ours, (part, trees) in zip(self._sockets, shares[1:], strict=True):
                part.arguments = [own[id(x)] if id(x) in own else describe(x) for x in trees]
                _send(ours, part, leaves(tuple(x for x in trees if id(x) not in own)))
            return self.take(learner, *shares[0])

    def _shares(self, name: str, arguments: Sequence[Argument]) -> list[tuple[Step, list[Tree]]]:
        """Each learner's step and its arguments."""
        total = next(leaves(x.tree)[0].shape[x.axis] for x in arguments if isinstance(x, Split))
        shares, first = [], 0
        for rank in range(self.size):
            rows = total // self.size + (rank < total % self.size)  # as `tensor_split` has it
            cut = [self._share(x, rank) if isinstance(x, Split) else x for x in arguments]
            shares.append((Step(name, first, rows, total), cut))
            first += rows
        return shares

    def _share(self, argument: Split, rank: int) -> Tree:
        return mapped(lambda x: x.tensor_split(self.size, argument.axis)[rank], argument.tree)

    def metrics(self) -> dict[str, float]:
        """What became of time since the last call."""
        metrics = {"speed/learners_wait_seconds": self.wait_seconds, "speed/all_reduce_seconds": self.reduce_seconds}
        self.wait_seconds = self.reduce_seconds = 0.0
        return metrics

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError:
            if cause := self._keeper.find_cause():
                raise LearnerLost(cause) from None
            raise

    def close(self) -> None:
        """End the other learners."""
        self._keeper.close()
        for ours in self._sockets:
            ours.close()


def _serve(
    connection: socket.socket, path: str, rank: int, size: int, device: torch.device,
    make: Callable[[torch.device], Parallel], threads: int,
) -> None:  # fmt: skip
    """The process of a learner: take part in the steps of learner 0 until that is gone."""
    name_process(f"learner {rank}")
    os.setsid()  # signals of the run's terminal are for the run's process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(threads)
    try:
        collective = Collective(path, rank, size, device)
        learner: Parallel | None = None
        while (step := _receive_step(connection)) is not None:
            if learner is None:  # not earlier: learner 0 reports errors of the build first, from its own
                learner = make(device)
                learner.collective = collective
            if not step.name:
                collective.synchronise(learner)
            else:
                receive = partial(_receive, connection, device)
                own = learner.own()
                arguments = [own[x] if isinstance(x, int) else described(x, receive) for x in step.arguments]
                collective.take(learner, step, arguments)
    except ConnectionError:  # another learner is gone: it is the cause, this one's end is not
        signal.pause()


def _send(to: socket.socket, step: Step, tensors: Sequence[Tensor]) -> None:
    head = msgspec.msgpack.encode(step)
    to.sendall(LENGTH.pack(len(head)) + head)
    for x in tensors:
        to.sendall(_bytes(x.cpu().contiguous().view(-1)))


def _receive_step(connection: socket.socket) -> Step | None:
    """The next step; None when there is no learner 0 any more."""
    length = connection.recv(LENGTH.size, socket.MSG_WAITALL)
    if len(length) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(length)
    head = connection.recv(size, socket.MSG_WAITALL)
    return msgspec.msgpack.decode(head, type=Step)


def _receive(connection: socket.socket, device: torch.device, dtype: str, shape: Sequence[int]) -> Tensor:
    x = torch.empty(math.prod(shape), dtype=getattr(torch, dtype))
    room = _bytes(x)
    while len(room):
        count = connection.recv_into(room)
        if not count:
            raise ConnectionError("learner 0 is gone")
        room = room[count:]
    return x.view(torch.Size(shape)).to(device)


def _bytes(x: Tensor) -> memoryview:
    """The memory of a tensor [N]."""
    return memoryview(x.numpy().view("uint8").data)


class Keeper:
    """Forks processes and watches them until all have ended. When a process ends, it ends the others.

    It does so in a thread of its own, since the kernel ends a child (`die_with_parent`) with the thread that forked it.
    That thread has no OpenMP pool either, of which a child would have the lock and not the threads.
    """

    def __init__(self, works: Sequence[Callable[[], None]], keep: Sequence[int], lost: Callable[[], None]) -> None:
        """``keep``: the descriptor that each process keeps open. ``lost``: called once all processes have ended."""
        self._works, self._keep, self._lost = works, keep, lost
        self._cause = ""
        self._known = threading.Event()  # all have ended
        self._forked = threading.Event()
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="learners", daemon=True)
        self._thread.start()
        self._forked.wait()

    def find_cause(self) -> str:
        """Which process ended, and how; empty if none is found to have."""
        self._known.wait(CAUSE_S)
        return self._cause

    def close(self) -> None:
        """End all processes."""
        os.eventfd_write(self._end, 1)
        self._thread.join()
        os.close(self._end)

    def _run(self) -> None:
        pids: dict[int, tuple[int, int]] = {}  # rank and number, by pidfd
        try:
            self._fork(pids)
            self._forked.set()
            self._cause = self._watch(pids)
        except OSError as error:
            self._cause = f"no process for a learner: {error}"
        finally:
            self._forked.set()
            for fd, (_, pid) in pids.items():
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(fd)
        if self._cause:
            self._lost()
        self._known.set()

    def _fork(self, pids: dict[int, tuple[int, int]]) -> None:
        parent = os.getpid()

        def begin(work: Callable[[], None]) -> None:
            die_with_parent(parent)
            work()

        for rank, (work, keep) in enumerate(zip(self._works, self._keep, strict=True), 1):
            pid = fork(partial(begin, work), keep)
            pids[os.pidfd_open(pid)] = rank, pid

    def _watch(self, pids: dict[int, tuple[int, int]]) -> str:
        """Return which has ended, and how; an empty text when all shall."""
        poller, stopped = select.poll(), dict.fromkeys(pids, 0.0)
        starved = out_of_memory.kill_count()
        for fd in (self._end, *pids):
            poller.register(fd, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poller.poll(TICK_S * 1000)]
            if self._end in ready:
                return ""
            for fd in ready:
                rank, pid = pids.pop(fd)
                reason = exit_reason(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(fd)
                memory = " for want of memory" if out_of_memory.kill_count() > starved else ""
                return f"learner {rank} (process {pid}) {reason}{memory}"
            for fd, (rank, pid) in pids.items():
                # by counted looks: time in which this process was stopped itself is not the learner's
                stopped[fd] = stopped[fd] + TICK_S if is_stopped(pid) else 0.0
                if stopped[fd] > STOPPED_S:
                    return f"learner {rank} (process {pid}) was stopped by a signal for {STOPPED_S:g} s"
