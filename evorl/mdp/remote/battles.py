"""The battles of an arena: where each is played, what was sent to it, and what happens when it is lost.

Letters in shapes: G games, each with one battle at a time; B slots, P of each game; n rows; K action components.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.remote.connection import Connection
from evorl.mdp.remote.messages import Cut, Nonsense, Unplayable
from evorl.mdp.remote.offer import Rows
from evorl.mdp.remote.server import GameServer
from evorl.mdp.remote.truth import every
from evorl.util.seed import Episodes, seed31

LOG = logging.getLogger("evorl")
PAUSES_S = (0.0, 1.0)
"""Seconds before a battle that failed once, twice, ... begins again. One failure more ends the run."""
MAX_LOSSES = 20
"""Losses of a battle, without coming further, that end the run even if it may not have caused them."""
LOOK_S = 1.0
"""Seconds between two looks at battles that are silent or pause."""
AWAY_S = 0.1
"""Seconds between two polls that count as silence. While evorl computes for longer, nothing can be heard."""


class HearingClock:
    """Seconds in which messages of games could be received: those of polls, and `AWAY_S` at most between two calls."""

    def __init__(self) -> None:
        self._last, self._away, self._allowed = time.monotonic(), 0.0, AWAY_S

    def __call__(self) -> float:
        moment = time.monotonic()
        self._away += max(moment - self._last - self._allowed, 0.0)
        self._last, self._allowed = moment, AWAY_S
        return moment - self._away

    def allow(self, seconds: float) -> None:
        """What follows is a wait of so many seconds, which count."""
        self._allowed = seconds + AWAY_S


@dataclass
class Match:
    """A game of the arena, with one battle at a time."""

    index: int
    number: int = 0
    """Of the present episode."""
    place: tuple[Connection, int] | None = None
    due: float | None = 0.0
    """When the battle begins again; None while it is played, or waits for a place."""
    failures: int = 0
    """Times that the present episode was lost by what it may have done itself, without coming further."""
    losses: int = 0
    """Times that it was lost in any way, without coming further."""
    furthest: int = -1
    """Decisions after which it was lost."""

    def next_episode(self) -> None:
        self.number += 1
        self.failures, self.losses, self.furthest = 0, 0, -1


class Battles:
    """Receives the rows of its battles in ``inbox``, and what was lost in ``lost``, while its server is polled."""

    def __init__(
        self, server: GameServer, slots: int, sides: int, episodes: Episodes,
        players: Callable[[int], tuple[int, ...]], deadline_s: float,
    ) -> None:  # fmt: skip
        self._server, self._offer, self._sides = server, server.offer, sides
        self._episodes, self._players, self._deadline_s = episodes, players, deadline_s
        self.inbox: list[tuple[Array, Rows]] = []
        self.lost: list[tuple[int, str, bool]] = []
        self.games = [Match(index) for index in range(slots // sides)]
        self.sent = np.zeros(slots, np.int64)  # actions of the present attempt at the episode
        self.asked = np.zeros(slots, np.bool_)  # by the game, in the present attempt
        self._game = np.arange(slots) // sides  # of each slot
        self._clock = HearingClock()
        self._look = 0.0  # when silent battles are looked for again
        self._since = np.zeros(slots // sides)  # when each game last spoke, or was spoken to
        self._moment = np.zeros(slots // sides)  # the same by the clock of connections, which does not rest
        self._last = np.zeros(slots // sides, np.int64)  # the number of the last message to each game
        self._seat = np.zeros(slots, np.int64)  # of each slot, in its connection
        self._room = np.full(slots, -1)  # where in `_rooms` its connection is
        self._rooms: dict[int, Connection] = {}
        self._next_room = 0
        self._only = -1  # the room of all slots, if it is the same
        self.over = np.zeros(slots, np.bool_)  # the side's episode has ended, in the present attempt
        self._pausing = True  # some battle is due, or will be
        self._losses: dict[str, int] = {}  # losses since `tell`, by their reason

    def game_of(self, slot: int) -> Match:
        return self.games[slot // self._sides]

    def slots_of(self, match: Match) -> range:
        return range(match.index * self._sides, (match.index + 1) * self._sides)

    # -------------------------------------------------------------- beginning and leaving

    def begin(self, match: Match) -> None:
        """Begin the episode of a game, at its place or as soon as it has one."""
        match.due = None
        if match.place is None:
            self._server.request(self, match.index, lambda connection, place: self._start(match, connection, place))
            return
        try:
            self._start(match, *match.place)
        except (Cut, Nonsense) as error:
            self._server.cut(match.place[0], str(error), broke=isinstance(error, Cut))

    def _start(self, match: Match, connection: Connection, place: int) -> None:
        seed = int(self._episodes(match.index, match.number))
        players, slots = self._players(seed), self.slots_of(match)
        match.place = connection, place
        part = slice(slots.start, slots.stop)
        self._room[part] = self._room_of(connection)
        self.sent[part], self.asked[part], self.over[part] = 0, False, False
        self._only = int(self._room[0]) if every(self._room == self._room[0]) else -1
        self._note(match.index)
        self._seat[part] = connection.begin(place, seed31(seed), players, slots)
        self._last[match.index] = connection.said

    def _room_of(self, connection: Connection) -> int:
        """The number of a connection's room: its own, or a new one."""
        number = next((number for number, room in self._rooms.items() if room is connection), self._next_room)
        self._next_room = max(self._next_room, number + 1)
        self._rooms[number] = connection
        return number

    def leave(self, match: Match) -> None:
        """End the battle of a game, which keeps its place."""
        if match.place is not None:
            try:
                match.place[0].leave(match.place[1])
            except Cut as error:
                self._server.cut(match.place[0], str(error), broke=isinstance(error, Cut))

    def close(self) -> None:
        """Give back all places."""
        self._server.withdraw(self)
        for match in self.games:
            self.leave(match)
            if match.place is not None:
                match.place[0].free(match.place[1])
            match.place = None
        self.inbox, self.lost = [], []

    # -------------------------------------------------------------- playing

    def act(self, slots: Array, actions: Array) -> None:
        """Send the next actions [n, K] of slots that have asked. What cannot be sent is lost, which `lost` tells."""
        self.sent[slots] += 1
        self.asked[slots] = False
        self._note(games := self._game[slots])
        if self._only >= 0:
            self._act(self._only, games, self._seat[slots], actions)
            return
        room = self._room[slots]
        for number in np.unique(room).tolist():
            there = room == number
            self._act(number, games[there], self._seat[slots[there]], actions[there])

    def _act(self, room: int, games: Array, seats: Array, actions: Array) -> None:
        if room < 0:
            return
        try:
            self._rooms[room].act(seats, actions)
            self._last[games] = self._rooms[room].said
        except Cut as error:
            self._server.cut(self._rooms[room], str(error), broke=True)

    def hear(self, slots: Array, over: Array) -> None:
        """Note that slots have asked, or that their episodes are ``over``."""
        self._note(self._game[slots])
        self.asked[slots] = ~over
        self.over[slots] = over

    def _note(self, games: int | Array) -> None:
        """Note that games speak, or are spoken to."""
        self._since[games], self._moment[games] = self._clock(), time.monotonic()

    def settled(self, slots: list[int]) -> list[int]:
        """Return the slots whose games are known to send no more rows until they get an answer.

        Otherwise, while a game still works on the answer to one side, chance would decide whether another side is seen.
        """
        if not self._offer.hello.repeats or self._sides == 1:
            return slots
        if self._only >= 0 and self._rooms[self._only].heard == self._rooms[self._only].said:
            return slots
        heard = {number: room.heard for number, room in self._rooms.items()} | {-1: -1}
        return [slot for slot in slots if heard[int(self._room[slot])] >= self._last[slot // self._sides]]

    @property
    def playing(self) -> bool:
        """Whether every game has a battle, or one that waits for its first row."""
        return all(match.place is not None and match.due is None for match in self.games)

    def poll(self) -> None:
        """Wait until something arrives, at most until the next look at battles that are silent or pause."""
        moment = self._clock()
        if self._pausing or moment >= self._look:
            self._look = self._look_after(moment)
        wait = max(self._look - moment, 0.0)
        self._clock.allow(wait)
        self._server.poll(wait)

    def poll_now(self) -> None:
        """Take what has arrived, without waiting."""
        self._server.poll(0)

    def _look_after(self, moment: float) -> float:
        """Begin battles whose pause is over, end those that are silent; return the time of the next look."""
        soonest, self._pausing = moment + min(self._deadline_s, LOOK_S), False
        for match in self.games:
            if match.due is not None and match.due <= time.monotonic():
                self.begin(match)
            elif match.due is not None:
                soonest, self._pausing = min(soonest, moment + match.due - time.monotonic()), True
            elif match.place is not None and self._owes(match, *match.place):
                late = float(self._since[match.index]) + self._deadline_s
                if late <= moment:
                    self._silence(match)
                else:
                    soonest = min(soonest, late)
        return soonest

    def _owes(self, match: Match, connection: Connection, place: int) -> bool:
        """Whether a game must speak before its slots go on.

        No side of its waits, or one does that is not `settled`, or another has not asked since the battle began: a
        learner needs the first state of each side before it decides for any.
        """
        return not connection.waits(place) or self._unheard(match, connection) or bool(self._unasked(match))

    def _unasked(self, match: Match) -> list[int]:
        """The slots of a game whose sides have not asked since its battle began."""
        return [slot for slot in self.slots_of(match) if not (self.asked[slot] or self.sent[slot] or self.over[slot])]

    def _unheard(self, match: Match, connection: Connection) -> bool:
        heeds = self._offer.hello.repeats and self._sides > 1
        return heeds and connection.heard < int(self._last[match.index])

    def _silence(self, match: Match) -> None:
        """Lose a battle that owes a row for too long; its whole connection if that has said nothing since, either.

        How long ago a connection spoke would not tell: during an evaluation its other battles wait for evorl.
        """
        assert match.place is not None
        connection, place = match.place
        why = f"said nothing for {self._deadline_s:g} s"
        if connection.waits(place) and (unasked := self._unasked(match)):
            players = self._players(int(self._episodes(match.index, match.number)))
            side = self._offer.hello.sides[players[unasked[0] % self._sides]]
            why = f"has not asked for {side} for {self._deadline_s:g} s"
            self.reject(match, f"{why}: each side asks when a battle begins, also in games of turns")
            return
        if connection.waits(place):
            why = f"has not said for {self._deadline_s:g} s that it has heard all answers (heard)"
        if connection.spoke <= self._moment[match.index]:
            self._server.cut(connection, why)
        else:
            self.reject(match, f"{why} of this battle")

    # -------------------------------------------------------------- what is lost

    def reject(self, match: Match, why: str) -> None:
        """Lose the battle of a game, whose connection stays."""
        if match.place is not None:
            self.leave(match)
            self.lost.append((match.index, f"{match.place[0].name} {why}", False))

    def take_lost(self) -> dict[int, tuple[str, bool]]:
        """Each lost game once, though several of its rows may be bad: why at first, whether its connection is gone."""
        lost: dict[int, tuple[str, bool]] = {}
        for game, why, gone in self.lost:
            first, before = lost.get(game, (why, False))
            lost[game] = first, before or gone
        self.lost = []
        return lost

    def lose(self, match: Match, why: str, gone: bool, decisions: int) -> None:
        """Count the loss of a battle after so many decisions, and let it begin again. ``gone``: so is its connection.

        A game that repeats itself goes on from there, so only losses without progress count. A battle may have broken
        its connection if it had come as far as ever before. Raises `Unplayable`.
        """
        slots = self.slots_of(match)
        if gone:
            match.place, self._room[slots.start : slots.stop], self._only = None, -1, -1
            self._rooms = {number: room for number, room in self._rooms.items() if (self._room == number).any()}
        repeats = self._offer.hello.repeats
        if repeats and decisions > match.furthest >= 0:
            match.failures = match.losses = 0
        match.furthest = max(match.furthest, decisions)
        own = not gone or (repeats and int(self.sent[slots].sum()) >= match.furthest)
        match.failures, match.losses = match.failures + own, match.losses + 1
        if match.failures > len(PAUSES_S) or match.losses == MAX_LOSSES:
            key = int(self._episodes(match.index, match.number))
            raise Unplayable(
                f"{self._offer.hello.game}: the battle of slot {slots[0]} with the episode key {key} was lost "
                f"{match.losses} times; at last {why}"
            )
        pause = PAUSES_S[max(match.failures - 1, 0)]
        match.due, self._pausing = time.monotonic() + pause, True
        self._losses[why] = self._losses.get(why, 0) + 1

    def tell(self) -> None:
        """Log what was lost since the last call, one line for each reason."""
        for why, times in self._losses.items():
            how = "are played again up to where they were" if self._offer.hello.repeats else "begin anew"
            LOG.warning("%s: %d of %d battles %s", why, times, len(self.games), how)
        self._losses.clear()
