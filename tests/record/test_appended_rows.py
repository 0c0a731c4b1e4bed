"""Rows that only grow: checkpoints write what is new, share the rest, and fall back from a damaged segment."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl.jobs.saved_policies import checkpoint_of
from evorl.record import checkpoint, segments
from evorl.training.train import Start
from evorl.util import run_directory
from evorl.util.types import AppendedRows

WIDE = 1 << 16  # bytes of a row


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 4 * WIDE)


def rows(first: int, end: int, word: int = 0) -> dict[str, Any]:
    numbers = np.arange(first, end)
    return {"number": numbers, "wide": np.repeat((numbers + word).astype(np.uint8)[:, None], WIDE, 1)}


def save(run: Path, step: int, first: int, end: int, previous: int | None, word: int = 0, keep: int = 2) -> None:
    content = {"a": {"log": AppendedRows(first, end, lambda x, y: rows(x, y, word))}, "n": end}
    checkpoint.save(run, step, content, keep, segments=checkpoint.segments_of(run, previous))


def check(run: Path, step: int, first: int, end: int, word: int = 0) -> None:
    found = checkpoint.load(run / "checkpoints" / str(step))["a"]["log"]
    assert found["first"] == first
    for name, x in rows(first, end, word).items():
        np.testing.assert_array_equal(found["rows"][name], x)


def files_of(run: Path, step: int) -> dict[str, int]:
    """Files and their inodes."""
    return {one.name: one.stat().st_ino for one in (run / "checkpoints" / str(step)).glob("rows-*")}


def test_a_checkpoint_writes_only_what_is_new(tmp_path: Path) -> None:
    ends = [10, 16, 18, 30, 31]
    for step, end in enumerate(ends):
        save(tmp_path, step, max(0, end - 12), end, step - 1 if step else None)
        check(tmp_path, step, max(0, end - 12), end)
    before, after = files_of(tmp_path, 3), files_of(tmp_path, 4)
    shared = {name for name in after if before.get(name) == after[name]}
    assert len(shared) >= 1 and len(after) > len(shared)
    assert sorted(checkpoint.steps(tmp_path)) == [3, 4]
    size = sum(one.stat().st_size for one in (tmp_path / "checkpoints" / "4").glob("rows-*"))
    assert size < 26 * WIDE  # segments that left the window are gone


def test_a_short_tail_is_written_again_with_the_next_rows(tmp_path: Path) -> None:
    for step in range(30):
        save(tmp_path, step, 0, step + 1, step - 1 if step else None)
    check(tmp_path, 29, 0, 30)
    assert len(files_of(tmp_path, 29)) <= 9


def test_many_rows_are_written_in_pieces(tmp_path: Path) -> None:
    save(tmp_path, 1, 3, 30, None)
    check(tmp_path, 1, 3, 30)
    assert len(files_of(tmp_path, 1)) == 7
    save(tmp_path, 2, 17, 40, 1)
    check(tmp_path, 2, 17, 40)
    shared = files_of(tmp_path, 1).items() & files_of(tmp_path, 2).items()
    assert len(shared) == 3  # rows 15 to 26; the last three are written again with new ones


def file(first: int, end: int) -> str:
    return f"rows-a.log-{first}-{end}.safetensors"


def ahead(run: Path) -> list[str]:
    return sorted(one.name for one in run.glob("checkpoints/.ahead/*"))


def state(first: int, end: int) -> dict[str, Any]:
    return {"a": {"log": AppendedRows(first, end, rows)}, "n": end}


def test_rows_written_ahead_are_linked_by_the_next_checkpoint(tmp_path: Path) -> None:
    """Ahead are only whole segments, of four rows here. A checkpoint writes the rest."""
    known = checkpoint.segments_of(tmp_path)
    for end in range(3, 12):
        checkpoint.write_ahead(known, state(0, end))
    assert ahead(tmp_path) == [file(0, 4), file(4, 8)]
    inodes = {one.name: one.stat().st_ino for one in tmp_path.glob("checkpoints/.ahead/*")}
    checkpoint.save(tmp_path, 1, state(0, 11), 2, segments=known)
    check(tmp_path, 1, 0, 11)
    assert files_of(tmp_path, 1).items() > inodes.items() and len(files_of(tmp_path, 1)) == 3
    assert not (tmp_path / "checkpoints" / ".ahead").exists()
    checkpoint.write_ahead(known, state(2, 13))
    assert ahead(tmp_path) == [file(8, 12)]  # with the short rest of the checkpoint before
    checkpoint.save(tmp_path, 2, state(5, 14), 2, segments=known)
    check(tmp_path, 2, 5, 14)
    assert {*files_of(tmp_path, 2)} == {file(4, 8), file(8, 12), file(12, 14)}


def test_a_ring_that_turns_over_between_checkpoints_is_left_to_them(tmp_path: Path) -> None:
    """Or all rows would be written, where only those of the checkpoints are needed."""
    known = checkpoint.segments_of(tmp_path)
    for end in range(1, 100):
        checkpoint.write_ahead(known, state(max(end - 10, 0), end))
        assert len(ahead(tmp_path)) <= 4
    assert not ahead(tmp_path)
    checkpoint.save(tmp_path, 1, state(89, 99), 2, segments=known)
    check(tmp_path, 1, 89, 99)


def test_a_ring_that_turns_over_in_several_checkpoints_is_written_ahead(tmp_path: Path) -> None:
    known, written = checkpoint.segments_of(tmp_path), []
    for end in range(1, 100):
        checkpoint.write_ahead(known, state(max(end - 20, 0), end))
        written += ahead(tmp_path)
        if end % 10 == 0:
            checkpoint.save(tmp_path, end, state(max(end - 20, 0), end), 2, segments=known)
            check(tmp_path, end, max(end - 20, 0), end)
    assert len({*written}) == 24


def test_who_goes_on_after_a_kill_writes_what_was_ahead_again(tmp_path: Path) -> None:
    known = checkpoint.segments_of(tmp_path)
    checkpoint.save(tmp_path, 1, state(0, 6), 2, segments=known)
    checkpoint.write_ahead(known, state(0, 20))
    (tmp_path / "checkpoints" / ".ahead" / file(12, 16)).write_bytes(b"half")
    again = checkpoint.segments_of(tmp_path, 1)
    assert not ahead(tmp_path)
    checkpoint.write_ahead(again, state(0, 17))
    checkpoint.save(tmp_path, 2, state(0, 21), 2, segments=again)
    check(tmp_path, 2, 0, 21)


def test_a_full_disk_ahead_of_a_checkpoint_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not what was written before it was full, nor the room of rows that their ring has dropped."""
    known = checkpoint.segments_of(tmp_path)
    checkpoint.write_ahead(known, state(0, 5))
    write, room = run_directory.write, [2, 0]

    def written(root: Path, name: str, chunks: Any) -> tuple[int, str]:
        found = write(root, name, chunks)
        if room.pop(0) == 0:
            raise OSError("no room")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(run_directory, "write", written)
        with pytest.raises(OSError, match="no room"):
            checkpoint.write_ahead(known, state(0, 17))
        assert ahead(tmp_path) == [file(0, 4), file(4, 8)]
        room.append(0)
        with pytest.raises(OSError, match="no room"):
            checkpoint.save(tmp_path, 1, state(6, 18), 2, segments=known)
    assert ahead(tmp_path) == [file(4, 8)]
    inode = (tmp_path / "checkpoints" / ".ahead" / file(4, 8)).stat().st_ino
    checkpoint.save(tmp_path, 1, state(6, 18), 2, segments=known)
    check(tmp_path, 1, 6, 18)
    assert files_of(tmp_path, 1)[file(4, 8)] == inode


