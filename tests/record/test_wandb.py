"""W&B: what it is given, and that no way in which the library can fail reaches the run."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from evorl.record import wandb as sink
from evorl.record.core import Record, Recorder

LIBRARY = '''
"""Writes down how it is used; LOG and BEHAVIOUR come from the environment."""
import ctypes, json, os, signal, sys, time

log_file = os.environ["FAKE_LOG"]
behaviour = os.environ.get("FAKE_BEHAVIOUR", "")
print("garbage on stdout \\x1b[2J" * 5)


def note(**fields):
    with open(log_file, "a") as file:
        file.write(json.dumps(fields, default=str) + "\\n")


def at(place):
    where, _, what = behaviour.partition(":")
    if where == place:
        note(misbehaves=what, pid=os.getpid())
        {
            "raise": lambda: 1 / 0,
            "sleep": lambda: time.sleep(1000),
            "exit": lambda: os._exit(7),
            "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
            "garbage": lambda: [sys.stdout.write("\\0\\xff{" * 100_000), sys.stderr.write("x" * 1_000_000)],
        }[what]()


at("import")


class Settings:
    def __init__(self, **settings):
        self.settings = settings


class Run:
    id = "an-id"
    starting_step = int(os.environ.get("FAKE_STEP", "0"))
    offline = False
    summary = {}

    def define_metric(self, name, step_metric):
        note(define=name, step_metric=step_metric)

    def log(self, row, step, commit):
        at("log")
        assert commit
        note(row=row, index=step)

    def finish(self, exit_code):
        at("finish")
        note(finish=exit_code, **({"summary": self.summary} if self.summary else {}))


def teardown():
    pass


def init(mode, settings, **arguments):
    at("init" if mode == "offline" else "login")
    note(init=mode, settings=settings.settings, **arguments)
    return Run()
'''


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the wandb package; returns the file it writes down its use in."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "wandb.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path / "library")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(sink, "_CLOSE_TIMEOUT_S", 20.0)  # the stand-in is quick, this machine may not be
    return tmp_path / "log"


def run(directory: Path, mode: str = "offline", rows: int = 3, resume: Any = None, **record: Any) -> Recorder:
    directory.mkdir(exist_ok=True)
    config = {"mdp": {"id": "pong"}, "path": Path("x")}
    recorder = Recorder(directory, Record(tensorboard=False, wandb=mode, **record), config, resume)
    for step in range(1, rows + 1):
        recorder.write(step, {"train/return": step / 2})
    return recorder


def notes(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_rows_and_settings_reach_the_library(tmp_path: Path, library: Path) -> None:
    run(tmp_path / "run", project="p", group="g", name="n", tags=("a", "b"), job_type="j").close()
    init, define, *rows, finish = notes(library)
    assert init.pop("settings")["silent"] is True
    assert len(init.pop("id")) == 12
    assert init == {
        "init": "offline", "project": "p", "group": "g", "name": "n", "tags": ["a", "b"], "job_type": "j",
        "config": {"mdp": {"id": "pong"}, "path": "x"},
        "dir": str(tmp_path / "run"), "resume": "allow", "reinit": "create_new",
    }  # fmt: skip
    assert define == {"define": "*", "step_metric": "step"}
    assert [row["row"]["train/return"] for row in rows] == [0.5, 1.0, 1.5]
    assert [row["row"]["step"] for row in rows] == [1, 2, 3]
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert finish == {"finish": 0}


def test_a_failed_run_is_marked(tmp_path: Path, library: Path) -> None:
    with pytest.raises(KeyboardInterrupt), run(tmp_path / "run"):
        raise KeyboardInterrupt
    assert notes(library)[-1] == {"finish": 1}


@pytest.mark.parametrize(("ec", "expected"), [(None, "train"), ({"population": 4}, "evolve")])
def test_job_type(tmp_path: Path, ec: Any, expected: str) -> None:
    record = {"project": "p", "_target_": "x"}  # of a run that is older than the other keys
    settings = sink.run_settings(tmp_path / "7", record, {"ec": ec, "record": record, "seed": 1})
    assert settings == {
        "project": "p", "group": None, "name": "7", "tags": [], "job_type": expected, "artifacts": False,
        "config": {"ec": ec, "seed": 1},
    }  # fmt: skip


def test_the_result_is_the_summary(tmp_path: Path, library: Path) -> None:
    with run(tmp_path / "run"):
        best = {"fitness": 1.5, "step": 2, "words": "no number"}
        result = {"steps": 3, "seconds": 0.5, "fitness": None, "eval": {"return_mean": 1.5}, "best": best}
        (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    assert notes(library)[-1]["summary"] == {
        "result/steps": 3, "result/seconds": 0.5, "result/fitness": None, "result/eval/return_mean": 1.5,
        "result/best/fitness": 1.5, "result/best/step": 2,
    }  # fmt: skip


@pytest.mark.slow
def test_each_job_is_its_own_run_and_a_resumed_one_the_same(tmp_path: Path, library: Path) -> None:
    for name in ("a", "b"):
        run(tmp_path / name).close()
    first = run(tmp_path / "c")
    state = first.state_dict()
    first.close()
    (tmp_path / "c").rename(tmp_path / "moved")
    run(tmp_path / "moved", resume=state, rows=0).close()
    inits = [note for note in notes(library) if "init" in note]
    assert [note["name"] for note in inits] == ["a", "b", "c", "moved"]
    ids = [note["id"] for note in inits]
    assert len(set(ids)) == 3 and ids[2] == ids[3]


def test_a_resumed_online_run_skips_what_the_server_has(tmp_path: Path, library: Path, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_STEP", "2")
    run(tmp_path / "run", "online", rows=5).close()
    assert [note["row"]["step"] for note in notes(library) if "row" in note] == [3, 4, 5]


def test_no_server_means_offline_and_a_warning(tmp_path: Path, library: Path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", "login:raise")
    run(tmp_path / "run", "online").close()
    assert "W&B could not reach its server" in caplog.text and "wandb sync" in caplog.text
    assert [note["row"]["step"] for note in notes(library) if "row" in note] == [1, 2, 3]


QUICK = {("import", "raise"), ("init", "exit"), ("log", "segv"), ("finish", "raise")}


def child_of(recorder: Recorder) -> subprocess.Popen[bytes]:
    (one,) = recorder._sinks
    assert isinstance(one, sink.WandB) and one._child is not None
    return one._child


@pytest.mark.slow_cases("finish-raise")
@pytest.mark.parametrize(
    ("where", "what"),
    [
        pytest.param(where, what, marks=[] if (where, what) in QUICK else pytest.mark.fault)
        for where in ("import", "init", "log", "finish")
        for what in ("raise", "exit", "segv")
    ],
)
def test_child_that_dies_causes_one_warning(tmp_path: Path, library: Path, monkeypatch, caplog, where, what) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", f"{where}:{what}")
    with caplog.at_level(logging.WARNING, "evorl"):
        recorder = run(tmp_path / "run")
        if where != "finish":
            child_of(recorder).wait()
        for step in (10, 11, 12):
            recorder.write(step, {"train/return": 0.0})
        recorder.close()
    (warning,) = caplog.records
    reason = {"raise": "ZeroDivisionError", "exit": "code 7", "segv": f"code {-signal.SIGSEGV}"}[what]
    assert reason in warning.getMessage() and "metrics.jsonl has every row" in warning.getMessage()
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 6


@pytest.mark.slow
@pytest.mark.parametrize("where", ["import", "init", "log", "finish"])
def test_child_that_hangs_delays_close_a_bounded_time_and_exits(
    tmp_path: Path, library: Path, monkeypatch, caplog, where: str
) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", f"{where}:sleep")
    monkeypatch.setattr(sink, "_CLOSE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(sink, "_CHILD_TIMEOUT_S", 1)
    recorder = run(tmp_path / "run")
    child = child_of(recorder)
    if where != "finish":
        await_note(library, "misbehaves")
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "evorl"):
        recorder.close()
    assert time.monotonic() - began < 5
    assert "W&B is not done yet" in caplog.text
    _, status = os.waitpid(child.pid, 0)
    assert os.WTERMSIG(status) == signal.SIGALRM


def await_note(log: Path, key: str) -> dict[str, Any]:
    """The first note with this key; the stand-in writes it soon."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for note in notes(log):
            if key in note:
                return note
        threading.Event().wait(0.01)
    raise AssertionError(f"no {key}")


