import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from evorl.record import json_lines
from evorl.record.core import Record, Recorder
from evorl.record.metrics_tail import Row, follow_rows
from evorl.util.errors import Failure


def record(directory: Path, resume=None) -> Recorder:
    return Recorder(directory, Record(tensorboard=False), {}, resume)


def rows(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_one_object_per_line(tmp_path: Path) -> None:
    with record(tmp_path) as recorder:
        recorder.write(10, {"train/return": 1.5, "train/episodes": 3})
        assert len(rows(tmp_path)) == 1  # handed to the system at once, not at the end
        recorder.write(20, {"loss/policy": np.float32(0.1), "loss/value": torch.tensor(2.0)})
    first, second = rows(tmp_path)
    assert list(first) == ["step", "time", "train/return", "train/episodes"]
    assert (first["step"], first["train/return"], first["train/episodes"]) == (10, 1.5, 3)
    assert 0 <= first["time"] <= second["time"] < 60
    assert second["loss/policy"] == float(np.float32(0.1)) and second["loss/value"] == 2.0


def test_numbers_come_back_bit_for_bit(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).standard_normal(500) * 10.0 ** np.arange(-250, 250)
    with record(tmp_path) as recorder:
        for step, x in enumerate(numbers):
            recorder.write(step, {"train/return": x})
    assert [row["train/return"] for row in rows(tmp_path)] == numbers.tolist()


def test_values_that_are_not_finite_become_null(tmp_path: Path) -> None:
    with record(tmp_path) as recorder:
        recorder.write(0, {"loss/policy": math.nan, "loss/value": math.inf, "loss/total": np.float32(-np.inf)})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=lambda word: 1 / 0)["loss/policy"] is None
    (row,) = follow_rows(tmp_path / "metrics.jsonl", 0, lambda: True)
    assert row.step == 0 and all(math.isnan(x) for x in row.metrics.values()) and len(row.metrics) == 3


def test_steps_rise_within_a_prefix(tmp_path: Path) -> None:
    with record(tmp_path) as recorder:
        recorder.write(10, {"train/return": 0.0, "loss/policy": 0.0})
        recorder.write(10, {"eval/return_mean": 0.0})  # another prefix
        for step in (10, 9):
            with pytest.raises(ValueError, match=f"step {step} of loss/ does not follow step 10"):
                recorder.write(step, {"loss/policy": 0.0})
        recorder.write(11, {"loss/policy": 0.0})
    assert [row["step"] for row in rows(tmp_path)] == [10, 10, 11]


def test_a_refused_row_leaves_no_trace(tmp_path: Path) -> None:
    with record(tmp_path) as recorder:
        recorder.write(10, {"train/return": 0.0})
        with pytest.raises(ValueError, match="does not follow"):
            recorder.write(10, {"train/return": 0.0, "loss/policy": 0.0})
        with pytest.raises(ValueError, match="not a registered metric"):
            recorder.write(20, {"train/return": 0.0, "loss/polcy": 0.0})
        recorder.write(11, {"train/return": 0.0, "loss/policy": 0.0})
    assert [row["step"] for row in rows(tmp_path)] == [10, 11]


def test_resume_cuts_back_to_the_checkpoint(tmp_path: Path) -> None:
    with record(tmp_path) as recorder:
        for step in (1, 2, 3):
            recorder.write(step, {"train/return": step})
        state = json.loads(json.dumps(recorder.state_dict()))
        before = (tmp_path / "metrics.jsonl").read_bytes()
        recorder.write(4, {"train/return": -1.0, "eval/return_mean": 0.0})
    with record(tmp_path, state) as recorder:
        assert (tmp_path / "metrics.jsonl").read_bytes() == before
        assert recorder.time >= state["time"]
        with pytest.raises(ValueError, match="does not follow step 3"):
            recorder.write(3, {"train/return": 0.0})
        recorder.write(4, {"train/return": 4, "eval/return_mean": 0.0})
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3, 4]
    times = [row["time"] for row in rows(tmp_path)]
    assert times == sorted(times)


