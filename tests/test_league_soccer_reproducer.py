"""The table of five a side in the league: its numbers from runs and payoffs, and the whole program made tiny."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from reproducing import drawn

from benchmarks.lamarckian import league_soccer
from benchmarks.lamarckian.league_soccer import AHEAD, TABLE, analyse, measured
from evorl.analysis.payoffs import PayoffTable
from evorl.analysis.runs import Series
from evorl.cli.config import experiment_of_words
from evorl.ec.league import League
from evorl.mdp.soccer.parameters import Restart
from evorl.reproduction import papers
from evorl.reproduction.loop import Request, reproduce
from evorl.reproduction.table import Results, Rows

SCORES = np.array([[np.nan, 0.4, 0.8, np.nan, 0.6], [0.6, np.nan, 0.1, 0.2, 0.3]])
PAYOFFS = PayoffTable(
    step=200, rows=["main 0", "exploiter 1"], columns=["main 0", "exploiter 1", "first", "second", "third"],
    values=SCORES, shares=None,
)  # fmt: skip


def run(ec: str, seed: int, ahead: list[float], ended: bool = True) -> SimpleNamespace:
    steps = np.arange(1.0, len(ahead) + 1) * 100
    series = {AHEAD: Series(steps, steps / 10, np.array(ahead))} if ahead else {}
    return SimpleNamespace(
        seed=str(seed), choices={"ec": ec}, series=series, result={"steps": 1} if ended else None, seconds=60.0
    )


def test_a_league_goes_with_its_self_play(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(league_soccer, "median_policies", lambda runs: ({}, Rows(("policy",), [])))
    monkeypatch.setattr(league_soccer, "read_payoffs", lambda league: PAYOFFS)
    runs: Any = [
        run("league", 1, [-2, 1.5]), run("none", 1, []), run("none", 0, []), run("league", 0, [-1, 0.5, 2]),
        run("league", 2, [9]), run("none", 3, []), run("league", 3, [1], ended=False),
    ]  # fmt: skip
    assert analyse(Results("ci", [], {})) is None and analyse(Results("ci", runs[1:3], {})) is None
    found = analyse(Results("ci", runs, {}))
    assert found is not None
    assert found.rows == [  # seed 2 has no self-play, and seed 3 no end; the main agent has not met the second snapshot
        ["0", "300", "2", "-1.00", "+2.00", "3", "0.80", "0.60"],
        ["1", "200", "2", "-2.00", "+1.50", "3", "0.80", "0.60"],
    ]
    assert [*found.gates.values()] == ["passed"]
    assert measured(json.loads(json.dumps(found.data))) == (
        "score of the main agent against the policy that all began with 0.80 ± 0.00, "
        "1.75 ± 3.18 goals ahead of rule players"
    )
    monkeypatch.setattr(league_soccer, "read_payoffs", lambda league: None)
    assert analyse(Results("ci", runs, {})) is None


def test_a_policy_that_is_no_better_fails_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(league_soccer, "median_policies", lambda runs: ({}, Rows(("policy",), [])))
    monkeypatch.setattr(league_soccer, "read_payoffs", lambda league: replace(PAYOFFS, values=SCORES / 2))
    runs: Any = [run("none", 0, []), run("league", 0, [1.0])]
    found = analyse(Results("ci", runs, {}))
    assert found is not None and found.rows[0][-2:] == ["0.40", "0.30"] and [*found.gates.values()] == ["failed"]


def test_both_parts_have_the_same_policy() -> None:
    for profile in TABLE.profiles.values():
        words = [[w for w in part.words if not w.startswith(("init", "seed"))] for part in profile.parts]
        alone, league = map(experiment_of_words, words)
        assert alone.mdp.opponent == "self" and alone.ec is None and isinstance(league.ec, League)
        assert alone.mdp.restart.scatter == 12 and league.mdp.restart == Restart()
        assert {alone.mdp.team_size, league.mdp.team_size} == {5} and alone.rl.net == league.rl.net


@pytest.mark.slow
def test_a_tiny_table_is_rebuilt_by_one_command(tmp_path: Path) -> None:
    asked = Request("lamarckian/league_soccer", "tiny", (), tmp_path / "runs", tmp_path / "out", False)
    reproduce(papers.table("lamarckian/league_soccer"), asked)
    told = drawn("lamarckian/league_soccer", tmp_path / "runs", tmp_path / "out")
    assert [row[0] for row in told["rows"]] == ["0"]
    assert (tmp_path / "out" / "policies" / "soccer_five").is_dir()
