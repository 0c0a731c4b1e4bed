"""Tables of all numbers, as CSV, parquet and LaTeX."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report import write_run

from evorl.analysis.comparison import comparisons
from evorl.analysis.export import by_column, long_tables, to_csv, to_parquet
from evorl.analysis.groups import group_runs
from evorl.analysis.latex import to_latex
from evorl.analysis.runs import RunRecord, Series, read_run
from evorl.analysis.scores import world_scores
from evorl.analysis.sources import Choices, check_choices
from evorl.report import main
from evorl.util.errors import BadRequest


def runs() -> list[RunRecord]:
    return [
        RunRecord(
            directory=Path(rl, str(seed)),
            config={"rl._target_": f"x.{rl}", "seed": seed, "note": None},
            choices={"rl": rl},
            series={"train/return": Series(np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([0.1, seed / 3]))},
            result={"fitness": 10.0 * seed},
            state="finished",
        )
        for rl in ("a2c", "ppo")
        for seed in (1, 2)
    ]


def tables() -> dict[str, Any]:
    every = runs()
    return long_tables({"w": every}, comparisons("w", world_scores("w", group_runs(every), None)))


def test_every_recorded_value_is_a_row() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(tables()["metrics"]).decode())))
    expected = [
        {"world": "w", "run": str(run.directory), "metric": name, "step": repr(step), "time": repr(time)}
        | {"value": repr(x)}
        for run in runs()
        for name, series in run.series.items()
        for step, time, x in zip(series.steps.tolist(), series.seconds.tolist(), series.values.tolist(), strict=True)
    ]  # fmt: skip
    assert rows == expected and len(rows) == 8


def test_results_config_and_statistics() -> None:
    found = tables()
    results = list(zip(found["results"]["metric"], found["results"]["value"], strict=True))
    assert [value for name, value in results if name == "fitness"] == [10.0, 20.0, 10.0, 20.0]
    assert found["config"]["value"][found["config"]["key"].index("note")] == ""
    assert "individuals" not in found
    statistics = {(found["statistics"][name][0]) for name in ("world", "at")}
    assert statistics == {"w", "end"}
    assert found["statistics"]["verdict"][0] == "highest"
    assert {*found["statistics"]["statistic"]} == {"IQM", "median", "mean", "P(first better)"}


def test_individuals_of_a_population(tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("mdp:\n  _target_: x.Pong\n")
    line = {
        "id": 3, "parents": [1], "role": "child", "birth": 0, "genes": {"rl.lr": 0.1, "rl": "ppo", "rl.x": True},
        "objectives": {"fitness": 2.5}, "results": {"win": None}, "step": 40, "cost": 7, "seconds": 1.5,
    }  # fmt: skip
    (tmp_path / "population.jsonl").write_text(json.dumps(line) + "\n")
    found = long_tables({"w": [read_run(tmp_path)]}, [])["individuals"]
    rows = list(zip(found["individual"], found["kind"], found["name"], found["value"], found["text"], strict=True))
    assert rows == [
        (3, "objective", "fitness", 2.5, None),
        (3, "result", "win", None, None),
        (3, "gene", "rl.lr", 0.1, None),
        (3, "gene", "rl", None, "ppo"),
        (3, "gene", "rl.x", None, "True"),
    ]
    life = {name: found[name][0] for name in ("parents", "role", "birth", "cost", "seconds")}
    assert life == {"parents": "1", "role": "child", "birth": 0, "cost": 7, "seconds": 1.5}


def test_jobs_of_the_workers(tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("mdp:\n  _target_: x.Pong\n")
    line = {
        "job": 4, "kind": "trained", "worker": 1, "step": 90, "began": 0.5, "trained": 1.5, "ended": 2.0,
        "gradient_steps": 40,
    }  # fmt: skip
    (tmp_path / "jobs.jsonl").write_text(json.dumps(line | {"individual": 1}) + "\n")
    found = long_tables({"w": [read_run(tmp_path)]}, [])["jobs"]
    assert found == {name: [value] for name, value in {"world": "w", "run": str(tmp_path), **line}.items()}
    assert "jobs" not in tables()


def test_parquet_holds_the_same() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, columns in tables().items():
        read = parquet.read_table(io.BytesIO(to_parquet(columns))).to_pydict()
        assert read == {key: list(column) for key, column in columns.items()}, name


def test_integers_that_parquet_cannot_hold_are_text() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"seed": [1, 2**63, None], "most": [1, 2**63 - 1, None], "mixed": [0.5, 2**64, None]}
    read = parquet.read_table(io.BytesIO(to_parquet(columns))).to_pydict()
    assert read == columns | {"seed": ["1", str(2**63), None], "mixed": ["0.5", str(2**64), None]}
    assert to_csv(columns).decode().splitlines()[2] == f"{2**63},{2**63 - 1},{2**64}"


def test_rows_of_several_tables_become_columns_of_one_kind() -> None:
    rows = [
        {"n": 1, "gene": 0.5, "mixed": True}, {"gene": "relu", "mixed": 0.5}, {"n": 2.5, "gene": None, "late": True}
    ]  # fmt: skip
    columns = {
        "n": [1, None, 2.5], "gene": ["0.5", "relu", None], "mixed": ["True", "0.5", None], "late": [None, None, True],
    }  # fmt: skip
    assert by_column(iter(rows)) == columns
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(io.BytesIO(to_parquet(columns))).to_pydict() == columns


def test_parquet_without_its_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadRequest, match=r"parquet: needs pyarrow: pip install 'evorl-suite\[parquet\]'"):
        check_choices(Choices(parquet=True), runs())


def test_a_table_in_latex() -> None:
    rows = [
        {"rl_lr & x": "a_b%{~^\\", "IQM [95 %]": "-1.5 [-2, 1e-05]", "mean ± 95 %": "0.25 ± 0.11", "n": "12\u2009500"},
        {"rl_lr & x": "[x]", "IQM [95 %]": "", "mean ± 95 %": "3 ± 1", "n": "7"},
    ]
    text = to_latex(rows, "Pong: groups")
    assert text.startswith("% Pong: groups (needs \\usepackage{booktabs})\n\\begin{tabular}{lrrr}\n\\toprule\n")
    lines = text.splitlines()
    assert lines[3] == r"rl\_lr \& x & IQM [95 \%] & mean $\pm$ 95 \% & n \\"
    signs = r"a\_b\%\{\textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert lines[5] == signs + r" & $-$1.5 [$-$2, 1e-05] & 0.25 $\pm$ 0.11 & 12\,500 \\"
    assert lines[6] == r"{}[x] &  & 3 $\pm$ 1 & 7 \\"
    assert all(len(re.findall(r"(?<!\\)&", line)) == 3 for line in (lines[3], lines[5], lines[6]))
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")


def test_latex_and_parquet_have_every_table(tmp_path: Path) -> None:
    """Also where keys, and so the titles of populations, differ in a sign alone."""
    pytest.importorskip("pyarrow.parquet")
    line = {
        "id": 0, "parents": [], "role": "initial", "birth": 0, "genes": {"rl.lr": 0.1, "rl.kind": True},
        "objectives": {"fitness": 2.5}, "results": {}, "step": 40,
    }  # fmt: skip
    for job, weight in enumerate((-0.5, 0.5)):
        run = tmp_path / "sweep" / str(job)
        write_run(run, 0.01, 1, weight=weight)
        lines = [line, line | {"id": 1, "genes": {"rl.lr": 0.1, "rl.kind": 0.5}}]
        (run / "population.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    out = tmp_path / "report"
    assert main([str(tmp_path / "sweep"), f"out={out}", "latex=true", "csv=true", "parquet=true"]) == 0
    stems = {path.stem for path in out.glob("*.csv")}
    assert {"groups", "runs", "population", "individuals"} < stems
    assert {path.stem for path in out.glob("*.parquet")} == stems
    headings = re.findall("^## (.+)$", (out / "table.md").read_text(), re.M)
    texts = [path.read_text() for path in out.glob("*.tex")]
    assert len(texts) == len(headings) and "initial" in "".join(texts)
    assert all(any(f": {heading} (needs" in text.splitlines()[0] for text in texts) for heading in headings)
