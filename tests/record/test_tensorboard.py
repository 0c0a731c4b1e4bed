import json
import logging
import math
import re
import threading
import time
import warnings
from pathlib import Path

import pytest

from evorl.record import layout, tensorboard
from evorl.record.core import Record, Recorder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the reader's own
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups


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


def as_killed(directory: Path, records: int, torn: bytes = b"") -> None:
    """Cut the newest event file to so many records and a part of the next one, as the kill of a run leaves it."""
    file = sorted(directory.glob("events.out.tfevents.*"))[-1]
    data, at = file.read_bytes(), 0
    for _ in range(records):
        at += 16 + int.from_bytes(data[at : at + 8], "little")
    file.write_bytes(data[:at] + torn)


def write(directory: Path, rows: list[tuple[int, str, float]], state=None, on: bool = True):
    """Let an attempt at a run write these rows; return its state after them."""
    with Recorder(directory, Record(tensorboard=on), {}, state) as recorder:
        for step, name, value in rows:
            recorder.write(step, {name: value})
        return recorder.state_dict()


ROWS = [(10, "train/return", 1.0), (20, "train/return", 2.0), (20, "eval/return_mean", 2.5), (30, "train/return", 3.0)]
MORE = [(30, "eval/return_mean", 3.5), (40, "train/return", 4.0)]
WHOLE = {"train/return": [(10, 1), (20, 2), (30, 3), (40, 4)], "eval/return_mean": [(20, 2.5), (30, 3.5)]}
HEADER = 4


@pytest.mark.slow_cases(*(f"{copied}-{kept}" for copied in (1, 4, 5) for kept in range(5)))
@pytest.mark.parametrize("kept", range(5))
@pytest.mark.parametrize("copied", range(7))
def test_after_a_kill_and_a_resume_every_row_is_there_once(tmp_path: Path, kept: int, copied: int) -> None:
    """Whichever rows the checkpoint kept, and however many the thread of the killed run had copied."""
    state = write(tmp_path, ROWS[:kept])
    state_of_killed = json.loads(json.dumps(state))
    for file in tmp_path.glob("events*"):
        file.unlink()
    (tmp_path / "metrics.jsonl").unlink()
    write(tmp_path, [*ROWS[:kept], *[(step, name, -value) for step, name, value in [*ROWS[kept:], *MORE]]])
    as_killed(tmp_path, HEADER + copied, b"\x09\0\0\0\0\0\0\0\0")
    state_of_killed["offset"] = len(b"".join((tmp_path / "metrics.jsonl").read_bytes().splitlines(True)[:kept]))
    write(tmp_path, [*ROWS[kept:], *MORE], state_of_killed)
    assert events(tmp_path) == WHOLE


def test_after_several_kills_every_row_is_there_once_and_is_written_again_only_if_it_was_missing(
    tmp_path: Path,
) -> None:
    first = write(tmp_path, ROWS[:3])
    as_killed(tmp_path, HEADER + 1)
    second = write(tmp_path, ROWS[3:], first)
    as_killed(tmp_path, HEADER)
    write(tmp_path, MORE[:1], second)
    as_killed(tmp_path, HEADER + 2)
    write(tmp_path, [], second)
    write(tmp_path, MORE, second)
    assert events(tmp_path) == WHOLE
    lines = [0, *(len(line) for line in (tmp_path / "metrics.jsonl").read_bytes().splitlines(True))]
    begins = [int(path.name.split(".")[-1]) for path in sorted(tmp_path.glob("events*"))]
    assert begins == [0, *[sum(lines[:2])] * 2, *[sum(lines[:4])] * 2]


