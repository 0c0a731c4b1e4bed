"""The table of soccer: a curve of the second part of a seed, and the whole program made tiny."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.lamarckian import soccer
from benchmarks.lamarckian.soccer import AHEAD, TABLE, analyse, measured
from evorl.analysis.runs import Series
from evorl.cli.config import experiment_of_words
from evorl.mdp.soccer.parameters import Restart
from evorl.reproduction import papers
from evorl.reproduction.loop import Request, reproduce
from evorl.reproduction.table import Results, Rows


def run(opponent: str, seed: int, ahead: list[float]) -> SimpleNamespace:
    steps = np.arange(1.0, len(ahead) + 1) * 100
    return SimpleNamespace(
        seed=str(seed), config={"mdp.opponent": opponent}, series={AHEAD: Series(steps, steps / 10, np.array(ahead))},
        steps=250, seconds=25.0,
    )  # fmt: skip


def test_a_curve_counts_the_time_of_self_play(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soccer, "median_policies", lambda runs: ({}, Rows(("policy",), [])))
    runs: Any = [
        run("middle", 1, [-1, 1.5]), run("self", 1, [-6]), run("self", 0, [-5, -4]), run("middle", 0, [1, 2.5, 2]),
        run("middle", 2, [9]),
    ]  # fmt: skip
    assert analyse(Results("ci", [], {})) is None and analyse(Results("ci", runs[1:3], {})) is None
    found = analyse(Results("ci", runs, {}))
    assert found is not None
    assert found.rows == [  # seed 2 has no self-play
        ["0", "550", "55", "+2.00", "+2.50", "45"],
        ["1", "450", "45", "+1.50", "+1.50", "-"],
    ]
    assert found.gates == {"2 goals ahead at the end in every seed": "failed"}
    assert found.data["curves"][0]["seconds"] == [35, 45, 55]
    assert measured(json.loads(json.dumps(found.data))) == "1.75 ± 3.18 goals ahead at the end"
    passed = analyse(Results("ci", runs[2:4], {}))
    assert passed is not None and [*passed.gates.values()] == ["passed"]


def test_the_parts_of_a_profile_take_their_time() -> None:
    for name, seconds in {"ci": 640, "paper": 3600}.items():
        parts = TABLE.profiles[name].parts
        words = [[word for word in part.words if not word.startswith(("init", "seed"))] for part in parts]
        first, then = map(experiment_of_words, words)
        assert first.mdp.opponent == "self" and then.mdp.opponent == "middle"
        assert first.mdp.restart.scatter == 12 and then.mdp.restart == Restart()
        assert (first.budget.steps, then.budget.seconds) == (4_000_000, seconds)
        assert {first.mdp.control, then.mdp.control} == {"player"} and first.rl.net == then.rl.net


@pytest.mark.slow
def test_a_tiny_table_is_rebuilt_by_one_command(tmp_path: Path) -> None:
    asked = Request("lamarckian/soccer", "tiny", (), tmp_path / "runs", tmp_path / "out", False)
    reproduce(papers.table("lamarckian/soccer"), asked)
    told = json.loads((tmp_path / "out" / "soccer.json").read_text())
    assert [row[0] for row in told["rows"]] == ["0"]
    assert (tmp_path / "out" / "policies" / "soccer_two").is_dir()
