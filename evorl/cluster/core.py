"""Where work runs: the words that every cluster shares.

A *group* is N members: objects made by a factory from their index, each with state of its own. Members are logical,
their number belongs to the experiment; the processes that carry them are not, and may be fewer, more or replaced.
A member is reached by the name of a method and plain data or arrays. One that has ``state_dict`` and
``load_state_dict`` survives its process: it is made again, restored to its state before the calls that were lost, and
those are made again. So what comes back is a function of the factory and the calls alone, wherever they ran.
"""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

log = logging.getLogger("evorl")

Make = Callable[[int], Any]
"""Makes the member of an index."""


class MemberError(RuntimeError):
    """A member's method raised: which, what, and its traceback as text."""

    def __init__(self, member: int, kind: str, message: str, trace: str) -> None:
        super().__init__(f"member {member}: {kind}: {message}\n{trace}".rstrip())
        self.member, self.kind, self.message, self.trace = member, kind, message, trace


def caller_error(member: int, error: Exception, plain: Sequence[type[Exception]]) -> Exception:
    """What the caller of a group sees of a member's error: itself where its class is one of ``plain``."""
    if isinstance(error, tuple(plain)):
        return error
    trace = "".join(traceback.format_exception(error))
    found = MemberError(member, type(error).__name__, str(error), trace)
    found.__cause__ = error
    return found


def public_method(method: str) -> str:
    """The name of a method that others may call. Raises AttributeError for one that begins with an underscore."""
    if method.startswith("_"):
        raise AttributeError(f"{method} is not for others to call")
    return method


class MemberLost(RuntimeError):
    """A member's process died or hung again and again over the same call."""


class Future(Protocol):
    """The answer to one call, to come."""

    def done(self) -> bool:
        """Whether `result` would return at once."""
        ...

    def result(self) -> Any:
        """Wait for the answer. Raises `MemberError`, `MemberLost`."""
        ...


class Group(Protocol):
    """N members.

    Arrays in answers are the caller's own, but for `gather`'s. Arrays in arguments are lent: a member may read them
    until it has answered, and copies what it keeps or changes.
    """

    size: int

    def all(self, method: str, *args: object) -> list[Any]:
        """Every member gets the call; every answer, by member.

        Where some raised, the rest still finish and the error of the lowest index comes. Raises `MemberError`,
        `MemberLost`.
        """
        ...

    def any(self, method: str, *args: object) -> Future:
        """Whichever member is free takes the call. It must not depend on or change a member's state."""
        ...

    def first(self, futures: Sequence[Future]) -> Future:
        """Wait for one of several answers; the earliest given of those that are there."""
        ...

    def map(self, method: str, arguments: Iterable[Sequence[object]]) -> Iterator[Any]:
        """`any` for each tuple of arguments, all members busy; answers in the arguments' order."""
        ...

    def gather(
        self, method: str, *args: object, begin: int = 0
    ) -> Generator[tuple[int, Any], Sequence[object] | None, None]:
        """An endless stream of (member, answer), in the order they come; member ``begin`` is called first.

        Each member is called again and again, at most twice ahead of the answers that were taken: so a slow consumer
        bounds memory, and nothing is dropped. Arrays are valid until the next answer is taken. Arguments that are sent
        to the stream (``stream.send(args)`` in the place of ``next(stream)``) are those of all calls from then on,
        beginning with the next one of the member whose answer was taken last; and of calls that are lost and made
        again.

        A stream that is left has called members ahead of the answers that were taken, how often depends on the
        cluster: the members are at some later state than `states` tells. `restore` brings them back to it.
        """
        ...

    def states(self) -> list[Any]:
        """Every member's state after the answers that were taken so far."""
        ...

    def restore(self, states: Sequence[Any]) -> None:
        """Give every member its state, as `states` returned them."""
        ...

    def set_recovery_state(self, state: Callable[[], object]) -> None:
        """For members that have ``load_state_dict`` alone, since the caller knows their state: from now on one that
        lost its process is made again in what ``state`` gives at that time."""
        ...

    def counters(self) -> dict[str, float]:
        """What the cluster has had to mend so far, as metrics."""
        ...

    def close(self) -> None:
        """End the members. Nothing stays: no process, socket, shared memory or file."""
        ...


class Cluster(ABC):
    """A choice of where members run; a frozen dataclass whose fields are config keys."""

    in_process: ClassVar[bool]
    """Whether members live in the process that spawns them."""

    @property
    def workers(self) -> int:
        """Processes that members are spread over."""
        return 1

    @property
    def begins(self) -> str:
        """What a person is told beforehand where `spawn` takes its time."""
        return ""

    @abstractmethod
    def spawn(self, make: Make, size: int, plain: Sequence[type[Exception]] = ()) -> Group:
        """``size`` members, ``make(0)`` to ``make(size - 1)``.

        Errors of the classes ``plain`` (made from one message) reach the caller as they are, all others as
        `MemberError`. Raises what making a member raises, `MemberLost`.
        """


def used_workers(workers: int, members: int) -> int:
    """How many of the workers have a member to carry; says so where some have none."""
    if members < workers:
        log.warning(
            "%d of %d workers stay away: there is work for %d (rl.members; in a population its tasks in flight)",
            workers - members, workers, members,
        )  # fmt: skip
    return min(workers, members)
