"""The command report, on run directories made here: three seeds by two configs, one stopped, one damaged."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import statistics
import subprocess
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from evorl.analysis.runs import read_run
from evorl.analysis.sweeps import write_index
from evorl.analysis.terminal_tables import print_tables
from evorl.report import main

T975 = {1: 12.706204736, 2: 4.302652730}
FILES = {
    *(f"{name}.{kind}" for name in ("train_return", "eval_return_mean", "metrics") for kind in ("png", "svg")),
    *("train_return_by_time.png", "train_return_by_time.svg", "groups.csv", "runs.csv", "table.md", "index.html"),
    "report.json",
}


def write_run(
    directory: Path, lr: float, seed: int, *, finished: bool = True, damaged: bool = False, **keys: float
) -> None:
    """``keys``: more of the learner's."""
    rng = np.random.default_rng([seed, int(1e6 * lr)])
    (directory / ".hydra").mkdir(parents=True)
    more = "".join(f"  {key}: {value}\n" for key, value in keys.items())
    config = f"mdp:\n  _target_: x.Pong\nrl:\n  _target_: x.PPO\n  lr: {lr}\n{more}"
    config += f"seed: {seed}\nrecord:\n  every_s: {seed}\n"
    (directory / ".hydra" / "config.yaml").write_text(config)
    (directory / "provenance.json").write_text(json.dumps({"commit": "abc123", "argv": [f"seed={seed}"]}))
    lines: list[dict[str, Any]] = []
    for k in range(1, 61 if finished else 31):
        train = {"train/return": k + rng.normal(), "loss/policy": rng.normal(), "speed/steps_per_second": 1e3}
        lines.append({"step": 100 * k, "time": 0.1 * k} | train)
        if k % 10 == 0:
            lines.append({"step": 100 * k, "time": 0.1 * k, "eval/return_mean": k + rng.normal(), "eval/win_mean": 0.5})
    texts = [json.dumps(line) for line in lines]
    texts[5:5] = ["{damaged"] if damaged else []
    partial = "" if finished else '{"step": 3100, "tim'
    (directory / "metrics.jsonl").write_text("\n".join(texts) + "\n" + partial)
    if finished:
        evaluated = {"return_mean": 60 + rng.normal(), "return_std": 2.0, "episodes": 60, "win_mean": rng.random()}
        result = {"steps": 6000, "seconds": 6.5, "steps_per_second": 923.0, "fitness": rng.normal(), "eval": evaluated}
        (directory / "result.json").write_text(json.dumps(result))


