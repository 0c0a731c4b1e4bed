"""An exported policy plays sumo against a person in a real browser, without evorl. Needs a Chromium and `make web`."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, PATIENCE_MS
from harness import go

from evorl.mdp.remote.process import CLIENTS

WEB = Path(__file__).parent / "web" / "node_modules"
SUMO = "node {clients}/javascript/sumo/sumo.js"
pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(
        CHROMIUM is None or shutil.which("node") is None or not (WEB / "onnxruntime-web").is_dir(),
        reason="needs a Chromium, Node and onnxruntime-web: make faults as root, and make web",
    ),
]


@pytest.fixture(scope="module", params=[(), ("rl.net.lstm=8",)], ids=["memoryless", "lstm"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clients in JavaScript, with a policy that has learned a little, and onnxruntime-web."""
    from evorl import export

    place = tmp_path_factory.mktemp("page")
    words = ("mdp=remote", f"mdp.command='{SUMO}'", "rl=ppo", "opponents=self", "budget.steps=2000", "eval.every=0")
    small = ("rl.slots=4", "rl.horizon=64", "rl.minibatch=64", "eval.episodes=2", "record.tensorboard=false")
    assert go(*words, *small, *request.param, f"hydra.run.dir={place / 'run'}") == 0
    sumo = place / "javascript" / "sumo"
    shutil.copytree(CLIENTS / "javascript", place / "javascript", ignore=shutil.ignore_patterns("node_modules"))
    assert export.main([f"run={place / 'run'}", f"out={sumo / 'policy.onnx'}", f"trust=[{SUMO!r}]"]) == 0
    (sumo / "node_modules").symlink_to(WEB)
    return place / "javascript"


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/sumo/against.html"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_person_plays_the_policy(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(address)
    page.wait_for_function("Number(document.getElementById('decisions').textContent) > 5")
    assert page.text_content("#state") == ""
    page.keyboard.down("ArrowRight")  # out of the ring, sooner or later
    page.keyboard.down("Space")
    page.wait_for_function("Number(document.getElementById('policy').textContent) > 0")
    page.keyboard.up("Space")
    before = int(page.text_content("#decisions"))
    page.wait_for_function(
        f"Number(document.getElementById('decisions').textContent) > {before + 5}"
    )  # the next battle
    page.close()
    assert wrong == []


def test_what_is_missing_is_told(browser: Any, address: str, folder: Path) -> None:
    (folder / "sumo" / "policy.onnx").rename(folder / "sumo" / "elsewhere")
    page = browser.new_page()
    page.goto(address)
    page.wait_for_function("document.getElementById('state').textContent.startsWith('There is no policy.onnx here')")
    page.close()
    (folder / "sumo" / "elsewhere").rename(folder / "sumo" / "policy.onnx")
