"""The interface of all clusters: `Cluster`, `Group`, `Future` and their errors.

A *group* has N members. A member is an object with its own state, made by a factory from its index. The number of
members is part of the experiment. The number of processes that run them is not: it may be smaller or larger, and
processes may be replaced. A call to a member is the name of a method, plain data and arrays. A member with
``state_dict`` and ``load_state_dict`` survives the death of its process: it is made again, its state before the lost
calls is restored, and these calls are repeated. Answers therefore depend only on the factory and the calls.
"""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

from evorl.util.errors import kinds_of
from evorl.util.heartbeat import heartbeat as heartbeat  # for authors of members
from evorl.util.heartbeat import send_heartbeat
from evorl.util.stop import end_wait, stop_requested

log = logging.getLogger("evorl")

Make = Callable[[int], Any]
"""Factory of members: takes an index, returns the member."""


class Stopped(BaseException):
    """The run is to stop, and the call at work was given up. No `Exception`: worlds and evaluators do not catch it."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Let `heartbeat` and `check_stop` raise `Stopped` in this process.

    Only for calls that can be made again as if never begun.
    """
    requested = stop_requested.get()

    def stop() -> None:
        if requested():
            raise Stopped

    before, also = send_heartbeat.set(stop), end_wait.set(stop)
    try:
        yield
    finally:
        send_heartbeat.reset(before)
        end_wait.reset(also)


class MemberError(RuntimeError):
    """An error that a member's method raised: member, class, message, and traceback as text.

    ``kinds``: the names of its class, and of the classes that this derives from (`evorl.util.errors.kinds_of`).
    """

    def __init__(self, member: int, kinds: Sequence[str], message: str, trace: str) -> None:
        super().__init__(f"member {member}: {kinds[0].rpartition('.')[2]}: {message}\n{trace}".rstrip())
        self.member, self.kinds, self.message, self.trace = member, tuple(kinds), message, trace


def caller_error(member: int, error: Exception, plain: Sequence[type[Exception]]) -> Exception:
    """Return the error to raise in the caller: ``error`` itself if its class is in ``plain``, else a `MemberError`."""
    if isinstance(error, tuple(plain)):
        return error
    trace = "".join(traceback.format_exception(error))
    member_error = MemberError(member, kinds_of(error), str(error), trace)
    member_error.__cause__ = error
    return member_error


def public_method(method: str) -> str:
    """Return the name of a public method. Raises AttributeError for a name that begins with an underscore."""
    if method.startswith("_"):
        raise AttributeError(f"{method} is a private method")
    return method


class MemberLost(RuntimeError):
    """A member's process died or hung repeatedly during the same call."""


class Future(Protocol):
    """The pending answer to one call."""

    def done(self) -> bool:
        """Return whether `result` returns immediately."""
        ...

    def result(self) -> Any:
        """Wait for the answer. Raises `MemberError`, `MemberLost`."""
        ...


Position = tuple[int, ...]
"""How much of a feed there is, or a copy of it holds. Later positions are greater."""


class Feed(Protocol):
    """Data that the caller appends to in its own memory, and that members read: see `Group.set_feed`."""

    def position(self) -> Position | None:
        """Return how much there is; None if there is nothing."""
        ...

    def after(self, position: Position | None) -> tuple[Position, object] | None:
        """Return the next piece for a copy that holds ``position`` (None: nothing), and what the copy holds then.

        A piece is plain data and arrays. None if the copy lacks nothing.
        """
        ...


class FeedReader(Protocol):
    """Where the members of a process find a feed on a host whose processes cannot read the caller's memory.

    A factory of such members has it as its attribute ``feed_reader``. Its methods are called in another thread than
    those of the members.
    """

    def follow(self, piece: Any) -> int:
        """Store a piece in this process's copy; return the file descriptor of the shared memory that holds the copy."""
        ...

    def locate(self, pid: int, fd: int) -> None:
        """Map the copy that a process of this host keeps. Raises OSError, ValueError if the process has ended."""
        ...


