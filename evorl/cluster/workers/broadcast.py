"""The driver's side of arrays that go to many workers on other hosts: one copy to each host, and none of what is there.

The arrays of a call that goes to everybody are a parcel. Each host has one worker that takes parcels for it
(`evorl.cluster.transport.broadcast_relay`), and the driver knows which of them holds what. Calls go to every worker
directly and say where its host has the arrays. Whatever goes wrong on the way (a worker on it dies, hangs or cannot be reached) the driver
notices by what is not confirmed, and sends call and arrays together, as it does with small ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from evorl.cluster.transport.broadcast_relay import HELD, Leg, branches, seal
from evorl.cluster.transport.connection import Letter
from evorl.cluster.transport.shared_memory import Pool
from evorl.cluster.workers.handle import Seat

log = logging.getLogger("evorl")

KEPT = 4  # parcels that every host keeps
LATE_S, SLOW = 1.0, 10e6  # a host has a parcel after so many seconds, and one for so many bytes

Send = Callable[[Seat, tuple[int, int, Sequence[Leg]], Letter], None]


@dataclass(slots=True)
class Porter:
    """The worker that takes parcels for its host."""

    seat: Seat
    life: int
    holds: dict[int, tuple[int, int]] = field(default_factory=dict)  # parcel -> file descriptor and block

    @property
    def there(self) -> bool:
        return self.seat.ready and self.seat.life == self.life


class Parcels:
    """What other hosts have, and what is on its way to them."""

    def __init__(self, pool: Pool, send: Send) -> None:
        self._pool, self._send = pool, send
        self._hosts: dict[str, dict[int, Seat]] = {}  # other than ours: its workers
        self._porters: dict[str, Porter] = {}
        self._kept: dict[int, tuple[int, Letter]] = {}  # by our block: number and arrays, the newest last
        self._numbers, self._trips = count(1), count(1)
        self._block: int | None = None  # of the parcel on its way
        self._from: dict[str, str | None] = {}  # from which host each gets it; None: from the driver
        self._awaited: set[str] = set()  # hosts that do not have it yet
        self._until = 0.0
        self._apart: set[str] = set()  # hosts that got nothing from others

    def arrived(self, seat: Seat) -> None:
        """A worker on another host."""
        self._hosts.setdefault(seat.host, {})[seat.number] = seat
        self._apart.discard(seat.host)

    def left(self, seat: Seat) -> set[str]:
        """It is gone, and with it what it kept and what it was to pass on: to these hosts, which wait no longer."""
        mates = self._hosts.get(seat.host, {})
        mates.pop(seat.number, None)
        if not mates:
            self._hosts.pop(seat.host, None)
        porter = self._porters.get(seat.host)
        if porter is None or porter.seat is not seat:
            return set()
        del self._porters[seat.host]
        waiting = {host for host in self._awaited if seat.host in self._way(host)}
        self._awaited -= waiting
        return waiting

    def _way(self, host: str | None) -> Iterator[str]:
        """The hosts through which a host gets the parcel, itself first."""
        while host is not None:
            yield host
            host = self._from[host]

    def known(self) -> Iterable[Letter]:
        """Letters whose arrays other hosts have, the newest first."""
        return [letter for _, letter in reversed(self._kept.values())] if self._hosts else ()

    # -------------------------------------------------------------- sending

    def ship(self, letter: Letter) -> None:
        """Have a letter's arrays brought to all hosts that do not have them."""
        if not self._hosts or letter.block is None:
            return
        number = self._keep(letter.block, letter)
        porters = {host: porter for host in self._hosts if (porter := self._porter(host)) is not None}
        lacking = {host: porter.seat for host, porter in porters.items() if number not in porter.holds}
        self._block, self._from, self._awaited = letter.block, {}, {*lacking}
        self._until = time.monotonic() + LATE_S + letter.size / SLOW
        apart = [host for host, seat in lacking.items() if host in self._apart or not seat.door.address]
        tree = branches([host for host in lacking if host not in apart])
        trip = next(self._trips)
        for host, beyond in [*tree, *((host, ()) for host in apart)]:
            self._note(None, host, beyond)
            seats = [lacking[further] for further in beyond]
            legs = [Leg(seat.door, seal(seat.secret, trip, number)) for seat in seats]
            self._send(lacking[host], (number, trip, legs), letter)

    def _note(self, former: str | None, host: str, beyond: Sequence[str]) -> None:
        self._from[host] = former
        for further, rest in branches(beyond):
            self._note(host, further, rest)

    def _porter(self, host: str) -> Porter | None:
        """Who takes a host's parcels; another one where the former is gone."""
        porter = self._porters.get(host)
        if porter is None or not porter.there:
            self._porters.pop(host, None)
            seat = next((one for one in self._hosts[host].values() if one.ready), None)
            if seat is not None:
                self._porters[host] = Porter(seat, seat.life)
        return self._porters.get(host)

    def _keep(self, block: int, letter: Letter) -> int:
        """The parcel's number; the oldest of many is forgotten everywhere."""
        if block in self._kept:
            self._kept[block] = self._kept.pop(block)
        else:
            self._pool.lend(block)
            self._kept[block] = next(self._numbers), letter
        while len(self._kept) > KEPT:
            oldest = next(iter(self._kept))
            number, _ = self._kept.pop(oldest)
            self._pool.give(oldest)
            for porter in self._porters.values():
                if (place := porter.holds.pop(number, None)) is not None and porter.there:
                    porter.seat.released.append(place[1])
        return self._kept[block][0]

    # -------------------------------------------------------------- what has come of it

    def confirmed(self, seat: Seat, number: int, fd: int, block: int) -> None:
        """A worker has a parcel."""
        porter = self._porters.get(seat.host)
        wanted = number in {one for one, _ in self._kept.values()}
        if porter is None or porter.seat is not seat or not wanted or number in porter.holds:
            seat.released.append(block)
            return
        porter.holds[number] = fd, block
        if self._block is not None and self._kept.get(self._block, (0,))[0] == number:
            self._awaited.discard(seat.host)

    def late(self) -> set[str]:
        """Hosts that are not waited for any more. One that another had the parcel for gets the next from the driver."""
        if not self._awaited or time.monotonic() < self._until:
            return set()
        late, self._awaited = self._awaited, set()
        unreached = {host for host in late if (former := self._from[host]) is not None and former not in late}
        if unreached - self._apart:
            log.warning("%d hosts get nothing from other hosts' workers: sent to directly", len(unreached))
        self._apart |= unreached
        return late

    def mates(self, host: str) -> list[Seat]:
        return [*self._hosts.get(host, {}).values()]

    def awaited(self, seat: Seat, letter: Letter) -> bool:
        """Whether a letter's arrays are on their way to a worker's host."""
        return letter.block is not None and letter.block == self._block and seat.host in self._awaited

    def place(self, seat: Seat, letter: Letter) -> bytes:
        """Where a worker finds a letter's arrays on its host; nothing where they are not there."""
        porter = self._porters.get(seat.host)
        number, _ = self._kept.get(letter.block, (0, None)) if letter.block is not None else (0, None)
        if porter is None or not porter.there or number not in porter.holds:
            return b""
        return HELD.pack(porter.seat.pid, porter.holds[number][0])

    def close(self) -> None:
        self._kept.clear()
