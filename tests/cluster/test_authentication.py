"""Authentication accepts peers with the token and counts every other peer once, with or without ZeroMQ."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from evorl.cluster.transport.authentication import Authenticator, present_token, require_authentication

TOKEN = bytes(range(16))
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00"  # ZMTP 3.0, up to the name of the mechanism
SILENT = {
    "nothing": b"",
    "half a greeting": GREETING[:5],
    "a greeting": GREETING + b"PLAIN".ljust(20, b"\0") + bytes(32),
}
NO_ZEROMQ = {
    "noise": bytes(range(7, 200)),
    "a browser": b"GET / HTTP/1.1\r\n\r\n",
    "ZMTP 1.0": b"\x01\x00\x06\x00hello",
    "no security": GREETING + b"NULL".ljust(20, b"\0") + bytes(32),
    "no command of the handshake": GREETING + b"PLAIN".ljust(20, b"\0") + bytes(32) + b"\x04\x06\x05WORLD",
    "a frame before the handshake": GREETING + b"PLAIN".ljust(20, b"\0") + bytes(32) + b"\x02" + b"\xff" * 8,
}


class Place:
    """A socket with authentication."""

    def __init__(self, path: Path) -> None:
        self.path, self.context, self._heard = str(path), zmq.Context(), 0
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        require_authentication(self.socket)
        self.socket.bind(f"ipc://{path}")
        self.authenticator = Authenticator(self.context, self.socket, TOKEN, None)

    def until(self, done: Callable[[], bool]) -> None:
        ends = time.monotonic() + 30
        while not done():
            assert time.monotonic() < ends
            zmq.select([*self.authenticator.sockets, self.socket], [], [], 0.01)
            self.authenticator.process()

    def plain(self, said: bytes) -> socket.socket:
        """Return a raw connection after sending ``said``."""
        made = socket.socket(socket.AF_UNIX)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 10, 0))  # seconds until accepted
        made.connect(self.path)
        made.sendall(said)
        return made

    def dealer(self, token: bytes) -> zmq.Socket[bytes]:
        made = self.context.socket(zmq.DEALER)
        made.linger, made.reconnect_ivl = 0, -1
        present_token(made, token)
        made.connect(f"ipc://{self.path}")
        made.send(b"hello")
        return made

    def has_message(self) -> bool:
        return bool(self.socket.poll(0))

    def heard(self) -> int:
        """Return the number of messages so far, all of accepted peers."""
        while self.has_message():
            assert self.socket.recv_multipart()[1:] == [b"hello"]
            self._heard += 1
        return self._heard

    def accepts_a_worker(self) -> None:
        """Connect a peer with the token until its message arrives; late messages of former peers may arrive as well."""
        wanted = self.heard() + 1
        with self.dealer(TOKEN):
            self.until(lambda: self.heard() >= wanted)

    def close(self) -> None:
        self.authenticator.close()
        self.context.destroy(linger=0)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "authenticator")
    yield made
    made.close()


@pytest.mark.parametrize("said", NO_ZEROMQ.values(), ids=NO_ZEROMQ)
def test_an_invalid_handshake_is_counted_once(place: Place, said: bytes) -> None:
    place.plain(said).close()
    place.until(lambda: place.authenticator.refused > 0)
    place.accepts_a_worker()
    assert place.authenticator.refused == 1


def test_a_wrong_token_is_counted_once_and_the_right_one_never(place: Place) -> None:
    with place.dealer(bytes(16)), place.dealer(TOKEN):
        place.until(lambda: place.authenticator.refused > 0 and place.has_message())
    place.until(place.has_message)
    assert place.authenticator.refused == 1
    assert len(place.socket.recv_multipart()) == 2
    assert not place.has_message(), "messages of the refused peer are never read"


@pytest.mark.parametrize("said", SILENT.values(), ids=SILENT)
def test_a_peer_that_disconnects_during_the_handshake_is_not_counted(place: Place, said: bytes) -> None:
    """It may be a killed worker. Other peers are counted correctly, in any order of connects and disconnects."""
    before, workers = [place.plain(said) for _ in range(3)], [place.dealer(TOKEN)]
    place.until(place.has_message)
    after = [place.plain(said) for _ in range(3)]
    place.accepts_a_worker()
    for one in (*before[:2], *after[:2]):
        one.close()
    place.plain(NO_ZEROMQ["noise"]).close()
    workers.append(place.dealer(TOKEN))
    place.until(lambda: place.heard() == 3)
    for one in (*before, *after, *workers):
        one.close()
    place.accepts_a_worker()
    place.until(lambda: place.authenticator.refused > 0)
    assert place.authenticator.refused == 1


def test_a_worker_that_ends_is_not_confused_with_a_silent_peer(place: Place) -> None:
    silent = [place.plain(b"") for _ in range(3)]
    for _ in range(4):
        place.accepts_a_worker()
    assert place.authenticator.refused == 0
    for one in silent:
        one.close()
    place.plain(NO_ZEROMQ["noise"]).close()
    place.until(lambda: place.authenticator.refused > 0)
    place.accepts_a_worker()
    assert place.authenticator.refused == 1


def test_a_refused_peer_that_continues_to_send_is_counted_once(place: Place) -> None:
    command = b"\x05HELLO\x06worker\x04nope"
    stranger = place.plain(SILENT["a greeting"] + b"\x04" + bytes([len(command)]) + command)
    place.until(lambda: place.authenticator.refused > 0)
    with suppress(OSError):
        stranger.sendall(b"\x04" + bytes([len(command)]) + command)
    stranger.close()
    place.accepts_a_worker()
    place.plain(NO_ZEROMQ["noise"]).close()
    place.until(lambda: place.authenticator.refused > 1)
    place.accepts_a_worker()
    assert place.authenticator.refused == 2


def test_a_worker_killed_before_the_reply_is_not_counted(place: Place) -> None:
    for wait in (0.0, 0.001, 0.01, 0.1):
        dealer = place.dealer(TOKEN)
        time.sleep(wait)
        dealer.close()
    place.accepts_a_worker()
    assert place.authenticator.refused == 0


def test_a_flood_of_connections_does_not_block(place: Place) -> None:
    """ZeroMQ emits events for every connection, and blocks at the queue limit: 1,000 by default."""
    count = 2000
    for _ in range(count):
        place.plain(b"no").close()
    place.until(lambda: place.authenticator.refused == count)
    place.accepts_a_worker()
    assert place.authenticator.refused == count
