"""Binding, connecting and authentication of a group's sockets.

ZeroMQ requests a decision before it reads a message of a new connection (ZAP, ZeroMQ RFC 27). It rejects by itself
peers that send a malformed handshake or do not speak ZeroMQ, and reports these only as socket events.

A peer costs memory and a file descriptor before that decision: the frame that it announces, whatever its size. So the
frames of a socket that takes connections are small (`evorl.cluster.transport.wire.cut`), a handshake has a deadline,
and only so many peers are connected at once.
"""

from __future__ import annotations

import os
import socket as sockets
from collections.abc import Collection
from contextlib import suppress

import zmq
from zmq.utils.monitor import parse_monitor_message

from evorl.cluster.transport.wire import MAX_FRAME

USER = b"worker"
AUTH_FAILED, HANDSHAKE_ABORTED = zmq.Event.HANDSHAKE_FAILED_AUTH, zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
MONITORED_EVENTS = (
    zmq.Event.ACCEPTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED | AUTH_FAILED | HANDSHAKE_ABORTED
)
HANDSHAKE_S = 10.0  # seconds after which a peer that has not completed its handshake is disconnected
SPARE_CONNECTIONS = 64  # beside those that a socket expects: of peers that are refused, or of ended workers
MAX_QUEUED_EVENTS = 100_000  # with more unread events ZeroMQ itself blocks
MAX_EVENTS_PER_CALL = 1000


def require_authentication(socket: zmq.Socket[bytes]) -> None:
    """Require authentication on a socket that is not bound yet, and bound what a peer costs before it.

    Without an `Authenticator` all peers are rejected.
    """
    socket.maxmsgsize = MAX_FRAME
    socket.handshake_ivl = round(HANDSHAKE_S * 1000)
    socket.plain_server = True
    socket.zap_domain = b"evorl"


def present_token(socket: zmq.Socket[bytes], token: bytes) -> None:
    """Set the token that the socket presents when it connects."""
    socket.plain_username = USER
    socket.plain_password = token.hex().encode()


def bind_to_free_port(socket: zmq.Socket[bytes], ip: str) -> str:
    """Bind a socket to a free port at an address of this machine; return the endpoint."""
    socket.ipv6 = ":" in ip
    socket.bind(f"tcp://{f'[{ip}]' if socket.ipv6 else ip}:*")
    return str(socket.get_string(zmq.LAST_ENDPOINT))


def connect(socket: zmq.Socket[bytes], endpoint: str) -> None:
    socket.ipv6 = endpoint.startswith("tcp://[")  # ZeroMQ accepts IPv6 addresses only with this option
    socket.connect(endpoint)


