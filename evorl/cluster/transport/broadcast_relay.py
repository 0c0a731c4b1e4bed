"""The tree on which arrays go to many hosts: what one of its places receives and forwards to further hosts.

A broadcast is the arrays of one payload, or a piece of the group's feed. The driver sends it to one worker on each of a
few hosts, together with the list of hosts to which this worker forwards it. These workers do the same, so that every
host gets one copy and no process sends more than `FAN_OUT` copies (`evorl.cluster.workers.receiver`).

All workers of a run use the same keys between each other, including workers that have been replaced. Therefore the
driver gives every broadcast a rising number, and for every receiving worker a signature made with a secret that only
this worker and the driver have. Replayed broadcasts, and broadcasts for another worker, are refused. A broadcast that
arrives after a newer one was only slow; it is dropped without being counted as refused.
"""

from __future__ import annotations

import hmac
import secrets
import socket as sockets
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
from evorl.cluster.transport.connection import digest
from evorl.cluster.transport.curve import Credentials
from evorl.cluster.transport.wire import PLACE, Bulk, Header, Kind, ProtocolError, cut, grouped, unpack

FAN_OUT = 4  # copies that one process sends; with three or four the last host of a large tree gets its copy soonest
MAX_QUEUED = 2  # unread broadcasts of each sender; more wait at the sender
SECRET_BYTES = 16
BROADCASTS = (Kind.BROADCAST, Kind.FOLLOW)  # what goes down the tree

REMEMBERED_SENDS = 64  # last send numbers; a broadcast older than all of them counts as replayed, not as slow
HELD = PLACE  # the process that stores a broadcast, and its file descriptor
LINGER_MS = 2000  # for a broadcast being sent when its socket is closed


T = TypeVar("T")


class RelayAddress(NamedTuple):
    """The address at which a worker receives broadcasts for its host."""

    worker: int
    life: int
    endpoint: str  # empty if it cannot be reached
    key: str  # public, in z85; empty without keys


NO_RELAY = RelayAddress(0, 0, "", "")


class Route(NamedTuple):
    """One stop of a broadcast: the receiving relay, and the driver's signature for it."""

    relay: RelayAddress
    signature: bytes


class Broadcast(NamedTuple):
    """What a worker is to store and to forward."""

    kind: Kind  # one of `BROADCASTS`
    number: int  # of the stored arrays; 0 for a piece of the feed
    send_number: int  # rises with each broadcast that the driver sends
    routes: list[Route]
    content: Sequence[Any]  # the arrays in pieces, in order: bytes or frames


def sign(secret: bytes, broadcast: Broadcast, content: bytes) -> bytes:
    """Return the driver's signature (HMAC) of a broadcast for the worker with this secret; ``content``: its digest."""
    kind, number, send_number, routes, _ = broadcast
    signed = msgspec.msgpack.encode((int(kind), number, send_number, routes, content))
    return hmac.digest(secret, signed, "sha256")


def branches(places: Sequence[T]) -> list[tuple[T, Sequence[T]]]:
    """Split places into at most `FAN_OUT` pairs (receiver, places behind it) of sizes that differ by at most one."""
    if not places:
        return []
    count = min(FAN_OUT, len(places))
    shares = [places[at * len(places) // count : (at + 1) * len(places) // count] for at in range(count)]
    return [(share[0], share[1:]) for share in shares]


def signed_routes(broadcast: Broadcast, content: bytes, receivers: Sequence[tuple[RelayAddress, bytes]]) -> list[Route]:
    """Return the routes to these receivers, each an address and a secret, in the order of `branches`.

    A signature covers the routes behind its receiver, too, so those are made first.
    """
    routes = []
    for (relay, secret), beyond in branches(receivers):
        behind = signed_routes(broadcast, content, beyond)
        routes += [Route(relay, sign(secret, broadcast._replace(routes=behind), content)), *behind]
    return routes


class Relay:
    """The sockets of a worker's receiver for broadcasts: gets them from other hosts' receivers and forwards them."""

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
        self._reported = 0, 0  # both, at the last call of `new_counts`
        self._context, self._token, self._name, self._keys = context, token, name, keys
        self._next_sockets: dict[RelayAddress, zmq.Socket[bytes]] = {}
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self._send_numbers = {kind: deque([0], REMEMBERED_SENDS) for kind in BROADCASTS}  # the last that were received
        self.socket = context.socket(zmq.PULL)
        self.socket.linger, self.socket.rcvhwm = 0, MAX_QUEUED
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
        """Return, since the last call, the refused messages and connections, and the bytes forwarded."""
        counts = self._refused + self.authenticator.refused, self._forwarded
        (refused, forwarded), self._reported = self._reported, counts
        return counts[0] - refused, counts[1] - forwarded

    def refuse(self) -> None:
        """Count a broadcast whose content is none."""
        self._refused += 1

    def receive(self) -> Broadcast | None:
        """Return the next broadcast from another worker, or None."""
        self.authenticator.process()
        while True:
            try:  # no `poll` first: it also returns for an incomplete message whose sender has died
                broadcast = self._parse(self.socket.recv_multipart(zmq.NOBLOCK, copy=False))
            except zmq.Again:
                return None
            except ProtocolError:
                self._refused += 1
            else:
                former = self._send_numbers[broadcast.kind]
                newest = max(former)
                former.append(broadcast.send_number)
                if broadcast.send_number > newest:
                    return broadcast

    def _parse(self, frames: list[zmq.Frame]) -> Broadcast:
        header = Header.unpack(frames[0].bytes)
        if (header.token, header.worker, header.life) != (self._token, *self._name):
            raise ProtocolError("not for this worker")
        if header.kind not in BROADCASTS:
            raise ProtocolError(f"a relay does not send {header.kind.name}")
        if header.bulk != Bulk.FRAME or header.body:
            raise ProtocolError("incomplete")
        envelope, _, content = grouped(header, frames[1:])
        joined = b"".join(frame.buffer for frame in envelope)
        number, signature, routes = unpack(joined, form=tuple[int, bytes, list[Route]])
        broadcast = Broadcast(header.kind, number, header.number, routes, [frame.buffer for frame in content])
        if not hmac.compare_digest(signature, sign(self.secret, broadcast, digest(broadcast.content))):
            raise ProtocolError("not signed by the driver")
        former = self._send_numbers[header.kind]
        if header.number in former or header.number < min(former):
            raise ProtocolError("replayed")
        return broadcast

    def forward(self, broadcast: Broadcast) -> None:
        """Send a broadcast to the next hosts; skip those that cannot accept it at once, which the driver detects."""
        nexts = branches(broadcast.routes)
        for former in {*self._next_sockets} - {route.relay for route, _ in nexts}:
            self._next_sockets.pop(former).close(LINGER_MS)
        size = sum(map(len, broadcast.content))
        pieces = cut([b"", *broadcast.content])[1:]
        for (relay, signature), beyond in nexts:
            envelope = msgspec.msgpack.encode((broadcast.number, signature, beyond))
            own = self._token, relay.worker, relay.life, broadcast.send_number
            header = Header(broadcast.kind, *own, Bulk.FRAME, size, len(envelope)).pack()
            frames = [*cut([header, envelope, b""]), *pieces]
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
    """Return this machine's address on the route to the driver's endpoint."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    family = sockets.AF_INET6 if host.startswith("[") else sockets.AF_INET
    with sockets.socket(family, sockets.SOCK_DGRAM) as probe:
        probe.connect((host.strip("[]"), int(port)))  # sends nothing
        return str(probe.getsockname()[0])
