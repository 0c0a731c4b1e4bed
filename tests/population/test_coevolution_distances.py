"""NashConv of two populations, which benchmarks/openspiel/coevolution.py measures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evolution_runs import QUICK
from harness import go

pytest.importorskip("pyspiel")
from benchmarks.openspiel.coevolution import ARMS, COEVOLUTION, SETTINGS
from benchmarks.openspiel.nash_conv import _members, distances
from evorl.cli.config import experiment_of_run
from evorl.jobs.saved_policies import checkpoint_of
from evorl.mdp.openspiel.equilibrium import nash_conv_of


def test_a_side_draws_one_of_its_own_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "run"
    small = ("ec.population=4", "ec.train_steps=512", "budget.steps=8000", "rl.slots=16", "rl.minibatch=128")
    words = (*QUICK, "mdp=openspiel", "mdp.game=kuhn_poker", *SETTINGS, *ARMS[COEVOLUTION], *small)
    assert go(*words, "checkpoint.every=2000", f"hydra.run.dir={there}") == 0
    steps = [distance.step for distance in distances(there)]
    assert len(steps) > 1 and all(0 < distance.mixture < 4 for distance in distances(there))

    drawn: list[np.ndarray] = []
    monkeypatch.setattr(
        "benchmarks.openspiel.nash_conv.nash_conv_of",
        lambda tables, mixtures: drawn.append(np.array(mixtures)) or nash_conv_of(tables, mixtures),
    )
    last = [*distances(there)][-1]
    first, each = drawn[-2:]
    assert first.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]] and each.tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert last.step == steps[-1] == checkpoint_of(there, "latest")[1]["steps"]
    sides = {
        line["id"]: line["side"] for line in map(json.loads, (there / "population.jsonl").read_text().splitlines())
    }
    experiment = experiment_of_run(there, ())
    members = _members(there, "latest", experiment, experiment.mdp)
    assert [sides[number] for number in members] == [0, 0, 1, 1]