def write_sweep(place: Path) -> Path:
    for job, (lr, seed) in enumerate((lr, seed) for lr in (0.01, 0.001) for seed in (1, 2, 3)):
        write_run(place / str(job), lr, seed, finished=job != 2, damaged=job == 4)
    return place


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return write_sweep(tmp_path / "multirun")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A sweep and the report on it, for the tests that only read them."""
    place = tmp_path_factory.mktemp("reported")
    sweep, out = write_sweep(place / "multirun"), place / "deep" / "report"
    before = snapshot(sweep)
    assert main([str(sweep), f"out={out}"]) == 0
    assert snapshot(sweep) == before
    return sweep, out


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def snapshot(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_the_files_of_a_report(reported: tuple[Path, Path]) -> None:
    _, out = reported
    assert {path.name for path in out.iterdir()} == FILES | {"comparison.csv"}
    for name in FILES:
        if name.endswith(".png"):
            with Image.open(out / name) as picture:
                assert len(np.unique(np.asarray(picture.convert("L")))) > 20, f"{name} is blank"


@pytest.mark.slow_cases("parallel coordinates")
@pytest.mark.parametrize("clips", [(0.2,), (0.1, 0.2)], ids=["a heat map", "parallel coordinates"])
def test_the_picture_of_what_a_sweep_found(clips: tuple[float, ...], tmp_path: Path) -> None:
    points = [(lr, gamma, clip) for lr in (0.01, 0.001) for gamma in (0.9, 0.99) for clip in clips]
    for job, (lr, gamma, clip) in enumerate(points):
        write_run(tmp_path / "sweep" / str(job), lr, 1, gamma=gamma, clip=clip)
    assert main([str(tmp_path / "sweep"), f"out={tmp_path / 'report'}"]) == 0
    keys = ["rl.lr", "rl.gamma", "rl.clip"][: 1 + len(clips)]
    drawn = {path.name for path in (tmp_path / "report").iterdir()}
    assert drawn == FILES | {"sweep.png", "sweep.svg"} | ({"importance.csv"} if len(points) >= 8 else set())
    with Image.open(tmp_path / "report" / "sweep.png") as picture:
        assert len(np.unique(np.asarray(picture.convert("L")))) > 20
    page = (tmp_path / "report" / "index.html").read_text()
    (words,) = {*re.findall(r'aria-label="(fitness by [^"]*)"', page)}  # of the map and of the parallel coordinates
    assert {*re.split(", | and ", words.removeprefix("fitness by "))} == {*keys}
    (data,) = re.findall(r'<script type="application/json" class="sweep">(.*?)</script>', page)
    found = json.loads(data)
    assert {axis["name"] for axis in found["axes"]} == {*keys, "fitness"} and len(found["lines"]) == len(points)


def test_the_numbers_of_each_run(reported: tuple[Path, Path]) -> None:
    sweep, out = reported
    rows = {row["run"]: row for row in read_csv(out / "runs.csv")}
    assert len(rows) == 6
    for job in range(6):
        directory = sweep / str(job)
        row = rows[str(directory)]
        lines = [json.loads(text) for text in (directory / "metrics.jsonl").read_text().splitlines() if text[-1] == "}"]
        done = job != 2
        result = json.loads((directory / "result.json").read_text()) if done else {"eval": {}}
        evaluated = [line for line in lines if "eval/return_mean" in line][-1]
        assert row["state"] == ("finished" if done else "interrupted")
        assert (row["rl.lr"], row["seed"]) == (("0.01", "0.001")[job // 3], str(job % 3 + 1))
        assert float(row["steps"]) == (6000 if done else 3000)
        assert float(row["seconds"]) == pytest.approx(6.5 if done else 3.0)
        assert float(row["steps_per_second"]) == pytest.approx(6000 / 6.5 if done else 1000)
        assert float(row["train/return"]) == [line["train/return"] for line in lines if "train/return" in line][-1]
        assert float(row["eval/return_mean"]) == result["eval"].get("return_mean", evaluated["eval/return_mean"])
        assert float(row["eval/win_mean"]) == result["eval"].get("win_mean", 0.5)
        assert row["eval/return_std"] == ("2.0" if done else "")
        assert row["fitness"] == repr(result["fitness"] if done else evaluated["eval/return_mean"])


def test_the_numbers_of_each_group(reported: tuple[Path, Path]) -> None:
    _, out = reported
    runs = read_csv(out / "runs.csv")
    groups = read_csv(out / "groups.csv")
    assert [(row["rl.lr"], row["runs"], row["state"], row["seeds"]) for row in groups] == [
        ("0.001", "3", "3 finished", "1 2 3"),
        ("0.01", "3", "2 finished, 1 interrupted", "1 2 3"),
    ]
    for row in groups:
        for column in ("train/return", "eval/return_mean", "eval/win_mean", "fitness", "steps_per_second"):
            texts = [run[column] for run in runs if run["rl.lr"] == row["rl.lr"]]
            values = [float(text) for text in texts if text]
            half = T975[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
            assert float(row[column]) == pytest.approx(statistics.fmean(values))
            assert float(row[f"{column} ±95%"]) == pytest.approx(half, rel=1e-8)


class Links(HTMLParser):
    """What a page would fetch, and the cells of its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")]


