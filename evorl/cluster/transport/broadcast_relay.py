"""The worker's side of arrays that go to many hosts: it keeps them for its host, and passes them on to further ones.

A parcel is the arrays of one payload. The driver sends it to a few hosts, to one worker of each, with the list of the
hosts beyond it; each of these workers does the same, so that every host gets one copy and nobody sends more than `FAN_OUT`.
A worker keeps a parcel in a block of shared memory and tells the driver where; the others of its host read it there.

The key that opens the workers' doors to each other is the whole run's, also of those that have been replaced. So the
driver gives what comes to each relay a rising number and a sign, made with a secret that only it and the worker behind
that relay know: what was sent before, or was never meant for it, is refused. What a newer one has overtaken on another
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

from evorl.cluster.transport.authentication import (
    Authenticator,
    bind_to_free_port,
    connect,
    present_token,
    require_authentication,
)
from evorl.cluster.transport.curve import Credentials
from evorl.cluster.transport.wire import MAX_FRAME, Bulk, Header, Kind, ProtocolError, unpack

FAN_OUT = 4  # copies that one process sends: with three or four the last host of a large tree has its copy soonest
MAX_QUEUED = 2  # parcels of each sender that are not taken yet; more wait on its side
SECRET_BYTES = 16  # bytes
REMEMBERED_SENDS = 64  # that a worker remembers; what comes after so many newer ones is not slow, but replayed
HELD = struct.Struct("<II")  # the process that keeps a parcel, and its file descriptor
LINGER_MS = 2000  # that a parcel under way gets once its receiver is not one of ours to send to any more


T = TypeVar("T")


class RelayAddress(NamedTuple):
    """Where a worker takes parcels for its host."""

    worker: int
    life: int
    endpoint: str  # none where it cannot be reached
    key: str  # public, in z85; none where no keys are asked for


NO_RELAY = RelayAddress(0, 0, "", "")


class Route(NamedTuple):
    """A part of a parcel's way: to whom, and that the driver wants it there."""

    relay: RelayAddress
    signature: bytes


def sign(secret: bytes, send_number: int, parcel: int) -> bytes:
    """Says that the driver sends this parcel on this send_number to the worker who has the secret."""
    return hmac.digest(secret, b"%d %d" % (send_number, parcel), "sha256")


