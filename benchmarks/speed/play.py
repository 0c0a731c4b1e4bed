"""A game of Pong against a policy in a headless browser: pictures drawn in a second, and the time from a key to the
first picture in which the bat has moved.

Needs Chromium and Playwright; no part of `make speed`. Each of 40 keys is pressed at a time of its own within a step.

    python benchmarks/speed/play.py [--keys 40] [--seconds 10] [--out DIR]
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from typing import Any

import torch
from common import arguments, machine, page, save
from ours import experiment
from playwright.sync_api import sync_playwright

from evorl.human.game import Games
from evorl.human.page import GameServer
from evorl.training.train import spec
from evorl.util.loopback import running

COUNT = """() => {
  window.drawn = 0;
  const draw = CanvasRenderingContext2D.prototype.drawImage;
  CanvasRenderingContext2D.prototype.drawImage = function (...x) { window.drawn++; return draw.apply(this, x); };
}"""
PRESS = """async (key) => {
  const pen = document.getElementById("game").getContext("2d");
  const top = () => {
    const bat = pen.getImageData(18, 34, 1, 160).data, field = pen.getImageData(60, 34, 1, 160).data;
    return bat.findIndex((x, n) => x !== field[n]);
  };
  const before = top(), began = performance.now();
  dispatchEvent(new KeyboardEvent("keydown", { key }));
  while (top() === before) await new Promise((again) => setTimeout(again, 0));
  const took = performance.now() - began;
  dispatchEvent(new KeyboardEvent("keyup", { key }));
  return took;
}"""


def measured(browser: Any, server: GameServer, keys: int, seconds: float) -> tuple[float, list[float]]:
    """Pictures per second, and the milliseconds of each key."""
    shown = browser.new_page()
    shown.goto(server.url)
    time.sleep(2)
    shown.evaluate(COUNT)
    began = time.perf_counter()
    time.sleep(seconds)
    rate = shown.evaluate("() => window.drawn") / (time.perf_counter() - began)
    took = []
    for number in range(keys):
        time.sleep(0.2 + number * 0.0137)
        took.append(shown.evaluate(PRESS, ("ArrowUp", "ArrowDown")[number % 2]))
    shown.close()
    return rate, took


def main() -> None:
    args = arguments(__doc__, keys=40, seconds=10.0)
    facts, whole = machine(), experiment(["mdp=pong", "mdp.rounds=1000", "rl=ppo"])
    games = Games(whole.mdp, whole.rl.learner(spec(whole.mdp), 1, torch.device("cpu")), 0)
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))))
    with sync_playwright() as playwright, running(GameServer(games, "Pong")) as server:
        thread = threading.Thread(target=games.run)
        thread.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            rate, took = measured(browser, server, args.keys, args.seconds)
        finally:
            games.stopped.set()
            thread.join()
            browser.close()
    shown = [f"{rate:.1f}", f"{statistics.median(took):.0f}", f"{statistics.quantiles(took, n=10)[-1]:.0f}"]
    header = ["game", "pictures/s", "key to picture, ms", "90 % within, ms"]
    data = {"pictures_per_second": rate, "key_to_picture_ms": took}
    save(args.out, facts, page("Pong against a policy, in the browser", __doc__, header, [["Pong", *shown]]), data)


if __name__ == "__main__":
    main()