def test_the_page_stands_alone(reported: tuple[Path, Path]) -> None:
    _, out = reported
    text = (out / "index.html").read_text()
    links = Links()
    links.feed(text)
    names = ("train_return", "train_return_by_time", "eval_return_mean", "metrics")
    without_scripts = {f"{name}.png" for name in names}
    assert {link for link in links.fetched if not link.startswith("#")} == without_scripts  # files beside the page
    assert not re.search(r"@import|url\((?!#)|<link|https?://(?!github.com/leeoniya|www.w3.org)", text)
    assert re.findall(r'<figure class="chart" data-metric="([^"]*)"', text) == [
        "train/return", "eval/return_mean", "eval/win_mean", "loss/policy", "speed/steps_per_second",
    ]  # fmt: skip
    assert links.tags.count("table") == 9
    assert text.count('</table></div><p class="hint">→ more columns: scroll</p>') == 9
    assert ".wide.more+.hint{display:block}" in text and 'wide.classList.toggle("more"' in text
    headline = re.findall(r'<p class="headline">(.*?)</p>', text)
    assert (
        len(headline) == 1
        and headline[0].startswith("Best: rl.lr=0.0")
        and "does not lead at 3000 steps" in headline[0]
    )
    assert text.index('class="headline"') < text.index('class="best"') < text.index("<form")
    assert "Config of run" in text and "No film yet: " in text
    assert "prefers-color-scheme:dark" in text and 'name="viewport"' in text
    for said in (
        "rl.lr=0.001 (n=3)",
        "1 of 6 runs not finished",
        "1 damaged line left out",
        "abc123",
        "seed=2",
        "too few runs",
    ):
        assert said in text
    assert "record.every_s" not in text


def test_each_world_has_pictures_and_tables_of_its_own(sweep: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "other", 0.01, 1)
    config = tmp_path / "other" / ".hydra" / "config.yaml"
    config.write_text(config.read_text().replace("x.Pong", "x.Gymnasium\n  id: a/Lander-v3"))
    out = tmp_path / "report"
    assert main([str(sweep), str(tmp_path / "other"), f"out={out}"]) == 0
    for stem in ("Pong", "Gymnasium_a_Lander_v3"):
        assert (out / f"{stem}.train_return.png").is_file() and (out / f"{stem}.metrics.svg").is_file()
    assert [row["world"] for row in read_csv(out / "groups.csv")] == ["Gymnasium a/Lander-v3", "Pong", "Pong"]
    text = (out / "index.html").read_text()
    assert "<h2>Pong</h2>" in text and "<h2>Gymnasium a/Lander-v3</h2>" in text
    names = re.findall(r' id="([^"]+)"', text)
    assert len(set(names)) == len(names)
    assert main([str(sweep), f"out={out}"]) == 0  # the pictures of a world that is no longer told of go
    assert {path.name for path in out.iterdir()} == FILES | {"comparison.csv"}


@pytest.mark.slow
def test_names_that_look_like_markup_are_shown_as_text(tmp_path: Path) -> None:
    write_run(tmp_path / "<b>&amp;|", 0.01, 1)
    write_run(tmp_path / "other", 0.01, 2)
    assert main([str(tmp_path), f"out={tmp_path / 'report'}"]) == 0
    text = (tmp_path / "report" / "index.html").read_text()
    assert "&lt;b&gt;&amp;amp;|" in text and "<b>" not in text
    assert r"<b>&amp;\|" in (tmp_path / "report" / "table.md").read_text()


def test_globs_and_runs_named_twice(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(sweep / "[01]"), str(sweep / "1"), f"out={tmp_path / 'report'}"]) == 0
    assert capsys.readouterr().out.endswith(f"\n{tmp_path / 'report' / 'index.html'}\n")
    assert len(read_csv(tmp_path / "report" / "runs.csv")) == 2


