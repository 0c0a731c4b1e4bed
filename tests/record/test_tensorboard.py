import logging
import math
import threading
import warnings
from pathlib import Path

import pytest

from evorl.record import tensorboard
from evorl.record.core import Record, Recorder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the reader's own
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def events(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run directory."""
    reader = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_shows_the_rows(tmp_path: Path) -> None:
    with Recorder(tmp_path, Record(), {}, None) as recorder:
        for step in range(1, 30):
            recorder.write(step, {"train/return": step / 2, "loss/value": math.nan})
        recorder.write(29, {"eval/return_mean": 3.0})
    shown = events(tmp_path)
    assert shown["train/return"] == [(step, step / 2) for step in range(1, 30)]
    assert shown["eval/return_mean"] == [(29, 3.0)]
    assert all(math.isnan(value) for _, value in shown["loss/value"])


def test_no_duplicates_after_kill_and_resume(tmp_path: Path) -> None:
    with Recorder(tmp_path, Record(), {}, None) as recorder:
        for step in (10, 20):
            recorder.write(step, {"train/return": step})
        state = recorder.state_dict()
        recorder.write(30, {"train/return": -1.0})  # beyond the checkpoint
    with Recorder(tmp_path, Record(), {}, state) as recorder:
        for step in (30, 40):
            recorder.write(step, {"train/return": step})
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    assert events(tmp_path) == {"train/return": [(10, 10), (20, 20), (30, 30), (40, 40)]}


def test_new_run_purges_old_events(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        with Recorder(tmp_path, Record(), {}, None) as recorder:
            recorder.write(0, {"train/return": value})
    assert events(tmp_path) == {"train/return": [(0, 2.0)]}


def test_off_writes_none(tmp_path: Path) -> None:
    with Recorder(tmp_path, Record(tensorboard=False), {}, None) as recorder:
        recorder.write(0, {"train/return": 0.0})
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_exception_in_the_thread_causes_one_warning(tmp_path: Path, monkeypatch, caplog) -> None:
    def write_events(directory: Path, rows, purge: int) -> None:
        next(iter(rows))
        raise RuntimeError("no protobuf today")

    monkeypatch.setattr(tensorboard, "write_events", write_events)
    with caplog.at_level(logging.WARNING, "evorl"), Recorder(tmp_path, Record(), {}, None) as recorder:
        for step in range(5):
            recorder.write(step, {"train/return": 0.0})
    assert [r.getMessage() for r in caplog.records] == [
        "TensorBoard stopped (RuntimeError: no protobuf today); metrics.jsonl goes on"
    ]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 5


def test_close_waits_a_bounded_time_for_a_hanging_thread(tmp_path: Path, monkeypatch, caplog) -> None:
    release = threading.Event()
    monkeypatch.setattr(tensorboard, "write_events", lambda *_: release.wait())
    monkeypatch.setattr(tensorboard, "_CLOSE_TIMEOUT_S", 0.05)
    with caplog.at_level(logging.WARNING, "evorl"), Recorder(tmp_path, Record(), {}, None) as recorder:
        recorder.write(0, {"train/return": 0.0})
    assert "did not reach the disk in time" in caplog.text
    release.set()
    for thread in threading.enumerate():
        if thread.name == "tensorboard":
            thread.join()


def test_a_missing_file_stops_only_the_events(tmp_path: Path, caplog) -> None:
    with caplog.at_level(logging.WARNING, "evorl"):
        gone = tmp_path / "gone"
        gone.mkdir()
        sink = tensorboard.TensorBoard(gone, 0, 0)  # no metrics file to read
        sink.close(True)
    assert "TensorBoard stopped (FileNotFoundError" in caplog.text


@pytest.mark.parametrize("closes", [1, 2])
def test_close_twice_is_fine(tmp_path: Path, closes: int) -> None:
    recorder = Recorder(tmp_path, Record(), {}, None)
    for _ in range(closes):
        recorder.close()
    assert not any(thread.name == "tensorboard" for thread in threading.enumerate())
