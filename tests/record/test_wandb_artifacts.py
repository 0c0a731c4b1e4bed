"""Checkpoints as versions of an artifact: how long their files stay, and which one is the best."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evorl.record import checkpoint
from evorl.record import wandb as sink
from evorl.record.wandb_artifacts import Checkpoints
from evorl.util import run_directory
from tests.record.wandb_server import wait_until


class Logged:
    """An artifact that is on its way until ``sent`` is set."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.files: list[str] = []
        self.sent = threading.Event()

    def add_file(self, place: str, *_: Any, **__: Any) -> None:
        self.files.append(place)

    def wait(self) -> None:
        assert self.sent.wait(60)


class Library:
    """A run of W&B, which keeps what it was given."""

    id = "an-id"

    def __init__(self, offline: bool = False) -> None:
        self.offline = offline
        self.logged: list[Logged] = []
        self.aliases: list[list[str]] = []
        self.summary: dict[str, Any] = {}

    def log_artifact(self, artifact: Logged, aliases: list[str]) -> Logged:
        self.logged.append(artifact)
        self.aliases.append(aliases)
        return artifact


@pytest.fixture(autouse=True)
def _library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / sink.HOME).mkdir()
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Artifact=Logged))


@pytest.mark.parametrize("offline", [False, True])
def test_files_of_a_checkpoint_go_once_it_is_sent(offline: bool, tmp_path: Path) -> None:
    """Offline they stay, for who sends them later."""
    library = Library(offline)
    sending = Checkpoints(library, tmp_path)
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {"step": step}, keep=1)
        sending.send()
    first, second = library.logged
    assert all(Path(file).exists() for file in (*first.files, *second.files))
    first.sent.set()
    if not offline:
        wait_until(lambda: not Path(first.files[0]).parent.exists())
    assert all(Path(file).exists() for file in (*second.files, *(first.files if offline else ())))
    second.sent.set()


@pytest.mark.parametrize(("individual", "best"), [({}, 1), ({"individual": 7}, 2)])
def test_the_best_individual_is_in_the_newest_checkpoint(individual: dict[str, int], best: int, tmp_path: Path) -> None:
    library = Library(offline=True)
    sending = Checkpoints(library, tmp_path)
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {"step": step}, keep=2)
    sending.send()
    result = {"steps": 2, "seconds": 1.0, "fitness": 3.0, "eval": {}, "best": {"fitness": 3.0, "step": 1, **individual}}
    run_directory.write_json(tmp_path, "result.json", result)
    sink._summarize(library, tmp_path, sending)
    assert library.aliases[2:] == [["best", f"step-{best}"]]