class Authenticator:
    """Accepts peers with the group's token, or with one of its ``keys``; messages of other peers are never read.

    ``refused`` counts connections with a wrong token or key, or with an invalid handshake, and those that were one too
    many, which are closed. A peer that disconnects during the handshake is not counted, since a killed worker does the
    same. ZeroMQ does not report which connection completed its handshake, so a connection counts only if no peer was
    accepted between its start and its end.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        socket: zmq.Socket[bytes],
        token: bytes,
        keys: Collection[bytes] | None,
        expected: int = 0,
    ) -> None:
        """Authenticate peers of ``socket``, prepared by `require_authentication` and the only one in its context.

        ``keys`` may change later; None: peers need the token. ``expected``: number of peers.
        """
        self.refused = 0
        self._most = expected + SPARE_CONNECTIONS
        self._accepted = 0  # connections so far
        self._open: dict[int, int] = {}  # number of each connection, by file descriptor, the newest last
        self._unauthenticated: set[int] = set()  # connections not accepted for certain, by file descriptor
        self._rejected = 0  # of these, rejected here but not disconnected yet
        self._aborted = False  # whether the next connection to end was ended by its peer
        self._keys = keys
        self._credentials = [USER, token.hex().encode()]
        self._requests = context.socket(zmq.REP)
        self._requests.linger = 0
        self._requests.bind("inproc://zeromq.zap.01")
        self._socket = socket
        self._events = context.socket(zmq.PAIR)
        self._events.linger, self._events.rcvhwm = 0, MAX_QUEUED_EVENTS
        socket.monitor("inproc://evorl.authenticator", MONITORED_EVENTS)
        self._events.connect("inproc://evorl.authenticator")
        self.sockets = (self._requests, self._events)

    def process(self) -> None:
        """Decide on waiting peers, and count those that ZeroMQ has rejected."""
        while self._requests.poll(0):
            version, number, _domain, _address, _identity, mechanism, *credentials = self._requests.recv_multipart()
            valid = self._is_valid(mechanism, credentials)
            reply = [b"200", b"OK", USER] if valid else [b"400", b"wrong credentials", b""]
            self._requests.send_multipart([version, number, *reply, b""])
        self._read_events()
        if len(self._open) > self._most:
            self._close_excess()

    def _read_events(self) -> None:
        for _ in range(MAX_EVENTS_PER_CALL):
            if not self._events.poll(0):
                return
            event = parse_monitor_message(self._events.recv_multipart())
            self._handle_event(event["event"], event["value"])

    def _close_excess(self) -> None:
        """Close the connections beyond the limit: the oldest whose peers are not known yet, then the newest.

        So connections that say nothing do not keep out a peer that does, whose handshake takes milliseconds.
        ZeroMQ owns them, and may close one at any time, after which its file descriptor is another file's. It says so
        before it does. So each is duplicated first, and shut down only if ZeroMQ has not said so until then.
        """
        waiting = [socket for socket in self._open if socket in self._unauthenticated]
        known = [socket for socket in self._open if socket not in self._unauthenticated]
        excess = [*waiting, *reversed(known)][: len(self._open) - self._most]
        copies = []
        for connection, number in [(oldest, self._open[oldest]) for oldest in excess]:
            with suppress(OSError):  # no descriptor is left, or it is no socket any more
                copies.append((number, connection, sockets.socket(fileno=os.dup(connection))))
        self._read_events()
        for number, connection, copy in copies:
            with copy, suppress(OSError):
                if self._open.get(connection) == number:
                    del self._open[connection]
                    self._unauthenticated.discard(connection)
                    self.refused += 1
                    copy.shutdown(sockets.SHUT_RDWR)

    def _handle_event(self, event: int, connection: int) -> None:
        if event == zmq.Event.ACCEPTED:
            self._accepted += 1
            self._open.pop(connection, None)
            self._open[connection] = self._accepted
            self._unauthenticated.add(connection)
        elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._unauthenticated.clear()
            self._rejected = 0
        elif event == AUTH_FAILED:
            self.refused += 1
            self._rejected += 1
        elif event == HANDSHAKE_ABORTED:
            self._aborted = True
        elif event == zmq.Event.DISCONNECTED:
            if self._aborted or connection not in self._unauthenticated:
                pass
            elif self._rejected:
                self._rejected -= 1
            else:  # an invalid handshake
                self.refused += 1
            self._unauthenticated.discard(connection)
            self._open.pop(connection, None)
            self._aborted = False

    def _is_valid(self, mechanism: bytes, credentials: list[bytes]) -> bool:
        if self._keys is None:
            return mechanism == b"PLAIN" and credentials == self._credentials
        return mechanism == b"CURVE" and credentials[0] in self._keys

    def serve(self, stop: int) -> None:
        """Process until the file descriptor ``stop`` is readable."""
        poller = zmq.Poller()
        for socket in (stop, *self.sockets):
            poller.register(socket, zmq.POLLIN)
        while stop not in dict(poller.poll()):
            self.process()

    def close(self) -> None:
        """Stop; to be called before the authenticated socket is closed."""
        while self._events.poll(0):  # unread events could block ZeroMQ, and disable_monitor waits for ZeroMQ
            self._events.recv_multipart()
        self._socket.disable_monitor()
        for socket in self.sockets:
            socket.close()
