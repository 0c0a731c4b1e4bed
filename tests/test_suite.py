"""The suite of baselines: its arms, its tables of hand-made runs, and the policies that it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_evaluate import evaluate  # noqa: F401

from benchmarks.suite import baselines, evolution, no_difference, off_policy, on_policy
from benchmarks.suite.baselines import OURS, SB3, Arm, Scored, learner
from benchmarks.suite.published import PUBLISHED, published
from evorl.analysis.runs import RunRecord, Series
from evorl.cli.config import experiment_of_words
from evorl.record import provenance
from evorl.reproduction.loop import first_job
from evorl.reproduction.papers import PROGRAMS
from evorl.reproduction.parts import Sweep
from evorl.reproduction.table import Found

TABLES = (on_policy, off_policy, evolution)
ARM = learner("ppo", "cartpole", 1_000)
POLICIES = sorted((PROGRAMS / "suite" / "results" / "policies").glob("*"))


def run(arm: Arm, seed: int, curve: list[float]) -> RunRecord:
    """A run of an arm that has ended, with these evaluations at equal distances."""
    steps = np.arange(1, len(curve) + 1) * arm.steps / len(curve)
    return RunRecord(
        directory=Path(f"runs/{arm.name}/{seed}"), config={"seed": seed}, result={}, seconds=1.0,
        series={baselines.METRIC: Series(steps, steps, np.array(curve))},
    )  # fmt: skip


def told(arm: Arm, curve: list[float]) -> dict[str, Any]:
    """What a peer's program says of such a run, with two episodes in each evaluation."""
    steps = [int(arm.every * (n + 1)) for n in range(len(curve))]
    return {"steps": steps, "returns": [[x - 1, x + 1] for x in curve], "seconds": 2.0, "versions": {"torch": "1"}}


# ------------------------------------------------------------------ arms


def test_every_arm_composes_and_is_evaluated_ten_times() -> None:
    parts = [part for one in (*TABLES, no_difference) for size in one.TABLE.profiles.values() for part in size.parts]
    for name, words in {(part.name, part.words) for part in parts if isinstance(part, Sweep)}:
        made = experiment_of_words(first_job(words))
        assert made.budget.steps == 10 * made.eval.every, name


def test_the_arms_of_a_size_have_names_of_their_own() -> None:
    for one in TABLES:
        for size in one.TABLE.profiles.values():
            names = [part.name for part in size.parts if isinstance(part, Sweep)]
            assert len(names) == len({*names})


def test_every_published_number_is_of_a_world_of_ours() -> None:
    assert {world for _, world in PUBLISHED} <= {world.gymnasium for world in baselines.WORLDS.values()}
    assert published("ppo", "CartPole-v1") == "500 ± 0 (100k)" and published(None, None) == "-"


# ------------------------------------------------------------------ tables


def test_a_curve_has_the_first_evaluation_from_each_tenth_on() -> None:
    assert baselines.resampled(ARM, [100, 210, 950, 1020], [1, 2, 3, 4]) == [1, 2, *[3] * 7, 4]
    assert baselines.resampled(ARM, [500], [7]) == [7] * 10  # what ended early stays where it was


def test_ours_lower_than_the_other_fails_its_gate() -> None:
    runs = [run(ARM, seed, [float(seed)] * 10) for seed in range(5)]
    measured = {ARM.kept(seed): told(ARM, [100.0 + seed] * 10) for seed in range(5)}
    found = {ARM: (baselines.ours(ARM, runs), baselines.theirs(ARM, measured))}
    (mine, other) = baselines.rows(found)
    assert mine[:5] == ["ppo, CartPole: evorl", "5", "1,000", "2 [0, 4]", "2 [0, 4]"]
    assert mine[5] == "lower (p = 0.0079)" and mine[6:] == ["-", "1"]
    assert other[0] == f"ppo, CartPole: {SB3}" and other[3] == "102 [100, 104]" and other[6:] == ["500 ± 0 (100k)", "2"]
    assert baselines.gates([mine, other]) == {"ppo, CartPole: not below": "failed"}


