"""A newest checkpoint that is malformed in any way is damage: the one before is taken, and a line says so."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_runs import seal

from evorl.record import checkpoint
from evorl.record.checkpoint import DamagedCheckpoint
from evorl.record.core import recorder_state
from evorl.util.errors import BadRequest
from evorl.util.run_directory import Unsafe


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    for step in (1, 2):
        checkpoint.save(tmp_path / "run", step, {"step": step, "a": {"b": np.zeros(3)}}, keep=2)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "file").write_text("precious")
    return tmp_path / "run"


def falls_back(run: Path) -> None:
    found = checkpoint.newest(run)
    assert found is not None and found[1]["step"] == 1


STATES: list[bytes] = [
    b"", b"[]", b"3", b"{}", b'{"torch": 3, "state": {}}', b'{"torch": {}, "state": []}', b"[" * 100_000,
    b'{"torch": {"a/b": "float99"}, "state": {"a": {}}}', b'{"torch": {}, "state": {"a": 3}}',
    b'{"torch": {}, "state": {"a": {}}, "rows": {"a/c": {"first": 0, "segments": [[0, 1099511627776, "x"]]}}}',
    b'{"torch": {}, "state": {"a": {}}, "rows": {"a/c": {"first": -1e308, "segments": []}}}',
    b'{"torch": {}, "state": {"a": {}}, "rows": {"a/c": {"first": 0, "segments": [[0, 3, "../../../home/file"]]}}}',
    b'{"torch": {}, "state": ' + b"1" * 5000 + b"}", b"\xff",
]  # fmt: skip


@pytest.mark.parametrize("text", STATES, ids=range(len(STATES)))
def test_a_malformed_state_whose_checksum_is_right(run: Path, text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (run / "checkpoints" / "2" / "state.json").write_bytes(text)
    seal(run / "checkpoints" / "2")
    with caplog.at_level(logging.WARNING, "evorl"):
        falls_back(run)
    assert [record.getMessage() for record in caplog.records if "checkpoint 2 is damaged" in record.getMessage()]


@pytest.mark.parametrize("key", ["schema", "evorl", "step", "files"])
@pytest.mark.parametrize("value", [None, [], {}, "x", math.nan])
def test_a_malformed_manifest_whose_checksum_is_right(run: Path, key: str, value: Any) -> None:
    file = run / "checkpoints" / "2" / checkpoint.MANIFEST
    manifest = json.loads(file.read_bytes())
    manifest.pop("sha256")
    file.write_bytes(checkpoint._with_checksum({**manifest, key: value}))
    if key == "schema":  # as of a newer version, which is told and not skipped
        with pytest.raises(BadRequest, match="in a format that this version cannot read"):
            checkpoint.newest(run)
    elif key == "evorl":
        assert checkpoint.newest(run) is not None
    else:
        falls_back(run)


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "tensors.safetensors"])
@pytest.mark.parametrize("what", ["fifo", "sparse", "link", "folder"])
def test_what_is_no_file_of_a_checkpoint(run: Path, name: str, what: str) -> None:
    file = run / "checkpoints" / "2" / name
    content = file.read_bytes()
    file.unlink()
    if what == "fifo":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    elif what == "link":
        (run.parent / name).write_bytes(content)  # the very bytes, elsewhere
        file.symlink_to(run.parent / name)
    else:
        file.touch()
        os.truncate(file, 1 << 40)
    with pytest.raises(DamagedCheckpoint, match=name):
        checkpoint.load(file.parent)
    falls_back(run)
    checkpoint.save(run, 2, {"step": 2}, keep=1)
    assert checkpoint.load(run / "checkpoints" / "2") == {"step": 2}
    assert {one.name for one in (run / "checkpoints").iterdir()} == {"2", "latest"}


ERRORS = (
    KeyError("x"),
    TypeError("x"),
    IndexError(),
    AttributeError(),
    OverflowError(),
    MemoryError(),
    RecursionError(),
)


@pytest.mark.parametrize(
    "error", [*ERRORS, RuntimeError("shape"), AssertionError()], ids=lambda error: type(error).__name__
)
def test_what_cannot_be_loaded_is_damage(run: Path, error: Exception) -> None:
    seen = []

    def take(state: dict[str, Any]) -> dict[str, Any]:
        seen.append(state["step"])
        if state["step"] == 2:
            raise error
        return state

    found = checkpoint.newest(run, take=take)
    assert found is not None and found[1]["step"] == 1 and seen == [2, 1]
    shutil.rmtree(run / "checkpoints" / "1")
    with pytest.raises(DamagedCheckpoint, match=f"checkpoints/2: {type(error).__name__}") as caught:
        checkpoint.newest(run, take=take)
    assert caught.value.__cause__ is not None and caught.value.__cause__.__cause__ is error


def test_what_a_world_or_a_cluster_reports_is_no_damage(run: Path) -> None:
    class Lost(RuntimeError):
        pass

    def take(state: dict[str, Any]) -> dict[str, Any]:
        raise Lost("its game server")

    with pytest.raises(Lost):
        checkpoint.newest(run, take=take)


LINKED: dict[str, Callable[[Path, Path], object]] = {
    ".x": lambda home, outside: (home / ".x").symlink_to(outside),
    ".ahead": lambda home, outside: (home / ".ahead").symlink_to(outside),
    ".3.partial": lambda home, outside: (home / ".3.partial").symlink_to(outside),
    ".1.removed": lambda home, outside: (home / ".1.removed").symlink_to(outside),
    ".latest.partial": lambda home, outside: (home / ".latest.partial").symlink_to(outside / "file"),
    "latest": lambda home, outside: ((home / "latest").unlink(), (home / "latest").symlink_to(outside / "file")),
    "0": lambda home, outside: (home / "0").symlink_to(outside),
    "3": lambda home, outside: (home / "3").symlink_to(outside),
}


@pytest.mark.parametrize("name", LINKED)
def test_saving_changes_nothing_outside(run: Path, name: str) -> None:
    outside = run.parent / "home"
    LINKED[name](run / "checkpoints", outside)
    checkpoint.segments_of(run, 2)
    for step in (3, 4):
        checkpoint.save(run, step, {"step": step}, keep=1)
    assert [(one.name, one.read_text()) for one in outside.iterdir()] == [("file", "precious")]
    assert checkpoint.steps(run) == [4] and checkpoint.load(run / "checkpoints" / "4") == {"step": 4}


def test_old_checkpoints_that_were_moved_and_linked_stay(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    moved = run.parent / "disk"
    (run / "checkpoints" / "1").rename(moved)
    (run / "checkpoints" / "1").symlink_to(moved)
    before = {one.name: one.read_bytes() for one in moved.iterdir()}
    with caplog.at_level(logging.WARNING, "evorl"):
        checkpoint.tell_of_links(run)
    assert f"{run / 'checkpoints'}: links are not followed, and left alone: 1" in caplog.text
    for step in (3, 4):
        checkpoint.save(run, step, {"step": step}, keep=1)
    assert {one.name: one.read_bytes() for one in moved.iterdir()} == before
    assert (run / "checkpoints" / "1").readlink() == moved
    checkpoint.save(run, 1, {"step": 1}, keep=1)  # a run that went back: the link has another name
    assert (run / "checkpoints" / "1.link").readlink() == moved


def test_a_folder_of_checkpoints_that_is_a_link_is_refused(run: Path) -> None:
    (run / "checkpoints").rename(run.parent / "disk")
    (run / "checkpoints").symlink_to(run.parent / "disk")
    for work in (checkpoint.steps, checkpoint.newest, lambda run: checkpoint.save(run, 3, {}, keep=1)):
        with pytest.raises(Unsafe, match="checkpoints: it is a link, and none in a run directory is followed"):
            work(run)
    assert {one.name for one in (run.parent / "disk").iterdir()} == {"1", "2", "latest"}


SAVED = {"offset": 3, "time": 1.5, "steps": {"train": 4}, "files": {"population.jsonl": 7}}


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"/etc/hostname": 0}}, {"files": {"../x": 0}}, {"files": {"metrics.jsonl": 0}}, {"files": 3},
        {"offset": -1}, {"offset": math.nan}, {"offset": 1 << 60}, {"time": math.inf}, {"time": math.nan},
        {"steps": {"train": 0.5}}, {"steps": {"train": math.nan}}, {"steps": []}, {"told": "x"}, {"time": "x"},
    ],
)  # fmt: skip
def test_what_a_recorder_cannot_go_on_from(change: dict[str, Any]) -> None:
    assert recorder_state(SAVED).files == {"population.jsonl": 7}
    with pytest.raises(ValueError):
        recorder_state({**SAVED, **change})


@pytest.mark.parametrize("part", [*SAVED])
def test_a_recorder_needs_every_part(part: str) -> None:
    with pytest.raises(ValueError, match=part):
        recorder_state({name: value for name, value in SAVED.items() if name != part})
