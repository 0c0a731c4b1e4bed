"""Grouping of runs and the labels of groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evorl.analysis.groups import (
    MAX_LABEL,
    MISSING,
    Group,
    check_keys,
    differences,
    format_value,
    group_runs,
    labels_beside,
    regroup,
    runs_by_world,
)
from evorl.analysis.notes import warnings
from evorl.analysis.runs import RunRecord
from evorl.util.errors import BadRequest

PPO: dict[str, Any] = {
    "mdp._target_": "evorl.mdp.pong.Pong",
    "rl._target_": "evorl.rl.ppo.PPO",
    "rl.lr": 1e-3,
    "rl.clip": 0.2,
}
A2C: dict[str, Any] = {"mdp._target_": "evorl.mdp.pong.Pong", "rl._target_": "evorl.rl.a2c.A2C", "rl.lr": 7e-4}


def runs(*configs: dict[str, Any], choices: dict[str, str] | None = None) -> list[RunRecord]:
    return [RunRecord(directory=Path(str(n)), config=config, choices=choices or {}) for n, config in enumerate(configs)]


def labels(*configs: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(group.label, [str(run.directory) for run in group.runs]) for group in group_runs(runs(*configs))]


def test_seeds_and_record_settings_do_not_separate_groups() -> None:
    varied = [PPO | {"seed": seed, "record.wandb": mode} for seed, mode in ((3, "offline"), (1, "disabled"))]
    assert labels(*varied) == [("all runs", ["1", "0"])]


def test_seeds_with_unlike_budgets_and_clusters_are_one_group() -> None:
    """Another limit of one run, and where it was worked, are no other experiment."""
    usual = PPO | {"budget.seconds": None, "cluster._target_": "x.Local", "record._target_": "x.Record"}
    usual["checkpoint.every"] = 500
    longer = usual | {"seed": 2, "budget.seconds": 60.0, "cluster._target_": "x.Ray", "cluster.workers": 4}
    longer["checkpoint.every"] = 1000
    assert labels(usual | {"seed": 1}, longer | {"record._target_": "x.Other"}) == [("all runs", ["0", "1"])]


def test_a_seed_with_several_periods_of_checkpoints_is_a_study_of_them() -> None:
    several = [PPO | {"seed": 1, "checkpoint.every": every} for every in (500, 900)]
    assert [label for label, _ in labels(*several)] == ["checkpoint.every=500", "checkpoint.every=900"]


def test_a_seed_with_several_budgets_is_a_study_of_budgets() -> None:
    several = [PPO | {"seed": seed, "budget.steps": steps} for steps in (500, 900) for seed in (1, 2)]
    several[1] |= {"cluster.workers": 4}  # which tells nothing
    assert labels(*several) == [("budget.steps=500", ["0", "1"]), ("budget.steps=900", ["2", "3"])]


def test_numbers_are_in_order_of_size() -> None:
    assert labels(*(PPO | {"rl.lr": lr} for lr in (1e-2, 3e-4, 1e-2, 0.1))) == [
        ("rl.lr=0.0003", ["1"]),
        ("rl.lr=0.01", ["0", "2"]),
        ("rl.lr=0.1", ["3"]),
    ]


def test_lists_are_in_order_of_their_numbers() -> None:
    found = labels(*(PPO | {"rl.net.hidden": hidden} for hidden in ([128], [64, 64], [64], ["a"], 256)))
    assert [label for label, _ in found] == [
        f"rl.net.hidden={hidden}" for hidden in ("256", "[64]", "[64,64]", "[128]", "[a]")
    ]


def test_a_budget_of_null_is_that_of_the_world() -> None:
    world = PPO | {"mdp.budget": 4_000}
    assert labels(*(world | {"budget.steps": steps} for steps in (None, 4_000))) == [("all runs", ["0", "1"])]
    assert labels(*(world | {"budget.steps": steps} for steps in (None, 500))) == [
        ("budget.steps=500", ["1"]),
        ("budget.steps=4000", ["0"]),
    ]


def test_choice_of_an_algorithm_replaces_its_keys() -> None:
    assert labels(PPO, A2C) == [("rl=A2C", ["1"]), ("rl=PPO", ["0"])]
    assert differences(runs(PPO, A2C)) == {"rl": ["PPO", "A2C"], "rl.clip": [0.2, MISSING], "rl.lr": [1e-3, 7e-4]}


def test_key_that_differs_within_a_choice_is_kept() -> None:
    assert labels(PPO, A2C, PPO | {"rl.lr": 1e-4}) == [
        ("rl=A2C, rl.lr=0.0007", ["1"]),
        ("rl=PPO, rl.lr=0.0001", ["2"]),
        ("rl=PPO, rl.lr=0.001", ["0"]),
    ]


def test_a_group_goes_by_the_file_that_was_chosen() -> None:
    first, second = runs(PPO, choices={"rl": "ppo"}) + runs(A2C, choices={"rl": "a2c"})
    assert [group.label for group in group_runs([first, second])] == ["rl=a2c", "rl=ppo"]


def test_a_mapping_that_is_empty_in_some_runs_is_told_by_the_keys_of_the_others() -> None:
    runs = [
        RunRecord(directory=Path("0"), config=PPO | {"reward.results": {}}),
        RunRecord(directory=Path("1"), config=PPO | {"reward.results.length": 0.1}),
    ]
    assert {*differences(runs)} == {"reward.results.length"}
    assert {group.label for group in group_runs(runs)} == {"no reward.results.length", "reward.results.length=0.1"}


def test_a_whole_group_that_is_not_there() -> None:
    one = RunRecord(directory=Path("0"), config=PPO | {"ec": {}}, choices={"ec": "none"})
    two = RunRecord(
        directory=Path("1"), config=PPO | {"ec._target_": "x.PBT", "ec.population": 8}, choices={"ec": "pbt"}
    )
    assert [group.label for group in group_runs([one, two])] == ["ec=none", "ec=pbt"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1e-5, "1e-05"),
        (0.00012345671, "0.00012345671"),
        ([1, 2.5], "[1,2.5]"),
        ("rule", "rule"),
        (MISSING, "–"),
    ],
)
def test_values_are_shown_as_on_the_command_line(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_a_schedule_is_one_value() -> None:
    constant = {key: value for key, value in PPO.items() if key != "rl.lr"}
    falling = constant | {"rl.lr.start": 3e-3, "rl.lr.end": 0, "rl.lr.steps": 1e5}
    others = ({}, {"rl.lr.steps": 2e5}, {"rl.lr.kind": "cosine", "rl.lr.power": 2.0})
    configs = [PPO, *(falling | more for more in others)]
    assert [label for label, _ in labels(*configs)] == [
        "rl.lr=0.001", "rl.lr=0.003→0 in 100000", "rl.lr=0.003→0 in 100000 cosine ^2", "rl.lr=0.003→0 in 200000",
    ]  # fmt: skip


def test_what_one_key_of_a_schedule_tells_is_a_number() -> None:
    falling = {"rl.lr.start": 3e-3, "rl.lr.end": 0, "rl.lr.steps": 1e5}
    assert [label for label, _ in labels(*(falling | {"rl.lr.start": start} for start in (1e-2, 1e-5)))] == [
        "rl.lr.start=1e-05", "rl.lr.start=0.01",
    ]  # fmt: skip
    near = [falling | {"rl.lr.start": n, "rl.lr.steps": 1_000_000 + n} for n in (0, 1)]
    assert len(labels(PPO, *near)) == 3  # unlike values that are shown alike


def test_what_is_no_schedule_is_left_alone() -> None:
    other = {"mdp.kwargs.start": 1, "mdp.kwargs.end": 2, "mdp.kwargs.steps": 3, "mdp.kwargs.colour": "red"}
    named = {"rl.lr.start": 1, "rl.lr.end": 2, "rl.lr.steps": 3, "rl.lr.power": "high"}
    for one in (other, named):
        varied = differences(runs(one, {key: f"{value}!" for key, value in one.items()}))
        assert {*varied} == {*one}


def test_a_label_has_no_key_that_its_runs_lack() -> None:
    assert [label for label, _ in labels(PPO, {**A2C, "rl.eps": 1}, {**A2C, "rl.eps": 2})] == [
        "rl=A2C, rl.eps=1", "rl=A2C, rl.eps=2", "rl=PPO",
    ]  # fmt: skip


def test_most_informative_key_comes_first() -> None:
    configs = [PPO | {"rl.clip": clip, "rl.lr": lr} for clip, lr in ((0.1, 1.0), (0.1, 2.0), (0.2, 3.0))]
    assert [label for label, _ in labels(*configs)] == [
        "rl.lr=1, rl.clip=0.1",
        "rl.lr=2, rl.clip=0.1",
        "rl.lr=3, rl.clip=0.2",
    ]


def test_labels_are_short_and_no_two_are_the_same() -> None:
    configs = [PPO | {f"rl.key_{k}": n // 2 + k for k in range(9)} | {"rl.name": "x" * 80 + str(n)} for n in range(4)]
    told = [label for label, _ in labels(*configs)]
    assert len(set(told)) == 4 and all(len(label) <= MAX_LABEL + 6 for label in told)
    assert all("…" in label for label in told)


def test_a_world_goes_by_its_file_and_by_what_that_file_names() -> None:
    lander, walker = ({"mdp.id": name, "mdp._target_": "x.Gymnasium"} for name in ("Lander-v3", "Walker-v4"))
    several = runs(walker, lander, walker, choices={"mdp": "gymnasium"}) + runs(PPO)
    assert {name: len(members) for name, members in runs_by_world(several).items()} == {
        "Pong": 1,
        "gymnasium Lander-v3": 1,
        "gymnasium Walker-v4": 2,
    }


def test_groups_by_a_key_put_together_what_else_differs() -> None:
    sweep = [PPO | {"rl.lr": lr, "rl.clip": clip, "seed": 1} for lr in (0.1, 0.01) for clip in (0.1, 0.2)]
    several = runs(*sweep)
    found = group_runs(several, ["rl.lr"])
    assert [(group.label, [str(run.directory) for run in group.runs]) for group in found] == [
        ("rl.lr=0.01", ["2", "3"]),
        ("rl.lr=0.1", ["0", "1"]),
    ]
    told = warnings(found)  # the one seed of both runs is no repetition, since they differ in another key
    assert "rl.lr=0.1: puts runs together that differ in rl.clip." in told and not any("counts" in one for one in told)
    both = group_runs(several, ["rl.clip", "rl.lr"])
    assert [group.label for group in both][:2] == ["rl.clip=0.1, rl.lr=0.01", "rl.clip=0.1, rl.lr=0.1"]


def test_unlike_budgets_of_groups_are_told_unless_labels_say_so() -> None:
    several = runs(*(PPO | {"rl.lr": lr, "budget.steps": steps} for lr, steps in ((0.1, 1000), (0.01, 2000))))
    told = "The groups have unlike budget.steps, which their differences may be due to."
    assert told in warnings(group_runs(several, ["rl.lr"]))
    assert told not in warnings(group_runs(several, ["rl.lr", "budget.steps"]))
    alike = runs(*(PPO | {"rl.lr": lr, "budget.steps": steps} for lr in (0.1, 0.01) for steps in (1000, 2000)))
    assert told not in warnings(group_runs(alike, ["rl.lr"]))


def test_a_label_has_four_digits_of_a_number() -> None:
    several = group_runs(runs(*(PPO | {"rl.lr": lr} for lr in (0.00010994937351286617, 0.00010994937361, 0.1))))
    assert [group.label for group in several] == ["rl.lr=0.0001099 #1", "rl.lr=0.0001099 #2", "rl.lr=0.1"]


def test_groups_by_what_no_config_holds() -> None:
    several = [
        RunRecord(directory=Path(f"{place}/{seed}"), config=PPO | {"seed": seed}, provenance={"git": {"commit": place}})
        for place in ("old", "new")
        for seed in (1, 2)
    ]
    assert [group.label for group in group_runs(several, ["folder"])] == ["folder=new", "folder=old"]
    found = group_runs(several, ["provenance.git.commit"])
    assert [group.label for group in found] == ["provenance.git.commit=new", "provenance.git.commit=old"]
    assert [group.label for group in group_runs(several, ["seed"])] == ["seed=1", "seed=2"]
    lacking = [*several, *runs(A2C)]
    assert [len(group.runs) for group in group_runs(lacking, ["rl.clip"])] == [4, 1]


def test_a_key_that_no_run_has() -> None:
    several = runs(PPO, PPO | {"rl.lr": 1.0})
    check_keys(["rl.lr", "rl", "folder"], several)
    with pytest.raises(BadRequest, match=r"by: no run has the key rl\.lrr; did you mean rl\.lr\?"):
        check_keys(["rl.lrr"], several)
    with pytest.raises(BadRequest, match=r"by: no run has the key xyz; keys that differ: rl\.lr"):
        check_keys(["xyz"], several)


def test_worlds_share_the_keys_of_their_groups() -> None:
    """A key that varies in one world separates the groups of each."""
    one = group_runs(runs(PPO, PPO | {"rl.lr": 0.5}))
    other = group_runs(runs(PPO | {"rl.lr": 0.5}, A2C))
    found = regroup({"one": one, "other": other})
    assert [dict(group.values) for group in found["one"]] == [
        {"rl.lr": 0.001, "rl": "PPO"},
        {"rl.lr": 0.5, "rl": "PPO"},
    ]
    assert [dict(group.values) for group in found["other"]] == [
        {"rl.lr": 0.0007, "rl": "A2C"},
        {"rl.lr": 0.5, "rl": "PPO"},
    ]


def test_games_of_atari_are_worlds_of_their_own() -> None:
    games = [{"mdp._target_": "evorl.mdp.atari.Atari", "mdp.game": game} for game in ("pong", "breakout")]
    assert [*runs_by_world(runs(*games))] == ["Atari breakout", "Atari pong"]


def period_run(seed: int, steps: int | None, every: int | None, *words: str) -> RunRecord:
    config = PPO | {"seed": seed, "mdp.budget": 25_000, "budget.steps": steps, "eval.every": every}
    return RunRecord(directory=Path(str(seed)), config=config, words=[f"budget.steps={steps}", *words])


def test_periods_that_follow_from_the_budget_separate_no_groups() -> None:
    """The config of a run shorter than the world's budget holds its own periods, and that of a longer run null."""
    several = [period_run(1, 5_000, 500), period_run(2, 6_000, 600), period_run(3, 50_000, None)]
    assert [group.label for group in group_runs(several)] == ["all runs"]
    assert "eval.every" not in differences(several)