def test_time_goes_on_over_a_resume(tmp_path: Path) -> None:
    with record(tmp_path, {"offset": 0, "time": 1000.0, "steps": {}, "files": {}}) as recorder:
        recorder.write(1, {"train/return": 0.0})
        assert 1000 <= recorder.time < 1060
    assert 1000 <= rows(tmp_path)[0]["time"] < 1060


def test_new_run_starts_an_empty_file(tmp_path: Path) -> None:
    for _ in range(2):
        with record(tmp_path) as recorder:
            recorder.write(1, {"train/return": 0.0})
    assert len(rows(tmp_path)) == 1


@pytest.mark.parametrize("content", [b"", b'{"step":1,"time":0}\n{"ste', b'{"step":1,"time":0}\n'])
def test_file_shorter_than_the_checkpoint_offset_keeps_its_complete_lines(
    tmp_path: Path, content: bytes, caplog
) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(content)
    with record(tmp_path, {"offset": 5000, "time": 0.0, "steps": {"train": 1}, "files": {}}) as recorder:
        recorder.write(2, {"train/return": 0.0})
        offset = recorder.state_dict()["offset"]
    assert [row["step"] for row in rows(tmp_path)] == [1, 2][-1 - content.count(b"\n") :]
    assert "rows before this point are missing" in caplog.text
    assert offset == (tmp_path / "metrics.jsonl").stat().st_size


