"""Connect a game in Python to evorl. One file without dependencies: copy it beside the game.

A game offers what its sides see and do, and plays battles that evorl begins:

    class Battle:
        def __init__(self, battle): ...            # battle.seed, battle.players: the sides that evorl decides for
        def act(self, side, action): ...           # evorl's answer to battle.ask: a number, or a list of several
        def leave(self): ...                       # optional: the battle is not needed any more

    evorl_client.Client(OFFER, Battle).run()

In ``__init__`` a battle calls ``battle.ask(side, inputs, ...)`` for each side, also in a game of turns. Later it does
so for a side that must decide, and calls ``battle.end(side, ...)`` once for each side when its episode is over, whether
it waits for an answer or not. The protocol is that of docs/remote.md.
"""

from __future__ import annotations

import os
import re
import select
import socket
import struct
from array import array
from functools import lru_cache
from math import prod

PROTOCOL = 1
GOES_ON, TERMINATED, TRUNCATED = 0, 1, 2


class Closed(ConnectionError):
    """evorl has closed the connection; the message says why if evorl did."""


class Client:
    """Plays battles for evorl. ``offer``: the fields of a hello; ``begin``: makes a battle of a `Battle`."""

    def __init__(self, offer, begin, address=None, token=None):
        self.offer, self._begin, self._battles = offer, begin, {}
        rewards, results = offer.get("rewards", ["reward"]), offer.get("results", [])
        self._no_reward, self._results = [0.0] * len(rewards), list(results)
        self._codes = ["f" if each.get("dtype", "float32") == "float32" else "B" for each in offer["inputs"]]
        self._names = [each.get("name", str(k)) for k, each in enumerate(offer["inputs"])]
        self._sizes = [prod(each["shape"]) for each in offer["inputs"]]
        self._masked = offer.get("masked", False)
        self._discrete, self._width = _form(offer["action"])
        self._choices = sum(offer["action"].get("n", [])) if self._masked else 0
        self._heard = self._said = 0  # messages that have come, and those that evorl knows of
        self._clear()
        self._buffer = bytearray()
        self._socket = _connected(address or os.environ.get("EVORL_ADDRESS", ""))
        token = os.environ.get("EVORL_TOKEN", "") if token is None else token
        self._send({"type": "hello", "protocol": PROTOCOL, "token": token, **offer})

    def run(self):
        """Play until evorl closes the connection."""
        try:
            while True:
                self.poll(None)
        except Closed as closed:
            if str(closed):
                raise

    def poll(self, timeout=0):
        """Send what battles have asked, and pass on what has arrived within ``timeout`` seconds (None: without end).

        A game with a loop of its own calls this in each round. Raises `Closed`.
        """
        self._flush()
        if timeout is not None and not select.select([self._socket], [], [], timeout)[0]:
            return
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            raise Closed
        self._buffer += data
        while (message := self._received()) is not None:
            self._take(message)
        self._flush()

    def close(self):
        """Leave evorl. The game's battles are lost at once, and not after `mdp.deadline_s`."""
        self._socket.close()

    def _received(self):
        """Take the next message from the buffer, so that no error plays it again; None if it has not come whole."""
        if len(self._buffer) < 4:
            return None
        (size,) = struct.unpack_from("<I", self._buffer)
        if len(self._buffer) - 4 < size:
            return None
        data = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return unpack(data)

    def fail(self, battle, why):
        """Give up a battle that cannot go on."""
        self._battles.pop(battle.number, None)
        self._send({"type": "failed", "battle": battle.number, "why": why})

    # ---------------------------------------------------------- from evorl

    def _take(self, message):
        kind = message["type"]
        self._heard += kind in ("act", "begin", "leave")
        if kind == "act":
            self._act(message)
        elif kind == "begin":
            battle = Battle(self, message["battle"], message["seed"], message["players"])
            self._battles[battle.number] = battle
            battle.game = self._begin(battle)
        elif kind == "leave":
            self._leave(message["battle"])
        elif kind == "refused":
            raise Closed(message["why"])

    def _act(self, message):
        battles, sides = array("I", message["battle"]), message["side"]
        actions, width = array("i" if self._discrete else "f", message["action"]).tolist(), self._width
        for row, number in enumerate(battles):
            battle = self._battles.get(number)
            if battle is not None and battle.game is not None and sides[row] in battle.open:
                action = actions[row] if width == 1 and self._discrete else actions[row * width : (row + 1) * width]
                battle.game.act(sides[row], action)

    def _leave(self, number):
        battle = self._battles.pop(number, None)
        if battle is not None and hasattr(battle.game, "leave"):
            battle.game.leave()

    # ---------------------------------------------------------- to evorl

    def _clear(self):
        self._rows = 0
        self._columns = {
            name: array(code) for name, code in (("battle", "I"), ("side", "B"), ("cost", "I"), ("end", "B"))
        }
        self._columns |= {"reward": array("f"), "results": array("d"), "legal": bytearray()}
        self._inputs = [array(code) for code in self._codes]

    def _row(self, number, side, inputs, legal, reward, cost, end, results):
        """Add a row to the next message, or nothing of it if it is not as offered."""
        try:
            self._extend(number, side, inputs, legal, reward, cost, end, results)
        except Exception:
            self._cut()
            raise
        self._rows += 1

    def _cut(self):
        """Drop what is there of a row that is not whole."""
        rows, columns = self._rows, self._columns
        ends = rows - columns["end"][:rows].count(GOES_ON)
        widths = {"reward": len(self._no_reward), "legal": self._choices}
        for name, column in columns.items():
            del column[ends * len(self._results) if name == "results" else rows * widths.get(name, 1) :]
        for column, size in zip(self._inputs, self._sizes):
            del column[rows * size :]

    def _extend(self, number, side, inputs, legal, reward, cost, end, results):
        columns = self._columns
        rewards = len(columns["reward"]) + len(self._no_reward)
        columns["battle"].append(number)
        columns["side"].append(side)
        columns["cost"].append(cost)
        columns["end"].append(end)
        if reward is None:
            reward = self._no_reward
        elif len(self._no_reward) == 1 and not isinstance(reward, (list, tuple)):
            reward = (reward,)
        columns["reward"].extend(reward)
        if (more := len(columns["reward"]) - rewards) != 0:
            raise ValueError(f"a row has {len(self._no_reward)} rewards, and got {len(self._no_reward) + more}")
        if len(inputs) != len(self._inputs):
            raise ValueError(f"a row has {len(self._inputs)} inputs ({', '.join(self._names)}), and got {len(inputs)}")
        for k, values in enumerate(inputs):
            self._take_input(k, values)
        if self._masked:
            if legal is None or len(legal) != self._choices:
                raise ValueError(f"a row has {self._choices} legal or illegal choices, and got {legal!r}")
            columns["legal"] += bytes(legal)
        elif legal is not None:
            raise ValueError("legal choices are given, and the offer does not say masked")
        if end:
            if lacking := [name for name in self._results if name not in results]:
                raise ValueError(f"an episode ends without its result {lacking[0]!r}, which the offer names")
            columns["results"].extend([results[name] for name in self._results])

    def _take_input(self, k, values):
        column, before = self._inputs[k], len(self._inputs[k])
        try:
            column.frombytes(values) if isinstance(values, (bytes, memoryview)) else column.extend(values)
        except TypeError as error:
            raise TypeError(f"input {self._names[k]!r} takes a flat list of numbers, or bytes: {error}") from None
        if (got := len(column) - before) != self._sizes[k]:
            raise ValueError(f"input {self._names[k]!r} has {self._sizes[k]} numbers, and a row had {got}")

    def _flush(self):
        if self._rows or self._heard > self._said:
            self._said = self._heard
            columns = {name: bytes(column) for name, column in self._columns.items()}
            self._send(
                {"type": "ask", "heard": self._heard, **columns, "inputs": [bytes(column) for column in self._inputs]}
            )
            self._clear()

    def _send(self, message):
        data = pack(message)
        try:
            self._socket.sendall(struct.pack("<I", len(data)) + data)
        except ConnectionError:
            raise Closed from None


