"""How a group's sockets meet, and who may connect.

ZeroMQ asks before it reads a message of a new connection (its RFC 27, ZAP).
"""

from __future__ import annotations

from collections.abc import Collection

import zmq

USER = b"worker"


def guard(socket: zmq.Socket[bytes]) -> None:
    """Have everyone who connects to the socket (not bound yet) judged; without a `Gate` nobody gets in."""
    socket.plain_server = True
    socket.zap_domain = b"evorl"


def present(socket: zmq.Socket[bytes], token: bytes) -> None:
    """Have the token ready at the gate of whom the socket will connect to."""
    socket.plain_username = USER
    socket.plain_password = token.hex().encode()


def listen(socket: zmq.Socket[bytes], ip: str) -> str:
    """Bind a socket to a port of its own at an address of this machine: the endpoint."""
    socket.ipv6 = ":" in ip
    socket.bind(f"tcp://{f'[{ip}]' if socket.ipv6 else ip}:*")
    return str(socket.get_string(zmq.LAST_ENDPOINT))


def connect(socket: zmq.Socket[bytes], endpoint: str) -> None:
    socket.ipv6 = endpoint.startswith("tcp://[")  # else ZeroMQ does not take such an address for one
    socket.connect(endpoint)


class Gate:
    """Lets those in who know the group's token, or have one of its ``keys``; what others send is never read."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], token: bytes, keys: Collection[bytes] | None) -> None:
        self.refused = 0  # connections
        self._keys = keys
        self._credentials = [USER, token.hex().encode()]
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")

    def answer(self) -> None:
        """Judge everyone who waits to be let in."""
        while self.socket.poll(0):
            version, number, _domain, _address, _identity, mechanism, *credentials = self.socket.recv_multipart()
            known = self._knows(mechanism, credentials)
            self.refused += not known
            verdict = [b"200", b"OK", USER] if known else [b"400", b"none of ours", b""]
            self.socket.send_multipart([version, number, *verdict, b""])

    def _knows(self, mechanism: bytes, credentials: list[bytes]) -> bool:
        if self._keys is None:
            return mechanism == b"PLAIN" and credentials == self._credentials
        return mechanism == b"CURVE" and credentials[0] in self._keys

    def close(self) -> None:
        self.socket.close()
