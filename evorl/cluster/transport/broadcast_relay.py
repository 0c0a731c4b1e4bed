"""The worker's side of arrays that go to many hosts: it keeps them for its host, and passes them on to further ones.

A parcel is the arrays of one letter. The driver sends it to a few hosts, to one worker of each, with the list of the
hosts beyond it; each of these workers does the same, so that every host gets one copy and nobody sends more than `FAN`.
A worker keeps a parcel in a block of shared memory and tells the driver where; the others of its host read it there.

The key that opens the workers' doors to each other is the whole run's, also of those that have been replaced. So the
driver gives what comes to each door a rising number and a seal, made with a secret that only it and the worker behind
that door know: what was sent before, or was never meant for it, is refused. What a newer one has overtaken on another
way was merely slow, and is dropped.
"""

from __future__ import annotations

import hmac
import secrets
import socket as sockets
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import zmq
from zmq.utils import z85

from evorl.cluster.transport.authentication import Gate, connect, guard, listen, present
from evorl.cluster.transport.curve import Pass
from evorl.cluster.transport.wire import MOST_FRAME, Bulk, Header, Kind, ProtocolError, unpack

FAN = 4  # copies that one process sends: with three or four the last host of a large tree has its copy soonest
MOST_WAITING = 2  # parcels of each sender that are not taken yet; more wait on its side
SECRET = 16  # bytes
TRIPS = 64  # that a worker remembers; what comes after so many newer ones is not slow, but replayed
HELD = struct.Struct("<II")  # the process that keeps a parcel, and its file descriptor
LINGER_MS = 2000  # that a parcel under way gets once its receiver is not one of ours to send to any more


T = TypeVar("T")


class Door(NamedTuple):
    """Where a worker takes parcels for its host."""

    worker: int
    life: int
    address: str  # none where it cannot be reached
    key: str  # public, in z85; none where no keys are asked for


NOWHERE = Door(0, 0, "", "")


class Leg(NamedTuple):
    """A part of a parcel's way: to whom, and that the driver wants it there."""

    door: Door
    seal: bytes


def seal(secret: bytes, trip: int, parcel: int) -> bytes:
    """Says that the driver sends this parcel on this trip to the worker who has the secret."""
    return hmac.digest(secret, b"%d %d" % (trip, parcel), "sha256")


def branches(places: Sequence[T]) -> list[tuple[T, Sequence[T]]]:
    """Whom to send to, and whom each of them has to send to; all shares are equal, give or take one."""
    if not places:
        return []
    count = min(FAN, len(places))
    shares = [places[at * len(places) // count : (at + 1) * len(places) // count] for at in range(count)]
    return [(share[0], share[1:]) for share in shares]


class Parcel(NamedTuple):
    """What a worker is to keep and to pass on."""

    number: int
    trip: int  # rises each time that one is sent off
    legs: list[Leg]
    content: Any  # bytes, or a frame


class Relay:
    """The door at which a worker takes parcels from others, and what it passes on."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        token: bytes,
        name: tuple[int, int],
        keys: Pass | None,
    ) -> None:
        self._refused = 0  # messages
        self._passed_on = 0  # bytes
        self._told = 0, 0  # both, when they were last asked for
        self._context, self._token, self._name, self._keys = context, token, name, keys
        self._onward: dict[Door, zmq.Socket[bytes]] = {}
        self.secret = secrets.token_bytes(SECRET)
        self._trips = deque([0], TRIPS)  # the last that came
        self.socket = context.socket(zmq.PULL)
        self.socket.linger, self.socket.rcvhwm, self.socket.maxmsgsize = 0, MOST_WAITING, MOST_FRAME
        guard(self.socket)
        if keys is not None:
            self.socket.curve_server = True
            self.socket.curve_publickey, self.socket.curve_secretkey = keys.public, keys.secret
        self.gate = Gate(context, self.socket, token, None if keys is None else {z85.decode(keys.relay_public)})
        self.door = Door(*name, listen(self.socket, _own_ip(endpoint)), "" if keys is None else keys.public.decode())

    def news(self) -> tuple[int, int]:
        """Since the last time: messages and connections that were none of this run's, and bytes passed on."""
        now = self._refused + self.gate.refused, self._passed_on
        (refused, passed_on), self._told = self._told, now
        return now[0] - refused, now[1] - passed_on

    def take(self) -> Parcel | None:
        """A parcel that has come from another worker."""
        self.gate.answer()
        while True:
            try:  # not `poll` before it: one whose sender has died half-way looks like a message, and is none
                parcel = self._read(self.socket.recv_multipart(zmq.NOBLOCK, copy=False))
            except zmq.Again:
                return None
            except ProtocolError:
                self._refused += 1
            else:
                newest = max(self._trips)
                self._trips.append(parcel.trip)
                if parcel.trip > newest:
                    return parcel

    def _read(self, frames: list[zmq.Frame]) -> Parcel:
        if len(frames) != 3:
            raise ProtocolError(f"{len(frames)} frames")
        header = Header.unpack(frames[0].bytes)
        if (header.kind, header.token, header.worker, header.life) != (Kind.PARCEL, self._token, *self._name):
            raise ProtocolError("not for this worker")
        if header.bulk != Bulk.FRAME or header.size != len(frames[2].buffer):
            raise ProtocolError("not whole")
        number, sealed, legs = unpack(frames[1].bytes, form=tuple[int, bytes, list[Leg]])
        if not hmac.compare_digest(sealed, seal(self.secret, header.number, number)):
            raise ProtocolError("not the driver's")
        if header.number in self._trips or header.number < min(self._trips):
            raise ProtocolError("replayed")
        return Parcel(number, header.number, legs, frames[2])

    def pass_on(self, parcel: Parcel) -> None:
        """Send it to the next hosts. Who cannot take it at once is left out: the driver will notice."""
        nexts = branches(parcel.legs)
        for former in {*self._onward} - {leg.door for leg, _ in nexts}:
            self._onward.pop(former).close(LINGER_MS)
        size = len(memoryview(parcel.content))
        for (door, sealed), beyond in nexts:
            header = Header(Kind.PARCEL, self._token, door.worker, door.life, parcel.trip, Bulk.FRAME, size)
            frames = [header.pack(), msgspec.msgpack.encode((parcel.number, sealed, beyond)), parcel.content]
            try:
                self._to(door).send_multipart(frames, zmq.NOBLOCK, copy=False)
            except zmq.ZMQError:
                continue
            self._passed_on += size

    def _to(self, door: Door) -> zmq.Socket[bytes]:
        if door not in self._onward:
            socket = self._context.socket(zmq.PUSH)
            socket.linger, socket.sndhwm = 0, MOST_WAITING
            if self._keys is not None:
                Pass(door.key.encode(), self._keys.relay_public, self._keys.relay_secret).show(socket)
            else:
                present(socket, self._token)
            self._onward[door] = socket
            connect(socket, door.address)
        return self._onward[door]

    def close(self) -> None:
        for socket in self._onward.values():
            socket.close()
        self.gate.close()
        self.socket.close()


def _own_ip(endpoint: str) -> str:
    """This machine's address on the way to a driver's endpoint."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    family = sockets.AF_INET6 if host.startswith("[") else sockets.AF_INET
    with sockets.socket(family, sockets.SOCK_DGRAM) as way:
        way.connect((host.strip("[]"), int(port)))  # sends nothing
        return str(way.getsockname()[0])
