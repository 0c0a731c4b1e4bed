"""Authentication accepts peers with the token and counts every other peer once, with or without ZeroMQ."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from evorl.cluster.transport import authentication
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


class Server:
    """A socket with authentication."""

    def __init__(self, path: Path) -> None:
        self.path, self.context, self._received = str(path), zmq.Context(), 0
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

    def plain(self, content: bytes) -> socket.socket:
        """Return a raw connection after sending ``content``."""
        made = socket.socket(socket.AF_UNIX)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 10, 0))  # seconds until accepted
        made.connect(self.path)
        made.sendall(content)
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

    def received(self) -> int:
        """Return the number of messages so far, all of accepted peers."""
        while self.has_message():
            assert self.socket.recv_multipart()[1:] == [b"hello"]
            self._received += 1
        return self._received

    def accepts_a_worker(self) -> None:
        """Connect a peer with the token until its message arrives; late messages of former peers may arrive as well."""
        wanted = self.received() + 1
        with self.dealer(TOKEN):
            self.until(lambda: self.received() >= wanted)

    def close(self) -> None:
        self.authenticator.close()
        self.context.destroy(linger=0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "authenticator")
    yield made
    made.close()


@pytest.mark.parametrize("content", NO_ZEROMQ.values(), ids=NO_ZEROMQ)
def test_an_invalid_handshake_is_counted_once(server: Server, content: bytes) -> None:
    server.plain(content).close()
    server.until(lambda: server.authenticator.refused > 0)
    server.accepts_a_worker()
    assert server.authenticator.refused == 1


def test_a_wrong_token_is_counted_once_and_the_right_one_never(server: Server) -> None:
    with server.dealer(bytes(16)), server.dealer(TOKEN):
        server.until(lambda: server.authenticator.refused > 0 and server.has_message())
    server.until(server.has_message)
    assert server.authenticator.refused == 1
    assert len(server.socket.recv_multipart()) == 2
    assert not server.has_message(), "messages of the refused peer are never read"


@pytest.mark.parametrize("content", SILENT.values(), ids=SILENT)
def test_a_peer_that_disconnects_during_the_handshake_is_not_counted(server: Server, content: bytes) -> None:
    """It may be a killed worker. Other peers are counted correctly, in any order of connects and disconnects."""
    before, workers = [server.plain(content) for _ in range(3)], [server.dealer(TOKEN)]
    server.until(server.has_message)
    after = [server.plain(content) for _ in range(3)]
    server.accepts_a_worker()
    for one in (*before[:2], *after[:2]):
        one.close()
    server.plain(NO_ZEROMQ["noise"]).close()
    workers.append(server.dealer(TOKEN))
    server.until(lambda: server.received() == 3)
    for one in (*before, *after, *workers):
        one.close()
    server.accepts_a_worker()
    server.until(lambda: server.authenticator.refused > 0)
    assert server.authenticator.refused == 1


def test_a_worker_that_ends_is_not_confused_with_a_silent_peer(server: Server) -> None:
    silent = [server.plain(b"") for _ in range(3)]
    for _ in range(4):
        server.accepts_a_worker()
    assert server.authenticator.refused == 0
    for one in silent:
        one.close()
    server.plain(NO_ZEROMQ["noise"]).close()
    server.until(lambda: server.authenticator.refused > 0)
    server.accepts_a_worker()
    assert server.authenticator.refused == 1


def test_a_refused_peer_that_continues_to_send_is_counted_once(server: Server) -> None:
    command = b"\x05HELLO\x06worker\x04nope"
    stranger = server.plain(SILENT["a greeting"] + b"\x04" + bytes([len(command)]) + command)
    server.until(lambda: server.authenticator.refused > 0)
    with suppress(OSError):
        stranger.sendall(b"\x04" + bytes([len(command)]) + command)
    stranger.close()
    server.accepts_a_worker()
    server.plain(NO_ZEROMQ["noise"]).close()
    server.until(lambda: server.authenticator.refused > 1)
    server.accepts_a_worker()
    assert server.authenticator.refused == 2


def test_a_worker_killed_before_the_reply_is_not_counted(server: Server) -> None:
    for wait in (0.0, 0.001, 0.01, 0.1):
        dealer = server.dealer(TOKEN)
        time.sleep(wait)
        dealer.close()
    server.accepts_a_worker()
    assert server.authenticator.refused == 0


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("start", ["a greeting", "a command", "an announced command"])
def test_peers_without_a_token_cost_little_memory(server: Server, start: str) -> None:
    """Each sends 20 MB, in one frame: before the handshake, or as its first command."""
    flag = {"a greeting": b"\x02", "a command": b"\x06", "an announced command": b"\x06"}[start]
    before, peak, peers = resident(), 0, []
    for _ in range(5):
        peers.append(server.plain(SILENT["a greeting"] + flag + (20 << 20).to_bytes(8)))
        if start == "an announced command":
            continue
        peers[-1].setblocking(False)
        for _ in range(20):
            with suppress(OSError):  # it is disconnected, or its connection is full
                peers[-1].send(bytes(1 << 20))
            server.authenticator.process()
            peak = max(peak, resident())
    for one in peers:
        one.close()
    server.accepts_a_worker()
    assert max(peak, resident()) - before < 10 << 20


def test_a_peer_that_says_nothing_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "HANDSHAKE_S", 0.05)
    server = Server(tmp_path / "authenticator")
    try:
        for content in SILENT.values():
            with server.plain(content) as silent:
                silent.settimeout(30)
                while silent.recv(4096):  # ends with the connection
                    pass
    finally:
        server.close()


def test_connections_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of peers that are not known yet are closed, the oldest first; the one of a worker stays."""
    monkeypatch.setattr(server.authenticator, "_most", 10)
    dealer = server.dealer(TOKEN)
    server.until(lambda: server.received() == 1)
    held = [server.plain(b"") for _ in range(30)]
    server.until(lambda: server.authenticator.refused == 21)
    for one in held:
        one.setblocking(False)
    ended = 0
    for one in held:
        with suppress(BlockingIOError):
            ended += one.recv(100) == b""
    assert ended <= 21
    dealer.send(b"hello")
    server.until(lambda: server.received() == 2)
    for one in held:
        one.close()
    dealer.close()
    server.accepts_a_worker()
    server.until(lambda: not server.authenticator._open)
    assert server.authenticator.refused == 21


def test_a_flood_of_connections_does_not_block(server: Server) -> None:
    """ZeroMQ emits events for every connection, and blocks at the queue limit: 1,000 by default."""
    count = 2000
    for _ in range(count):
        server.plain(b"no").close()
    server.until(lambda: server.authenticator.refused == count)
    server.accepts_a_worker()
    assert server.authenticator.refused == count
