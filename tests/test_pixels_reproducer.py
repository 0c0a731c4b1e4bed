"""The table of Pong from pixels, of runs made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.suite import pixels
from benchmarks.suite.pixels import EVALUATED, LEARNERS, SCORE, TABLE, above_zero, analyse, measured, policy_scores
from evorl.analysis.runs import RunRecord, Series
from evorl.cli.config import experiment_of_words
from evorl.reproduction.loop import first_job
from evorl.reproduction.parts import Sweep
from evorl.reproduction.table import Results


def run(name: str, seed: int, scores: list[float], end: float = 12.0) -> RunRecord:
    """One that has ended, with these scores after every 1,000 steps and 60 seconds."""
    steps = np.arange(1.0, len(scores) + 1) * 1000
    last = Series(steps[-1:], steps[-1:] * 0.06, np.array([end]))
    return RunRecord(
        directory=Path(f"runs/suite/ci/{name}/{seed}"), config={"seed": seed}, seconds=60.0 * len(scores),
        steps=1000 * len(scores), result={"eval": {"return_mean": end, "stochastic_return_mean": end - 2}},
        series={SCORE: Series(steps, steps * 0.06, np.array(scores)), EVALUATED: last},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("scores", "when"), [([-21.0, 0.0], None), ([1.0], (1000, 60)), ([-3.0, -1.0, 2.0, -1.0], (3000, 180))]
)
def test_when_a_score_is_above_zero(scores: list[float], when: tuple[float, float] | None) -> None:
    assert above_zero(run("pong_pixels", 1, scores)) == when


def test_a_row_for_each_run() -> None:
    unfinished = RunRecord(directory=Path("runs/suite/ci/pong_pixels/2"), config={"seed": 2}, seconds=1.0, steps=8)
    runs: Any = [
        run("pong_pixels_vtrace", 1, [-21, -21], -20.0), unfinished, run("pong_pixels", 3, [-9, 1]),
        run("pong_pixels", 1, [-9, -1, 1]),
    ]  # fmt: skip
    assert analyse(Results("ci", [unfinished], {})) is None
    found = analyse(Results("ci", runs, {}))
    assert found is not None
    assert found.rows == [
        ["PPO", "1", "3,000", "3.0", "3,000", "3.0", "+10.0", "+12.0"],
        ["PPO", "3", "2,000", "2.0", "2,000", "2.0", "+10.0", "+12.0"],
        ["V-trace", "1", "-", "-", "2,000", "2.0", "-22.0", "-20.0"],
    ]
    assert [*found.gates.values()] == ["failed"] and [*found.policies] == [*LEARNERS]
    data = json.loads(json.dumps(found.data))
    assert measured(data) == "PPO above 0 after 3, 2 minutes; V-trace above 0 after - minutes"
    assert policy_scores(data)["pong_pixels"]["iqm"] == 12
    without = analyse(Results("ci", runs[1:], {}))
    assert without is not None and [*without.gates.values()] == ["passed"]


def test_each_learner_has_an_hour_on_the_processor() -> None:
    for profile in TABLE.profiles.values():
        sweeps = [part for part in profile.parts if isinstance(part, Sweep)]
        assert [sweep.name for sweep in sweeps] == [*pixels.LEARNERS]
        for sweep in sweeps:
            experiment = experiment_of_words(first_job(sweep.words))
            assert (experiment.budget.seconds, experiment.budget.fitness, experiment.device) == (3600, 10, "cpu")
