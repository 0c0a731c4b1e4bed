"""``evorl.report ... wandb=report``: what is written without a server, and what arrives at one."""

import json
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from evorl.analysis.reproduced import read_result
from evorl.analysis.runs import read_runs
from evorl.jobs import wandb_upload
from evorl.record import wandb as sink
from evorl.report import main
from tests.harness import ROOT
from tests.record.test_wandb_report import check_schema
from tests.record.wandb_server import Death, Refusal, Server
from tests.test_report import write_run

RESULT = {
    "title": "A table", "of": "Table 3", "claim": "twice as | fast", "source": "A. Nonymous 2020", "profile": "ci",
    "size": "small",
    "settings": [], "made_of": None, "about": "Measured with care.",
    "header": ["arm", "return"], "rows": [["ours", "2 [1, 3]"], ["theirs", "1"]],
    "also": [{"header": ["x"], "rows": [["y"]]}], "gates": {"ours above theirs": "passed", "fast": "failed"},
    "notes": ["A note."], "figures": {"table": "Return over steps", "missing": "no such file"},
    "machine": {"command": "python -m evorl.reproduce a/table", "cores": 2, "evorl": {"torch": "2"}},
    "data": {"more": 1},
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures but one; tests/test_report.py has the whole ones."""
    picture = (ROOT / "benchmarks" / "elite_replay" / "results" / "elite_kl.png").read_bytes()
    content = {"index.html": b"a page", "table.md": b"# pong\n", "train_return.png": picture}
    monkeypatch.setattr("evorl.analysis.report.compose", lambda *_: content)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Three runs of two groups; one was stopped, one has a film, one a damaged line."""
    for number, (lr, seed) in enumerate([(0.01, 1), (0.01, 2), (0.001, 1)]):
        write_run(tmp_path / "sweep" / str(number), lr, seed, finished=number != 2, damaged=number == 1)
    (tmp_path / "sweep" / "0" / "videos").mkdir()
    (tmp_path / "sweep" / "0" / "videos" / "6000-best.mp4").write_bytes(b"a film")
    return tmp_path / "sweep"


@pytest.fixture
def result(tmp_path: Path) -> Path:
    place = tmp_path / "paper" / "results"
    place.mkdir(parents=True)
    (place / "table.json").write_text(json.dumps(RESULT))
    shutil.copy(ROOT / "benchmarks" / "elite_replay" / "results" / "elite.png", place / "table.png")
    return place / "table.json"


def texts(found: dict[str, Any]) -> dict[str, str]:
    """The text below each heading."""
    below = {}
    for one, following in pairwise(found["spec"]["blocks"]):
        if one["type"] == "heading":
            below[one["children"][0]["text"]] = following.get("content", "")
    return below


# ------------------------------------------------------------------ without a server


def test_a_reproduced_table(tmp_path: Path, result: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    out = tmp_path / "out"
    assert main([str(result), "wandb=report", f"out={out}", "project=tables"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split() == [str(out / "wandb_report.json")]
    assert printed.err == (
        "evorl: no W&B server (WANDB_MODE=offline); the same command sends the report once there is one\n"
    )
    found = json.loads((out / "wandb_report.json").read_text())
    check_schema(found)
    assert found["displayName"] == "A table" and found["project"]["name"] == "tables"
    below = texts(found)
    assert list(below) == ["A table", "Return over steps", "How it was measured: A table"]
    assert (
        below["A table"]
        == """\
**Table 3**

**Claim** (A. Nonymous 2020): twice as | fast

**Measured** (ci):

| arm | return |
| --- | --- |
| ours | 2 [1, 3] |
| theirs | 1 |

| x |
| --- |
| y |

| gate | verdict |
| --- | --- |
| ours above theirs | passed |
| fast | failed |

A note.
"""
    )
    measured = below["How it was measured: A table"]
    assert "Measured with care." in measured and "| command | `python -m evorl.reproduce a/table` |" in measured
    assert "torch" not in measured


def test_a_table_by_its_name(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main(["marvin/cartpole", "wandb=report", f"out={tmp_path / 'out'}"]) == 0
    found = json.loads((tmp_path / "out" / "wandb_report.json").read_text())
    check_schema(found)
    assert found["displayName"] == read_result(ROOT / "benchmarks" / "marvin" / "results" / "cartpole.json")["title"]
    capsys.readouterr()
    for words, said in (
        (["marvin/cartpole"], "cartpole.json is no run directory; results of reproduced tables go with wandb=report"),
        (["marvin/cartpol", "wandb=report"], "'marvin/cartpol' is no table; did you mean marvin/cartpole?"),
        (["marvn/cartpole", "wandb=report"], "marvn/cartpole: no such run directory; did you mean marvin/cartpole?"),
        (["speed/ppo", "wandb=report"], "speed/ppo: no such run directory\n"),
        (["sweeps/cartpole", "wandb=report"], "sweeps/cartpole: no such run directory\n"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err


def test_runs_and_a_table(tmp_path: Path, sweep: Path, result: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    out = tmp_path / "out"
    assert main([str(sweep), str(result), "wandb=report", f"out={out}"]) == 0
    assert capsys.readouterr().out.split()[-2:] == [str(out / "index.html"), str(out / "wandb_report.json")]
    found = json.loads((out / "wandb_report.json").read_text())
    report = check_schema(found)
    ids = [(sweep / str(number) / "wandb" / "evorl.id").read_text() for number in range(3)]
    sets = {one.name: one.filters for block in report.blocks for one in getattr(block, "runsets", [])}
    assert sets == {
        "report": f"Metric(\"ID\") in ['{found['name']}']",
        "rl.lr=0.01 (n=2)": f"Metric(\"ID\") in ['{ids[0]}', '{ids[1]}']",
        "rl.lr=0.001 (n=1)": f"Metric(\"ID\") in ['{ids[2]}']",
    }
    below = texts(found)
    assert list(below) == [
        "A table", "Return over steps", "Curves", "Learning", "Losses and policy", "Speed and system",
        "Pictures", "Films", "Tables", "How it was measured: A table",
    ]  # fmt: skip
    assert below["Tables"] == (out / "table.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wandb=repot"], "wandb: expected one of report, null, got 'repot'; did you mean report?"),
        (["wandb=report", "project="], "project: needs a name"),
        (["project=p"], "project: goes with wandb=report"),
        (["TABLE"], "is no run directory; results of reproduced tables go with wandb=report"),
        (["wandb=report"], "no run directory given"),
        (["wandb=report", "BAD"], "bad.json is no result of a reproduced table"),
        (["wandb=report", "VAST"], "vast.json is no result of a reproduced table"),
    ],
)
def test_what_is_refused(tmp_path: Path, result: Path, words: list[str], said: str, capsys) -> None:
    (tmp_path / "bad.json").write_text('{"title": "no table", "rows": 3}')
    (tmp_path / "vast.json").touch()
    os.truncate(tmp_path / "vast.json", 1 << 40)
    places = {"TABLE": result, "BAD": tmp_path / "bad.json", "VAST": tmp_path / "vast.json"}
    words = [str(places.get(word, word)) for word in words]
    assert main([*words, f"out={tmp_path / 'out'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()


COMMITTED = [
    file for file in sorted(ROOT.glob("benchmarks/*/results/*.json")) if "claim" in json.loads(file.read_text())
]


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: f"{file.parent.parent.name}/{file.stem}")
def test_each_committed_table_has_a_report(tmp_path: Path, file: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main([str(file), "wandb=report", f"out={tmp_path / 'out'}"]) == 0
    found = json.loads((tmp_path / "out" / "wandb_report.json").read_text())
    check_schema(found)
    told = read_result(file)
    text, figures = texts(found)[told["title"]], told["figures"]
    assert told["claim"] in text and all(cell in text.replace("\\|", "|") for row in told["rows"] for cell in row)
    drawn = [name for name in figures if file.with_name(f"{name}.png").is_file()]
    assert drawn == list(figures) and len([h for h in texts(found) if h in figures.values()]) == len(drawn)


def test_the_address_of_a_page_stays_where_there_is_no_server(tmp_path: Path, result: Path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    words = [str(result), "wandb=report", f"out={tmp_path / 'out'}"]
    assert main(words) == 0
    file = tmp_path / "out" / "wandb_report.json"
    found = json.loads(file.read_text())
    address = {"id": "7", "url": "https://wandb.example/reports/7"}
    file.write_text(json.dumps(found | address))
    assert main(words) == 0
    assert json.loads(file.read_text()) == found | address


@pytest.mark.parametrize("first", ["arrives", "does not"])
def test_a_server_that_is_gone_after_the_first_run(
    first: str, tmp_path: Path, sweep: Path, monkeypatch, capsys
) -> None:
    def upload(directory: Path, *_: Any, ok: bool) -> None:
        if directory.name != "0":
            raise sink.NoServer("connection refused")
        if first == "does not":
            raise sink.NotSent("refused")

    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(sink, "upload", upload)
    assert sent([str(sweep), "wandb=report", f"out={tmp_path / 'out'}"]) == 1
    said = capsys.readouterr().err
    assert "the same command goes on\n" in said and "\n  the server is out of reach (connection refused)\n" in said
    assert (f"{sweep / '0'}: refused" in said) == (first == "does not")


def test_a_damaged_run_does_not_stop_the_others(sweep: Path, monkeypatch) -> None:
    arrived: list[str] = []
    monkeypatch.setattr(sink, "upload", lambda directory, *_, ok: arrived.append(directory.name))
    runs, _ = read_runs([sweep / "0", sweep / "1"])
    with (sweep / "0" / ".hydra" / "config.yaml").open("a") as file:
        file.write("record: 3\n")
    said = [wandb_upload._upload(run) for run in runs]
    assert said[0].startswith(f"wandb: {sweep / '0' / '.hydra'} holds no config of a run: ") and said[1] == ""
    assert arrived == ["1"]


# ------------------------------------------------------------------ with one


def sent(words: list[str]) -> int:
    """The exit code of the command."""
    try:
        return main(words)
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        return stop.code


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    found = Server()
    with found.running():
        for name, value in found.environment(str(tmp_path / "home")).items():
            monkeypatch.setenv(name, value)
        yield found


def check_arrived_once(server: Server, sweep: Path, out: Path) -> None:
    """Every row of every run, the page and its pictures are on the server, once."""
    told = json.loads((out / "wandb_report.json").read_text())
    for directory in sorted(sweep.iterdir()):
        run = server.runs[(directory / "wandb" / "evorl.id").read_text()]
        lines = (directory / "metrics.jsonl").read_text().splitlines()
        expected = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        assert [{k: x for k, x in row.items() if not k.startswith("_")} for row in run.history] == expected
        assert run.overwritten == 0 and run.exit_code == (0 if (directory / "result.json").exists() else 1)
    own = server.runs[told["name"]]
    assert len(server.runs) == 1 + len([*sweep.iterdir()]) and own.attributes["jobType"] == "report"
    (row,) = own.history
    media = {key: entry for key, entry in row.items() if key.startswith("report/")}
    pictures = {path.stem for path in out.glob("*.png")}
    assert {f"report/{name}" for name in pictures} | {"report/film 0 6000-best"} <= media.keys()
    for name in pictures:
        assert own.files[media[f"report/{name}"]["path"]] == (out / f"{name}.png").read_bytes()
    (view,) = server.views.values()
    assert view["name"] == told["name"] and view["type"] == "runs" and told["url"].startswith(server.url)
    assert json.loads(view["spec"]) == told["spec"] and not server.unknown
    projects = [
        one.get("project") for block in told["spec"]["blocks"] for one in block.get("metadata", {}).get("runSets", [])
    ]
    assert projects and all(one == {"name": "evorl", "entityName": "us", "id": "7"} for one in projects)


@pytest.mark.fault
def test_runs_and_report_arrive_once(tmp_path: Path, sweep: Path, result: Path, server: Server, capsys) -> None:
    words = [str(sweep), str(result), "wandb=report", f"out={tmp_path / 'out'}"]
    for _ in range(2):
        assert sent(words) == 0
        check_arrived_once(server, sweep, tmp_path / "out")
    assert "/reports/" in capsys.readouterr().out.splitlines()[-1]
    film = server.runs[(sweep / "0" / "wandb" / "evorl.id").read_text()].summary["films/6000-best"]
    assert film["_type"] == "video-file"


@pytest.mark.fault
@pytest.mark.parametrize("what", ["upsertView", "ProjectViews", "UpsertBucket", "put", "file_stream"])
@pytest.mark.parametrize("error", [Refusal(503), Death()])
def test_refusals_and_lost_answers(tmp_path: Path, sweep: Path, server: Server, what: str, error: Exception) -> None:
    shutil.rmtree(sweep / "1")
    left = 2

    def fault(place: str, asked: str) -> None:
        nonlocal left
        if (place, asked) == ("after", what) and left:
            left -= 1
            raise error

    server.fault = fault
    words = [str(sweep), "wandb=report", f"out={tmp_path / 'out'}"]
    if sent(words):  # the library gives up on some requests, and the same command goes on
        assert sent(words) == 0
    assert left == 0
    check_arrived_once(server, sweep, tmp_path / "out")


@pytest.mark.fault
def test_a_server_that_dies_half_way(tmp_path: Path, sweep: Path, server: Server, monkeypatch, capsys) -> None:
    shutil.rmtree(sweep / "1")

    def fault(place: str, asked: str) -> None:
        if asked == "file_stream":
            raise Death

    server.fault = fault
    words = [str(sweep), "wandb=report", f"out={tmp_path / 'out'}"]
    with monkeypatch.context() as impatient:
        impatient.setattr(sink, "UPLOAD_TIMEOUT_S", 5)
        impatient.setattr(sink, "_CHILD_TIMEOUT_S", 1)
        code = sent(words)
    said = capsys.readouterr().err
    assert code == 1 and f"{sweep / '0'}: was not done within 6 s" in said and "the same command goes on" in said
    server.fault = lambda place, asked: None
    assert sent(words) == 0
    check_arrived_once(server, sweep, tmp_path / "out")
