"""One game that has said hello: the battles that it plays, and who waits for their rows.

A *seat* is one side of the battle at a place: place * sides + side. Tables by seat need one lookup instead of two.

A battle has a place of its connection. Its number tells the place and is never used again, so what a game still says of
a battle that was left cannot be taken for the next one.
"""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.remote.link import Link
from evorl.mdp.remote.messages import MAX_WHY, Act, Ask, Begin, Failed, Leave, Nonsense, encoded, read
from evorl.mdp.remote.offer import Offer, Rows
from evorl.mdp.remote.truth import every, some
from evorl.util.text import printable


class Receiver(Protocol):
    """An arena whose games are battles of connections."""

    inbox: list[tuple[Array, Rows]]
    """Slots, and their rows, that have arrived."""

    lost: list[tuple[int, str, bool]]
    """Games that were lost, why, and whether their connection was lost with them."""


class Connection:
    def __init__(self, link: Link, offer: Offer, name: str) -> None:
        self.link, self.offer, self.name = link, offer, name
        self.capacity, sides = offer.hello.battles, len(offer.hello.sides)
        self._owners: list[tuple[Receiver, int] | None] = [None] * self.capacity
        self._whose = np.zeros(self.capacity, np.int64)  # the id of the owner of each place
        self._number = np.full(self.capacity, -1)  # of the battle at each place
        self._begun = np.zeros(self.capacity, np.int64)  # battles so far
        self._sides = sides
        self._slots = np.full((self.capacity, sides), -1)
        self._owed = np.zeros((self.capacity, sides), np.bool_)  # sides whose next rows are to come
        self._slot, self._owes = self._slots.reshape(-1), self._owed.reshape(-1)  # the same by seat
        self._battle = np.zeros(self.capacity * sides, "<u4")  # of each seat, as they are sent
        self._side = np.tile(np.arange(sides, dtype="u1"), self.capacity)
        self._ends: dict[int, Rows] = {}  # of seats whose episodes have ended before evorl's answer
        self.spoke = time.monotonic()
        """When it last said something, by `time.monotonic`."""
        self.said = self.heard = 0
        """Messages that it was sent, and those that came before its last rows."""
        self.played = False
        """Whether it has sent a row of a battle."""

    # -------------------------------------------------------------- places

    @property
    def used(self) -> int:
        return self.capacity - self._owners.count(None)

    def take(self, owner: Receiver, game: int) -> int:
        """Give a free place to a game of an arena."""
        place = self._owners.index(None)
        self._owners[place], self._whose[place] = (owner, game), id(owner)
        return place

    def free(self, place: int) -> None:
        """Take back a place whose battle was left."""
        self._owners[place] = None

    def owned(self) -> list[tuple[Receiver, int]]:
        return [owner for owner in self._owners if owner is not None]

    # -------------------------------------------------------------- to the game

    def begin(self, place: int, seed: int, players: tuple[int, ...], slots: range) -> Array:
        """Begin a battle at a place, in which these slots decide for ``players``; return their seats."""
        number = int(self._begun[place]) * self.capacity + place
        if number >= 1 << 32:
            raise Nonsense("has played as many battles as there are numbers")
        self._number[place], self._slots[place], self._owed[place] = number, -1, False
        seats = place * self._sides + np.array(players)
        self._slot[seats], self._owes[seats], self._battle[seats] = slots, True, number
        self._begun[place] += 1
        self._send(Begin(number, seed, players))
        return seats

    def leave(self, place: int) -> None:
        """End the battle at a place, if there is one."""
        number = int(self._number[place])
        if number >= 0:
            self._number[place] = self._slots[place] = -1
            self._owed[place] = False
            self._ends = {seat: row for seat, row in self._ends.items() if seat // self._sides != place}
            self._send(Leave(number))

    def act(self, seats: Array, actions: Array) -> None:
        """Answer seats [n] with actions [n, K]; those whose episodes have ended get their ends instead."""
        if self._ends:
            ended = [(seat, self._ends.pop(seat, None)) for seat in seats.tolist()]
            for seat, row in ended:
                if row is not None:
                    self._end(seat, row)
            wait = np.array([row is None for _, row in ended])
            seats, actions = seats[wait], actions[wait]
            if not len(seats):
                return
        self._owes[seats] = True
        sent = np.ascontiguousarray(actions, self.offer.sent_dtype)
        self._send(Act(self._battle[seats].tobytes(), self._side[seats].tobytes(), sent.tobytes()))

    def _send(self, message: Begin | Act | Leave) -> None:
        self.said += 1
        self.link.send(encoded(message))

    def waits(self, place: int) -> bool:
        """Whether the game waits for evorl at a place."""
        return some((self._slots[place] >= 0) & ~self._owed[place])

    # -------------------------------------------------------------- from the game

    def receive(self) -> None:
        """Pass on what has arrived. Raises `Cut`, `Nonsense`."""
        asks = list[Ask]()
        self.spoke = time.monotonic()
        for frame in self.link.receive():
            message = read(frame)
            if isinstance(message, Failed):
                why = printable(message.why[:MAX_WHY])
                self._lose(message.battle % self.capacity, message.battle, f"gave up: {why}")
            elif not self.heard <= message.heard <= self.said:
                raise Nonsense(f"has heard {message.heard} messages, of {self.said} that it was sent")
            else:
                self.heard = message.heard
                asks.append(message)
        if asks and len((rows := self.offer.rows(asks)).side):
            self._deliver(rows)
        self.link.check_open()

    def _deliver(self, rows: Rows) -> None:
        number = rows.battle.astype(np.int64)
        place = number % self.capacity
        if not every(current := self._number[place] == number):
            if some(number // self.capacity >= self._begun[place]):
                raise Nonsense("spoke of a battle that was not begun")
            rows, number, place = rows.take(current), number[current], place[current]  # the others were left
            if not len(place):
                return
        if faults := self.offer.faults(rows):
            for row, why in faults:
                self._lose(int(place[row]), int(number[row]), f"sent a row that cannot be used: {why}")
            good = self._number[place] == number
            rows, number, place = rows.take(good), number[good], place[good]
        if not len(place):
            return
        if some(unknown := rows.side >= self._sides):
            raise Nonsense(f"spoke for side {rows.side[unknown].max()}; it has {self._sides}")
        seats = place * self._sides + rows.side
        if some(rows.end):
            late = self._keep_ends(rows, seats)
            rows, place, seats = rows.take(late), place[late], seats[late]
        self.played = True
        if not len(place):
            return
        slots = self._slots_that_owe(seats, rows.side)
        if some(rows.end):
            self._slot[seats[rows.end != Ask.GOES_ON]] = -1
        self._pass_on(place, slots, rows)

    def _keep_ends(self, rows: Rows, seats: Array) -> Array:
        """Keep the ends of sides that wait for evorl's answer until it is there; return which rows are others, [n].

        In real time a game ends while the learner learns. The end is then what came of the decision to be made.
        """
        over = rows.end != Ask.GOES_ON
        owes = self._owes[seats] & ~np.isin(seats, seats[~over])  # and has not asked in these rows
        early = over & ~owes & (self._slot[seats] >= 0)
        for at in np.flatnonzero(early).tolist():
            seat = int(seats[at])
            if seat in self._ends or some(seats[at + 1 :] == seat):
                raise Nonsense(f"spoke for side {rows.side[at]} of a battle, which has ended")
            self._ends[seat] = rows.take(np.array([at]))
        late: Array = ~early
        return late

    def _end(self, seat: int, row: Rows) -> None:
        """Pass on a row that was kept."""
        slot, self._slot[seat] = self._slot[seat], -1
        self._pass_on(np.array([seat // self._sides]), np.array([slot]), row)

    def _slots_that_owe(self, seats: Array, side: Array) -> Array:
        """Return the slots [n] of sides that speak. Raises `Nonsense` if one of them owes nothing."""
        slots: Array = self._slot[seats]
        owed = np.count_nonzero(self._owes)
        self._owes[seats] = False
        if owed - np.count_nonzero(self._owes) != len(seats):
            if some(slots < 0):
                which = side[slots < 0][0]
                raise Nonsense(f"spoke for side {which} of a battle, which has ended or is its own to decide")
            raise Nonsense("asked for a side that waits for an answer already")
        return slots

    def _pass_on(self, place: Array, slots: Array, rows: Rows) -> None:
        """Give each owner its rows."""
        owner = self._owners[int(place[0])]
        assert owner is not None
        if every(mine := self._whose[place] == id(owner[0])):
            owner[0].inbox.append((slots, rows))
            return
        owner[0].inbox.append((slots[mine], rows.take(mine)))
        self._pass_on(place[~mine], slots[~mine], rows.take(~mine))

    def _lose(self, place: int, number: int, why: str) -> None:
        """Report to the owner of a battle that it is lost; the connection stays."""
        owner = self._owners[place]
        if owner is not None and self._number[place] == number:
            self.leave(place)
            owner[0].lost.append((owner[1], f"{self.name} {why}", False))