def test_the_tables_are_printed_before_anything_is_drawn(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("evorl.analysis.report.compose", lambda *_: {"index.html": print("drawn") or b""})
    assert main([str(sweep), f"out={tmp_path / 'report'}"]) == 0
    groups, runs, end = capsys.readouterr().out.split("\n\n")
    assert end.startswith("drawn\n")
    assert [line.split()[:2] for line in groups.splitlines()[1:]] == [["rl.lr", "runs"], ["0.001", "3"], ["0.01", "3"]]
    named, *rows = [line.split() for line in runs.splitlines()[1:]]
    assert named[:5] == ["run", "state", "rl.lr", "seed", "steps"] and named[-1] == "fitness"
    assert rows[0][:5] == ["3", "finished", "0.001", "1", "6000"]
    assert [row[1] for row in rows].count("interrupted") == 1


def test_on_a_terminal_the_tables_are_drawn(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    print_tables([read_run(sweep / "0"), read_run(sweep / "1")], stream=(screen := Screen()))
    assert "\x1b[1m" in screen.getvalue() and "finished" in screen.getvalue()


def test_seeds_of_unlike_budgets_share_a_row_and_the_reader_is_told(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "runs" / str(seed), 0.01, seed)
        with (tmp_path / "runs" / str(seed) / ".hydra" / "config.yaml").open("a") as file:
            file.write(f"budget:\n  steps: {seed}000\n")
        (tmp_path / "runs" / str(seed) / "metrics.jsonl").write_text(
            '{"step": 6000, "time": 1.0, "train/return": 1.0}\n'
        )
    assert main([str(tmp_path / "runs"), f"out={tmp_path / 'report'}"]) == 0
    assert [row["runs"] for row in read_csv(tmp_path / "report" / "groups.csv")] == ["2"]
    assert "all runs: means over runs of unlike budget.steps." in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.slow
def test_a_seed_that_counts_twice_is_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / "runs" / name, 0.01, 4)
    assert main([str(tmp_path / "runs"), f"out={tmp_path / 'report'}"]) == 0
    assert "seed 4 counts more than once" in (tmp_path / "report" / "index.html").read_text()


def test_a_run_without_a_metric_yet(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 0.01, 1, finished=False)
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    assert main([str(tmp_path / "run"), f"out={tmp_path / 'report'}"]) == 0
    assert read_csv(tmp_path / "report" / "runs.csv")[0]["state"] == "interrupted"
    assert "no metrics yet" in (tmp_path / "report" / "index.html").read_text()


def test_a_report_of_ours_is_refreshed_and_what_others_left_in_it_stays(sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    assert main([str(sweep), f"out={out}"]) == 0
    (out / "mine.txt").write_text("kept")
    (sweep / "0" / "metrics.jsonl").write_text('{"step": 10, "time": 1.0, "train/return": 1.0}\n')
    assert main([str(sweep / "0"), f"out={out}"]) == 0
    assert (out / "mine.txt").read_text() == "kept"
    assert not (out / "metrics.png").exists() and not (out / "eval_return_mean.svg").exists()
    assert len(read_csv(out / "runs.csv")) == 1


def test_an_empty_directory_will_do(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert main([str(sweep / "0"), f"out={tmp_path / 'empty'}"]) == 0
    assert (tmp_path / "empty" / "index.html").is_file()


@pytest.mark.parametrize("kind", ["full", "file", "run", "link"])
def test_a_place_of_others_is_never_touched(sweep: Path, tmp_path: Path, kind: str) -> None:
    place = sweep / "0" if kind == "run" else tmp_path / "place"
    if kind == "full":
        place.mkdir()
        (place / "report.json").write_text("[]")
    if kind == "file":
        place.write_text("text")
    if kind == "link":
        place.symlink_to(tmp_path / "nowhere")
    before = snapshot(tmp_path)
    assert main([str(sweep), f"out={place}"]) == 2
    assert snapshot(tmp_path) == before and not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["multirum"], "multirum: no such run directory; did you mean multirun?"),
        (["multirun/0x"], "multirun/0x: no such run directory; did you mean multirun/0?"),
        (["multirun", "ouput=x"], "ouput: unknown key; did you mean out?; keys: out, by, target, csv"),
        (["multirun", "by=rl.lrr"], "by: no run has the key rl.lrr; did you mean rl.lr?"),
        (["multirun", "target={pongg:1}"], "target: no run of this world; did you mean Pong?"),
        (["multirun", "target=[1,1]"], "target: the target must be above the score that counts as 0: [1,1]"),
        (["multirun", "latex=yess"], "latex: expected bool, got 'yess'"),
        (["multirun", "live=true", "csv=true"], "csv: is for files, and live=true writes none"),
        (["multirun", "out="], "out: needs a directory"),
        (["multirun", "by="], "by: needs a key, such as rl.lr"),
        (["out=x"], "no run directory given"),
        (["plain"], "no run in plain"),
        (["file"], "no run in file"),
        (["unbegun"], "no job in unbegun has begun, of 2"),
        (["multirun", "out=file/x"], "out: cannot make file/x"),
        (["multirun", "out=/proc/x"], "out: cannot make /proc/x: /proc cannot be written"),
        (["multirun", "out=~/x"], "out: shells do not expand ~ after the equals sign; write out=$HOME/x"),
        (["broken"], "cannot read broken/.hydra/config.yaml"),
    ],
)
def test_bad_requests(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    monkeypatch.chdir(sweep.parent)
    Path("plain").mkdir()
    Path("file").write_text("")
    Path("broken/.hydra").mkdir(parents=True)
    Path("broken/.hydra/config.yaml").write_text("a: [")
    Path("unbegun").mkdir()
    write_index(Path("unbegun"), {"0": ["seed=1"], "1": ["seed=2"]})
    before = snapshot(sweep.parent)
    assert main(words) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and said.out == ""
    assert snapshot(sweep.parent) == before and not Path("x").exists() and not Path("report").exists()


def test_help_and_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "RUN_DIR_OR_GLOB" in (said := capsys.readouterr().out) and "by" in said
    assert main([]) == 2 and capsys.readouterr().err.startswith("evorl: no run directory given; usage")


def test_a_wrong_request_is_refused_at_once_from_the_command_line(tmp_path: Path) -> None:
    code = "import sys; from evorl.report import main; assert main(['nope']) == 2; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": ROOT},
    )
    assert done.returncode == 0, done.stderr
    assert not {"matplotlib", "torch", "gymnasium"} & set(done.stdout.split())


