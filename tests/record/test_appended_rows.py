"""Rows that only grow: checkpoints write what is new, share the rest, and fall back from a damaged segment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl.evaluate import _checkpoint
from evorl.record import checkpoint
from evorl.training.train import Start
from evorl.util.types import AppendedRows

WIDE = 1 << 16  # bytes of a row


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SEGMENT_BYTES", 4 * WIDE)


def rows(first: int, end: int, word: int = 0) -> dict[str, Any]:
    numbers = np.arange(first, end)
    return {"number": numbers, "wide": np.repeat((numbers + word).astype(np.uint8)[:, None], WIDE, 1)}


def save(run: Path, step: int, first: int, end: int, previous: int | None, word: int = 0, keep: int = 2) -> None:
    state = {"a": {"log": AppendedRows(first, end, lambda x, y: rows(x, y, word))}, "n": end}
    checkpoint.save(run, step, state, keep, previous=previous)


def check(run: Path, step: int, first: int, end: int, word: int = 0) -> None:
    found = checkpoint.load(run / "checkpoints" / str(step))["a"]["log"]
    assert found["first"] == first
    for name, x in rows(first, end, word).items():
        np.testing.assert_array_equal(found["rows"][name], x)


def segments(run: Path, step: int) -> dict[str, int]:
    """Files and their inodes."""
    return {one.name: one.stat().st_ino for one in (run / "checkpoints" / str(step)).glob("rows-*")}


def test_a_checkpoint_writes_only_what_is_new(tmp_path: Path) -> None:
    ends = [10, 16, 18, 30, 31]
    for step, end in enumerate(ends):
        save(tmp_path, step, max(0, end - 12), end, step - 1 if step else None)
        check(tmp_path, step, max(0, end - 12), end)
    before, after = segments(tmp_path, 3), segments(tmp_path, 4)
    shared = {name for name in after if before.get(name) == after[name]}
    assert len(shared) >= 1 and len(after) > len(shared)
    assert sorted(checkpoint.steps(tmp_path)) == [3, 4]
    size = sum(one.stat().st_size for one in (tmp_path / "checkpoints" / "4").glob("rows-*"))
    assert size < 26 * WIDE  # segments that left the window are gone


def test_a_short_tail_is_written_again_with_the_next_rows(tmp_path: Path) -> None:
    for step in range(30):
        save(tmp_path, step, 0, step + 1, step - 1 if step else None)
    check(tmp_path, 29, 0, 30)
    assert len(segments(tmp_path, 29)) <= 9


def test_many_rows_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PIECE_BYTES", 7 * WIDE)  # and a number in each row: six rows in a piece
    save(tmp_path, 1, 3, 30, None)
    check(tmp_path, 1, 3, 30)
    assert len(segments(tmp_path, 1)) == 5
    save(tmp_path, 2, 17, 40, 1)
    check(tmp_path, 2, 17, 40)
    shared = segments(tmp_path, 1).items() & segments(tmp_path, 2).items()
    assert len(shared) == 2  # rows 15 to 26; the last three are written again with new ones


def test_another_history_shares_nothing(tmp_path: Path) -> None:
    """A run that went back to an older checkpoint, and then on in another way, names that one as its previous."""
    save(tmp_path, 1, 0, 10, None)
    save(tmp_path, 2, 0, 20, 1)
    save(tmp_path, 3, 0, 20, 1, word=7)
    found = checkpoint.load(tmp_path / "checkpoints" / "3")["a"]["log"]["rows"]["wide"][:, 0]
    np.testing.assert_array_equal(found[:10], np.arange(10))
    np.testing.assert_array_equal(found[10:], np.arange(10, 20) + 7)
    save(tmp_path, 4, 5, 8, 3, word=1)  # a replay that is shorter than the one before
    check(tmp_path, 4, 5, 8, 1)


def test_damage_to_the_newest_segment_falls_back(tmp_path: Path) -> None:
    save(tmp_path, 1, 0, 10, None)
    save(tmp_path, 2, 0, 20, 1)
    (newest,) = set(segments(tmp_path, 2)) - set(segments(tmp_path, 1))
    with (tmp_path / "checkpoints" / "2" / newest).open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"damage")
    found = checkpoint.newest(tmp_path)
    assert found is not None and found[0].name == "1"
    check(tmp_path, 1, 0, 10)


def test_without_hard_links_segments_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refused)
    save(tmp_path, 1, 0, 10, None)
    save(tmp_path, 2, 0, 20, 1)
    check(tmp_path, 2, 0, 20)
    check(tmp_path, 1, 0, 10)


def test_no_rows(tmp_path: Path) -> None:
    save(tmp_path, 1, 0, 0, None)
    assert checkpoint.load(tmp_path / "checkpoints" / "1")["a"]["log"] == {"first": 0, "rows": {}}
    save(tmp_path, 2, 0, 3, 1)
    check(tmp_path, 2, 0, 3)


def test_a_state_without_its_rows_reads_none_of_them(tmp_path: Path) -> None:
    save(tmp_path, 1, 0, 10, None)
    save(tmp_path, 2, 0, 20, 1)
    path = tmp_path / "checkpoints" / "2"
    for name in segments(tmp_path, 2):
        (path / name).unlink()
    assert checkpoint.load(path, rows=False) == {"a": {"log": None}, "n": 20}
    assert checkpoint.newest(tmp_path, rows=False) == (path, {"a": {"log": None}, "n": 20})
    (path / "state.json").write_bytes(b"damage")
    with pytest.raises(checkpoint.DamagedCheckpoint, match=r"state\.json"):
        checkpoint.load(path, rows=False)
    found = checkpoint.newest(tmp_path, rows=False)
    assert found is not None and found[0].name == "1"


def test_who_needs_a_policy_reads_no_rows(tmp_path: Path) -> None:
    """Or ``evorl.evaluate`` and ``init=`` would need the memory of the whole replay."""
    for step in (1, 2):
        log = AppendedRows(0, 10, rows)
        run = {"steps": step, "best": [0.5, 1], "learner": {"policy": {"w": np.ones(3)}, "replay": log}}
        checkpoint.save(tmp_path, step, {"run": run}, keep=2, previous=step - 1 or None)
    for file in tmp_path.glob("checkpoints/*/rows-*"):
        file.unlink()
    for which, step in (("latest", 2), ("best", 1), ("2", 2)):
        path, state = _checkpoint(tmp_path, which)
        assert path.name == str(step) == str(state["run"]["steps"])
    for start, step in ((Start(tmp_path), 2), (Start(tmp_path, step=1), 1)):
        assert start.past["steps"] == step
        np.testing.assert_array_equal(start.past["learner"]["policy"]["w"], np.ones(3))