def branches(places: Sequence[T]) -> list[tuple[T, Sequence[T]]]:
    """Whom to send to, and whom each of them has to send to; all shares are equal, give or take one."""
    if not places:
        return []
    count = min(FAN_OUT, len(places))
    shares = [places[at * len(places) // count : (at + 1) * len(places) // count] for at in range(count)]
    return [(share[0], share[1:]) for share in shares]


class Broadcast(NamedTuple):
    """What a worker is to keep and to pass on."""

    number: int
    send_number: int  # rises each time that one is sent off
    routes: list[Route]
    content: Any  # bytes, or a frame


class Relay:
    """The relay at which a worker takes parcels from others, and what it passes on."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        token: bytes,
        name: tuple[int, int],
        keys: Credentials | None,
    ) -> None:
        self._refused = 0  # messages
        self._forwarded = 0  # bytes
        self._reported = 0, 0  # both, when they were last asked for
        self._context, self._token, self._name, self._keys = context, token, name, keys
        self._next_sockets: dict[RelayAddress, zmq.Socket[bytes]] = {}
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self._send_numbers = deque([0], REMEMBERED_SENDS)  # the last that came
        self.socket = context.socket(zmq.PULL)
        self.socket.linger, self.socket.rcvhwm, self.socket.maxmsgsize = 0, MAX_QUEUED, MAX_FRAME
        require_authentication(self.socket)
        if keys is not None:
            self.socket.curve_server = True
            self.socket.curve_publickey, self.socket.curve_secretkey = keys.public, keys.secret
        self.authenticator = Authenticator(
            context, self.socket, token, None if keys is None else {z85.decode(keys.relay_public)}
        )
        self.address = RelayAddress(
            *name,
            bind_to_free_port(self.socket, _own_ip(endpoint)),
            "" if keys is None else keys.public.decode(),
        )

    def new_counts(self) -> tuple[int, int]:
        """Since the last time: messages and connections that were none of this run's, and bytes passed on."""
        now = self._refused + self.authenticator.refused, self._forwarded
        (refused, forwarded), self._reported = self._reported, now
        return now[0] - refused, now[1] - forwarded

    def receive(self) -> Broadcast | None:
        """A parcel that has come from another worker."""
        self.authenticator.process()
        while True:
            try:  # not `poll` before it: one whose sender has died half-way looks like a message, and is none
                parcel = self._parse(self.socket.recv_multipart(zmq.NOBLOCK, copy=False))
            except zmq.Again:
                return None
            except ProtocolError:
                self._refused += 1
            else:
                newest = max(self._send_numbers)
                self._send_numbers.append(parcel.send_number)
                if parcel.send_number > newest:
                    return parcel

    def _parse(self, frames: list[zmq.Frame]) -> Broadcast:
        if len(frames) != 3:
            raise ProtocolError(f"{len(frames)} frames")
        header = Header.unpack(frames[0].bytes)
        if (header.kind, header.token, header.worker, header.life) != (Kind.BROADCAST, self._token, *self._name):
            raise ProtocolError("not for this worker")
        if header.bulk != Bulk.FRAME or header.size != len(frames[2].buffer):
            raise ProtocolError("not whole")
        number, signature, routes = unpack(frames[1].bytes, form=tuple[int, bytes, list[Route]])
        if not hmac.compare_digest(signature, sign(self.secret, header.number, number)):
            raise ProtocolError("not the driver's")
        if header.number in self._send_numbers or header.number < min(self._send_numbers):
            raise ProtocolError("replayed")
        return Broadcast(number, header.number, routes, frames[2])

    def forward(self, parcel: Broadcast) -> None:
        """Send it to the next hosts. Who cannot take it at once is left out: the driver will notice."""
        nexts = branches(parcel.routes)
        for former in {*self._next_sockets} - {route.relay for route, _ in nexts}:
            self._next_sockets.pop(former).close(LINGER_MS)
        size = len(memoryview(parcel.content))
        for (relay, signature), beyond in nexts:
            header = Header(Kind.BROADCAST, self._token, relay.worker, relay.life, parcel.send_number, Bulk.FRAME, size)
            frames = [header.pack(), msgspec.msgpack.encode((parcel.number, signature, beyond)), parcel.content]
            try:
                self._socket_to(relay).send_multipart(frames, zmq.NOBLOCK, copy=False)
            except zmq.ZMQError:
                continue
            self._forwarded += size

    def _socket_to(self, relay: RelayAddress) -> zmq.Socket[bytes]:
        if relay not in self._next_sockets:
            socket = self._context.socket(zmq.PUSH)
            socket.linger, socket.sndhwm = 0, MAX_QUEUED
            if self._keys is not None:
                Credentials(relay.key.encode(), self._keys.relay_public, self._keys.relay_secret).apply_to(socket)
            else:
                present_token(socket, self._token)
            self._next_sockets[relay] = socket
            connect(socket, relay.endpoint)
        return self._next_sockets[relay]

    def close(self) -> None:
        for socket in self._next_sockets.values():
            socket.close()
        self.authenticator.close()
        self.socket.close()


def _own_ip(endpoint: str) -> str:
    """This machine's address on the way to a driver's endpoint."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    family = sockets.AF_INET6 if host.startswith("[") else sockets.AF_INET
    with sockets.socket(family, sockets.SOCK_DGRAM) as way:
        way.connect((host.strip("[]"), int(port)))  # sends nothing
        return str(way.getsockname()[0])
