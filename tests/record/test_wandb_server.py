"""W&B's own library against a server on this machine: a run arrives exactly once, also if the server fails."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl.record import checkpoint
from evorl.record import wandb as sink
from evorl.record.core import Record, Recorder
from evorl.util.types import StateDict
from tests.record.wandb_server import Death, Refusal, Run, Server, wait_until

CONFIG = {"mdp": {"id": "pong"}, "ec": None, "seed": 3}
ONLINE = {"wandb": "online", "project": "p", "group": "a-sweep", "tags": ("x", "y"), "artifacts": True}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A running server, which the clients of this test use."""
    monkeypatch.setattr(sink, "_CLOSE_TIMEOUT_S", 100.0)
    monkeypatch.setattr(sink, "_CLOSE_TIMEOUT_ONLINE_S", 100.0)
    found = Server()
    with found.running():
        for name, value in found.environment(str(tmp_path / "home")).items():
            monkeypatch.setenv(name, value)
        yield found


def train(directory: Path, steps: range, resume: StateDict | None = None, **record: Any) -> StateDict:
    """Rows of these steps, a checkpoint and a result; returns the recorder's state."""
    directory.mkdir(exist_ok=True)
    with Recorder(directory, Record(tensorboard=False, **(ONLINE | record)), CONFIG, resume) as recorder:
        for step in steps:
            recorder.write(step, {"train/return": step / 2})
        state = recorder.state_dict()
        save(directory, steps[-1])
        best = {"fitness": 1.5, "step": steps[-1]}
        result = {"steps": steps[-1], "seconds": 1.0, "fitness": 1.5, "eval": {}, "best": best}
        (directory / "result.json").write_text(json.dumps(result))
    return state


def save(directory: Path, step: int) -> None:
    checkpoint.save(directory, step, {"weights": np.arange(step), "step": step}, keep=2)


