"""What a report says first: the best group, the gap to the next, and since when it leads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evorl.analysis.comparison import comparisons
from evorl.analysis.groups import Group, group_runs
from evorl.analysis.headline import headline, lead_since
from evorl.analysis.panels import make_panel
from evorl.analysis.runs import RunRecord, Series
from evorl.analysis.scores import world_scores
from evorl.util.files import write_json

STEPS = np.arange(100.0, 1100.0, 100.0)


def run(lr: float, seed: int, fitness: float | None, curve: Sequence[float] = (), steps: float = 1000) -> RunRecord:
    x = STEPS[: len(curve)]
    series = {"eval/return_mean": Series(x, x, np.array(curve, np.float64))} if len(curve) else {}
    return RunRecord(
        directory=Path(f"{lr}-{seed}"), config={"rl.lr": lr, "seed": seed}, series=series, steps=steps,
        result=None if fitness is None else {"fitness": fitness},
    )  # fmt: skip


def said(runs: Sequence[RunRecord], lowest: bool = False) -> str:
    groups = group_runs(runs)
    compared = comparisons("pong", world_scores("pong", groups, None))
    return " ".join(headline(groups, compared, lowest=lowest).sentences)


def test_the_best_group_its_lead_and_since_when() -> None:
    """Of 0.1 the mean is 20, of 0.2 it is 50; the curves cross between steps 300 and 400."""
    low, high = [10, 10, 10, 10, 10], [0, 5, 9, 11, 12]
    runs = [run(0.1, 1, 10, low), run(0.1, 2, 30, low), run(0.2, 1, 40, high), run(0.2, 2, 60, high)]
    assert said(runs) == (
        "Best: rl.lr=0.2, fitness 50 ± 130, the mean of 2 runs. It is 30 above the next, rl.lr=0.1 (20): too few runs "
        "to tell. By eval/return_mean it leads since step 400 of 1,000."
    )
    assert headline(group_runs(runs), []).best is runs[3]


def test_of_a_search_that_minimises_the_lowest_is_best() -> None:
    runs = [run(0.1, 1, 10, [9, 8]), run(0.2, 1, 40, [7, 9])]
    assert said(runs, lowest=True) == (
        "Best: rl.lr=0.1, fitness 10. It is 30 below the next, rl.lr=0.2 (40). One run of each says little. "
        "By eval/return_mean it leads since step 200 of 1,000."
    )
    assert headline(group_runs(runs), [], lowest=True).best is runs[0]


def test_of_a_search_the_job_that_it_named_is_best_and_not_the_luckiest(tmp_path: Path) -> None:
    heldout = {"mean": 18, "low": 16, "high": 20, "confidence": 0.95, "episodes": 60}
    best = {
        "job": "1", "objective": "fitness", "fitness": 18, "first_fitness": 21, "luck": 3, "selected_by": "held-out",
        "jobs": 2, "candidates": ["0", "1"], "heldout": heldout,
    }  # fmt: skip
    runs = [replace(run(lr, 1, score), directory=tmp_path / job) for lr, score, job in ((1, 40, "0"), (2, 21, "1"))]
    write_json(tmp_path / "best.json", best)
    assert said(runs) == (
        "Best: job 1, rl.lr=2, fitness 18 (16 to 20) in 60 held-out episodes, 21 in its own evaluation."
    )
    assert headline(group_runs(runs), []).best is runs[1]
    for other in ({"job": "7"}, {"heldout": None}, {"heldout": 3}, {"first_fitness": "x"}, {"candidates": 3}):
        write_json(tmp_path / "best.json", best | other)
        assert said(runs).startswith("Best: rl.lr=1, fitness 40."), other


def test_a_lead_at_the_end_of_the_runs_that_the_curves_do_not_show_is_told() -> None:
    assert said([run(0.1, 1, 10, [9, 8]), run(0.2, 1, 40, [7, 7])]).endswith(
        "By eval/return_mean it does not lead at the end."
    )


def test_a_lead_beyond_the_last_common_step_is_told_as_such() -> None:
    """The run that leads went on after the other one had ended, which was ahead till then."""
    assert said([run(0.1, 1, 10, [9, 8]), run(0.2, 1, 40, [7, 7, 40])]).endswith(
        "By eval/return_mean it does not lead at 200 steps, the last that all runs have reached."
    )
    assert said([run(0.1, 1, 10, [7, 7]), run(0.2, 1, 40, [7, 8, 9])]).endswith(
        "By eval/return_mean it leads at 200 steps, the last that all runs have reached, since step 200."
    )


def test_who_leads_is_judged_where_all_runs_of_a_group_have_values() -> None:
    """Four of five runs end at step 200; the one that goes on is far above the other group, but alone."""
    survivor = [*(run(0.1, seed, 10, [10, 10]) for seed in range(4)), run(0.1, 4, 490, [10, 10, 490, 490])]
    assert said([*survivor, *(run(0.2, seed, 80, [80] * 4) for seed in range(5))]).endswith(
        "By eval/return_mean it does not lead at 200 steps, the last that all runs have reached."
    )
    assert said([*survivor, *(run(0.2, seed, 200, [100] * 4) for seed in range(5))]).endswith(
        "By eval/return_mean it leads at 200 steps, the last that all runs have reached, since step 100."
    )


@pytest.mark.parametrize("late", [40, 1])
def test_groups_without_a_common_step_are_not_compared_along_it(late: float) -> None:
    """One group has its first evaluation after the last one of the other, be it the best or not."""
    x = STEPS[5:8]
    behind = replace(run(0.1, 1, late), series={"eval/return_mean": Series(x, x, x)})
    told = said([behind, run(0.2, 1, 10, [1, 2, 3])])
    assert told.endswith("One run of each says little.") and "lead" not in told


def test_another_order_by_interquartile_mean_is_told() -> None:
    one = [run(0.1, seed, 80) for seed in range(5)]
    assert "It is 8 above the next, rl.lr=0.1 (80); by interquartile mean rl.lr=0.1 is highest." in said(
        [*one, *(run(0.2, seed, fitness) for seed, fitness in enumerate([10, 10, 10, 10, 400]))]
    )
    equal = [*one, *(run(0.2, seed, fitness) for seed, fitness in enumerate([80, 80, 80, 80, 400]))]
    assert said(equal).endswith("above the next, rl.lr=0.1 (80).")


def test_equal_groups_are_told_as_equal() -> None:
    tied = [run(0.1, 1, 40, [9, 8]), run(0.2, 1, 40, [9, 8])]
    assert said(tied) == "Equally good: rl.lr=0.1, rl.lr=0.2, with fitness 40."
    assert said([*tied, run(0.3, 1, 0.1 + 39.9, [9, 8]), run(0.4, 1, 3, [0, 1])]).startswith(
        "Equally good: rl.lr=0.1, rl.lr=0.2, rl.lr=0.3, with fitness 40."
    )
    many = said([run(lr, seed, 40) for lr in (1, 2, 3, 4, 5) for seed in (1, 2)])
    assert many == "Equally good: rl.lr=1, rl.lr=2, rl.lr=3, rl.lr=4, 1 more, with fitness 40 ± 0, the mean of 2 runs."


def test_one_group() -> None:
    assert said([run(0.1, 1, 10), run(0.1, 2, 30)]) == "Fitness 20 ± 130, the mean of 2 runs, from 10 to 30."
    assert said([run(0.1, 1, 30, [5, 31, 30])]) == (
        "Fitness 30. Its highest eval/return_mean, 31, was at step 200 of 1,000."
    )


def test_without_a_score() -> None:
    assert said([run(0.1, 1, None)]) == "No run has a score yet."
    assert headline(group_runs([run(0.1, 1, None)]), []).best is None


@pytest.mark.parametrize(
    ("best", "other", "since"),
    [
        ([1, 2, 3], [0, 1, 2], 100),
        ([0, 2, 3], [0, 1, 2], 200),  # equal is no lead
        ([0, 1, 3], [1, 2, 2], 300),
        ([3, 2, 1], [0, 1, 2], None),
        ([1, 2, 3, 9, 9], [2, 3, 4], None),  # not where both are
        ([0, 2, 0, 5], [1, 1, 1, 1], 400),  # a lead that was lost does not count
    ],
)
def test_since_when_a_curve_leads(best: Sequence[float], other: Sequence[float], since: float | None) -> None:
    groups = [Group({"rl.lr": lr}, [run(lr, 1, 1, curve)]) for lr, curve in ((0.1, other), (0.2, best))]
    assert lead_since(make_panel(groups, "eval/return_mean"), 1) == since
    mirrored = [Group({}, [run(0.1, 1, 1, [-y for y in curve])]) for curve in (other, best)]
    assert lead_since(make_panel(mirrored, "eval/return_mean"), 1, lowest=True) == since
