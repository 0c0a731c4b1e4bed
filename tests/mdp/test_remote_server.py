"""The server of games by itself: its waits, WebSockets that close, and rows that cost a battle."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import AF_UNIX, socket, socketpair
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from remote_games import Records, opened

from evorl.cluster.core import Stopped
from evorl.mdp.remote.connection import MAX_WHY, Connection
from evorl.mdp.remote.link import LENGTH, Link
from evorl.mdp.remote.messages import Cut, Unplayable
from evorl.mdp.remote.process import CLIENTS
from evorl.mdp.remote.server import GameServer, Settings
from evorl.mdp.remote.websocket import BINARY, CLOSE
from evorl.util.heartbeat import send_heartbeat

HELLO: dict[str, Any] = {
    "type": "hello", "protocol": 1, "token": "secret", "game": "it", "action": {"kind": "discrete", "n": [2]},
    "inputs": [{"name": "view", "shape": [1]}],
}  # fmt: skip
UPGRADE = b"GET / HTTP/1.1\r\nSec-WebSocket-Key: " + b"x" * 22 + b"==\r\n\r\n"
CLOSING = b"\x88\x82\0\0\0\0\x03\xe8"
"""A close frame of a browser, with the code 1000."""
ANSWER = b"\x88\x02\x03\xe8"


class Owner:
    """An arena of one game, whose battle is begun as soon as it has a place."""

    def __init__(self, server: GameServer) -> None:
        self.inbox: list[Any] = []
        self.lost: list[tuple[int, str, bool]] = []
        server.request(self, 0, lambda connection, place: self.begin(connection, place))

    def begin(self, connection: Connection, place: int) -> None:
        connection.begin(place, 1, (0,), range(1))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GameServer]:
    monkeypatch.setenv("EVORL_TOKEN", "secret")
    with closing(GameServer(Settings(None, 1, f"unix:{tmp_path}/game", 0.4))) as made:
        yield made


def visitor(server: GameServer) -> socket:
    line = socket(AF_UNIX)
    line.settimeout(5)
    line.connect(server.address.path)
    return line


def frame(message: dict[str, Any]) -> bytes:
    """As a browser sends it: with a mask, which is 0 here."""
    data = msgspec.msgpack.encode(message)
    return bytes([0x80 | BINARY, 0x80 | 126]) + len(data).to_bytes(2, "big") + b"\0\0\0\0" + data


def test_what_a_websocket_says_before_it_closes_counts() -> None:
    """The socket itself may stay open, and then has nothing to tell any more."""
    ours, theirs = socketpair()
    with ours, theirs:
        link, message = Link(ours), {"type": "hello"}
        theirs.sendall(UPGRADE + frame(message) + CLOSING + b"and more")
        assert [msgspec.msgpack.decode(found) for found in link.receive()] == [message]
        assert theirs.recv(4096).endswith(b"\r\n\r\n" + ANSWER)
        link.send(b"x")
        for call in (link.receive, link.check_open):
            with pytest.raises(Cut, match="closed the connection"):
                call()
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)


def test_a_websocket_that_only_closes_is_answered_at_once() -> None:
    ours, theirs = socketpair()
    with ours, theirs:
        link = Link(ours)
        theirs.sendall(UPGRADE + CLOSING)
        with pytest.raises(Cut, match="closed the connection"):
            link.receive()
        assert theirs.recv(4096)[-4] == 0x80 | CLOSE


def test_a_connection_by_websocket_is_given_up_when_it_closes(server: GameServer) -> None:
    owner = Owner(server)
    with visitor(server) as line:
        line.sendall(UPGRADE + frame(HELLO))
        while not server._connections:
            server.poll(1)
        server.poll(0)
        line.sendall(frame({"type": "failed", "battle": 0, "why": "tired"}) + CLOSING)
        while not owner.lost:
            server.poll(1)
        assert [(why.partition(" ")[2], gone) for _, why, gone in owner.lost] == [
            ("1 gave up: tired", False), ("1 closed the connection", True)
        ]  # fmt: skip
        assert line.recv(4096).endswith(ANSWER) and not server._connections
    with visitor(server) as line:  # a hello is heard, too
        line.sendall(UPGRADE + frame(HELLO) + CLOSING)
        while not server._selector.select(1):
            pass
        server.poll(1)
        assert server._offer is not None and not server._connections and not server._strangers


def waits(server: GameServer, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        server.poll(0.05)


def test_each_wait_for_a_game_is_as_long(server: GameServer) -> None:
    with visitor(server) as line:  # a game of one battle, which is taken
        data = msgspec.msgpack.encode(HELLO)
        line.sendall(LENGTH.pack(len(data)) + data)
        Owner(server)
        waits(server, 0.1)
        for _ in range(2):
            second = Owner(server)
            waits(server, 0.3)
            server.withdraw(second)
        for _ in range(2):
            began = time.monotonic()
            second = Owner(server)
            with pytest.raises(Unplayable, match="1 battles wait, and the 1 connected games play 1"):
                waits(server, 2.0)
            assert time.monotonic() - began > 0.3
            server.withdraw(second)


def test_the_wait_for_the_first_game_ends_with_the_run(server: GameServer) -> None:
    def stop() -> None:
        raise Stopped

    token = send_heartbeat.set(stop)
    try:
        with pytest.raises(Stopped):
            server.offer  # noqa: B018
    finally:
        send_heartbeat.reset(token)


def test_of_a_long_reason_the_beginning_is_shown(server: GameServer) -> None:
    """It costs the battle alone, however long it is."""
    owner = Owner(server)
    with visitor(server) as line:
        for message in (HELLO, {"type": "failed", "battle": 0, "why": "tired\n" * 20_000}):
            data = msgspec.msgpack.encode(message)
            line.sendall(LENGTH.pack(len(data)) + data)
            while not server._connections:
                server.poll(1)
        while not owner.lost:
            server.poll(1)
        [(_, why, gone)] = owner.lost
        assert why.endswith("gave up: " + "tired\\n" * (MAX_WHY // 6) + "ti") and not gone


class Full:
    """Of a listening socket: no file is left for who has come."""

    def __init__(self, listens: socket) -> None:
        self.fileno, self.close, self.tries = listens.fileno, listens.close, 0

    def accept(self) -> None:
        self.tries += 1
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_server_without_a_file_left_rests_before_it_tries_again(
    server: GameServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It spun, since the selector says all the time that a connection waits."""
    monkeypatch.setattr("evorl.mdp.remote.server.FULL_S", 0.1)
    listens, full = server._socket, Full(server._socket)
    cast(Any, server)._socket = full
    with visitor(server):
        ends = time.monotonic() + 0.5
        while time.monotonic() < ends or full.tries < 2:
            server.poll(0.1)
        assert full.tries <= 6
        server._socket = listens
        while not server._strangers:
            server.poll(1)
        assert not server._refusal, "what comes later has other causes"
    assert caplog.messages == [f"a connection to {server.address.text} cannot be taken now: Too many open files"]


