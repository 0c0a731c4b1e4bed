"""Who may speak to a driver that listens on a network: holders of a key made for this very run.

CURVE encrypts, but by itself lets everybody in; the list of keys is what makes it a door.
"""

from __future__ import annotations

from typing import NamedTuple

import zmq


class Pass(NamedTuple):
    """What one worker needs to be let in."""

    server: bytes  # the driver's public key
    public: bytes
    secret: bytes

    def show(self, socket: zmq.Socket[bytes]) -> None:
        """To be done before the socket connects."""
        socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = self


class Guard:
    """Lets in who has a pass of this run, and nobody else. A pass that was taken back opens nothing any more."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        from zmq.auth.thread import ThreadAuthenticator

        self.refused = 0
        self._public, secret = zmq.curve_keypair()
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self._public, secret
        self._admitted: set[bytes] = set()
        self._zap = ThreadAuthenticator(socket.context)
        self._zap.start()
        self._zap.configure_curve_callback("*", self)

    def admit(self) -> Pass:
        public, secret = zmq.curve_keypair()
        self._admitted.add(public)
        return Pass(self._public, public, secret)

    def dismiss(self, one: Pass) -> None:
        self._admitted.discard(one.public)

    def callback(self, domain: str, key: bytes) -> bool:
        """What the authenticator's thread asks of each that wants in."""
        known = key in self._admitted
        self.refused += not known
        return known

    def close(self) -> None:
        self._zap.stop()
