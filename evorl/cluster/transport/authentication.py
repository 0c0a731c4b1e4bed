"""How a group's sockets meet, and who may connect.

ZeroMQ asks before it reads a message of a new connection (its RFC 27, ZAP). Of those that it turns away by itself, as
they do not keep to the form of a handshake or speak no ZeroMQ at all, it tells no more than that something happened.
"""

from __future__ import annotations

from collections.abc import Collection

import zmq
from zmq.utils.monitor import parse_monitor_message

USER = b"worker"
AUTH_FAILED, HANDSHAKE_ABORTED = zmq.Event.HANDSHAKE_FAILED_AUTH, zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
MONITORED_EVENTS = (
    zmq.Event.ACCEPTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED | AUTH_FAILED | HANDSHAKE_ABORTED
)
MAX_QUEUED_EVENTS = 100_000  # that wait for us; with more, ZeroMQ waits too
MAX_EVENTS_PER_CALL = 1000  # news read before anything else is looked at


def require_authentication(socket: zmq.Socket[bytes]) -> None:
    """Have everyone who connects to the socket (not bound yet) judged; without a `Authenticator` nobody gets in."""
    socket.plain_server = True
    socket.zap_domain = b"evorl"


def present_token(socket: zmq.Socket[bytes], token: bytes) -> None:
    """Have the token ready at the authenticator of whom the socket will connect to."""
    socket.plain_username = USER
    socket.plain_password = token.hex().encode()


def bind_to_free_port(socket: zmq.Socket[bytes], ip: str) -> str:
    """Bind a socket to a port of its own at an address of this machine: the endpoint."""
    socket.ipv6 = ":" in ip
    socket.bind(f"tcp://{f'[{ip}]' if socket.ipv6 else ip}:*")
    return str(socket.get_string(zmq.LAST_ENDPOINT))


def connect(socket: zmq.Socket[bytes], endpoint: str) -> None:
    socket.ipv6 = endpoint.startswith("tcp://[")  # else ZeroMQ does not take such an address for one
    socket.connect(endpoint)


class Authenticator:
    """Lets those in who know the group's token, or have one of its ``keys``; what others send is never read.

    ``refused`` counts connections whose token or key is wrong, or whose handshake is none. Who leaves in the middle of
    it is not counted: a worker that is killed does just that. Whose handshake has come through ZeroMQ does not say; so
    those alone are counted that came and went without anybody being let in meanwhile.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        socket: zmq.Socket[bytes],
        token: bytes,
        keys: Collection[bytes] | None,
    ) -> None:
        """For a socket that `require_authentication` has been told about, the only one of its context; ``keys`` may change later."""
        self.refused = 0
        self._unauthenticated: set[int] = set()  # connections that cannot have been let in, by file descriptor
        self._rejected = 0  # of these, turned away by us, still to be disconnected
        self._aborted = False  # whether the next to be disconnected has left by itself
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
        """Judge everyone who waits to be let in, and see who has been turned away."""
        while self._requests.poll(0):
            version, number, _domain, _address, _identity, mechanism, *credentials = self._requests.recv_multipart()
            verdict = (
                [b"200", b"OK", USER] if self._is_valid(mechanism, credentials) else [b"400", b"none of ours", b""]
            )
            self._requests.send_multipart([version, number, *verdict, b""])
        for _ in range(MAX_EVENTS_PER_CALL):
            if not self._events.poll(0):
                return
            news = parse_monitor_message(self._events.recv_multipart())
            self._handle_event(news["event"], news["value"])

    def _handle_event(self, event: int, connection: int) -> None:
        if event == zmq.Event.ACCEPTED:
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
            else:  # what it said was no handshake
                self.refused += 1
            self._unauthenticated.discard(connection)
            self._aborted = False

    def _is_valid(self, mechanism: bytes, credentials: list[bytes]) -> bool:
        if self._keys is None:
            return mechanism == b"PLAIN" and credentials == self._credentials
        return mechanism == b"CURVE" and credentials[0] in self._keys

    def close(self) -> None:
        """Before the socket that it watches."""
        while self._events.poll(0):  # else ZeroMQ may wait for us to read, and we for it to stop
            self._events.recv_multipart()
        self._socket.disable_monitor()
        for socket in self.sockets:
            socket.close()
