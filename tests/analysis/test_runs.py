"""Run directories read back: finished ones, running ones, stopped ones and damaged ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl.analysis.groups import group_runs
from evorl.analysis.runs import find_runs, flatten, read_run
from evorl.record.lock import lock
from evorl.record.provenance import POLICY_ONLY
from evorl.util.errors import BadRequest

ROOT = Path(__file__).parents[2]
CONFIG = "mdp:\n  _target_: evorl.mdp.pong.Pong\nrl:\n  lr: 0.001\n  net:\n    hidden: [64, 64]\nec: {}\nseed: 7\n"
CHOICES = "hydra:\n  runtime:\n    choices:\n      mdp: pong\n      ec: none\n      hydra/launcher: basic\n"


def make_run(directory: Path, lines: list[Any], result: dict[str, Any] | None = None) -> Path:
    (directory / ".hydra").mkdir(parents=True)
    (directory / ".hydra" / "config.yaml").write_text(CONFIG)
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (directory / "metrics.jsonl").write_text(text)
    if result is not None:
        (directory / "result.json").write_text(json.dumps(result))
    return directory


def line(step: int, time: float, **numbers: Any) -> dict[str, Any]:
    return {"step": step, "time": time} | {name.replace("__", "/"): value for name, value in numbers.items()}


def test_a_finished_run(tmp_path: Path) -> None:
    lines = [line(10, 1.5, train__return=-3.0), line(20, 3.0, train__return=4.0), line(20, 3.5, eval__return_mean=5.0)]
    directory = make_run(tmp_path / "a", lines, {"steps": 20, "seconds": 4.0, "fitness": 5.0})
    (directory / ".hydra" / "hydra.yaml").write_text(CHOICES)
    (directory / "provenance.json").write_text('{"commit": "abc"}')
    run = read_run(directory)
    assert (run.state, run.steps, run.seconds, run.seed, run.damaged) == ("finished", 20, 4.0, 7, 0)
    assert run.config["rl.net.hidden"] == [64, 64] and run.config["ec"] == {}
    assert run.choices == {"mdp": "pong", "ec": "none"}
    assert run.provenance == {"commit": "abc"}
    np.testing.assert_array_equal(run.series["train/return"].steps, [10, 20])
    np.testing.assert_array_equal(run.series["train/return"].seconds, [1.5, 3.0])
    np.testing.assert_array_equal(run.series["train/return"].values, [-3, 4])
    assert run.last("eval/return_mean") == 5.0 and run.last("loss/policy") is None


def test_whole_numbers_of_a_config_are_one_value_however_they_are_written(tmp_path: Path) -> None:
    found = []
    for name, one, large in (("a", "1", "2000"), ("b", "1.0", "2.0e+3")):
        directory = make_run(tmp_path / name, [])
        more = f"x:\n  gamma: {one}\n  sizes: [[{one}, 0.5], {large}]\n  flag: true\n  far: 1.0e+20\nbudget: {large}\n"
        (directory / ".hydra" / "config.yaml").write_text(CONFIG.replace("seed: 7", f"seed: {large}") + more)
        found.append(read_run(directory))
    first, second = found
    assert repr(first.config) == repr(second.config) and first.seed == 2000
    assert repr([first.config[f"x.{key}"] for key in ("gamma", "sizes", "flag", "far")]) == (
        "[1, [[1, 0.5], 2000], True, 1e+20]"
    )
    assert [(group.label, len(group.runs)) for group in group_runs(found)] == [("all runs", 2)]


def test_a_run_that_is_still_writing_its_last_line(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "a", [line(10, 1.0, train__return=1.0), '{"step": 20, "ti']))
    assert (run.state, run.steps, run.damaged) == ("interrupted", 10, 0)


def test_a_complete_last_line_without_its_end_is_not_trusted(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "a", [line(10, 1.0, x=1.0), '{"step": 20, "time": 2.0, "x": 1}']))
    assert run.steps == 10


def test_run_is_running_while_its_lock_is_held_and_checking_changes_nothing(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "a", [line(10, 0.0, x=1.0)])
    assert read_run(directory).state == "interrupted" and not (directory / ".lock").exists()
    with lock(directory):
        assert read_run(directory).state == "running"
    assert read_run(directory).state == "interrupted"
    with lock(directory):  # nothing of the looking is left in its way
        assert read_run(directory).state == "running"


def test_killed_run_is_interrupted_immediately(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "a", [line(10, 0.0, x=1.0)])
    code = "import sys; from pathlib import Path; from evorl.record.lock import lock\n"
    code += "with lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, str(directory)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "held\n"
        assert read_run(directory).state == "running"
        writer.kill()
        writer.wait()
        assert read_run(directory).state == "interrupted"


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "a", [])
    (directory / "metrics.jsonl").unlink()
    run = read_run(directory)
    assert (run.state, run.steps, run.seconds, dict(run.series)) == ("interrupted", 0, 0, {})


def test_a_result_older_than_the_metrics_is_of_an_earlier_end(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "a", [line(10, 1.0, x=1.0), line(20, 2.0, x=1.0)], {"steps": 10, "seconds": 1.0})
    run = read_run(directory)
    assert (run.state, run.result, run.steps) == ("interrupted", None, 20)


def test_damaged_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    damage = ["{broken\n", "[1, 2]\n", '{"time": 1.0, "x": 2.0}\n', "\n"]
    run = read_run(make_run(tmp_path / "a", [line(10, 1.0, x=1.0), *damage, line(20, 2.0, x=3.0)]))
    assert run.damaged == 3
    np.testing.assert_array_equal(run.series["x"].values, [1, 3])


def test_values_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    lines = [line(10, 1.0, x=float("nan"), y="text", z=True), line(20, 2.0, x=None, y=float("inf"), z=2)]
    run = read_run(make_run(tmp_path / "a", lines))
    assert {name: list(series.values) for name, series in run.series.items()} == {"z": [2.0]}


def test_an_unreadable_config_is_named(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "a", [])
    for content in ("a: [", "- 1\n", "\xff"):
        (directory / ".hydra" / "config.yaml").write_text(content, encoding="latin-1")
        with pytest.raises(BadRequest, match=r"cannot read .*config\.yaml"):
            read_run(directory)


def test_runs_are_found_below_and_once_and_in_the_order_of_jobs(tmp_path: Path) -> None:
    for job in ("0", "2", "10"):
        make_run(tmp_path / "multirun" / "day" / job, [])
    make_run(tmp_path / "multirun" / "day" / "2" / "checkpoints" / "inner", [])
    make_run(tmp_path / "multirun" / ".hidden" / "0", [])
    day = tmp_path / "multirun" / "day"
    assert find_runs([tmp_path / "multirun"]) == [day / "0", day / "2", day / "10"]
    assert find_runs([day / "10", tmp_path]) == [day / "10", day / "0", day / "2"]
    assert find_runs([day / "2", day / ".." / "day" / "2"]) == [day / ".." / "day" / "2"]


def test_a_place_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no run in"):
        find_runs([tmp_path])


def test_a_kept_policy_is_no_run(tmp_path: Path) -> None:
    """It has a config, as a run has, and no records: ``evorl.report benchmarks/PAPER`` would show runs of nothing."""
    for name in ("run", "policies/ppo"):
        (tmp_path / name / ".hydra").mkdir(parents=True)
        (tmp_path / name / ".hydra" / "config.yaml").write_text("seed: 1\n")
    (tmp_path / "policies" / "ppo" / POLICY_ONLY).write_text("{}")
    assert find_runs([tmp_path]) == [tmp_path / "run"]
    with pytest.raises(BadRequest, match="no run in"):
        find_runs([tmp_path / "policies"])


def test_flatten() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": {}}, "e": [1]}) == {"a.b.c": 1, "a.d": {}, "e": [1]}
