"""CURVE keys for a driver that listens on a network, made for one run.

CURVE encrypts but accepts any client key by itself; the `Authenticator` accepts only the keys listed here.
"""

from __future__ import annotations

from typing import NamedTuple

import zmq
from zmq.utils import z85


class Credentials(NamedTuple):
    """Keys with which one worker connects to the driver and to other workers."""

    server: bytes  # the driver's public key
    public: bytes
    secret: bytes
    relay_public: bytes = b""  # key pair that all workers of the run use between each other
    relay_secret: bytes = b""

    def apply_to(self, socket: zmq.Socket[bytes]) -> None:
        """Set the keys of a socket that is not connected yet."""
        socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = self[:3]


class Keys:
    """The keys that one socket accepts. Revoked credentials are refused."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        """Require keys on a socket that is not bound yet."""
        self._public, secret = zmq.curve_keypair()
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self._public, secret
        self._relay = zmq.curve_keypair()
        self.admitted: set[bytes] = set()  # public keys, in the binary form of ZAP requests

    def admit(self) -> Credentials:
        public, secret = zmq.curve_keypair()
        self.admitted.add(z85.decode(public))
        return Credentials(self._public, public, secret, *self._relay)

    def revoke(self, credentials: Credentials) -> None:
        self.admitted.discard(z85.decode(credentials.public))