FREE = """
import sys
sys.path.insert(0, sys.argv[1])
import evorl_client

class Free:
    def __init__(self, battle):
        self.ask = battle.ask
        for side in (0, 1):
            self.ask(side, [[0.0]])

    def act(self, side, _):
        self.ask(side, [[1.0]], cost=0)

evorl_client.Client({"game": "free", "sides": ["one", "two"], "inputs": [{"name": "view", "shape": [1]}],
                     "action": {"kind": "discrete", "n": [2]}}, Free).run()
"""


def test_a_battle_with_two_bad_rows_is_lost_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both sides sent a row without a cost in one message."""
    monkeypatch.setattr("evorl.mdp.remote.battles.PAUSES_S", (0.0, 0.0))
    (tmp_path / "free.py").write_text(FREE, "utf-8")
    with (
        opened(2, f"{sys.executable} {tmp_path}/free.py {{clients}}/python") as arena,
        pytest.raises(Unplayable, match=r"was lost 3 times; at last game \d+ .* sent a first row with"),
    ):
        while True:
            slots = arena.recv().slots
            if len(slots) == 2:
                arena.send(np.array([0, 1]), np.zeros((2, 1), np.int32))
    assert [message.partition(": ")[2] for message in caplog.messages] == ["1 of 1 battles begin anew"] * 2


def test_games_that_end_before_they_have_played_are_not_started_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one of several starts, no battle gets a place, so none is lost."""
    monkeypatch.setattr("evorl.mdp.remote.server.PAUSES_S", (0.0,) * 5)
    hello = f"import sys, time; sys.path.insert(0, '{CLIENTS / 'python'}'); import evorl_client, tag"
    hello += "; client = evorl_client.Client(tag.OFFER, tag.Tag); time.sleep(0.2); sys.exit('it rains')"
    with (
        opened(4, f'{sys.executable} -c "{hello}"', processes=3) as arena,
        pytest.raises(Unplayable, match=r"has connected, but not played: it ended .* it rains"),
    ):
        arena.recv()


def test_more_processes_than_may_run_are_refused_before_they_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.remote.server.MAX_PROCESSES", 2)
    one = f"import sys; sys.path.insert(0, '{CLIENTS / 'python'}'); import evorl_client, tag"
    one += "; evorl_client.Client(dict(tag.OFFER, battles=1), tag.Tag).run()"
    with opened(6, f'{sys.executable} -c "{one}"') as arena:
        few = "2 processes, which play 1 battles each, are not enough"
        with pytest.raises(Unplayable, match=few):
            Records(arena).play(1)
        assert arena._battles._server._started == 1  # type: ignore[attr-defined]