class Battle:
    """One episode: what a game needs to play it. ``seed`` must be the source of all its chance."""

    def __init__(self, client, number, seed, players):
        self.number, self.seed, self.players, self._client, self.game = number, seed, players, client, None
        self.open = set(players)  # those of them whose episodes go on

    def ask(self, side, inputs, legal=None, reward=None, cost=0):
        """Ask evorl to decide for a side.

        ``inputs``: a flat list of numbers, or bytes, for each input; ``legal``: 0 or 1 for each choice, with masks;
        ``reward`` and ``cost``: what came of its last action, a number or a list of them, and the steps that it took.
        """
        self._client._row(self.number, side, inputs, legal, reward, cost, GOES_ON, None)

    def end(self, side, inputs, legal=None, reward=None, cost=1, results=None, truncated=False):
        """End a side's episode, in the state ``inputs``; ``results`` has a number for each name that was offered."""
        end = TRUNCATED if truncated else TERMINATED
        self._client._row(self.number, side, inputs, legal, reward, cost, end, results or {})
        self.open.discard(side)
        if not self.open:
            self._client._battles.pop(self.number, None)

    def fail(self, why):
        """Give the battle up."""
        self._client.fail(self, why)


def _form(action):
    """Whether an offered action is discrete, and how many numbers it has."""
    kind = action.get("kind")
    key = {"discrete": "n", "box": "low"}.get(kind)
    if key is None:
        raise ValueError(f"the kind of the action is discrete or box, and is {kind!r}")
    if not isinstance(action.get(key), (list, tuple)):
        raise ValueError(f"{key} of a {kind} action is a list, with a number for each component")
    return kind == "discrete", len(action[key])


