"""The client in Python, where a game's own code fails: evorl gets whole rows, and the game each message once."""

from __future__ import annotations

import socket
import struct
import sys
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from evorl.mdp.remote.process import CLIENTS

sys.path.insert(0, str(CLIENTS / "python"))
import evorl_client

OFFER = {
    "game": "hall", "sides": ["one"], "inputs": [{"name": "view", "shape": [2]}], "masked": True,
    "action": {"kind": "discrete", "n": [2]}, "rewards": ["near", "won"], "results": ["won"],
}  # fmt: skip


class Hall:
    """A battle that fails whenever it has to act."""

    def __init__(self, battle: Any) -> None:
        self.battle = battle
        battle.ask(0, [[0.0, 1.0]], legal=[1, 1])

    def act(self, side: int, action: int) -> None:
        raise ZeroDivisionError


@contextmanager
def connected() -> Iterator[tuple[Any, socket.socket]]:
    """A client that has said hello, and evorl's end of the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = evorl_client.Client(OFFER, Hall, f"127.0.0.1:{server.getsockname()[1]}", "")
        with closing(client._socket), server.accept()[0] as own:
            assert heard(own)["type"] == "hello"
            yield client, own


def say(own: socket.socket, *messages: dict[str, Any]) -> None:
    packed = [evorl_client.pack(message) for message in messages]
    own.sendall(b"".join(struct.pack("<I", len(data)) + data for data in packed))


def heard(own: socket.socket) -> Any:
    own.settimeout(5)
    (size,) = struct.unpack("<I", own.recv(4, socket.MSG_WAITALL))
    return evorl_client.unpack(own.recv(size, socket.MSG_WAITALL))


BEGIN = {"type": "begin", "battle": 7, "seed": 1, "players": [0]}
ACT = {"type": "act", "battle": struct.pack("<I", 7), "side": b"\0", "action": struct.pack("<i", 1)}


def test_an_error_in_the_game_plays_no_message_again() -> None:
    with connected() as (client, own):
        say(own, BEGIN, ACT, {**BEGIN, "battle": 8})
        with pytest.raises(ZeroDivisionError):
            client.poll(1)
        client.poll(0)
        assert heard(own)["heard"] == 2
        say(own, {"type": "leave", "battle": 7})
        client.poll(1)
        last = heard(own)
        assert last["heard"] == 4 and last["battle"] == struct.pack("<I", 8) and [*client._battles] == [8]


@pytest.mark.parametrize(
    ("row", "error", "why"),
    [
        ({"inputs": [[0.0]], "legal": [1, 1]}, ValueError, "'view' has 2 numbers, and a row had 1"),
        ({"inputs": [], "legal": [1, 1]}, ValueError, "a row has 1 inputs"),
        ({"inputs": [[0.0, "a"]], "legal": [1, 1]}, TypeError, "'view' takes a flat list"),
        ({"inputs": [[0.0, 0.0]], "legal": [1, 1], "reward": [1.0]}, ValueError, "a row has 2 rewards, and got 1"),
        ({"inputs": [[0.0, 0.0]], "legal": [1, 1], "reward": [1.0, 2.0, 3.0]}, ValueError, "2 rewards, and got 3"),
        ({"inputs": [[0.0, 0.0]], "legal": None}, ValueError, "a row has 2 legal or illegal choices, and got None"),
        ({"inputs": [[0.0, 0.0]], "legal": [1]}, ValueError, r"2 legal or illegal choices, and got \[1\]"),
        ({"inputs": [[0.0, 0.0]], "legal": [1, 1], "end": True}, ValueError, "without its result 'won'"),
    ],
    ids=str,
)
def test_a_refused_row_leaves_nothing_in_the_message(row: dict[str, Any], error: type[Exception], why: str) -> None:
    with connected() as (client, own):
        say(own, BEGIN, {**BEGIN, "battle": 8})
        client.poll(1)
        heard(own)
        battle, ends = client._battles[7], row.get("end")
        with pytest.raises(error, match=why):
            (battle.end if ends else battle.ask)(0, **{key: value for key, value in row.items() if key != "end"})
        battle.fail(why)
        assert heard(own) == {"type": "failed", "battle": 7, "why": why}
        client._battles[8].end(0, [[2.0, 3.0]], legal=[0, 1], reward=[0.5, 1.0], results={"won": 1})
        client.poll(0)
        message = heard(own)
        assert message["battle"] == struct.pack("<I", 8) and message["inputs"] == [struct.pack("<2f", 2, 3)]
        assert message["reward"] == struct.pack("<2f", 0.5, 1) and message["legal"] == b"\0\1"
        assert message["results"] == struct.pack("<d", 1) and message["cost"] == struct.pack("<I", 1)


def test_rewards_that_a_row_leaves_out_are_zeros() -> None:
    with connected() as (client, own):
        say(own, BEGIN)
        client.poll(1)
        assert array("f", heard(own)["reward"]).tolist() == [0.0, 0.0]


def test_a_client_that_is_closed_leaves_at_once() -> None:
    """Also while something refers to it, as in an editor."""
    with connected() as (client, own):
        client.close()
        own.settimeout(10)
        assert own.recv(1) == b""
