"""The socket of a group's driver, with authentication of its workers."""

from __future__ import annotations

import os
from threading import Thread
from typing import Any

import zmq

from evorl.cluster.transport.authentication import Authenticator, require_authentication
from evorl.cluster.workers.launcher import Launcher

MAX_MESSAGES_PER_CALL = 1000  # messages read before the driver does anything else


class DriverSocket:
    """Exchanges messages with a launcher's workers, and waits for messages and for exits of workers."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher, self._watch_fd = launcher, launcher.watch
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._poller = zmq.Poller()
        self.authenticator: Authenticator | None = None
        self._stop = -1
        self._thread: Thread | None = None
        self._error: BaseException | None = None  # that has ended the thread

    def open(self, token: bytes, peers: int) -> None:
        """Open the socket to ``peers`` that have the token, or one of the launcher's keys.

        A thread decides on them, so that none waits for the driver, or piles up while it computes.
        """
        self._socket.linger = 0
        self._socket.sndhwm = 0  # no limit: bounded by the calls in flight
        self._socket.rcvhwm = MAX_MESSAGES_PER_CALL  # of each worker; more wait in the worker
        self._socket.router_mandatory = True
        require_authentication(self._socket)
        keys = self._launcher.bind(self._socket)
        self.authenticator = Authenticator(self._context, self._socket, token, keys, peers)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = Thread(target=self._authenticate, name="evorl authenticator", daemon=True)
        self._thread.start()
        self._poller.register(self._socket, zmq.POLLIN)
        if self._watch_fd is not None:
            self._poller.register(self._watch_fd, zmq.POLLIN)

    def _authenticate(self) -> None:
        assert self.authenticator is not None
        try:
            self.authenticator.serve(self._stop)
        except BaseException as error:
            self._error = error

    @property
    def refused(self) -> int:
        """Return the number of refused connections."""
        return 0 if self.authenticator is None else self.authenticator.refused

    def wait(self, timeout_s: float) -> tuple[bool, bool]:
        """Wait; return whether there is a message, and whether the launcher may have exits."""
        ready = dict(self._poller.poll(round(timeout_s * 1000)))
        if self._error is not None:
            raise self._error
        return self._socket in ready, self._watch_fd is None or self._watch_fd in ready

    def receive(self) -> list[bytes] | None:
        """Return the sender and frames of the next message, or None."""
        try:
            return self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def send(self, name: bytes, frames: list[Any]) -> bool:
        """Send to a worker; return False if no worker of this name is connected."""
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
        if self._thread is not None:
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            os.close(self._stop)
        if self.authenticator is not None:
            self.authenticator.close()
        self._socket.close()
        self._context.term()
