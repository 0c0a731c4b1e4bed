"""Tag with one fault: ``faulty_tag.py FAULT MARK [ASKS]``. It happens at the given ask, and not again once MARK exists.

With MARK ``-`` it happens at that ask and at all later ones, in every process.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python"))
import evorl_client
import tag

FAULT, MARK, ASKS = sys.argv[1], sys.argv[2], int(sys.argv[3] if len(sys.argv) > 3 else 40)
asks = 0


def happens() -> bool:
    """Whether the fault happens now."""
    global asks
    asks += 1
    if MARK == "-":
        return FAULT in FAULTS and asks >= ASKS
    if asks != ASKS or os.path.exists(MARK):
        return False
    Path(MARK).touch()
    return True


class Faulty(tag.Tag):
    """One battle, which spoils an ask."""

    def __init__(self, battle):
        if FAULT == "second" and battle.number and not os.path.exists(MARK):
            Path(MARK).touch()
            self.stop()
        super().__init__(battle)

    def view(self, side):
        view = super().view(side)
        return (FAULTS[FAULT](self, side, view) or view) if happens() else view

    def client(self):
        return self.battle._client

    def raw(self, data):
        self.client()._socket.sendall(data)

    def stop(self):
        print("the engine has no licence", flush=True)
        os._exit(3)

    def cut(self):
        self.client()._socket.close()
        time.sleep(3600)

    def overpay(self):
        ask = self.battle.ask
        self.battle.ask = lambda side, view, legal, reward=0.0, cost=0: ask(side, view, legal, float("inf"), cost)

    def unchecked(self, numbers):
        """A row that the client would refuse."""
        self.client()._sizes = [len(numbers)]
        return [numbers]

    def hush(self):
        self.battle.ask = lambda *row: None

    def forbid(self):
        self.legal = lambda side: [0] * 12


FAULTS = {
    "exit": lambda game, side, view: game.stop(),
    "freeze": lambda game, side, view: time.sleep(3600),
    "hush": lambda game, side, view: game.hush(),
    "cut": lambda game, side, view: game.cut(),
    "nan": lambda game, side, view: [[float("nan"), *view[0][1:]]],
    "short": lambda game, side, view: game.unchecked(view[0][:3]),
    "shape": lambda game, side, view: [view[0][:3]],
    "reward": lambda game, side, view: game.overpay(),
    "twice": lambda game, side, view: game.battle.ask(side, view, game.legal(side), 0.0, 1),
    "no choice": lambda game, side, view: game.forbid(),
    "failed": lambda game, side, view: game.battle.fail("the ball is lost"),
    "unknown battle": lambda game, side, view: game.client()._row(1 << 31, side, view, [1] * 12, 0.0, 1, 0, None),
    "unknown side": lambda game, side, view: game.client()._row(game.battle.number, 7, view, [1] * 12, 0.0, 1, 0, None),
    "bomb": lambda game, side, view: game.raw(struct.pack("<I", 0xFFFFFFF0)),
    "garbage": lambda game, side, view: game.raw(struct.pack("<I", 5) + b"\xc1" * 5),
    "unknown type": lambda game, side, view: game.client()._send({"type": "exec", "code": "1"}),
    "half": lambda game, side, view: setattr(game.client(), "freezes", True),
    "late hello": lambda game, side, view: game.client()._send({"type": "hello", **tag.OFFER}),
}
OFFER = {**tag.OFFER, "repeats": "mortal" not in sys.argv}
if FAULT == "hello":
    OFFER["color"] = "red"
if FAULT == "same names":
    OFFER["sides"] = ["catcher", "catcher"]
if FAULT == "no rule":
    OFFER["rule"] = False
if FAULT == "no results":
    OFFER["results"] = []
if FAULT == "token":
    os.environ["EVORL_TOKEN"] = "guessed"
if FAULT == "protocol":
    evorl_client.PROTOCOL = 99
if FAULT == "mute":
    time.sleep(3600)


class InPieces(evorl_client.Client):
    """Sends each row in a message of its own, one after the other."""

    def _row(self, *row):
        super()._row(*row)
        heard, self._heard = self._heard, self._said
        self._flush()
        self._heard = heard
        time.sleep(0.003)


class Half(InPieces):
    """Freezes after the first row of a message of two, before it has said that it heard its answers."""

    freezes = False

    def _row(self, *row):
        super()._row(*row)
        if self.freezes:
            time.sleep(3600)


class Deaf(evorl_client.Client):
    """Never says that it has heard anything."""

    def _send(self, message):
        super()._send({**message, "heard": 0} if message["type"] == "ask" else message)


CLIENTS = {"pieces": InPieces, "half": Half, "deaf": Deaf}
CLIENTS.get(FAULT, evorl_client.Client)(OFFER, Faulty).run()