def test_names_of_rows_never_share_a_file(tmp_path: Path) -> None:
    both = {"a": {"b.c": AppendedRows(0, 9, rows)}, "a.b": {"c": AppendedRows(0, 9, lambda x, y: rows(x, y, 7))}}
    known = checkpoint.segments_of(tmp_path)
    checkpoint.write_ahead(known, both)
    checkpoint.save(tmp_path, 1, both, 2, segments=known)
    found = checkpoint.load(tmp_path / "checkpoints" / "1")
    for one, word in ((found["a"]["b.c"], 0), (found["a.b"]["c"], 7)):
        np.testing.assert_array_equal(one["rows"]["wide"], rows(0, 9, word)["wide"])


def test_rows_without_a_byte(tmp_path: Path) -> None:
    nothing = {"log": AppendedRows(0, 3, lambda x, y: {"none": np.zeros((y - x, 0))})}
    known = checkpoint.segments_of(tmp_path)
    checkpoint.write_ahead(known, nothing)
    checkpoint.save(tmp_path, 1, nothing, 2, segments=known)
    assert checkpoint.load(tmp_path / "checkpoints" / "1")["log"]["rows"]["none"].shape == (3, 0)


def test_without_the_checkpoint_before_all_rows_are_written(tmp_path: Path) -> None:
    known = checkpoint.segments_of(tmp_path)
    checkpoint.save(tmp_path, 1, state(0, 8), 2, segments=known)
    shutil.rmtree(tmp_path / "checkpoints" / "1")
    checkpoint.save(tmp_path, 2, state(0, 10), 2, segments=known)
    check(tmp_path, 2, 0, 10)


def refused(*_: Any, **__: Any) -> None:
    raise OSError("no room")


def test_another_history_shares_nothing(tmp_path: Path) -> None:
    """A run that went back to an older checkpoint, and then on in another way, names that one as its previous."""
    save(tmp_path, 1, 0, 10, None)
    save(tmp_path, 2, 0, 20, 1)
    save(tmp_path, 3, 0, 20, 1, word=7)
    found = checkpoint.load(tmp_path / "checkpoints" / "3")["a"]["log"]["rows"]["wide"][:, 0]
    np.testing.assert_array_equal(found[:8], np.arange(8))
    np.testing.assert_array_equal(found[8:], np.arange(8, 20) + 7)
    save(tmp_path, 4, 5, 8, 3, word=1)  # a replay that is shorter than the one before
    check(tmp_path, 4, 5, 8, 1)


def test_damage_to_the_newest_segment_falls_back(tmp_path: Path) -> None:
    save(tmp_path, 1, 0, 10, None)
    save(tmp_path, 2, 0, 20, 1)
    newest, *_ = set(files_of(tmp_path, 2)) - set(files_of(tmp_path, 1))
    with (tmp_path / "checkpoints" / "2" / newest).open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"damage")
    found = checkpoint.newest(tmp_path)
    assert found is not None and found[0].name == "1"
    check(tmp_path, 1, 0, 10)


def test_without_hard_links_segments_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    for name in files_of(tmp_path, 2):
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
        known = checkpoint.segments_of(tmp_path, step - 1 or None)
        checkpoint.save(tmp_path, step, {"run": run}, keep=2, segments=known)
    for file in tmp_path.glob("checkpoints/*/rows-*"):
        file.unlink()
    for which, step in (("latest", 2), ("best", 1), ("2", 2)):
        path, state = checkpoint_of(tmp_path, which)
        assert path.name == str(step) == str(state["steps"])
    for start, step in ((Start(tmp_path), 2), (Start(tmp_path, step=1), 1)):
        assert start.past["steps"] == step
        np.testing.assert_array_equal(start.past["learner"]["policy"]["w"], np.ones(3))