def _connected(address):
    if address.startswith("unix:"):
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(address[5:])
        return connected
    found = re.fullmatch(r"(?:\[([^]/]+)]|([^][:/]+)):([0-9]+)", address)
    if found is None or int(found[3]) > 65535:
        raise ValueError(
            f"EVORL_ADDRESS must be HOST:PORT, such as 127.0.0.1:5005, or unix:PATH for this client, and is {address!r}"
        )
    in_brackets, host, port = found.groups()
    connected = socket.create_connection((in_brackets or host, int(port)))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


# ------------------------------------------------------------------ msgpack, as far as the protocol needs it


def pack(value):
    """Encode None, booleans, numbers, text, bytes, lists and maps."""
    if isinstance(value, (bytes, bytearray)):
        return struct.pack(">BI", 0xC6, len(value)) + value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        pairs = [pack(each) for pair in value.items() for each in pair]
        return struct.pack(">BI", 0xDF, len(value)) + b"".join(pairs)
    if isinstance(value, (list, tuple)):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(pack, value))
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return struct.pack(">Bq", 0xD3, value) if not 0 <= value < 128 else struct.pack("B", value)
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    raise TypeError(f"{type(value).__name__} cannot be sent")


@lru_cache
def _text(value):
    """Names of fields come with every message."""
    data = value.encode()
    return struct.pack(">BI", 0xDB, len(data)) + data


def unpack(data):
    """Decode one value."""
    value, end = _value(data, 0)
    if end != len(data):
        raise ValueError("a message with a rest")
    return value


_NUMBERS = {
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
    0xCA: ">f", 0xCB: ">d",
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_SIZED = {
    0xC4: (">B", "bytes"), 0xC5: (">H", "bytes"), 0xC6: (">I", "bytes"), 0xD9: (">B", "text"), 0xDA: (">H", "text"),
    0xDB: (">I", "text"), 0xDC: (">H", "list"), 0xDD: (">I", "list"), 0xDE: (">H", "map"), 0xDF: (">I", "map"),
}  # fmt: skip


def _value(data, at):
    code, at = data[at], at + 1
    if code < 0x80 or code >= 0xE0:
        return code if code < 0x80 else code - 256, at
    if code in _CONSTANTS:
        return _CONSTANTS[code], at
    if code in _NUMBERS:
        form = _NUMBERS[code]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if code in _SIZED:
        form, kind = _SIZED[code]
        size, at = struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    elif code < 0xC0:
        kind = "map" if code < 0x90 else "list" if code < 0xA0 else "text"
        size = code & (0x1F if kind == "text" else 0x0F)
    else:
        raise ValueError(f"an extension ({code:#x})")
    if kind in ("bytes", "text"):
        part = data[at : at + size]
        return (part if kind == "bytes" else part.decode()), at + size
    items = []
    for _ in range(size * (2 if kind == "map" else 1)):
        item, at = _value(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2])) if kind == "map" else items), at
