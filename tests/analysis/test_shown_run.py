"""The film of the best run and its config, as a page shows them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from evorl.analysis import shown_run as module
from evorl.analysis.html_page import _best
from evorl.analysis.runs import RunRecord
from evorl.analysis.shown_run import newest_film, shown_run


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    config = {"mdp._target_": "x.Pong", "mdp.rounds": 3, "rl._target_": "x.PPO", "rl.lr": 0.1, "seed": 1}
    return RunRecord(directory=tmp_path, config=config, choices={"mdp": "pong", "rl": "ppo"})


def film(directory: Path, name: str, content: bytes = b"film") -> None:
    (directory / "videos").mkdir(exist_ok=True)
    (directory / "videos" / name).write_bytes(content)


def test_the_newest_film_and_of_one_step_that_of_the_best_episode(run: RunRecord) -> None:
    assert newest_film(run.directory) is None
    for name in ("900-best.mp4", "1000-median.gif", "1000.mp4", "1000-best.mp4", "notes.mp4", ".2000.partial.mp4"):
        film(run.directory, name)
    assert newest_film(run.directory) == run.directory / "videos" / "1000-best.mp4"
    shown = shown_run(run, "3")
    assert shown.film == ("video/mp4", b"film") and shown.caption == "1000-best.mp4 of run 3"
    page = _best(shown)
    assert '<video src="data:video/mp4;base64,ZmlsbQ==" controls' in page and "Config of run 3" in page


def test_a_gif_is_a_picture(run: RunRecord) -> None:
    film(run.directory, "5.gif")
    assert '<img src="data:image/gif;base64,ZmlsbQ=="' in _best(shown_run(run, "3"))


def test_what_cannot_be_part_of_the_page_is_told(run: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "evorl.evaluate" in shown_run(run, "3").caption and "video=best" in shown_run(run, "3").caption
    monkeypatch.setattr(module, "MOST_BYTES", 3)
    film(run.directory, "5.mp4")
    shown = shown_run(run, "3")
    assert shown.film is None and "too large for this page" in shown.caption and "<video" not in _best(shown)
    assert shown_run(replace(run, directory=run.directory / "problem", choices={"mdp": "problem"}), "3").caption == ""


def test_links_and_pipes_are_no_films(run: RunRecord, tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "videos" / "7.mp4").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "videos" / "8.mp4")
    assert newest_film(tmp_path) is None


def test_the_config_begins_with_what_varies_and_what_was_chosen(run: RunRecord) -> None:
    rows = [(row["key"], row["value"]) for row in shown_run(run, "3", ["rl.lr"]).config]
    assert rows == [("rl.lr", "0.1"), ("mdp", "pong"), ("rl", "ppo"), ("mdp.rounds", "3"), ("seed", "1")]