def test_a_period_that_was_chosen_separates_groups() -> None:
    several = [period_run(1, 5_000, 500), period_run(2, 5_000, 100, "eval.every=100")]
    assert [group.label for group in group_runs(several)] == ["eval.every=100", "eval.every=null"]
    chosen = [period_run(1, 5_000, 500, "eval.every=500"), period_run(2, 50_000, 500, "eval.every=500")]
    assert [group.label for group in group_runs(chosen)] == ["all runs"]
    alike = [period_run(1, 5_000, 500), period_run(2, 5_000, 500, "eval.every=500")]
    assert [group.label for group in group_runs(alike)] == ["all runs"]


def test_a_chosen_period_is_that_of_runs_with_the_same_by_default() -> None:
    """Also beside others; of another budget than theirs, where all defaults are this one."""
    alike = [period_run(1, 5_000, 500), period_run(2, 5_000, 500, "eval.every=500")]
    other = period_run(3, 5_000, 100, "eval.every=100")
    longer = [period_run(4, 50_000, None), period_run(5, 50_000, 500, "eval.every=500")]

    def seeds(several: Sequence[RunRecord]) -> dict[str, list[int]]:
        return {group.label: [run.seed for run in group.runs] for group in group_runs(several)}

    assert seeds([*alike, other]) == {"eval.every=100": [3], "eval.every=null": [1, 2]}
    assert seeds([*alike, other, longer[1]]) == {"eval.every=100": [3], "eval.every=null": [1, 2, 5]}
    assert seeds([*alike, *longer]) == {"eval.every=500": [5], "eval.every=null": [1, 2, 4]}
    whole, same = period_run(6, None, None), period_run(7, 25_000, 2_500, "eval.every=2500")
    assert seeds([whole, same, alike[0]]) == {"all runs": [1, 6, 7]}