def rows(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def only_run(server: Server) -> Run:
    (run,) = server.runs.values()
    return run


def check_arrived_once(server: Server, directory: Path) -> None:
    """Every row, the result and every checkpoint that is left are on the server, once."""
    run = only_run(server)
    own = [{name: x for name, x in row.items() if not name.startswith("_")} for row in run.history]
    assert own == rows(directory) and [row["_step"] for row in run.history] == list(range(len(own)))
    assert run.overwritten == 0
    assert run.summary["result/steps"] == json.loads((directory / "result.json").read_text())["steps"]
    found = server.committed("checkpoint")
    assert len({one.digest for one in found}) == len(found)
    for step in checkpoint.steps(directory):
        (version,) = (one for one in found if f"step-{step}" in one.aliases)
        place = directory / "checkpoints" / str(step)
        assert server.content(version) == {file.name: file.read_bytes() for file in place.iterdir()}
    assert not server.unknown


@pytest.mark.slow
def test_a_run_arrives_and_goes_on_under_its_id(tmp_path: Path, server: Server) -> None:
    directory = tmp_path / "run"
    state = train(directory, range(1, 4))
    run = only_run(server)
    assert run.config == CONFIG and run.exit_code == 0
    attributes = {key: run.attributes[key] for key in ("project", "groupName", "tags", "jobType", "displayName")}
    assert attributes == {
        "project": "p", "groupName": "a-sweep", "tags": ["x", "y"], "jobType": "train", "displayName": "run"
    }  # fmt: skip
    check_arrived_once(server, directory)
    (version,) = server.committed("checkpoint")
    assert sorted(version.aliases) == ["best", "latest", "step-3"]
    (directory / "videos").mkdir()
    (directory / "videos" / "3-best.mp4").write_bytes(b"a film")
    train(directory, range(4, 6), state)
    check_arrived_once(server, directory)
    assert len(server.committed("checkpoint")) == 2
    film = only_run(server).summary["films/3-best"]
    assert only_run(server).files[film["path"]] == b"a film"
    assert not (directory / "wandb" / "checkpoints").exists()


@pytest.mark.slow
def test_what_is_sent_takes_no_room_while_the_run_goes_on(tmp_path: Path, server: Server) -> None:
    directory, staged = tmp_path / "run", tmp_path / "run/wandb/checkpoints"
    directory.mkdir()
    with Recorder(directory, Record(tensorboard=False, **ONLINE), CONFIG) as recorder:
        for step in (1, 2, 3):
            recorder.write(step, {"train/return": step / 2})
            save(directory, step)
            wait_until(lambda step=step: len(server.committed("checkpoint")) == step)
        wait_until(lambda: not [*staged.iterdir()], 20)
    assert not server.unknown


KILLED = """
import sys, time
from pathlib import Path
from evorl.record.core import Record, Recorder
from tests.record.test_wandb_server import CONFIG, ONLINE, save
directory = Path(sys.argv[1])
recorder = Recorder(directory, Record(tensorboard=False, **ONLINE), CONFIG, None)
for step in range(1, 6):
    recorder.write(step, {"train/return": step / 2})
save(directory, 5)
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.mark.fault
@pytest.mark.parametrize("also_child", [False, True])
def test_a_killed_run(tmp_path: Path, server: Server, also_child: bool) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with subprocess.Popen([sys.executable, "-c", KILLED, str(directory)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        wait_until(lambda: bool(server.runs) and bool(only_run(server).history))
        if also_child:
            for child in children(process.pid):
                os.kill(child, signal.SIGKILL)
        process.kill()
    if not also_child:
        wait_until(lambda: only_run(server).exit_code is not None)
        assert only_run(server).exit_code == 1 and len(server.committed("checkpoint")) == 1
    train(
        directory,
        range(6, 9),
        {"offset": (directory / "metrics.jsonl").stat().st_size, "time": 1.0, "steps": {}, "files": {}},
    )
    check_arrived_once(server, directory)
    assert only_run(server).exit_code == 0


def children(pid: int) -> list[int]:
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# ------------------------------------------------------------------ a bad server

MUTATIONS = ("UpsertBucket", "file_stream", "CreateArtifact", "CreateArtifactManifest", "CreateArtifactFiles", "put",
             "CommitArtifact")  # fmt: skip


class Times:
    """A fault that happens the first few times that something is asked."""

    def __init__(self, place: str, what: str, error: Exception, times: int = 2) -> None:
        self.place, self.what, self.error, self.left = place, what, error, times

    def __call__(self, place: str, what: str) -> None:
        if (place, what) == (self.place, self.what) and self.left:
            self.left -= 1
            raise self.error


@pytest.mark.fault
@pytest.mark.parametrize("what", MUTATIONS)
@pytest.mark.parametrize(
    ("place", "error"), [("before", Refusal(503)), ("after", Refusal(502)), ("before", Death()), ("after", Death())]
)
def test_refusals_and_lost_answers(tmp_path: Path, server: Server, what: str, place: str, error: Exception) -> None:
    """``after``: the server has done what was asked, and the client does not learn of it."""
    server.fault = fault = Times(place, what, error)
    train(tmp_path / "run", range(1, 4))
    assert fault.left == 0
    check_arrived_once(server, tmp_path / "run")


@pytest.mark.fault
def test_a_slow_server(tmp_path: Path, server: Server) -> None:
    server.fault = lambda place, what: time.sleep(0.5)
    train(tmp_path / "run", range(1, 4))
    check_arrived_once(server, tmp_path / "run")


@contextmanager
def recorder_that_loses(server: Server, directory: Path) -> Iterator[Recorder]:
    """A recorder of a new run whose server stops once it has the first row."""
    directory.mkdir()
    with Recorder(directory, Record(tensorboard=False, **ONLINE), CONFIG) as recorder:
        recorder.write(1, {"train/return": 0.5})
        wait_until(lambda: bool(server.runs) and bool(only_run(server).history))
        server.stop()
        yield recorder


@pytest.mark.fault
def test_a_server_that_is_away_for_a_while(tmp_path: Path, server: Server) -> None:
    directory = tmp_path / "run"
    with recorder_that_loses(server, directory) as recorder:
        recorder.write(2, {"train/return": 1.0})
        save(directory, 2)
        threading.Timer(5.0, server.start).start()
        (directory / "result.json").write_text('{"steps": 2, "seconds": 1, "fitness": 0, "eval": {}}')
    check_arrived_once(server, directory)


@pytest.mark.fault
def test_a_server_that_dies_half_way_gets_the_rest_later(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sink, "_CLOSE_TIMEOUT_ONLINE_S", 0.5)
    monkeypatch.setattr(sink, "_ARTIFACTS_TIMEOUT_S", 3)
    directory = tmp_path / "run"
    with recorder_that_loses(server, directory) as recorder:
        for step in range(2, 6):
            recorder.write(step, {"train/return": step / 2})
        save(directory, 5)
        (directory / "result.json").write_text('{"steps": 5, "seconds": 1, "fitness": 0, "eval": {}}')
    assert "W&B is not done yet" in caplog.text
    monkeypatch.setattr(sink, "_INIT_TIMEOUT_S", 3.0)
    record = {"project": "p", "group": "a-sweep", "tags": ["x", "y"], "artifacts": True}
    server.start()
    for _ in range(2):  # a second call finds everything there
        sink.upload(directory, record, CONFIG, True)
        check_arrived_once(server, directory)
    assert len(server.committed("checkpoint")) == 1


@pytest.mark.fault
def test_no_server(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    """The run is recorded offline, and is uploaded when there is a server."""
    server.stop()
    directory = tmp_path / "run"
    train(directory, range(1, 4))
    assert "W&B could not reach its server" in caplog.text and "wandb=report" in caplog.text
    record = {"project": "p", "group": "a-sweep", "tags": ["x", "y"], "artifacts": True}
    with pytest.raises(sink.NoServer, match="CommError"):
        sink.upload(directory, record, CONFIG, True)
    server.start()
    sink.upload(directory, record, CONFIG, True)
    check_arrived_once(server, directory)