class Group(Protocol):
    """N members.

    Arrays in answers belong to the caller, except those of `gather`. Arrays in arguments are lent: a member may read
    them until it has answered, and must copy what it keeps or changes.
    """

    size: int

    def all(self, method: str, *args: object) -> list[Any]:
        """Call every member and return the answers by member.

        If some members raise, the others still finish, and the error of the lowest index is raised. Raises
        `MemberError`, `MemberLost`.
        """
        ...

    def any(self, method: str, *args: object) -> Future:
        """Call any one free member. The call must neither depend on a member's state nor change it."""
        ...

    def first(self, futures: Sequence[Future]) -> Future:
        """Wait until one of the futures is done; return the first in ``futures`` that is."""
        ...

    def map(self, method: str, arguments: Iterable[Sequence[object]]) -> Iterator[Any]:
        """Call `any` for each tuple of arguments, with all members busy; yield answers in the order of arguments."""
        ...

    def gather(
        self, method: str, *args: object, begin: int = 0
    ) -> Generator[tuple[int, Any], Sequence[object] | None, None]:
        """Stream (member, answer) pairs endlessly, in order of arrival; member ``begin`` is called first.

        Each member is called repeatedly, at most twice ahead of the answers that were taken. Memory is therefore
        bounded for a slow consumer, and no answer is dropped. Arrays are valid until the next answer is taken.
        ``stream.send(args)`` instead of ``next(stream)`` replaces the arguments of all later calls, beginning with
        the next call of the member whose answer was taken last. Calls that are lost and repeated get the new
        arguments as well.

        When the consumer abandons a stream, members have been called ahead of the answers that were taken, how often
        depends on the cluster. Their states are then later than those that `states` returns; `restore` resets them.
        """
        ...

    def states(self) -> list[Any]:
        """Return every member's state after the answers that were taken so far."""
        ...

    def restore(self, states: Sequence[Any]) -> None:
        """Load every member's state, as returned by `states`."""
        ...

    def set_recovery_state(self, state: Callable[[], object]) -> None:
        """Set the function that returns what a member loads first that is made again after its process was lost.

        For what the caller has anyway: the state of members that have ``load_state_dict`` but no ``state_dict``, and
        what others hold beside their own state, which they load next. None is not loaded.
        """
        ...

    def set_feed(self, feed: Feed) -> None:
        """Let hosts whose processes cannot read the caller's memory follow ``feed``. To be called at most once.

        One process of each such host keeps a copy that the others map (`FeedReader`). What was appended goes down the
        tree of hosts when calls are sent. A call to another host waits until the copy there has everything that there
        was when the call was made. A copy never holds more than the feed.
        """
        ...

    def counters(self) -> dict[str, float]:
        """Return the cluster's metrics so far: replaced workers, refused messages, bytes sent."""
        ...

    def close(self) -> None:
        """End the members. No process, socket, shared memory or file remains."""
        ...


class Cluster(ABC):
    """Where members run: a frozen dataclass whose fields are config keys."""

    in_process: ClassVar[bool]
    """Whether members run in the process that spawns them."""

    @property
    def workers(self) -> int:
        """Number of processes that run members."""
        return 1

    @property
    def workers_here(self) -> int:
        """Number of these that are known to be on this machine."""
        return self.workers

    @property
    def begins(self) -> str:
        """A message to print before a slow `spawn`; empty if it is fast."""
        return ""

    @abstractmethod
    def spawn(self, make: Make, size: int, plain: Sequence[type[Exception]] = ()) -> Group:
        """Make a group of ``size`` members, ``make(0)`` to ``make(size - 1)``.

        Members' errors of the classes in ``plain`` (constructed from one message) are raised unchanged in the caller,
        all others as `MemberError`. Raises the errors of ``make``, `MemberLost`.
        """


def used_workers(workers: int, members: int) -> int:
    """Return the number of workers that get members; log a warning if some get none."""
    if members < workers:
        log.warning(
            "%d of %d workers are not used: there is work for %d (rl.members; in a population, tasks in flight)",
            workers - members, workers, members,
        )  # fmt: skip
    return min(workers, members)
