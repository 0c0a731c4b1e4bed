"""Runs, sweeps, searches and plugins of earlier releases (docs/upgrading.md; docs/plugins.md, What is kept).

Runs load, act with the same bits, and go on; they and the jobs of sweeps are evaluated, exported and reported.

What is in the folders of releases, and in ``frozen_*``, must not change; ``make_runs.py`` adds a release.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from harness import go
from make_runs import HERE, RUNS, SEVERAL, decisions, installed, rounding
from plugin_packages import on_path

import evorl
from evorl import evaluate, export, report
from evorl.record.provenance import plugins_of

KEPT = sorted(path.with_suffix("") for path in HERE.glob("*/*.json"))
SWEEPS = sorted(path.parent for path in HERE.glob("*/*/sweep.json"))
ONE_JOB = [place / "0" for place in SWEEPS]
EXACT = ("observations", "actions", "drawn")
ROUNDED = ("log_prob", "value")
PLUGINS = {"plugin": {"frozen_lab": "0.1.0"}, "network": {"frozen_net": "0.1.0"}}


@pytest.fixture(autouse=True)
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The frozen plugins are installed."""
    monkeypatch.chdir(tmp_path)
    with on_path(*installed(tmp_path)):
        yield


def test_the_first_release_is_kept() -> None:
    assert {path.name for path in KEPT if path.parent.name == "0.1.0"} == RUNS.keys()
    assert {path.name for path in SWEEPS if path.parent.name == "0.1.0"} == SEVERAL.keys()


@pytest.mark.parametrize("run", KEPT, ids=lambda run: f"{run.parent.name}-{run.name}")
def test_it_acts_with_the_same_bits(run: Path) -> None:
    told, now = json.loads(run.with_suffix(".json").read_text()), decisions(evorl.load(run).policy)
    assert {key: told[key] for key in EXACT} == {key: now[key] for key in EXACT}
    if told.items() >= rounding().items():
        assert {key: told[key] for key in ROUNDED} == {key: now[key] for key in ROUNDED}
    for key in ROUNDED:  # on other processors PyTorch rounds otherwise
        np.testing.assert_allclose(now[key], told[key], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("run", KEPT, ids=lambda run: f"{run.parent.name}-{run.name}")
def test_it_goes_on(run: Path) -> None:
    shutil.copytree(run, "copy", symlinks=True)
    before = json.loads(Path("copy", "result.json").read_text())["steps"]
    assert go("resume=copy", f"budget.steps={2 * before}") == 0
    after = evorl.load("copy")
    assert after.result is not None and after.result["steps"] >= 2 * before
    assert plugins_of(Path("copy")) == PLUGINS.get(run.name, {})


@pytest.mark.slow_cases("0.1.0-sweep-0", "0.1.0-search-0")  # runs as ppo, which is learned alone
@pytest.mark.parametrize("run", [*KEPT, *ONE_JOB], ids=lambda run: "-".join(run.relative_to(HERE).parts))
def test_it_is_evaluated_and_exported(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run, "copy", symlinks=True)
    capsys.readouterr()
    assert evaluate.main(["run=copy", "json=true"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["episodes"] == json.loads(Path("copy", "result.json").read_text())["eval"]["episodes"]
    assert export.main(["run=copy", "out=policy.onnx", "episodes=1"]) == 0 and Path("policy.onnx").exists()


@pytest.mark.parametrize(
    "places", [pytest.param(KEPT, marks=pytest.mark.slow, id="runs"), pytest.param(SWEEPS, id="sweeps")]
)
def test_they_are_reported(places: list[Path]) -> None:
    for place in places:
        shutil.copytree(place, Path("kept", *place.relative_to(HERE).parts), symlinks=True)
    assert report.main(["kept/*/*", "out=report"]) == 0
    with Path("report", "runs.csv").open() as file:
        told = [row["run"] for row in csv.DictReader(file)]
    assert len(told) == len([*Path("kept").rglob("result.json")])
