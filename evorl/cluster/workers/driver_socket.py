"""The socket of a group's driver: who is let in, what goes out and what has come."""

from __future__ import annotations

from typing import Any

import zmq

from evorl.cluster.transport.authentication import Authenticator, require_authentication
from evorl.cluster.transport.wire import MAX_FRAME
from evorl.cluster.workers.launcher import Launcher

MAX_MESSAGES_PER_CALL = 1000  # messages read before the driver looks at anything else


class DriverSocket:
    """Speaks to the workers of a launcher, and listens to it for news of them."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher, self._watch_fd = launcher, launcher.watch
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._poller = zmq.Poller()
        self.authenticator: Authenticator | None = None

    def open(self, token: bytes) -> None:
        """Let those in who know the token, or have one of the launcher's keys."""
        self._socket.linger = 0
        self._socket.sndhwm = 0  # bounded by the calls under way
        self._socket.rcvhwm = MAX_MESSAGES_PER_CALL  # of each worker; more wait on its side
        self._socket.maxmsgsize = MAX_FRAME
        self._socket.router_mandatory = True
        require_authentication(self._socket)
        keys = self._launcher.bind(self._socket)
        self.authenticator = Authenticator(self._context, self._socket, token, keys)
        for socket in (self._socket, *self.authenticator.sockets):
            self._poller.register(socket, zmq.POLLIN)
        if self._watch_fd is not None:
            self._poller.register(self._watch_fd, zmq.POLLIN)

    @property
    def refused(self) -> int:
        """Connections of others than our workers."""
        return 0 if self.authenticator is None else self.authenticator.refused

    def wait(self, timeout_s: float) -> tuple[bool, bool]:
        """Until there is a message, or the launcher may have something to tell: which of both."""
        ready = dict(self._poller.poll(round(timeout_s * 1000)))
        if self.authenticator is not None and any(socket in ready for socket in self.authenticator.sockets):
            self.authenticator.process()
        return self._socket in ready, self._watch_fd is None or self._watch_fd in ready

    def receive(self) -> list[bytes] | None:
        """A message's sender and frames; None where there is none."""
        try:
            return self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def send(self, name: bytes, frames: list[Any]) -> bool:
        """False where nobody of that name is connected."""
        try:
            self._socket.send_multipart([name, *frames])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    @property
    def closed(self) -> bool:
        return bool(self._socket.closed)

    def close(self) -> None:
        if self.authenticator is not None:
            self.authenticator.close()
        self._socket.close()
        self._context.term()