def test_verdicts_are_corrected_for_the_number_of_arms() -> None:
    apart = Scored([0, 1, 2, 3, 4], [[float(x)] for x in range(10, 15)], [1.0] * 5)
    mixed = Scored([0, 1, 2, 3, 4], [[float(x)] for x in range(5)], [1.0] * 5)
    assert baselines.verdicts([(apart, mixed)]) == ["higher (p = 0.0079)"]
    assert baselines.verdicts([(apart, mixed)] * 7)[0] == "no difference shown (p = 0.056)"


def test_worlds_are_taken_together_by_scaled_returns() -> None:
    arms = [ARM, learner("ppo", "acrobot", 1_000)]
    world = [baselines.WORLDS[arm.world] for arm in arms]
    best = [Scored([0, 1], [[one.target]] * 2, [1.0] * 2) for one in world]
    worst = [Scored([0, 1], [[one.random]] * 2, [1.0] * 2) for one in world]
    found = baselines.together(dict(zip(arms, zip(best, worst, strict=True), strict=True)))
    assert found is not None
    assert [*found.rows] == [
        ["ppo: evorl", "2", "1.00 [1.00, 1.00]", "0.00 [0.00, 0.00]", "1.00 [1.00, 1.00]"],
        ["ppo: the other", "2", "0.00 [0.00, 0.00]", "1.00 [1.00, 1.00]", "-"],
    ]


def test_a_table_is_made_of_the_runs_there_are() -> None:
    arm = on_policy.CI[0]
    runs = [run(arm, seed, [float(10 * seed)] * 10) for seed in (2, 0, 1, 3)]
    found = on_policy.TABLE.analyse(Found("ci", runs, {}))
    assert found is not None and len(found.rows) == 1 and not found.gates and not found.also
    assert found.policies == {"ppo_cartpole": Path("runs/ppo_cartpole/1")}  # the lower of the two in the middle
    assert on_policy.TABLE.analyse(Found("ci", [], {})) is None
    assert on_policy.TABLE.measured(found.data) == "ppo on cartpole 15 [0, 30]"
    (again,) = baselines.repeated(found.data).values()
    assert again.sweep == arm.name and again.curves == {seed: [10.0 * seed] * 10 for seed in range(4)}


def test_the_comparison_of_sets_finds_what_was_planted() -> None:
    rng = np.random.default_rng(0)
    same, halved = rng.normal(size=(40, 10)), rng.normal(size=(20, 10)) + 5
    alike, planted = no_difference.counts(same, halved, 5, "cartpole")
    assert alike <= 5 and planted == 100


# ------------------------------------------------------------------ policies


def test_every_arm_of_the_results_keeps_a_policy() -> None:
    kept = {place.name for place in POLICIES}
    for name in ("on_policy", "off_policy", "evolution"):
        told = json.loads((PROGRAMS / "suite" / "results" / f"{name}.json").read_text())
        assert {*told["data"]["arms"]} <= kept
        for arm in told["data"]["arms"]:
            one = json.loads((PROGRAMS / "suite" / "results" / "policies" / arm / "evaluation.json").read_text())
            ends = [curve[-1] for curve in told["data"]["arms"][arm][OURS]["curves"]]
            assert one["return_mean"] in ends and sorted(ends)[(len(ends) - 1) // 2] == one["return_mean"]


def _marks(place: Path) -> Any:
    slow = not place.name.endswith(("cartpole", "acrobot"))  # 40 episodes of the others take seconds
    return pytest.param(place, id=place.name, marks=[pytest.mark.learn] if slow else [])


@pytest.mark.parametrize("place", [_marks(place) for place in POLICIES])
def test_a_kept_policy_has_the_bits_that_it_had(place: Path, evaluate: Any) -> None:  # noqa: F811
    kept = json.loads((place / "evaluation.json").read_text())
    made = kept.pop("made")
    found = {**evaluate(f"run={place}"), "run": kept["run"]}
    versions = provenance.versions()
    here = {name: versions[name] for name in ("python", "torch", "numpy", "gymnasium")}
    here |= {"cpu": provenance.machine()["cpu"], "kernels": torch.backends.cpu.get_cpu_capability()}
    kept.pop("individual", None)
    if here == made:
        assert found == kept
    else:  # other instructions and versions round differently, and games are chaotic
        wide = 4 * max(kept["return_std"], 1.0) / np.sqrt(kept["episodes"]) + 0.1 * abs(kept["return_mean"])
        assert found["return_mean"] == pytest.approx(kept["return_mean"], abs=wide)