def test_only_regular_files_count_and_a_sparse_one_is_read_as_far_as_there_are_rows(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with Recorder(run, Record(tensorboard=False), {}, None) as recorder:
        for step in (10, 20, 30):
            recorder.write(step, {"train/return": step})
        kept = recorder.state_dict()["offset"]
    (tmp_path / "outside").write_bytes(bytes(16 * 7))  # seven records: all rows, and what stands before them
    name = run / "events.out.tfevents.0000000001.000000000.0"
    name.symlink_to(tmp_path / "outside")
    assert tensorboard.beginning(run, kept) == (0, 10)
    name.unlink()
    with name.open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert tensorboard.beginning(run, kept).purge == 30


def test_switched_on_at_a_resume_it_has_all_earlier_rows(tmp_path: Path) -> None:
    write(tmp_path, MORE, write(tmp_path, ROWS, on=False))
    assert events(tmp_path) == WHOLE


def test_switched_off_for_a_while_or_of_an_earlier_version_it_has_all_rows(tmp_path: Path) -> None:
    first = write(tmp_path, ROWS[:1])
    last = write(tmp_path, MORE[:1], write(tmp_path, ROWS[1:], first, on=False))
    (file,) = [path for path in sorted(tmp_path.glob("events*")) if not path.name.endswith(".0")]
    assert events(tmp_path)["train/return"] == WHOLE["train/return"][:3]
    file.rename(tmp_path / file.name.rpartition(".")[0])
    write(tmp_path, MORE[1:], last)
    assert events(tmp_path) == WHOLE


def test_rows_are_dated_by_the_run_and_files_named_in_their_order_if_the_clock_is_set_back(
    tmp_path: Path, monkeypatch
) -> None:
    state, real = write(tmp_path, ROWS), time.time
    monkeypatch.setattr(time, "time", lambda: real() - 9000)
    monkeypatch.setattr(time, "time_ns", lambda: int((real() - 9000) * 1e9))
    write(tmp_path, MORE, state)
    assert events(tmp_path) == WHOLE
    reader = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    reader.Reload()
    rows = [json.loads(line)["time"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    dated = [one.wall_time for one in reader.Scalars("train/return")]
    assert dated[3] - dated[2] == pytest.approx(rows[5] - rows[3], abs=1e-5)
    assert dated[1] - dated[0] == pytest.approx(rows[1] - rows[0], abs=1e-5)


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
    def write_events(directory: Path, rows, *_) -> None:
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
        sink = tensorboard.TensorBoard(gone, 0, 0, {})  # no metrics file to read
        sink.close(True)
    assert "TensorBoard stopped (FileNotFoundError" in caplog.text


@pytest.mark.parametrize("closes", [1, 2])
def test_close_twice_is_fine(tmp_path: Path, closes: int) -> None:
    recorder = Recorder(tmp_path, Record(), {}, None)
    for _ in range(closes):
        recorder.close()
    assert not any(thread.name == "tensorboard" for thread in threading.enumerate())


# ------------------------------------------------------------------ layout and hyper-parameters


def record_runs(place: Path) -> None:
    """Two runs that differ in their seed, one of which fails; the second one goes on once."""
    config = {"seed": 1, "rl": {"lr": 1e-3, "net": {"hidden": [8]}, "clip": None}, "ec": {}, "record": {"group": "g"}}
    with Recorder(place / "0", Record(), config) as recorder:
        recorder.write(10, {"train/return": 3.0})
    with pytest.raises(KeyError), Recorder(place / "1", Record(), config | {"seed": 2}) as recorder:
        recorder.write(10, {"train/return": 5.0, "train/win": 1.0})
        state = recorder.state_dict()
        raise KeyError
    with Recorder(place / "1", Record(), config | {"seed": 2}, state) as recorder:
        recorder.write(20, {"train/return": 7.0})


@pytest.fixture
def board(tmp_path: Path):
    """What a TensorBoard without a server shows of two runs: the layout, and the groups of hyper-parameters."""
    for name in ("0", "1"):
        (tmp_path / name).mkdir()
    record_runs(tmp_path)
    multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path))
    context = base_plugin.TBContext(data_provider=provider, logdir=str(tmp_path))
    layout = CustomScalarsPlugin(context).layout_impl(RequestContext(), "")
    hyper = backend_context.Context(context)
    experiment = hyper.experiment_from_metadata(
        RequestContext(), "", True, hyper.hparams_metadata(RequestContext(), ""),
        hyper.hparams_from_data_provider(RequestContext(), "", limit=None),
    )  # fmt: skip
    wanted = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, aggregation_type=api_pb2.AGGREGATION_AVG,
        allowed_statuses=[api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING],
    )  # fmt: skip
    groups = list_session_groups.Handler(RequestContext(), hyper, "", wanted).run()
    return layout, experiment, groups


def test_custom_scalars_have_the_layout(board) -> None:
    found = json.loads(board[0])["category"]
    assert [one["title"] for one in found] == list(layout.SECTIONS)
    assert [one.get("closed", False) for one in found] == [False, *[True] * (len(layout.SECTIONS) - 1)]
    shown = {chart["title"]: chart["multiline"]["tag"] for chart in found[0]["chart"]}
    assert list(shown) == list(layout.charts()["Learning"])  # runs that share it do not repeat it
    for name, title in {"train/return": "return", "eval/return_mean": "return", "train/win": "results"}.items():
        assert [t for t, tags in shown.items() if any(re.match(tag, name) for tag in tags)] == [title]


def test_hyper_parameters(board) -> None:
    (group,) = board[2].session_groups  # a group of two seeds
    assert sorted(session.name for session in group.sessions) == ["0", "1"]
    values = {name: getattr(x, x.WhichOneof("kind")) for name, x in group.hparams.items()}
    assert {name: values[name] for name in ("rl.lr", "rl.net.hidden", "rl.clip", "ec")} == {
        "rl.lr": 1e-3, "rl.net.hidden": "[8]", "rl.clip": "null", "ec": "{}"
    }  # fmt: skip
    assert not any(name.startswith("record") for name in values)
    status = {session.name: session.status for session in group.sessions}
    returns = {one.name.tag: one.value for one in group.metric_values}
    assert returns["train/return"] == 5.0  # the mean of 3 and 7
    assert set(status.values()) == {api_pb2.STATUS_SUCCESS}  # the resume of the one that failed has ended, too
