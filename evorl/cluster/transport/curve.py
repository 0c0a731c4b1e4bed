"""Keys for a driver that listens on a network, made for one run.

CURVE encrypts, but by itself lets everybody in; the list of keys that the group's authenticator asks for is what makes it a
door.
"""

from __future__ import annotations

from typing import NamedTuple

import zmq
from zmq.utils import z85


class Credentials(NamedTuple):
    """What one worker needs to be let in."""

    server: bytes  # the driver's public key
    public: bytes
    secret: bytes
    relay_public: bytes = b""  # what all workers of the run show each other
    relay_secret: bytes = b""

    def apply_to(self, socket: zmq.Socket[bytes]) -> None:
        """To be done before the socket connects."""
        socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = self[:3]


class Keys:
    """The keys that open one socket. A pass that was taken back opens nothing any more."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        """Asks for keys at a socket that is not bound yet."""
        self._public, secret = zmq.curve_keypair()
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self._public, secret
        self._relay = zmq.curve_keypair()
        self.admitted: set[bytes] = set()  # public keys, as they come to the authenticator

    def admit(self) -> Credentials:
        public, secret = zmq.curve_keypair()
        self.admitted.add(z85.decode(public))
        return Credentials(self._public, public, secret, *self._relay)

    def revoke(self, one: Credentials) -> None:
        self.admitted.discard(z85.decode(one.public))
