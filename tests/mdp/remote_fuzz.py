"""Hostile frames for a connection to a game. By hand: ``python tests/mdp/remote_fuzz.py 1_000_000 [seed]``."""

from __future__ import annotations

import random
import resource
import socket
import struct
import sys
import time
from collections import Counter
from typing import Any

import msgspec
import numpy as np

from evorl.mdp.remote.connection import Connection
from evorl.mdp.remote.link import Link
from evorl.mdp.remote.messages import Cut, Hello, Nonsense, read_hello
from evorl.mdp.remote.offer import Offer
from evorl.mdp.remote.websocket import WebSocket

PLACES, SIDES = 4, 2
HELLO: dict[str, Any] = {
    "type": "hello", "protocol": 1, "token": "t", "game": "fuzzed", "battles": PLACES, "sides": ["a", "b"],
    "inputs": [{"name": "view", "shape": [3], "features": [*"abc"]}, {"name": "m", "shape": [2, 2], "dtype": "uint8"}],
    "action": {"kind": "discrete", "n": [2, 3]}, "masked": True, "results": ["fitness"], "rewards": ["a", "b"],
}  # fmt: skip
WIDTHS = {"battle": 4, "side": 1, "cost": 4, "end": 1, "reward": 8, "legal": 5}
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**32, 2**63, 2**64 - 1, 1.5, float("nan"), float("inf"), "", "x" * 300, "\x1b[2J\n",
    b"", b"\0" * 64, [], [[]], [0] * 99, {}, {"type": "ask"}, {"a": {"b": []}},
]  # fmt: skip


