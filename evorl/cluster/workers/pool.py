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
from collections.abc import Callable, Sequence

import zmq

from evorl.cluster.core import MemberError
from evorl.cluster.transport.connection import Letter, Line, messages
from evorl.cluster.transport.shared_memory import Pool, Reader
from evorl.cluster.transport.wire import Failure, Header, Kind, ProtocolError, unpack
from evorl.cluster.workers.broadcast import Parcels
from evorl.cluster.workers.driver_socket import MOST_AT_ONCE, Post
from evorl.cluster.workers.failure_policy import NOTHING, blame
from evorl.cluster.workers.handle import MOST_AHEAD, Call, Greeting, Outcomes, Seat, States
from evorl.cluster.workers.heartbeats import TICK_S, Vigil
from evorl.cluster.workers.launcher import Exit, Launcher
from evorl.cluster.workers.scheduling import Turns

log = logging.getLogger("evorl")

FAREWELL_S = 1.0  # for the members of a group to close


class Crew:
    """The seats of a launcher's processes, and what is under way to them. Member m lives in seat m mod seats."""

    def __init__(self, launcher: Launcher, size: int, deadline_s: float, plain: Sequence[type[Exception]]) -> None:
        self.launcher = launcher
        self._refused = 0  # messages that were none of ours
        self.replaced = 0  # workers
        self.states: list[bytes | None] = [None] * size  # of each member, packed
        self.known: Callable[[], object] = lambda: None  # the state of those that do not say theirs
        self.pool = Pool()
        self.parcels = Parcels(self.pool, self._send_parcel)
        self.sent = self.relayed = 0  # bytes of arrays to other hosts: by this process, and by its workers
        self._plain = {one.__name__: one for one in plain}
        self._token, begun = secrets.token_bytes(16), time.monotonic()
        workers = min(launcher.workers, size)
        self.seats = [
            Seat(w, list(range(w, size, workers)), Line(self._token, w, 0), since=begun) for w in range(workers)
        ]
        self._named = {seat.name: seat for seat in self.seats}
        self._making = {seat.number for seat in self.seats}  # whose members are not made yet
        self.turns = Turns[Seat](MOST_AHEAD)
        self.vigil = Vigil(launcher, self.seats, deadline_s)
        self.post = Post(launcher)
        try:
            self.post.open(self._token)
            for seat in self.seats:
                launcher.start(self._token, seat.number, seat.life)
            self._gather_all()
        except BaseException:
            self.close()
            raise

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
        return self._refused + self.post.refused

    def close(self) -> None:
        """Ask the workers to end, so that their members can close; who does not is ended."""
        if self.post.closed:
            return
        try:
            self._take_leave()
        finally:  # also where the launcher has nobody left to end
            self.launcher.close()
            self.post.close()
            self.parcels.close()
            self.pool.close()
            for seat in self.seats:
                seat.leave()

    def _take_leave(self) -> None:
        present = [seat for seat in self.seats if seat.ready]
        for seat in present:
            self._send(seat, Kind.END, None, Letter(None))
        there, ends = {(seat.number, seat.life) for seat in present}, time.monotonic() + FAREWELL_S
        while there and time.monotonic() < ends:
            zmq.select([] if self.launcher.watch is None else [self.launcher.watch], [], [], TICK_S)
            there -= {(gone.worker, gone.life) for gone in self.launcher.exits()}

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
            seat.since = seat.began = time.monotonic()
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
        self.sent += 0 if near or place else letter.size
        if not self.post.send(seat.name, frames):  # it is gone; its exit will say so
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
        come, ended = self.post.wait(timeout_s)
        if come:
            self._drain()
        if ended:
            self._bury()

    def _drain(self) -> None:
        for _ in range(MOST_AT_ONCE):
            if not self._receive():
                return

    def _receive(self) -> bool:
        message = self.post.receive()
        if message is None:
            return False
        identity, *frames = message
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
            self._greeted(seat, header, unpack(frames[1], form=Greeting))
        elif header.kind == Kind.ANSWER:
            self._answered(seat, seat.answer(header, frames))
        elif header.kind == Kind.BUSY:
            seat.line.accept(header)
            seat.since = time.monotonic()
        elif header.kind == Kind.KEPT:
            self._confirmed(seat, header, unpack(frames[1], form=tuple[int, int, int]))
        elif header.kind == Kind.NEWS:
            self._heard(seat, header, unpack(frames[1], form=tuple[int, int]))
        elif header.kind == Kind.LACK:
            seat.lack(header, unpack(frames[1], form=int))
            self.push(seat)
        else:
            raise ProtocolError(f"a worker does not send {header.kind.name}")

    def _greeted(self, seat: Seat, header: Header, said: Greeting) -> None:
        seat.greet(header, said)
        if seat.host == self.launcher.host:
            seat.reader = Reader(seat.pid)
        else:
            self.parcels.arrived(seat)
        self._adopt(seat)

    def _heard(self, seat: Seat, header: Header, said: tuple[int, int]) -> None:
        """What came to a worker's door, and what left it."""
        refused, relayed = said
        if min(said) < 0:
            raise ProtocolError(f"{refused} refused, {relayed} bytes passed on")
        seat.line.accept(header)
        self._refused += refused
        self.relayed += relayed

    def _confirmed(self, seat: Seat, header: Header, said: tuple[int, int, int]) -> None:
        """A worker keeps a parcel for its host."""
        number, fd, block = said
        if not 0 <= fd < 1 << 31 or block < 0 or not seat.host:
            raise ProtocolError(f"a parcel at {fd}, {block}")
        seat.line.accept(header)
        self.parcels.confirmed(seat, number, fd, block)
        self._push_all(seat.host)

    def _push_all(self, host: str) -> None:
        for mate in self.parcels.mates(host):
            self.push(mate)

    def _adopt(self, seat: Seat) -> None:
        self._unmake(seat)
        own = [(member, self.states[member]) for member in seat.members]
        self._send(seat, Kind.ADOPT, os.getpid(), Letter([own, self.known()]))

    def _unmake(self, seat: Seat) -> None:
        """Nothing can be asked of its members before they are made."""
        seat.ready, seat.since = False, time.monotonic()
        self._making.add(seat.number)
        self.turns.note(seat)

    def _answered(self, seat: Seat, answers: list[tuple[Call, States, Outcomes]]) -> None:
        for call, states, outcomes in answers:
            if call.number:
                self._settle(seat, call, states, outcomes)
            else:
                self._adopted(seat, states, outcomes)
        self.turns.note(seat)

    def _settle(self, seat: Seat, call: Call, states: States, outcomes: Outcomes) -> None:
        seat.sent.popleft()
        seat.past.answered += 1
        call.outcomes, call.states = outcomes, states
        if call.into is not None:
            call.into.append(call)
        call.give_back(self.pool)
        for member, state in zip(call.members, states, strict=True):
            if state is not None:
                self.states[member] = state

    def _adopted(self, seat: Seat, states: States, outcomes: Outcomes) -> None:
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
        """Now and then, see who is late."""
        if not self.vigil.is_due():
            return
        for gone in self.vigil.late(self._hear):
            self._replace(gone)
        for host in self.parcels.late():
            self._push_all(host)

    def _bury(self) -> None:
        for gone in self.vigil.ended():
            self._replace(gone)

    def _replace(self, gone: Exit) -> None:
        """A new process for a seat. Raises `MemberLost`."""
        seat = self.seats[gone.worker]
        self._drain()  # what it said before it died
        log.warning("%s", blame(gone, seat.doing, seat.sent[0].number if seat.sent else NOTHING, seat.past))
        self.replaced += 1
        waiting = self.parcels.left(seat)
        del self._named[seat.name]
        seat.succeed()
        self._named[seat.name] = seat
        self._unmake(seat)
        for host in waiting:
            self._push_all(host)
        self.launcher.start(self._token, seat.number, seat.life)