@pytest.mark.parametrize("where", ["import", "log"])
def test_output_of_the_library_goes_to_a_log(
    tmp_path: Path, library: Path, monkeypatch, caplog, capfd, where: str
) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", f"{where}:garbage")
    run(tmp_path / "run").close()
    assert notes(library)[-1] == {"finish": 0} and not caplog.records
    assert capfd.readouterr() == ("", "")


def test_a_killed_run_ends_its_child(tmp_path: Path, library: Path) -> None:
    """The pipe closes with the process, however that ends."""
    code = (
        "import os, sys; from pathlib import Path; from evorl.record.core import Record, Recorder\n"
        "r = Recorder(Path(sys.argv[1]), Record(tensorboard=False, wandb='offline'), {}, None)\n"
        "r.write(1, {'train/return': 1.0}); os.kill(os.getpid(), 9)"
    )
    (tmp_path / "run").mkdir()
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "library")}
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "run"], env=env).returncode == -signal.SIGKILL
    assert await_note(library, "finish") == {"finish": 1}


def test_the_real_library_offline(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sink, "_CLOSE_TIMEOUT_S", 60.0)
    run(tmp_path / "run", rows=20, group="the-group").close()
    (folder,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    (file,) = folder.glob("*.wandb")
    content = file.read_bytes()
    assert content.count(b"train/return") >= 20 and b"the-group" in content and b"pong" in content
    assert (tmp_path / "run" / "wandb" / "evorl.log").read_text() == ""
