"""Populations whose members play each other, as runs: PBT against itself, and coevolution of two sides.

That they resume exactly, and that workers and journals change nothing, is tested with all evolutions (test_loop.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evolution_runs import CASES, QUICK, journal
from harness import experiment_of, go

from evorl.ec.core import pack
from evorl.population.loop import Population
from evorl.population.opposed import sides_of
from evorl.population.train_evaluator import TrainEvaluator


@pytest.mark.parametrize(("which", "side"), [(0, 0), (3, 1)])
def test_a_member_of_a_coevolution_learns_its_side_alone(
    which: int, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiment_of(*QUICK, *CASES["coevolution"], "ec.train_steps=600")
    population = Population(experiment, experiment.ec)
    seen: list[Any] = []
    trained = TrainEvaluator._trained

    def noted(self: TrainEvaluator, run: Any, one: Any, pool: Any) -> Any:
        sides = {int(slot) % 2 for slot in run.source.group.members[0].arena._side}
        seen.append((sides, pool.config.sides, pool.table()))
        return trained(self, run, one, pool)

    monkeypatch.setattr(TrainEvaluator, "_trained", noted)
    try:
        one = population.evolver.ask()[which]
        (answer,) = population.plan.make(0).evaluate(pack([population._with_opponents(one)])).each
    finally:
        population.close()
    ((sides, config, table),) = seen
    assert sides == {side} and config == (side,)
    assert table.numbers.tolist() == ([2, 3] if side == 0 else [0, 1])
    assert table.chances[side] == pytest.approx([0, 0.5, 0.5]) and not table.chances[1 - side].any()
    games = answer.memory["games"]
    assert answer.objectives == [np.mean(games["points"])] and {*games["opponents"]} <= {*table.numbers.tolist()}


def test_the_sides_of_an_individual_are_those_on_which_it_has_opponents() -> None:
    assert sides_of({"chances": [[0.5], [0.2]], "itself": [0.3]}) is None
    assert sides_of({"chances": [[0.5, 0.0], [0.5, 0.0]], "itself": []}) == (0,)
    assert sides_of({"chances": [[0.5, 0.2]], "itself": [0.0, 0.8]}) == (0, 1)


def test_lines_tell_score_and_side(tmp_path: Path) -> None:
    assert go(*QUICK, *CASES["coevolution"][:-1], "budget.steps=3000", f"hydra.run.dir={tmp_path / 'run'}") == 0
    lines = journal(tmp_path / "run")
    assert [line["side"] for line in lines[:4]] == [0, 0, 1, 1]
    assert all(line["objectives"]["points"] == line["results"]["points"] for line in lines)
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert result["best"]["selected_by"] == "points in its own games"
    assert result["best"]["score"] == max(line["results"]["points"] for line in lines) <= 1
    assert result["fitness"] == result["best"]["fitness"] == result["eval"]["fitness_mean"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mdp=cartpole"], "evorl: ec: the games of CartPole-v1 have one side, so no opponent"),
        (["ec.lifetime=play"], "evorl: ec.opponents: the population plays while a member trains; take lifetime=train"),
        (["ec.opponents=world", "ec.objectives=[points]"], "evorl: ec.objectives: there is no result points"),
    ],
)
def test_what_is_refused(words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go("ec=pbt", "ec.opponents=population", *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    said = capsys.readouterr().err
    assert said.startswith(text) and said.count("\n") == 1, said
    assert not (tmp_path / "run").exists()