def searched(home: Path, evolver: dict[str, Any]) -> list[RunRecord]:
    """Jobs of a search of one seed: two learning rates with two budgets each."""
    (home / "search.json").write_text(json.dumps({"hydra.sweeper": {"evolver": evolver}}))
    jobs = [PPO | {"seed": 1, "rl.lr": lr, "budget.steps": steps} for lr in (0.1, 0.2) for steps in (313, 1_250)]
    return [RunRecord(directory=home / str(n), config=config) for n, config in enumerate(jobs)]


def test_budgets_of_jobs_that_a_search_stops_early_separate_no_groups(tmp_path: Path) -> None:
    several = searched(tmp_path, {"kind": "ASHA", "eta": 4, "R": 64})
    assert [(group.label, len(group.runs)) for group in group_runs(several)] == [("rl.lr=0.1", 2), ("rl.lr=0.2", 2)]
    assert differences(several)["budget.steps"] == [313, 1_250, 313, 1_250]  # as notes say
    whole = RunRecord(directory=Path("whole"), config=PPO | {"seed": 1, "rl.lr": 0.2, "budget.steps": 20_000})
    assert sorted(len(group.runs) for group in group_runs([*several, whole])) == [1, 2, 2]  # one is of another budget


def test_budgets_between_which_a_search_decides_separate_groups(tmp_path: Path) -> None:
    assert len(group_runs(searched(tmp_path, {"kind": "CMAES"}))) == 4


