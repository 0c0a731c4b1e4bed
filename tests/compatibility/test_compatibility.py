"""Runs and plugins of earlier releases: they load, act with the same bits, and go on (docs/plugins.md, What is kept).

What is in the folders of releases, and in ``frozen_*``, must not change; ``make_runs.py`` adds a release.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from harness import go
from make_runs import HERE, RUNS, decisions, installed, rounding
from plugin_packages import on_path

import evorl
from evorl.record.provenance import plugins_of

KEPT = sorted(path.with_suffix("") for path in HERE.glob("*/*.json"))
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
