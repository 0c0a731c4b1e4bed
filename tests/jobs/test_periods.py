"""When a run is evaluated and saved: parts of the smaller budget, its own or its world's, for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, go, rows

from evorl.cli import config
from evorl.jobs import job

WORDS = (
    *(word for word in QUICK if ".every" not in word),
    *("mdp=cartpole", "~tuned", "rl.slots=4", "checkpoint.keep=99"),
)
BATCH = 4 * 16
"""Steps of an iteration, after which what is due is done."""


def every(directory: Path) -> dict[str, Any]:
    found = config.read_run_config(directory, "resume")
    return {name: found[name]["every"] for name in ("eval", "checkpoint")}


def after_multiples(period: int, start: int, end: int) -> list[int]:
    """The ends of iterations in which a multiple of the period lies."""
    return [step for step in range(start + BATCH, end + 1, BATCH) if step // period > (step - BATCH) // period]


def evaluated(directory: Path) -> list[int]:
    return [row["step"] for row in rows(directory) if "eval/return_mean" in row]


def test_they_follow_the_runs_own_budget_and_stay(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert go(*WORDS, "budget.steps=1280", f"hydra.run.dir={run}") == 0
    assert every(run) == {"eval": 128, "checkpoint": 64}
    assert evaluated(run) == after_multiples(128, 0, 1280) and len(evaluated(run)) == 10
    assert len([*run.glob("checkpoints/*/state.json")]) == 20
    assert go(f"resume={run}", "budget.steps=1920") == 0
    assert every(run) == {"eval": 128, "checkpoint": 64}
    assert evaluated(run) == after_multiples(128, 0, 1920)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("budget.steps=50_000",), {"eval": 5_000, "checkpoint": 2_500}),
        (("budget.steps=50_000", "eval.every=0"), {"eval": 0, "checkpoint": 2_500}),
        (("budget.steps=50_000", "checkpoint.every=7"), {"eval": 5_000, "checkpoint": 7}),
        (("budget.steps=19",), {"eval": 1, "checkpoint": None}),  # 0 would mean only at the end, also after a resume
        (("budget.steps=8",), {"eval": None, "checkpoint": None}),
        (("budget.steps=100_000",), {"eval": None, "checkpoint": None}),
        (("budget.steps=500_000",), {"eval": None, "checkpoint": None}),
        ((), {"eval": None, "checkpoint": None}),
    ],
)
def test_what_is_written_into_the_config(words: tuple[str, ...], said: dict[str, Any]) -> None:
    """The world's own budget is 100,000 steps."""
    with config.opened() as hydra:
        resolved = config.resolved(config.compose(hydra, ["mdp=cartpole", *words]))
    data, experiment = job.checked_experiment(resolved, words)
    assert {name: data[name]["every"] for name in said} == said
    world = {"eval": 10_000, "checkpoint": 5_000}
    assert experiment.periods() == {name: world[name] if x is None else x for name, x in said.items()}


@pytest.mark.slow
def test_a_job_that_an_older_version_began_keeps_its_own(tmp_path: Path) -> None:
    words = ["--multirun", *WORDS, "budget.steps=256,1280", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    assert go(*words) == 0
    run = tmp_path / "sweep" / "1"
    settings = config.read_run_config(run, "resume")
    for name in ("eval", "checkpoint"):
        settings[name]["every"] = None
    for name in ("max_steps", "candidates", "candidate_episodes"):
        del settings["eval"][name]  # it did not have them yet
    (run / ".hydra" / "config.yaml").write_bytes(job.config_yaml(settings))
    (run / "result.json").unlink()
    assert go(*words) == 0
    assert every(run) == {"eval": None, "checkpoint": None} and (run / "result.json").is_file()
    assert every(tmp_path / "sweep" / "0") == {"eval": 25, "checkpoint": 12}