def failed(number: int, config: dict[str, Any]) -> RunRecord:
    return RunRecord(directory=Path(str(number)), config=config, state="failed", reason="broken")


def test_a_failed_run_without_values_has_its_own_group_and_no_part_in_comparisons() -> None:
    finished = runs(*(PPO | {"rl.lr": lr, "seed": 1} for lr in (0.1, 0.2)))
    found = group_runs([*finished, failed(2, PPO | {"rl.lr": 0.1, "rl.clip": 9, "seed": 1, "budget.steps": 9})])
    assert {group.label for group in found} >= {"rl.clip=9, rl.lr=0.1"} and [len(group.runs) for group in found] == [
        1
    ] * 3
    told = warnings(found)
    assert "2: failed: broken" in told and "2: no metrics yet." not in told
    assert not any(word in note for note in told for word in ("differ in", "counts", "unlike", "3 of"))
    alone = [failed(number, PPO | {"rl.lr": float(number)}) for number in (1, 2)]
    assert [group.label for group in group_runs(alone)] == ["rl.lr=1", "rl.lr=2"]


def test_the_learner_of_a_problem_separates_no_groups() -> None:
    of_problem = [config | {"ec.sigma": 0.1} for config in (PPO, A2C)]
    assert [group.label for group in group_runs(runs(*of_problem, choices={"mdp": "problem"}))] == ["all runs"]


