"""The words of a group whose members live in other processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from evorl.cluster.core import Future
from evorl.cluster.transport.connection import Letter, dumps, loads
from evorl.cluster.workers.handle import MOST_AHEAD, Call, Seat
from evorl.cluster.workers.heartbeats import TICK_S
from evorl.cluster.workers.launcher import Launcher
from evorl.cluster.workers.pool import Crew

GATHER_AHEAD = 2  # answers of each member that wait to be taken
MOST_SHARED = 32  # members of a stream whose arguments lie in shared memory: each block is two open files


class Answer:
    """A `Future` of a group's call."""

    def __init__(self, group: RemoteGroup, call: Call) -> None:
        self._group, self._call = group, call

    def done(self) -> bool:
        self._group.poll(0)
        return self._call.outcomes is not None

    def result(self) -> Any:
        self._group.wait(self._call)
        return self._group.opened(self._call)[0]


class RemoteGroup:
    """Members in the processes of a launcher (see `evorl.cluster.core.Group`)."""

    def __init__(self, launcher: Launcher, size: int, deadline_s: float, plain: Sequence[type[Exception]]) -> None:
        self.size = size
        self.crew = Crew(launcher, size, deadline_s, plain)
        self._numbers = count(1)
        self._backlog: deque[Call] = deque()  # for whoever is free
        self._left: list[Call] = []  # of streams that nobody listens to any more, not yet answered
        self._states = [*self.crew.states]  # after the answers that were taken

    def all(self, method: str, *args: object) -> list[Any]:
        letter = Letter(args, self.crew.pool, self.crew.parcels.known())
        self.crew.parcels.ship(letter)
        calls = [Call(next(self._numbers), method, seat.members, letter, stateful=True) for seat in self.crew.seats]
        for seat, call in zip(self.crew.seats, calls, strict=True):
            self.crew.dispatch(seat, [call])
        answers: list[Any] = [None] * self.size
        errors: dict[int, Exception] = {}
        for call in calls:
            self.wait(call)
        letter.give_back()
        for call in calls:
            self._took(call)
            for member, outcome in zip(call.members, call.outcomes or (), strict=True):
                if outcome[0]:
                    answers[member] = outcome[1]
                else:
                    errors[member] = self.crew.error(member, outcome[1])
        if errors:
            raise errors[min(errors)]
        return answers

    def any(self, method: str, *args: object) -> Answer:
        call = Call(next(self._numbers), method, [], Letter(args, self.crew.pool), stateful=False, alone=True)
        self._backlog.append(call)
        if self.crew.turns.idle():
            self._feed()  # else all are busy, and this may go in one message with the next ones
        return Answer(self, call)

    def first(self, futures: Sequence[Future]) -> Future:
        while (ready := next((one for one in futures if one.done()), None)) is None:
            self.poll(TICK_S)
        return ready

    def map(self, method: str, arguments: Iterable[Sequence[object]]) -> Iterator[Any]:
        todo, most = iter(arguments), 2 * MOST_AHEAD * len(self.crew.seats)
        under_way: deque[Answer] = deque()
        while True:
            while len(under_way) < most and (one := next(todo, None)) is not None:
                under_way.append(self.any(method, *one))
            if not under_way:
                return
            yield under_way.popleft().result()

    def gather(
        self, method: str, *args: object, begin: int = 0
    ) -> Generator[tuple[int, Any], Sequence[object] | None, None]:
        letter = Letter(args, self.crew.pool if self.size <= MOST_SHARED else None)
        answered: deque[Call] = deque()
        calls: dict[int, Call] = {}  # whose answers have not been taken

        def ask(member: int) -> None:
            call = Call(next(self._numbers), method, [member], letter, stateful=True, copy=False, into=answered)
            calls[call.number] = call
            self.crew.dispatch(self.crew.seat(member), [call])

        self._finish_left()  # else the calls of many streams would pile up at a slow worker
        try:
            for _ in range(GATHER_AHEAD):
                for number in range(begin, begin + self.size):
                    ask(number % self.size)
            while True:
                while not answered:
                    self.poll(TICK_S)
                call = answered.popleft()
                self._took(call)
                (answer,) = self.opened(call)
                new = yield call.members[0], answer
                if new is not None:
                    letter.rewrite(new)
                del calls[call.number]
                self._let_go(call)
                ask(call.members[0])
        finally:  # who stops listening keeps no memory of the workers
            answered.clear()
            for call in calls.values():
                self._let_go(call)
                if call.outcomes is None:  # and perhaps to be sent again
                    call.alone = True
                    letter.lend()
                    self._left.append(call)
            letter.give_back()

    def _finish_left(self) -> None:
        while self._left:
            self.wait(self._left.pop())

    def _let_go(self, call: Call) -> None:
        """Nobody reads, or will read, views of a call's answer."""
        call.copy, call.into = True, None
        if call.block is not None:
            self.crew.release(*call.block)

    def states(self) -> list[Any]:
        if None in self._states:  # one has none, and will say so
            self.all("state_dict")
        return [loads(state) for state in self._states if state is not None]

    def _took(self, call: Call) -> None:
        """A call's answers are the caller's now."""
        for member, state in zip(call.members, call.states, strict=True):
            self._states[member] = state

    def restore(self, states: Sequence[Any]) -> None:
        self._finish_left()  # what members still do of these is not to be done upon the new states
        self._states = [dumps(state) for state in states]
        self.crew.restore(self._states)

    def hand_on(self, state: Callable[[], object]) -> None:
        self.crew.known = state

    def counters(self) -> dict[str, float]:
        return {
            "cluster/replaced": float(self.crew.replaced),
            "cluster/refused": float(self.crew.refused),
            "cluster/sent": float(self.crew.sent + self.crew.relayed),
        }

    def close(self) -> None:
        self._left.clear()
        self.crew.close()

    def _feed(self) -> None:
        """Give waiting calls to the workers, so that all have as many, but not more than a moment's work."""
        told: dict[int, Seat] = {}
        while self._backlog and (seat := self.crew.turns.least()) is not None:
            self.crew.assign(seat, [self._next(seat)])
            told[seat.number] = seat
        for seat in told.values():
            self.crew.push(seat)

    def _next(self, seat: Seat) -> Call:
        """The call that has waited longest, for one of a worker's members."""
        call = self._backlog.popleft()
        call.members = [seat.members[call.number % len(seat.members)]]
        return call

    def wait(self, call: Call) -> None:
        """Until a call is answered."""
        while call.outcomes is None:
            self.poll(TICK_S)

    def opened(self, call: Call) -> list[Any]:
        """A call's answers by member, or the first error."""
        assert call.outcomes is not None
        for member, (fine, content) in zip(call.members, call.outcomes, strict=True):
            if not fine:
                raise self.crew.error(member, content)
        return [content for _, content in call.outcomes]

    def poll(self, timeout_s: float) -> None:
        """Take what has come, and give the free their next calls. Raises `MemberLost`."""
        self._feed()
        self.crew.poll(timeout_s)
        self._feed()