def test_full_disk_loses_no_row(tmp_path: Path, monkeypatch, caplog) -> None:
    """The first of the failing writes takes half of its row before the disk says no."""
    real, full = os.write, False

    def write(descriptor: int, chunk: memoryview) -> int:
        if not full:
            return real(descriptor, chunk)
        if len(chunk) > 20:
            return real(descriptor, chunk[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with record(tmp_path) as recorder:
        recorder.write(1, {"train/return": 0.0})
        full = True
        for step in (2, 3, 4):
            recorder.write(step, {"train/return": 0.0})
        assert [row["step"] for row in rows(tmp_path)] == [1]
        assert [r.getMessage() for r in caplog.records] == [
            "metrics.jsonl cannot grow (No space left on device): its rows wait in memory"
        ]
        full = False
        recorder.write(5, {"train/return": 0.0})
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_run_ends_before_a_row_is_dropped(tmp_path: Path, monkeypatch) -> None:
    """No checkpoint would be whole without it. The disk has stayed full, and those that wait would fill the memory."""

    def write(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json_lines, "_MAX_PENDING", 200)
    with record(tmp_path) as recorder:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            with pytest.raises(Failure, match=r"^metrics\.jsonl cannot grow, and .* can be resumed"):
                for step in range(100):
                    recorder.write(step, {"train/return": 0.0})
        recorder.state_dict()
    steps = [row["step"] for row in rows(tmp_path)]
    assert steps == [*range(len(steps))] and 1 < len(steps) < 10


def test_full_disk_for_real(tmp_path: Path) -> None:
    """RLIMIT_FSIZE in a process of its own: whole lines up to the limit, the run goes on."""
    code = """
import resource, signal, sys
from pathlib import Path
from evorl.record.core import Record, Recorder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
with Recorder(Path(sys.argv[1]), Record(tensorboard=False), {}, None) as recorder:
    for step in range(200):
        recorder.write(step, {"train/return": 0.5})
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if sys.argv[2] == "freed":
        recorder.write(200, {"train/return": 0.5})
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
"""
    for case, expected in (("full", None), ("freed", list(range(201)))):
        (tmp_path / case).mkdir()
        done = subprocess.run([sys.executable, "-c", code, tmp_path / case, case], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("cannot grow") == 1
        steps = [row["step"] for row in rows(tmp_path / case)]
        assert steps == (expected or list(range(len(steps)))) and len(steps) > 50


def test_a_sink_that_cannot_start_costs_a_warning(tmp_path: Path, monkeypatch, caplog) -> None:
    def popen(*args: object, **kwargs: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")  # no process to be had

    monkeypatch.setattr(subprocess, "Popen", popen)
    with Recorder(tmp_path, Record(tensorboard=False, wandb="offline"), {}) as recorder:
        recorder.write(1, {"train/return": 0.0})
    assert "did not start" in caplog.text and len(rows(tmp_path)) == 1


def test_no_state_while_rows_wait_or_storage_fails(tmp_path: Path, monkeypatch) -> None:
    """A checkpoint must not count on rows that are not on the disk: going on from it would leave a gap."""

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with record(tmp_path) as recorder:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fail)
            recorder.write(1, {"train/return": 0.0})
            with pytest.raises(OSError, match="No space left"):
                recorder.state_dict()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(OSError, match="No space left"):
                recorder.state_dict()
        assert recorder.state_dict()["offset"] == (tmp_path / "metrics.jsonl").stat().st_size > 0


def test_write_is_cheap(tmp_path: Path) -> None:
    """A row costs the system one call; a bound on time would measure the machine."""
    values = dict.fromkeys(("train/return", "loss/policy", "loss/value", "policy/entropy"), 0.123456789)
    calls = 0
    real = os.write

    def write(descriptor: int, chunk: memoryview) -> int:
        nonlocal calls
        calls += 1
        return real(descriptor, chunk)

    with record(tmp_path) as recorder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", write)
        for step in range(100):
            recorder.write(step, values)
    assert calls == 100


KILLED = """
import sys, os
from pathlib import Path
from evorl.record import checkpoint
from evorl.record.core import Record, Recorder
directory = Path(sys.argv[1])
found = checkpoint.newest(directory)
state = found[1] if found else {"step": 0, "recorder": None}
recorder = Recorder(directory, Record(tensorboard=False), {}, state["recorder"])
step = state["step"]
while step < int(sys.argv[2]):
    step += 1
    print(step, flush=True)
    if step == int(sys.argv[3]) + 400:
        sys.stdin.read()  # it is killed here at the latest
    recorder.write(step, {"train/return": step * 0.5})
    if step % 7 == 0:
        recorder.write(step, {"eval/return_mean": step})
    if step % 50 == 0:
        checkpoint.save(directory, step, {"step": step, "recorder": recorder.state_dict()}, keep=2)
recorder.close()
"""


@pytest.mark.slow
def test_kill_and_resume_leaves_no_gap_and_no_duplicate(tmp_path: Path) -> None:
    steps = 3000
    rng = np.random.default_rng(0)
    for last in (*np.sort(rng.integers(1, steps - 500, 6)), steps):
        command = [sys.executable, "-c", KILLED, tmp_path, str(steps), str(last)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            next(line for line in child.stdout if int(line) >= last)
            if last < steps:
                child.kill()  # somewhere within the rows that follow
            assert child.wait() == (0 if last == steps else -signal.SIGKILL)
    found = [({"eval"} if "eval/return_mean" in row else {"train"}, row["step"]) for row in rows(tmp_path)]
    expected = [
        (kind, s) for s in range(1, steps + 1) for kind in ({"train"}, {"eval"}) if kind != {"eval"} or s % 7 == 0
    ]
    assert found == expected


# ------------------------------------------------------------------ the reader


def test_follow_reads_new_rows_and_waits_for_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"time":0.5,"train/return":1}\n{"step":2,')
    more = iter(['"time":1}\n', '{"step":3,"time":2}\n{"step":4,"time":3}\n{"half', None])

    def wait() -> bool:
        text = next(more)
        if text is not None:
            with path.open("a") as file:
                file.write(text)
        return text is None

    read = list(follow_rows(path, 0, wait))
    assert read == [Row(1, 0.5, {"train/return": 1}), Row(2, 1, {}), Row(3, 2, {}), Row(4, 3, {})]


def test_follow_reads_the_rest_after_the_writer_has_finished(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("")
    last = '{"step":1,"time":0}\n'
    assert list(follow_rows(path, 0, lambda: bool(path.write_text(last)))) == [Row(1, 0, {})]
    assert list(follow_rows(path, len(last), lambda: True)) == []


def test_follow_survives_a_removed_partial_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"time":0}\n{"step":2,"ti')
    contents = iter(['{"step":1,"time":0}\n', '{"step":1,"time":0}\n{"step":3,"time":1}\n', None])

    def wait() -> bool:
        text = next(contents)
        if text is not None:
            path.write_text(text)
        return text is None

    assert [row.step for row in follow_rows(path, 0, wait)] == [1, 3]
