"""Scores at the end, at equal steps and at equal time, on one world and on several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl.analysis.comparison import comparison_rows, comparisons, left_out, summary
from evorl.analysis.content import APART, gather
from evorl.analysis.groups import MISSING, Group, group_runs, regroup
from evorl.analysis.runs import RunRecord, Series
from evorl.analysis.scores import (
    BY_HUMAN,
    BY_RANGE,
    BY_TARGET,
    Scores,
    check_targets,
    joint_scores,
    last_value,
    scale,
    title,
    world_scores,
)
from evorl.analysis.sources import Choices, Sources
from evorl.util.errors import BadRequest


def curve(*points: tuple[float, float, float]) -> Series:
    """Points of (steps, seconds, value)."""
    return Series(*np.array(points, np.float64).T)


def run(name: str, rl: str, seed: int, fitness: float, *points: tuple[float, float, float], **keys: Any) -> RunRecord:
    return RunRecord(
        directory=Path(name, rl, str(seed)),
        config={"rl._target_": f"x.{rl}", "seed": seed} | keys,
        choices={"rl": rl, "mdp": name},
        series={"eval/return_mean": curve(*points)} if points else {},
        result={"fitness": fitness},
    )


def test_copies_of_a_run_count_once() -> None:
    """The same seed with other numbers does not: of an asynchronous run, or on another machine."""
    points = ((10, 1.0, 1.0), (20, 2.0, 2.0))
    runs = [run(place, "ppo", 1, 9.0, *points) for place in ("a", "b", "c")]
    runs += [run("d", "ppo", 2, 9.0, *points), run("e", "ppo", 1, 8.0, (10, 1.0, 1.0), (20, 2.0, 1.5))]
    (end, steps, seconds) = world_scores("w", group_runs(runs), None)
    assert sorted(end.values[0][0]) == [8.0, 9.0, 9.0] and len(steps.values[0][0]) == len(seconds.values[0][0]) == 3


def test_scores_at_equal_steps_and_time_are_the_newest_that_every_run_has_reached() -> None:
    runs = [
        run("w", "ppo", 1, 9.0, (10, 1.0, 1.0), (20, 2.0, 2.0), (40, 4.0, 9.0)),
        run("w", "ppo", 2, 5.0, (15, 9.0, 3.0), (30, 10.0, 5.0)),
        run("w", "a2c", 1, 7.0, (25, 3.0, 7.0)),
    ]
    found = {scores.at: scores for scores in world_scores("w", group_runs(runs), None)}
    assert [group["rl"] for group in found["end"].groups] == ["a2c", "ppo"]
    assert found["end"].values == [[[7.0]], [[9.0, 5.0]]] and not found["end"].limits
    assert found["steps"].limits == {"w": 25} and found["steps"].values == [[[7.0]], [[2.0, 3.0]]]
    assert found["seconds"].limits == {"w": 3} and found["seconds"].values == [[[7.0]], [[2.0]]]  # seed 2 has none yet
    assert title(found["steps"]) == "at equal steps: 25 environment steps"
    assert title(found["seconds"]) == "at equal time: 3 seconds"


def test_the_newest_value_of_rows_that_were_written_out_of_order() -> None:
    series = curve((30, 1.0, 3.0), (10, 2.0, 1.0), (20, 3.0, 2.0))
    assert [last_value(series, "steps", limit) for limit in (5, 10, 25, 99)] == [None, 1.0, 2.0, 3.0]


def worlds(**fitness: dict[str, list[float]]) -> dict[str, list[Group]]:
    return {
        world: group_runs(
            [run(world, rl, seed, value) for rl, several in by.items() for seed, value in enumerate(several)]
        )
        for world, by in fitness.items()
    }


def ends(members: dict[str, list[Group]], target: Any = None) -> Scores:
    return next(joint_scores(members, target))


def test_worlds_together_are_on_the_scales_of_their_targets() -> None:
    members = worlds(one={"ppo": [5.0, 10.0], "a2c": [0.0, 1.0]}, two={"ppo": [-100.0, -50.0], "a2c": [-200.0, -150.0]})
    found = ends(members, {"one": 10.0, "two": (-200.0, 0.0)})
    assert found.groups == [{"rl": "a2c"}, {"rl": "ppo"}] and found.target == 1.0
    assert found.values == [[[0.0, 0.1], [0.0, 0.25]], [[0.5, 1.0], [0.5, 0.75]]]
    rows = comparison_rows(found)
    assert [row["rl"] for row in rows] == ["ppo", "a2c"] and rows[0]["runs"] == 4
    assert rows[0]["optimality gap"] == pytest.approx(1 - np.mean([0.5, 1.0, 0.5, 0.75]))
    assert rows[0]["median"] == pytest.approx(np.median([0.75, 0.625])) == rows[0]["mean"]


def test_worlds_without_a_target_are_scaled_by_their_lowest_and_highest_run() -> None:
    members = worlds(one={"ppo": [5.0, 10.0], "a2c": [0.0, 1.0]}, two={"ppo": [3.0, 3.0], "a2c": [3.0, 3.0]})
    found = ends(members)
    assert found.basis == BY_RANGE and found.target is None
    assert found.values == [[[0.0, 0.1], [0.0, 0.0]], [[0.5, 1.0], [0.0, 0.0]]]
    assert "optimality gap" not in comparison_rows(found)[0]


def test_a_group_that_misses_a_world_is_named_and_not_compared() -> None:
    members = worlds(
        one={"ppo": [5.0, 10.0], "a2c": [0.0, 1.0], "td3": [1.0, 2.0]}, two={"ppo": [3.0, 4.0], "a2c": [1.0, 2.0]}
    )
    found = ends(members)
    assert [row["rl"] for row in comparison_rows(found)] == ["ppo", "a2c"]
    assert left_out(found) == ["rl=td3 is not compared over all worlds: fewer than two runs on two."]
    assert list(joint_scores({"one": members["one"]}, None)) == []


def test_a_group_with_a_run_without_an_early_score_is_not_compared_there() -> None:
    """Six runs beside six, of which two bad ones are slow: without them the other four would look better."""
    quick = [run("w", "ppo", seed, 5.0 + seed, (10, 1.0, 1.0), (20, 2.0, 5.0 + seed)) for seed in range(6)]
    slow = [run("w", "a2c", seed, 0.0, (20, 30.0, 0.0)) for seed in range(2)]
    good = [run("w", "a2c", seed, 90.0, (10, 1.0, 1.0), (20, 2.0, 90.0 + seed)) for seed in range(2, 6)]
    third = [run("w", "td3", seed, 1.0, (10, 1.0, 1.0), (20, 2.0, 1.0 - seed)) for seed in range(6)]
    found = comparisons("w", world_scores("w", group_runs([*quick, *slow, *good]), None))
    assert [one.scores.at for one in found] == ["end", "steps"]
    assert [*found[0].notes] == ["There is no comparison at equal time (2 seconds): 2 runs had no score by then."]
    found = comparisons("w", world_scores("w", group_runs([*quick, *slow, *good, *third]), None))
    at_time = next(one for one in found if one.scores.at == "seconds")
    assert [row["rl"] for row in at_time.rows] == ["ppo", "td3"]
    assert [*at_time.notes] == ["rl=a2c is not compared: 2 of its 6 runs had no score by then."]


def test_runs_without_any_score_are_named() -> None:
    """A run that failed before its first evaluation, say."""
    good = [run("w", "ppo", seed, 5.0 + seed, (10, 1.0, 1.0), (20, 2.0, 5.0 + seed)) for seed in range(3)]
    other = [run("w", "a2c", seed, 9.0, (10, 1.0, 1.0), (20, 2.0, 9.0)) for seed in range(2)]
    failed = replace(run("w", "a2c", 2, 0.0), result=None)
    found = comparisons("w", world_scores("w", group_runs([*good, *other, failed]), None))
    assert [one.scores.at for one in found] == ["end"]
    assert [*found[0].notes] == [
        "rl=a2c is compared without 1 of its 3 runs, which have no score.",
        "There is no comparison at equal steps (20 environment steps): 1 run had no score by then.",
        "There is no comparison at equal time (2 seconds): 1 run had no score by then.",
    ]


def test_a_group_of_one_run_is_named() -> None:
    (only,) = worlds(one={"ppo": [5.0, 10.0], "a2c": [0.0, 1.0], "td3": [1.0]}).values()
    (told,) = comparisons("one", world_scores("one", only, None))
    assert [*told.notes] == ["rl=td3 is not compared: fewer than two of its runs have a score."]


def test_settings_that_follow_from_the_world_do_not_separate_groups() -> None:
    """A learning rate that each world has its own of is no reason to call the algorithms of two worlds different."""
    members = {
        world: group_runs([run(world, rl, seed, 1.0, **{"rl.lr": lr}) for rl in ("ppo", "a2c") for seed in (1, 2)])
        for world, lr in (("one", 0.1), ("two", 0.2))
    }
    assert ends(members).groups == [{"rl": "a2c"}, {"rl": "ppo"}]


def evaluated(world: str, steps: int, *periods: int) -> list[RunRecord]:
    """Two algorithms with the periods that follow from the budget, and one of them with chosen periods."""
    budget = {"mdp.budget": 25_000, "budget.steps": steps}
    usual = budget | {"eval.every": steps // 10}
    return [run(world, rl, seed, float(seed), **usual) for rl in ("ppo", "a2c") for seed in (1, 2)] + [
        replace(run(world, "ppo", seed, 9.0, **budget, **{"eval.every": every}), words=[f"eval.every={every}"])
        for every in periods
        for seed in (1, 2)
    ]


@pytest.mark.parametrize("steps", [1_000, 5_000])
def test_periods_that_follow_from_unlike_budgets_are_one_group_of_several_worlds(steps: int) -> None:
    members = {"one": group_runs(evaluated("one", 1_000, 50)), "two": group_runs(evaluated("two", steps))}
    assert [group.values for group in members["two"]] == [{"rl": "a2c"}, {"rl": "ppo"}]
    found = ends(members)
    counts = {tuple(group.values()): [*map(len, own)] for group, own in zip(found.groups, found.values, strict=True)}
    assert counts == {("ppo", 50): [2, 0], ("a2c", None): [2, 2], ("ppo", None): [2, 2]}
    by = {world: group_runs([run for group in groups for run in group.runs], ["eval.every"])
          for world, groups in members.items()}  # fmt: skip
    assert [group.label for group in regroup(by)["two"]] == [f"eval.every={steps // 10}"]  # as it was asked for


def test_budgets_of_jobs_that_a_search_stops_early_are_no_groups_of_several_worlds(tmp_path: Path) -> None:
    def searched(world: str) -> list[RunRecord]:
        home = tmp_path / world
        home.mkdir()
        (home / "search.json").write_text('{"hydra.sweeper": {"evolver": {"kind": "ASHA", "eta": 4, "R": 64}}}')
        return [
            replace(run(world, "ppo", 1, 1.0, **{"rl.lr": lr, "budget.steps": steps}), directory=home / f"{lr}-{steps}")
            for lr in (0.1, 0.2)
            for steps in (313, 1_250)
        ]

    whole = run("one", "ppo", 1, 1.0, **{"rl.lr": 0.2, "budget.steps": 20_000})
    members = {"one": group_runs([*searched("one"), whole]), "two": group_runs(searched("two"))}
    found = regroup(members)["two"]
    assert [(group.values["rl.lr"], group.values["budget.steps"], len(group.runs)) for group in found] == [
        (0.1, MISSING, 2),
        (0.2, MISSING, 2),
    ]


def test_worlds_that_cannot_be_compared_together_are_told() -> None:
    def notes(**learners: tuple[str, ...]) -> list[str]:
        made = [run(world, rl, seed, 1.0) for world, several in learners.items() for rl in several for seed in (1, 2)]
        return [*gather(Sources(runs=made), Choices()).notes]

    assert notes(one=("ppo", "a2c"), two=("ppo", "td3")) == [APART]
    assert notes(one=("ppo", "a2c"), two=("ppo", "a2c")) == notes(one=("ppo", "a2c")) == []
    assert notes(one=("ppo",), two=("td3",)) == []  # neither world has a comparison


def test_worlds_with_and_without_a_target_are_told_apart() -> None:
    games = {game: group_runs([run(game, "ppo", 1, 0.0, **{"mdp.game": game})]) for game in ("pong", "qbert")}
    assert ends(games, {"pong": 20.0}).basis == f"{BY_TARGET}; of qbert {BY_HUMAN}"
    assert ends(games, {"pong": 20.0, "qbert": 9.0}).basis == BY_TARGET == ends(games, 20.0).basis


def test_the_scale_of_an_atari_game_is_that_of_random_play_and_a_human() -> None:
    runs = [run("atari", "ppo", 1, 0.0, **{"mdp.game": "pong"})]
    found = scale("atari pong", runs, None)
    assert found is not None and (found.zero, found.one) == (-20.7, 14.6)
    assert scale("atari pong", runs, 21.0) == (0.0, 21.0)
    assert scale("cartpole", [run("cartpole", "ppo", 1, 0.0)], None) is None
    games = {game: group_runs([run(game, "ppo", 1, 0.0, **{"mdp.game": game})]) for game in ("pong", "qbert")}
    assert ends(games).basis == (
        "human-normalised: random play is 0 and a human tester 1 (DeepMind's dqn_zoo, atari_data.py)"
    )


def test_a_clear_difference_over_two_worlds_is_told_in_words() -> None:
    """Two runs each: no world alone can show a difference at 5 %, but three together can."""
    far = {"ppo": [10.0, 11.0], "a2c": [1.0, 2.0]}
    (alone,) = comparisons("one", [next(world_scores("one", worlds(one=far)["one"], None))])
    assert summary(alone.rows).endswith("Too few runs to tell: rl=a2c (better in 0 % of pairs).")
    (told,) = comparisons("all worlds", [ends(worlds(one=far, two=far, three=far))])
    assert summary(told.rows).startswith("Highest: rl=ppo, IQM ")
    assert "Lower: rl=a2c (better in 0 % of pairs, p = 0.0" in summary(told.rows)


def test_a_target_needs_a_world_and_an_extent() -> None:
    check_targets({"one": (0, 1)}, ["one", "two"])
    with pytest.raises(BadRequest, match="no run of this world; did you mean one"):
        check_targets({"onee": 3.0}, ["one"])
    with pytest.raises(BadRequest, match="must be above"):
        check_targets((5.0, 5.0), ["one"])
