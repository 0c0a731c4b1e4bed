"""The workers of a group: what each has to do, and who replaces the ones that die.

A worker takes its calls in order, and may be sent some ahead of their answers. Beside each answer a member sends its
state; a worker that dies or hangs is replaced, its members are made again in their last known state, and what it had
not answered is sent again. So a call is answered once, whatever happens in between.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

import zmq

from evorl.cluster.absence import TICK_S, Absence
from evorl.cluster.blame import NOTHING, blame
from evorl.cluster.core import MemberError
from evorl.cluster.gate import Gate, guard
from evorl.cluster.launch import Exit, Launcher
from evorl.cluster.line import Letter, Line, bulk, messages
from evorl.cluster.memory import Pool, Reader
from evorl.cluster.parcels import Parcels
from evorl.cluster.relay import Stop
from evorl.cluster.seats import MOST_AHEAD, Call, Seat
from evorl.cluster.turns import Turns
from evorl.cluster.wire import MOST_FRAME, Bulk, Failure, Header, Kind, ProtocolError, check_outcomes, unpack

log = logging.getLogger("evorl")

FAREWELL_S = 1.0  # for the members of a group to close
MOST_AT_ONCE = 1000  # messages read before the driver looks at anything else
GRACE_S = 0.05  # for signs that are on their way, before a worker is killed for giving none
DYING_S = 5.0  # that a killed process gets until it is given up


class Crew:
    """The processes of a launcher, and the socket they are reached by. Member m lives in seat m mod seats."""

    def __init__(self, launcher: Launcher, size: int, deadline_s: float, plain: Sequence[type[Exception]]) -> None:
        self.launcher, self.deadline_s = launcher, deadline_s
        self._refused = 0  # messages that were none of ours
        self.replaced = 0  # workers
        self.states: list[bytes | None] = [None] * size  # of each member, packed
        self.pool = Pool()
        self.parcels = Parcels(self.pool, self._send_parcel)
        self.sent_away = self.relayed = 0  # bytes of arrays to other hosts: by this process, and by its workers
        self._plain = {one.__name__: one for one in plain}
        self._token = secrets.token_bytes(16)
        self._absence, begun = Absence(), time.monotonic()
        workers = min(launcher.workers, size)
        self.seats = [
            Seat(w, list(range(w, size, workers)), Line(self._token, w, 0), since=begun) for w in range(workers)
        ]
        self._named = {seat.name: seat for seat in self.seats}
        self._making = {seat.number for seat in self.seats}  # whose members are not made yet
        self.turns = Turns[Seat](MOST_AHEAD)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._gate: Gate | None = None
        try:
            self._open()
            for seat in self.seats:
                launcher.start(self._token, seat.number, seat.life)
            self._gather_all()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._socket.linger = 0
        self._socket.sndhwm = 0  # bounded by the calls under way
        self._socket.rcvhwm = MOST_AT_ONCE  # of each worker; more wait on its side
        self._socket.maxmsgsize = MOST_FRAME
        self._socket.router_mandatory = True
        guard(self._socket)
        keys = self.launcher.bind(self._socket)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._gate = Gate(self._context, self._token, keys)
        self._poller.register(self._gate.socket, zmq.POLLIN)
        if self.launcher.watch is not None:
            self._poller.register(self.launcher.watch, zmq.POLLIN)

    def _gather_all(self) -> None:
        while self._making:
            self.poll(TICK_S)

    def seat(self, member: int) -> Seat:
        return self.seats[member % len(self.seats)]

    def restore(self, states: list[bytes | None]) -> None:
        """Make every member again, in the given state."""
        self._gather_all()  # a worker that is just being replaced would make its members twice
        self.states = [*states]
        for seat in self.seats:
            self._adopt(seat)
        self._gather_all()

    @property
    def refused(self) -> int:
        """Messages and connections that were none of ours."""
        return self._refused + (0 if self._gate is None else self._gate.refused)

    def close(self) -> None:
        """Ask the workers to end, so that their members can close; who does not is ended."""
        if self._socket.closed:
            return
        ending = {(seat.number, seat.life) for seat in self.seats if seat.ready}
        for seat in self.seats:
            if seat.ready:
                self._send(seat, Kind.STOP, None, Letter(None))
        ends = time.monotonic() + FAREWELL_S
        while ending and time.monotonic() < ends:
            zmq.select([] if self.launcher.watch is None else [self.launcher.watch], [], [], TICK_S)
            ending -= {(gone.worker, gone.life) for gone in self.launcher.exits()}
        self.launcher.close()
        if self._gate is not None:
            self._gate.close()
        self._socket.close()
        self._context.term()
        self.parcels.close()
        self.pool.close()
        for seat in self.seats:
            seat.reader = None
            seat.sent.clear()
            seat.unsent.clear()

    # -------------------------------------------------------------- sending

    def dispatch(self, seat: Seat, calls: Sequence[Call]) -> None:
        self.assign(seat, calls)
        self.push(seat)

    def assign(self, seat: Seat, calls: Sequence[Call]) -> None:
        """Give calls to a worker that has yet to be told: see `push`."""
        seat.sent.extend(calls)
        seat.unsent.extend(calls)
        self.turns.note(seat)

    def push(self, seat: Seat) -> None:
        """Send what waits to be sent, if its worker is there, up to what has arrays on their way to its host."""
        if not seat.ready:
            return
        if not seat.told:
            seat.since = time.monotonic()
        calls = []
        while seat.unsent and not self._awaited(seat, seat.unsent[0]):
            calls.append(seat.unsent.popleft())
            if seat.host == self.launcher.host:
                calls[-1].lend(self.pool)
        parts = (((one.number, one.method, one.members, one.stateful), one.letter) for one in calls)
        for envelopes, letter in messages(parts):
            released, seat.released = seat.released, []
            place = b"" if envelopes[0][0] == seat.lacks else self.parcels.place(seat, letter)
            self._send(seat, Kind.CALL, (released, envelopes), letter, place)

    def _awaited(self, seat: Seat, call: Call) -> bool:
        return call.number != seat.lacks and self.parcels.awaited(seat, call.letter)

    def _send_parcel(self, seat: Seat, envelope: object, letter: Letter) -> None:
        self._send(seat, Kind.PARCEL, envelope, letter.arrays())

    def _send(self, seat: Seat, kind: Kind, envelope: object, letter: Letter, place: bytes = b"") -> None:
        near = seat.host == self.launcher.host
        frames = seat.line.pack(kind, envelope, letter, near, place)
        self.sent_away += 0 if near or place else letter.size
        try:
            self._socket.send_multipart([seat.name, *frames])
        except zmq.ZMQError as error:  # it is gone; its exit will say so
            if error.errno != zmq.EHOSTUNREACH:
                raise
            seat.line.sent -= 1  # one that has yet to come counts from its own first message

    def release(self, seat: Seat, life: int, block: int) -> None:
        """Views of a worker's block are no longer read: it may write there again."""
        if life == seat.life:
            seat.released.append(block)

    # -------------------------------------------------------------- receiving

    def error(self, member: int, content: Failure) -> Exception:
        kinds, message, trace = content
        plain = next((self._plain[kind] for kind in kinds if kind in self._plain), None)
        if plain is None:
            return MemberError(member, kinds[0], message, trace)
        found = plain(message)
        found.add_note(f"raised by member {member}:\n{trace}".rstrip())
        return found

    def poll(self, timeout_s: float) -> None:
        """Take what has come, replace who is gone. Raises `MemberLost`."""
        self._hear(timeout_s)
        self._look()

    def _hear(self, timeout_s: float) -> None:
        ready = dict(self._poller.poll(round(timeout_s * 1000)))
        if self._gate is not None and self._gate.socket in ready:
            self._gate.answer()
        if self._socket in ready:
            self._drain()
        if self.launcher.watch is None or self.launcher.watch in ready:
            self._bury()

    def _drain(self) -> None:
        for _ in range(MOST_AT_ONCE):
            if not self._receive():
                return

    def _receive(self) -> bool:
        try:
            identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        try:
            self._take(identity, frames)
        except ProtocolError as error:
            self._refused += 1
            log.debug("refused a message: %.200s", error)
        return True

    def _take(self, identity: bytes, frames: list[bytes]) -> None:
        seat = self._named.get(identity)
        if seat is None:
            raise ProtocolError(f"{identity!r} is no worker of ours")
        header = seat.line.check(frames)
        if header.kind == Kind.HELLO:
            self._greeted(seat, header, unpack(frames[1], form=tuple[int, str, str, str]))
        elif header.kind == Kind.ANSWER:
            self._answered(seat, header, frames)
        elif header.kind == Kind.BUSY:
            seat.line.accept(header)
            seat.since = time.monotonic()
        elif header.kind == Kind.KEPT:
            self._confirmed(seat, header, unpack(frames[1], form=tuple[int, int, int, int, int]))
        elif header.kind == Kind.LACK:
            self._lacked(seat, header, unpack(frames[1], form=int))
        else:
            raise ProtocolError(f"a worker does not send {header.kind.name}")

    def _greeted(self, seat: Seat, header: Header, whence: tuple[int, str, str, str]) -> None:
        pid, host, address, key = whence
        if seat.host or not 0 < pid < 1 << 31 or not host:
            raise ProtocolError("a worker says once which process it is, and where")
        seat.line.accept(header)
        seat.host, seat.pid, seat.stop = host, pid, Stop(seat.number, seat.life, address, key)
        if host == self.launcher.host:
            seat.reader = Reader(pid)
        else:
            self.parcels.arrived(seat)
        self._adopt(seat)

    def _confirmed(self, seat: Seat, header: Header, said: tuple[int, int, int, int, int]) -> None:
        """A worker keeps a parcel for its host."""
        number, fd, block, refused, relayed = said
        if not 0 <= fd < 1 << 31 or min(block, refused, relayed) < 0 or not seat.host:
            raise ProtocolError(f"a parcel at {fd}, {block}")
        seat.line.accept(header)
        self._refused += refused
        self.relayed += relayed
        self.parcels.confirmed(seat, number, fd, block)
        self._push_all(seat.host)

    def _push_all(self, host: str) -> None:
        for mate in self.parcels.mates(host):
            self.push(mate)

    def _lacked(self, seat: Seat, header: Header, number: int) -> None:
        """The arrays of a call were gone before they could be read: from this call on all have to come again."""
        told = [*islice(seat.sent, seat.told)]
        if not seat.ready or number == seat.lacks or number not in [call.number for call in told]:
            raise ProtocolError(f"call {number} is none of its own, or came with its arrays")
        seat.line.accept(header)
        seat.lacks = number
        again = [call for call in told if call.number >= number]
        seat.unsent.extendleft(reversed(again))
        self.push(seat)

    def _adopt(self, seat: Seat) -> None:
        self._unmake(seat)
        self._send(seat, Kind.ADOPT, os.getpid(), Letter([(member, self.states[member]) for member in seat.members]))

    def _unmake(self, seat: Seat) -> None:
        """Nothing can be asked of its members before they are made."""
        seat.ready, seat.since = False, time.monotonic()
        self._making.add(seat.number)
        self.turns.note(seat)

    def _answered(self, seat: Seat, header: Header, frames: list[bytes]) -> None:
        """Read answers wholly before heeding them: a message that is refused changes nothing."""
        heads = unpack(frames[1], form=list[tuple[int, list[bytes | None]]])
        calls = seat.answered([number for number, _ in heads])
        memory, block = bulk(header, frames, seat.reader)
        copy = calls[0].copy or header.bulk != Bulk.SHARED  # what the message itself holds is read-only
        bodies = unpack(frames[2], memory, copy, list[list[tuple[bool, Any]]])
        if len(bodies) != len(calls) or (header.size and len(calls) > 1):
            raise ProtocolError(f"{len(bodies)} answers to {len(calls)} calls, with {header.size} bytes of arrays")
        for call, (_, states), outcomes in zip(calls, heads, bodies, strict=True):
            check_outcomes(outcomes, len(call.members))
            if len(states) != len(call.members):
                raise ProtocolError(f"{len(states)} states of {len(call.members)} members")
        seat.line.accept(header)
        seat.pace += 0.2 * ((time.monotonic() - seat.since) / len(calls) - seat.pace)
        if block is not None and not calls[0].copy:
            calls[0].block = (seat, seat.life, block)
        elif block is not None:
            seat.released.append(block)
        for call, (_, states), outcomes in zip(calls, heads, bodies, strict=True):
            self._settle(seat, call, states, outcomes)
        seat.since = time.monotonic()
        self.turns.note(seat)

    def _settle(self, seat: Seat, call: Call, states: list[bytes | None], outcomes: list[Any]) -> None:
        if call.number == 0:
            self._adopted(seat, states, outcomes)
            return
        seat.sent.popleft()
        seat.past.answered += 1
        call.outcomes, call.states = outcomes, states
        if call.into is not None:
            call.into.append(call)
        call.give_back(self.pool)
        for member, state in zip(call.members, states, strict=True):
            if state is not None:
                self.states[member] = state

    def _adopted(self, seat: Seat, states: list[bytes | None], outcomes: list[Any]) -> None:
        """Its members are made: go on where the former worker stopped."""
        for member, state, (fine, content) in zip(seat.members, states, outcomes, strict=True):
            if not fine:
                raise self.error(member, content)
            self.states[member] = state
        seat.ready = True
        self._making.discard(seat.number)
        if not seat.sent:
            seat.past.begin(NOTHING)
        seat.unsent = deque(seat.sent)
        self.push(seat)

    # -------------------------------------------------------------- deaths

    def _look(self) -> None:
        """Now and then, kill workers that are past their deadline; `_exited` replaces them."""
        if not self._absence.excuse(self.seats):
            return
        if any(seat.late(self.deadline_s) > 0 and not seat.overdue for seat in self.seats):
            ends = time.monotonic() + GRACE_S
            while (left := ends - time.monotonic()) > 0:
                self._hear(left)
        for seat in self.seats:
            late = seat.late(self.deadline_s)
            if late > 0 and not seat.overdue:
                seat.overdue = True
                self.launcher.kill(seat.number, seat.life)
                self._bury()  # what it waited for may be all the news there was
            elif late > DYING_S:
                self._exited(Exit(seat.number, seat.life, "", killed=True))
        for host in self.parcels.late():
            self._push_all(host)

    def _bury(self) -> None:
        for gone in self.launcher.exits():
            self._exited(gone)

    def _exited(self, gone: Exit) -> None:
        """A new process for a seat."""
        seat = self.seats[gone.worker]
        if gone.life != seat.life:
            return
        if seat.overdue:
            gone = gone._replace(why=f"gave no sign for {self.deadline_s:g} s", killed=gone.stopped)
        self._drain()  # what it said before it died
        call = seat.sent[0] if seat.sent else None
        doing = "it began" if not seat.ready else "it waited" if call is None else f"{call.method} ran"
        log.warning("%s", blame(gone, doing, NOTHING if call is None else call.number, seat.past))
        self.replaced += 1
        del self._named[seat.name]
        seat.life += 1
        self._named[seat.name] = seat
        seat.line = Line(self._token, seat.number, seat.life)
        self._forget(seat)
        self.launcher.start(self._token, seat.number, seat.life)

    def _forget(self, seat: Seat) -> None:
        """What belonged to a process that is gone."""
        waiting = self.parcels.left(seat)
        seat.reader, seat.host, seat.overdue, seat.released, seat.lacks = None, "", False, [], 0
        self._unmake(seat)
        for host in waiting:
            self._push_all(host)