ROOT = str(Path(__file__).parent.parent)


def test_the_words_of_the_page_stand_in_the_markdown_too(reported: tuple[Path, Path]) -> None:
    text = (reported[1] / "table.md").read_text()
    assert text.startswith("1 of 6 runs not finished: their newest values are shown.\n\n")
    page = (reported[1] / "index.html").read_text()
    said = re.findall(r"^## Comparison .+\n\n(Highest: .+)\n\n\|", text, re.M)
    assert len(said) == 3 and all(f'<p class="said">{escape(words)}</p>' in page for words in said)


def test_a_run_that_cannot_be_read_is_left_out(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said on the page and on the terminal; where nothing is left there is no report."""
    (sweep / "3" / ".hydra" / "config.yaml").write_text("")
    note = f"left out: {sweep / '3'} (cannot read .hydra/config.yaml: not a mapping of keys)"
    assert main([str(sweep), f"out={tmp_path / 'report'}"]) == 0
    assert capsys.readouterr().err == f"evorl: {note}\n"
    assert note in (tmp_path / "report" / "index.html").read_text()
    assert {row["run"] for row in read_csv(tmp_path / "report" / "runs.csv")} == {str(sweep / n) for n in "01245"}
    assert main([str(sweep / "3"), f"out={tmp_path / 'none'}"]) == 2
    assert not (tmp_path / "none").exists()
