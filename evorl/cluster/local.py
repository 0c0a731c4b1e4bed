"""The default cluster: all members in the calling process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from typing import Any, ClassVar

from evorl.cluster.core import Cluster, Feed, Future, Make, caller_error, public_method
from evorl.util.errors import reason

_log = logging.getLogger("evorl")


@dataclass(frozen=True, kw_only=True)
class Local(Cluster):
    """A cluster without workers: members run in this process."""

    in_process: ClassVar[bool] = True

    def spawn(self, make: Make, size: int, plain: Sequence[type[Exception]] = ()) -> LocalGroup:
        return LocalGroup(make, size, plain)


class CompletedCall:
    """A `Future` of a call that has already been made."""

    def __init__(self, answer: Any, error: Exception | None = None) -> None:
        self._answer, self.error = answer, error

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._answer


class LazyCall:
    """A `Future` whose call is made when its answer is first needed, so that earlier answers do not wait for it."""

    def __init__(self, call: Callable[[], CompletedCall]) -> None:
        self._call = cache(call)

    def done(self) -> bool:
        return self._call().done()

    def result(self) -> Any:
        return self._call().result()


class LocalGroup:
    """Members as plain objects in this process, called one after the other."""

    def __init__(self, make: Make, size: int, plain: Sequence[type[Exception]]) -> None:
        self.size, self._plain = size, plain
        self.members: list[Any] = []
        try:
            for index in range(size):
                self.members.append(self._try(index, make, index).result())
        except BaseException:
            self.close()
            raise
        self._next = 0

    def _try(self, index: int, function: Callable[..., Any], *args: object) -> CompletedCall:
        try:
            return CompletedCall(function(*args))
        except Exception as error:
            return CompletedCall(None, caller_error(index, error, self._plain))

    def _call(self, index: int, method: str, *args: object) -> CompletedCall:
        return self._try(index, lambda: getattr(self.members[index], public_method(method))(*args))

    def all(self, method: str, *args: object) -> list[Any]:
        return [call.result() for call in [self._call(index, method, *args) for index in range(self.size)]]

    def any(self, method: str, *args: object) -> LazyCall:
        self._next = (self._next + 1) % self.size
        return LazyCall(partial(self._call, self._next, method, *args))

    def first(self, futures: Sequence[Future]) -> Future:
        return futures[0]

    def map(self, method: str, arguments: Iterable[Sequence[object]]) -> Iterator[Any]:
        return (self.any(method, *args).result() for args in arguments)

    def gather(
        self, method: str, *args: object, begin: int = 0
    ) -> Generator[tuple[int, Any], Sequence[object] | None, None]:
        for number in count(begin):
            index = number % self.size
            new = yield index, self._call(index, method, *args).result()
            args = args if new is None else (*new,)

    def states(self) -> list[Any]:
        return self.all("state_dict")

    def restore(self, states: Sequence[Any]) -> None:
        for index, state in enumerate(states):
            self._call(index, "load_state_dict", state).result()

    def set_recovery_state(self, state: Callable[[], object]) -> None:
        """Do nothing: no member can be lost."""

    def set_feed(self, feed: Feed) -> None:
        """Do nothing: members read this process's memory."""

    def counters(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Close every member. What one raises then is told, as by workers: it ends no run that has its result."""
        for index, member in enumerate(self.members):
            try:
                if hasattr(member, "close"):
                    member.close()
            except Exception as error:
                _log.warning("member %d does not close: %s", index, reason(error))
        self.members.clear()