def test_labels_in_a_picture_leave_out_what_its_groups_share() -> None:
    several = group_runs(runs(*(PPO | {"rl.lr": lr, "rl.clip": clip} for lr, clip in ((1, 1), (1, 2), (2, 1)))))
    assert labels_beside(several) == [group.label for group in several]
    shared = [group for group in several if group.values["rl.lr"] == 1]
    assert labels_beside(shared) == ["rl.clip=1", "rl.clip=2"]
    assert labels_beside(shared[:1]) == [shared[0].label] and labels_beside([]) == []


def test_runs_without_a_fitness_are_told() -> None:
    made = zip((1.0, 2.0, None), runs(PPO, PPO, PPO), strict=True)
    whole = [replace(run, result={"fitness": value}) for value, run in made]
    told = "all runs: 1 of 3 runs have no fitness, and are left out of its mean."
    assert told in warnings([Group(values={}, runs=whole)])
    assert not any("no fitness" in note for note in warnings([Group(values={}, runs=whole[:2])]))
    assert not any("no fitness" in note for note in warnings([Group(values={}, runs=whole[2:])]))


def test_notes_name_their_world_where_a_report_has_several() -> None:
    groups = group_runs(
        runs(*(PPO | {"rl.lr": lr, "budget.steps": steps} for lr, steps in ((0.1, 10), (0.2, 20)))), ["rl.lr"]
    )
    told = warnings(groups, "pong")
    assert "pong: The groups have unlike budget.steps, which their differences may be due to." in told
    assert "pong: 2 of 2 runs not finished: their newest values are shown." in told


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"mdp.command": "{python} {clients}/python/tag.py"}, "remote tag.py"),
        ({"mdp.command": "node {clients}/javascript/sumo/sumo.js --realtime"}, "remote sumo.js"),
        ({"mdp.command": "'./my game.x86_64' --port={port} --speed=8.5"}, "remote my game.x86_64"),
        ({"mdp.command": "godot3-server --path {clients}/godot -s march.gd"}, "remote march.gd"),
        ({"mdp.command": "bash -c 'exec ./game.sh'"}, "remote bash"),
        ({"mdp.command": "it's"}, "remote it's"),
        ({"mdp.command": None, "mdp.listen": "127.0.0.1:5005"}, "remote 127.0.0.1:5005"),
    ],
)
def test_games_in_other_programs_are_worlds_of_their_own(config: dict[str, Any], name: str) -> None:
    run = RunRecord(directory=Path("a"), config={"seed": 1, **config}, choices={"mdp": "remote"})
    assert [*runs_by_world([run])] == [name]
