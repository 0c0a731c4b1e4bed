"""Gradient steps that N processes take together, each on its share of every minibatch (``rl.learners=N``).

Learner 0 is the run's own process: it collects, keeps the replay, draws the minibatches and saves. It forks the others
and sends each its rows. Every learner has the same weights and the same state of the optimiser, and computes the
gradient of the loss on its rows. The mean of these gradients, weighted by rows, is the gradient on the whole minibatch.
All take the same step along it. Sums over learners are `torch.distributed`'s: gloo, or nccl on GPUs.

Learner 0 sends each step through a pipe, in the form of the cluster's messages. A learner that ends, or stays stopped,
ends the run with `LearnerLost`. The kernel ends the others with the run's process. The learners find each other by a
temporary file, which is gone once all have met.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol, cast

import torch
import torch.distributed
from torch import Tensor

from evorl.cluster.processes.fork import name_process
from evorl.cluster.processes.watched import WatchedProcesses
from evorl.cluster.transport.connection import dumps, loads
from evorl.nets.trees import Tree, from_plain, leaves, mapped, to_plain

JOIN = timedelta(seconds=60)  # for all learners to meet
FOREVER = timedelta(days=365)  # `WatchedProcesses` ends a wait, since it sees the processes

dist = cast(Any, torch.distributed)  # its classes have no types


class LearnerLost(RuntimeError):
    """A process that takes part in gradient steps ended or was stopped; the message names it and how."""


class Split(NamedTuple):
    """An argument of a gradient step with rows of a minibatch along an axis of each of its tensors; each learner takes
    its share of them."""

    tree: Tree
    axis: int


Argument = Tree | Split
GradientStep = Callable[..., dict[str, Tensor]]  # gives statistics


class Step(NamedTuple):
    """A gradient step, as a learner's process is told of it."""

    number: int | None  # among the learner's `steps`; None: take over the tensors of learner 0
    first: int = 0  # the first row of this learner's share
    rows: int = 1
    total: int = 1  # of the minibatch
    arguments: Sequence[Any] = ()
    """Each is the number of one of the learner's `own` trees, or a tree as `to_plain` has it."""


class Parallel(Protocol):
    """A learner whose gradient steps can be shared."""

    collective: Collective | None
    device: torch.device

    def own(self) -> tuple[Tree, ...]:
        """What gradient steps change, in place."""
        ...

    def steps(self) -> Sequence[GradientStep]:
        """The methods that are gradient steps, in the same order in each learner."""
        ...


class Collective:
    """This process among the learners. Each method is called by all of them at the same point of a step."""

    _group: Any = None
    _nccl = False

    def __init__(self, store: str, rank: int, size: int, device: torch.device) -> None:
        """Join the others, who meet in the file ``store``. Raises ConnectionError."""
        self.rank, self.size = rank, size
        self.stale = True  # whether the other learners' tensors are not known to equal those of learner 0
        self.step = Step(None)
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
        assert step.number is not None
        self.step = step
        return self._whole(learner.steps()[step.number](*arguments))

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
        pairs = [Pipe() for _ in range(1, size)]
        self._others = [ours for ours, _ in pairs]
        works = [
            partial(_serve, theirs, path, rank, size, devices[rank], make, threads)
            for rank, (_, theirs) in enumerate(pairs, 1)
        ]
        self._processes = WatchedProcesses("learner", works, [theirs.fileno() for _, theirs in pairs], self._abort)
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

    def take_step(self, learner: Parallel, step: GradientStep, arguments: Sequence[Argument]) -> dict[str, Tensor]:
        """Take a gradient step with all learners; return its statistics. Raises `LearnerLost`.

        ``step``: a method of the learner. Arguments that are the learner's `own` are not sent: each has its own.
        """
        with self._explained():
            if self.stale:
                for other in self._others:
                    _send(other, Step(None))
                self.synchronise(learner)
            own = {id(tree): i for i, tree in enumerate(learner.own())}
            shares = self._shares(learner.steps().index(step), arguments)
            for other, (part, trees) in zip(self._others, shares[1:], strict=True):
                plain = [own[id(x)] if id(x) in own else to_plain(x) for x in trees]
                _send(other, part._replace(arguments=plain))
            return self.take(learner, *shares[0])

    def _shares(self, number: int, arguments: Sequence[Argument]) -> list[tuple[Step, list[Tree]]]:
        """Each learner's step and its arguments."""
        total = next(leaves(x.tree)[0].shape[x.axis] for x in arguments if isinstance(x, Split))
        shares, first = [], 0
        for rank in range(self.size):
            rows = total // self.size + (rank < total % self.size)  # as `tensor_split` has it
            cut = [self._share(x, rank) if isinstance(x, Split) else x for x in arguments]
            shares.append((Step(number, first, rows, total), cut))
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
            if cause := self._processes.find_cause():
                raise LearnerLost(cause) from None
            raise

    def close(self) -> None:
        """End the other learners."""
        self._processes.close()
        for other in self._others:
            other.close()


def _serve(
    leader: Connection, path: str, rank: int, size: int, device: torch.device,
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
        while (step := _receive(leader)) is not None:
            if learner is None:  # not earlier: learner 0 reports errors of the build first, from its own
                learner = make(device)
                learner.collective = collective
            if step.number is None:
                collective.synchronise(learner)
            else:
                own = learner.own()
                arguments = [own[x] if isinstance(x, int) else _tree(x, device) for x in step.arguments]
                collective.take(learner, step, arguments)
    except ConnectionError:  # another learner is gone: it is the cause, this one's end is not
        signal.pause()


def _send(to: Connection, step: Step) -> None:
    to.send_bytes(dumps(step))


def _receive(leader: Connection) -> Step | None:
    """The next step; None when there is no learner 0 any more."""
    try:
        message = leader.recv_bytes()
    except EOFError:
        return None
    return Step(*loads(message))


def _tree(plain: Any, device: torch.device) -> Tree:
    return mapped(lambda x: x.to(device), from_plain(plain))