class Attack:
    """A connection, its game as an attacker, and an owner that checks what comes through."""

    def __init__(self, seed: int) -> None:
        self.draw, self.outcomes = random.Random(seed), Counter[str]()
        self.sentences: set[str] = set()
        self.inbox: list[Any] = []
        self.lost: list[tuple[int, str, bool]] = []
        self.connect()

    def connect(self) -> None:
        ours, self.end = socket.socketpair()
        self.end.setblocking(False)
        link = Link(ours)
        link.trust()
        self.connection = Connection(link, Offer(msgspec.convert(HELLO, Hello, strict=False)), "the attacker")
        self.battle = [0] * PLACES
        for game in range(PLACES):
            self.begin(self.connection.take(self, game))

    def begin(self, place: int) -> None:
        slots = range(place * SIDES, (place + 1) * SIDES)
        self.connection.begin(place, 1, (0, 1), slots)
        self.battle[place] = int(self.connection._number[place])
        self.free = {(p, s) for p in range(PLACES) for s in range(SIDES) if self.connection._owed[p, s]}

    def close(self) -> None:
        self.connection.link.close()
        self.end.close()

    # -------------------------------------------------------------- frames

    def ask(self) -> dict[str, Any]:
        """A message that is right."""
        rows = self.draw.sample(sorted(self.free), self.draw.randint(1, len(self.free)))
        n = len(rows)
        end = bytes(self.draw.choice([0, 0, 0, 1, 2]) for _ in rows)
        view = np.array([self.draw.uniform(-1, 1) for _ in range(3 * n)], "<f4")
        return {
            "type": "ask", "heard": self.connection.said,
            "battle": np.array([self.battle[p] for p, _ in rows], "<u4").tobytes(),
            "side": bytes(s for _, s in rows), "cost": np.ones(n, "<u4").tobytes(), "end": end,
            "reward": np.zeros((n, 2), "<f4").tobytes(), "inputs": [view.tobytes(), bytes(4 * n)],
            "legal": bytes([1, 0, 0, 0, 1]) * n, "results": bytes(8 * sum(e > 0 for e in end)),
        }  # fmt: skip

    def frame(self) -> tuple[bytes, bool]:
        """The bytes of one frame, and whether it is right."""
        draw, message = self.draw, self.ask()
        match draw.randrange(8):
            case 0:
                return framed(msgspec.msgpack.encode(message)), True
            case 1:
                self.spoil_column(message)
            case 2:
                message[draw.choice([*message, "exec", "x" * 99])] = draw.choice(VALUES)
            case 3:
                del message[draw.choice([*message])]
            case 4:
                return self.spoiled_bytes(framed(msgspec.msgpack.encode(message))), False
            case 5:
                return framed(draw.randbytes(draw.choice([0, 1, 2, 5, 64, 300]))), False
            case 6:
                message = {"type": "failed", "battle": draw.choice([*self.battle, *VALUES]), "why": draw.choice(VALUES)}
            case 7:
                data = self.spoiled_bytes(msgspec.msgpack.encode(message))
                return framed(data), False
        try:
            return framed(msgspec.msgpack.encode(message)), False
        except (OverflowError, TypeError):
            return framed(b"\xc1"), False

    def spoil_column(self, message: dict[str, Any]) -> None:
        """Change the content of a column, or its length."""
        draw, name = self.draw, self.draw.choice([*WIDTHS, "results", "inputs"])
        data = bytearray(message["inputs"][0] if name == "inputs" else message[name])
        if data and draw.random() < 0.7:
            at = draw.randrange(len(data))
            data[at : at + 4] = draw.choice([b"\xff" * 4, b"\0\0\xc0\x7f", b"\0\0\x80\x7f", draw.randbytes(4)])[
                : len(data) - at
            ]
        else:
            data = data[: draw.randrange(len(data) + 1)] if draw.random() < 0.5 else data * 2 + b"\0"
        if name == "inputs":
            message["inputs"] = [bytes(data), message["inputs"][1]]
        else:
            message[name] = bytes(data)

    def spoiled_bytes(self, data: bytes) -> bytes:
        spoiled, draw = bytearray(data), self.draw
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(spoiled) or 1)
            match draw.randrange(4):
                case 0:
                    spoiled[at : at + 1] = draw.randbytes(1)
                case 1:
                    del spoiled[at : at + draw.randint(1, 9)]
                case 2:
                    spoiled[at:at] = draw.choice(
                        [b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\x7f", b"\x91" * 50, draw.randbytes(3)]
                    )
                case 3:
                    spoiled[at : at + 1] = bytes([spoiled[at] ^ (1 << draw.randrange(8))]) if spoiled else b""
        return bytes(spoiled)

    # -------------------------------------------------------------- attacking

    def step(self) -> None:
        """Send a frame, and check what comes of it."""
        if not self.free:
            self.answer()
        data, right = self.frame()
        self.end.sendall(data)
        try:
            self.connection.receive()
            self.outcomes["right" if right else "taken"] += 1
        except (Cut, Nonsense) as error:
            assert not right, error
            self.sentence(str(error))
            self.close()
            self.connect()
            return
        self.check(right)
        for game, why, gone in self.lost:
            assert not right and not gone
            self.sentence(why)
            self.begin(game)
        self.lost.clear()
        if self.connection.link._read:  # a piece of a frame: the next one would be its rest
            self.close()
            self.connect()
        self.answer()

    def check(self, right: bool) -> None:
        """Whatever comes through has the offered form."""
        assert not right or self.inbox
        for slots, rows in self.inbox:
            n = len(slots)
            assert n and len(set(slots.tolist())) == n and slots.min() >= 0 and slots.max() < PLACES * SIDES
            assert rows.inputs[0].shape == (n, 3) and rows.inputs[1].shape == (n, 2, 2)
            assert (
                np.isfinite(rows.inputs[0]).all() and np.isfinite(rows.reward).all() and np.isfinite(rows.results).all()
            )
            assert rows.legal.dtype == np.bool_ and set(rows.legal.view(np.uint8).ravel().tolist()) <= {0, 1}
            choice = rows.legal[:, :2].any(1) & rows.legal[:, 2:].any(1)
            assert (choice | (rows.end == 1)).all() and rows.end.max() <= 2
            for place in {slot // SIDES for slot in slots[rows.end > 0].tolist()}:
                self.begin(place)  # as a whole, so that its sides stay free
        self.inbox.clear()

    def answer(self) -> None:
        """Answer all sides; begin the battles anew whose frames said that they are over, as an arena does."""
        for place in range(PLACES):
            sides = np.flatnonzero(~self.connection._owed[place])
            if len(sides):
                self.connection.act(place * SIDES + sides, np.zeros((len(sides), 2), np.int64))
        self.free = {(p, s) for p in range(PLACES) for s in range(SIDES)}
        try:
            while len(self.end.recv(1 << 20)) == 1 << 20:
                pass
        except BlockingIOError:
            pass

    def sentence(self, why: str) -> None:
        assert why and why.isprintable() and len(why) < 5000, why
        self.outcomes["refused"] += 1
        if len(self.sentences) < 1000:
            self.sentences.add(why)


def framed(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def attack(frames: int, seed: int = 0) -> Counter[str]:
    """Send so many frames; return what became of them."""
    one = Attack(seed)
    for _ in range(frames):
        one.step()
    one.close()
    return one.outcomes


def attack_hello(messages: int, seed: int = 0) -> Counter[str]:
    """Read so many spoiled first messages."""
    draw, outcomes = random.Random(seed), Counter[str]()
    for _ in range(messages):
        hello: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(HELLO))
        for _ in range(draw.randint(0, 2)):
            node = (
                draw.choice([hello, hello["inputs"][0], hello["action"]])
                if isinstance(hello.get("inputs"), list)
                else hello
            )
            if isinstance(node, dict):
                node[draw.choice([*node, "more"])] = draw.choice(
                    [*VALUES, [1, 2], [2**24] * 8, ["a", "a"], ["reward", ""]]
                )
            if (
                not isinstance(hello.get("inputs"), list)
                or not hello["inputs"]
                or not isinstance(hello.get("action"), dict)
            ):
                break
        try:
            Offer(read_hello(msgspec.msgpack.encode(hello)))
            outcomes["right"] += 1
        except Nonsense as error:
            assert str(error).isprintable()
            outcomes["refused"] += 1
    return outcomes


def attack_websocket(messages: int, seed: int = 0) -> Counter[str]:
    """Feed so many spoiled pieces of WebSocket."""
    draw, outcomes = random.Random(seed), Counter[str]()
    opening = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Version: 13\r\n\r\n"
    )
    for _ in range(messages):
        framing, buffer = WebSocket(), bytearray(opening)
        try:
            assert framing.frames(buffer, 1000) == []
            for _ in range(draw.randint(1, 4)):
                kind, size = draw.choice([0, 1, 2, 2, 8, 9, 10, 15]), draw.choice([0, 1, 125, 126, 127, 900])
                length = struct.pack(">BH", 0xFE, size) if size > 125 else bytes([0x80 | size])
                piece = bytes([draw.choice([0x80, 0, 0xC0]) | kind]) + length + draw.randbytes(4 + size)
                if draw.random() < 0.3:
                    piece = piece[: draw.randrange(len(piece))] + draw.randbytes(3)
                buffer += piece
                for found in framing.frames(buffer, 1000):
                    assert len(found) <= 1000
            outcomes["right"] += 1
        except (Cut, Nonsense):
            outcomes["refused"] += 1
        assert len(buffer) <= 10_000 and len(framing.replies()) < 10_000
    return outcomes


def main() -> None:
    frames, seed = int(sys.argv[1].replace("_", "")), int(sys.argv[2] if len(sys.argv) > 2 else 0)
    attack(1000)
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind in (attack, attack_hello, attack_websocket):
        print(kind.__name__, dict(kind(frames, seed)), flush=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{3 * frames:,} messages in {time.perf_counter() - began:.0f} s; memory grew by {grown >> 10} MiB")


if __name__ == "__main__":
    main()
