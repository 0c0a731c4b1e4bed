"""A person plays Pong by the keyboard in a real browser. Needs a Chromium."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from browsing import PATIENCE_MS, needs_chromium
from test_game_with_a_person import games_of, going

pytestmark = [
    pytest.mark.fault,
    needs_chromium,
]
GAMES = "() => document.getElementById('games').textContent"
SIDE = "() => document.getElementById('side').value"
PICTURES = "() => Number(document.body.dataset.frames || 0)"
BAT = """() => {
  const { data } = document.getElementById("game").getContext("2d").getImageData(18, 34, 1, 160);
  const { data: field } = document.getElementById("game").getContext("2d").getImageData(60, 34, 1, 160);
  const rows = [...Array(160).keys()].filter((y) => [0, 1, 2].some((c) => data[4 * y + c] !== field[4 * y + c]));
  return rows.reduce((a, b) => a + b, 0) / rows.length;
}"""


def wait(page: Any, function: str, fulfils: Callable[[Any], bool]) -> None:
    """Until this function of the page gives what fulfils; its policy of scripts forbids to wait within it."""
    ends = time.monotonic() + PATIENCE_MS / 1000
    while not fulfils(page.evaluate(function)):
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_point_is_played_by_keyboard(browser: Any) -> None:
    games = games_of("mdp=pong", "mdp.rounds=1", "rl=ppo")
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    with going(games) as server:
        page.goto(server.url)
        wait(page, PICTURES, lambda number: number > 5)
        assert page.locator("#side option").all_text_contents() == ["left (green)", "right (red)"]
        assert "ArrowUp" in page.locator("#keys").text_content()
        page.keyboard.down("ArrowUp")
        wait(page, BAT, lambda height: height is not None and height < 20)
        page.keyboard.up("ArrowUp")
        page.keyboard.down("ArrowDown")
        wait(page, BAT, lambda height: height is not None and height > 140)
        page.keyboard.up("ArrowDown")
        wait(page, GAMES, lambda text: re.search("(won|lost|drawn) [1-9]", text) is not None)
        page.select_option("#side", "1")
        wait(page, SIDE, lambda side: side == "1")
        assert games.choices.side == 1
        page.close()
    assert wrong == []


def test_a_letter_is_the_same_key_with_shift_or_caps_lock(browser: Any) -> None:
    games = games_of("mdp=pong", "mdp.rounds=50", "rl=ppo")
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    with going(games) as server:
        page.goto(server.url)
        wait(page, PICTURES, lambda number: number > 5)
        for event, key, held in (
            ("down", "KeyJ", {"j"}), ("down", "Shift", {"j", "Shift"}), ("up", "KeyJ", {"Shift"}),
            ("down", "KeyK", {"k", "Shift"}), ("up", "Shift", {"k"}), ("up", "KeyK", set()), ("down", "L", {"l"}),
        ):  # fmt: skip
            getattr(page.keyboard, event)(key)
            wait(page, PICTURES, lambda _, held=held: games.held == held)
        page.close()
