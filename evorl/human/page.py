"""The page of a game, and the server that it speaks to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

from evorl.human.game import Frame, Games
from evorl.util.errors import BadRequest
from evorl.util.loopback import LoopbackServer, Reply
from evorl.util.text import printable

WEB = Path(__file__).parent / "web"
PATIENCE_S = 1.0
"""Seconds that a request waits for the next picture."""
MOST_KEYS = 16
SPEEDS = (0.25, 0.5, 1, 2)


class GameServer(LoopbackServer):
    """Answers the page's requests: ``frame`` is the next picture, ``keys`` those that are held, ``choose`` a choice."""

    def __init__(self, games: Games, title: str) -> None:
        super().__init__("evorl.play")
        self.games = games
        self.page = page_of(games, title)

    def reply(self, name: str, query: Mapping[str, str]) -> Reply | None:
        try:
            match name:
                case "":
                    return Reply(self.page, "text/html; charset=utf-8")
                case "frame":
                    return self.frame(self.games.after(int(query.get("after", -1)), PATIENCE_S))
                case "keys":
                    held = frozenset(query.get("held", "").split(",")[:MOST_KEYS]) - {""}
                    self.games.press(held, int(query.get("order", 0)))
                    return Reply(b"")
                case "choose":
                    self.choose(query)
                    return Reply(b"")
        except (BadRequest, ValueError) as error:
            return Reply(printable(error).encode())
        return None

    def choose(self, query: Mapping[str, str]) -> None:
        kinds = {"side": int, "opponent": str, "speed": float}
        self.games.choose(**{name: kind(query[name]) for name, kind in kinds.items() if name in query})

    def frame(self, frame: Frame | None) -> Reply:
        """A picture as PNG, and the state of the game as a header."""
        if frame is None:
            return Reply(b"", headers={"X-State": json.dumps({"number": -1})})
        from PIL import Image

        made, games = BytesIO(), self.games
        Image.fromarray(frame.picture).save(made, "png", compress_level=1)
        shown = {
            "number": frame.number, "score": frame.score, "over": frame.over, "choices": asdict(games.choices),
            "scores": {name: asdict(score) for name, score in games.scores.items()},
        }  # fmt: skip
        return Reply(made.getvalue(), "image/png", {"X-State": json.dumps(shown)})


def page_of(games: Games, title: str) -> bytes:
    """The page, with what it shows beside the game: sides, opponents, and the keys of each side."""
    shown: dict[str, Any] = {
        "title": printable(title),
        "sides": [*games.names],
        "opponents": [*games.opponents],
        "speeds": SPEEDS,
        "bindings": [[binding._asdict() for binding in bindings if binding.keys] for bindings in games.bindings],
    }
    text = json.dumps(shown).replace("<", "\\u003c")  # no name ends the script
    return (WEB / "page.html").read_text(encoding="utf-8").replace("{{told}}", text).encode()
