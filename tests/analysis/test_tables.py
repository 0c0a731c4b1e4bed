"""Tables: numbers number formats and headers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.analysis.content import budget
from evorl.analysis.groups import Group, group_runs
from evorl.analysis.runs import RunRecord, Series
from evorl.analysis.tables import (
    format_number,
    format_rows,
    format_with_interval,
    group_rows,
    numeric_columns,
    run_rows,
    summary_metrics,
)
from evorl.analysis.terminal_tables import MAX_KEYS, print_tables


def run(result: dict[str, Any] | None = None, **newest: float) -> RunRecord:
    x = np.array([1.0, 2.0])
    series = {name.replace("__", "/"): Series(x, x, np.array([-1.0, value])) for name, value in newest.items()}
    return RunRecord(directory=Path("a"), config={"seed": 1}, series=series, result=result, steps=10, seconds=2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.025731, "0.02573"),
        (9999.4, "9999"),
        (9999.6, "10\u2009000"),
        (1.25e6, "1\u2009250\u2009000"),
        (-12345.6, "-12\u2009346"),
        (1e-7, "1e-07"),
        (1e20, "1e+20"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "wide", "text"),
    [
        (166.4, 197.3, "166 ± 200"),
        (408.13, 64.2, "408 ± 64"),
        (0.2512, 0.1149, "0.25 ± 0.11"),
        (1.0, 0.0999, "1.00 ± 0.10"),
        (500.0, 0.0, "500 ± 0"),
        (65561.2, 8612.0, "65\u2009561 ± 8600"),
        (-152181.0, 12345.0, "-152\u2009181 ± 12\u2009000"),
    ],
)
def test_uncertain_numbers(value: float, wide: float, text: str) -> None:
    assert format_with_interval(value, wide) == text


@given(st.floats(-1e9, 1e9), st.floats(1e-4, 1e9))
def test_an_uncertain_number_is_off_by_less_than_its_uncertainty(value: float, wide: float) -> None:
    shown, interval = (float(text.replace("\u2009", "")) for text in format_with_interval(value, wide).split(" ± "))
    assert abs(shown - value) <= 0.06 * max(wide, 10) and abs(interval - wide) <= 0.0501 * wide
    assert "e" not in format_with_interval(value, wide)


def test_fitness_is_in_one_column_and_known_before_the_end() -> None:
    assert summary_metrics(run(eval__return_mean=3.0))["fitness"] == 3
    own = summary_metrics(run(eval__return_mean=3.0, eval__fitness_mean=0.5))
    assert own["fitness"] == 0.5 and "eval/fitness_mean" not in own
    done = run({"fitness": 0.7, "eval": {"return_mean": 4.0, "fitness_mean": 0.7}}, eval__return_mean=3.0)
    assert (summary_metrics(done)["fitness"], summary_metrics(done)["eval/return_mean"]) == (0.7, 4)
    assert "fitness" not in summary_metrics(run(train__return=1.0))


def test_headers_describe_their_columns() -> None:
    evaluated = run(eval__return_mean=100.0, eval__return_std=8.0)
    alone, pair = Group({}, [evaluated]), Group({}, [evaluated, evaluated])
    assert format_rows(run_rows([alone]))[0]["eval/return_mean ± std"] == "100.0 ± 8.0"
    row = format_rows(group_rows([alone]))[0]
    assert row["eval/return_mean"] == "100" and row["eval/return_std"] == "8"
    row = format_rows(group_rows([pair]))[0]
    assert row["eval/return_mean ± 95 %"] == "100 ± 0" and row["steps"] == "10"


def test_a_terminal_has_few_of_many_keys(capsys: pytest.CaptureFixture[str]) -> None:
    configs = [{f"rl.key_{k}": n * k for k in range(1, 20)} for n in (1, 2)]
    print_tables([RunRecord(directory=Path(str(n)), config=config) for n, config in enumerate(configs)])
    shown = capsys.readouterr().out
    assert shown.count("rl.key_") == MAX_KEYS and "... and 13 more keys, by which the runs differ:" in shown


def test_a_run_that_has_not_ended_is_described_by_its_steps() -> None:
    config = {"budget.steps": 3000}
    run = RunRecord(directory=Path("run"), config=config, steps=1350, state="interrupted")
    assert budget([run]) == "1,350 of 3,000 environment steps"
    assert budget([run, run]) == budget([replace(run, state="finished", steps=3050)]) == "3,000 environment steps"
    assert budget([replace(run, state="finished")]) == "1,350 environment steps"  # budget.seconds ended it
    assert budget([replace(run, steps=3000, state="running")]) == "3,000 environment steps"


def test_keys_and_genes_named_like_numbers_of_evaluations_are_shown() -> None:
    metrics = {"eval__return_mean": 1.0, "eval__return_std": 0.5, "eval__return_min": 0.0, "eval__return_max": 2.0}
    names = ("mdp.noop_max", "ec.sigma_min", "mdp.wind_std", "mdp.wind_mean")
    groups = [Group(dict.fromkeys(names, n), [run({"eval": {"episodes": 4}}, **metrics)]) for n in (0, 30)]
    shown = format_rows(group_rows(groups))
    assert [[row[name] for name in names] for row in shown] == [["0"] * 4, ["30"] * 4]
    assert not {"eval/return_min", "eval/return_max", "eval/episodes"} & shown[0].keys()


def test_seeds_have_all_of_their_digits_and_stay_in_the_order_of_numbers() -> None:
    numbers = (4294967296123456, 20240101, 3)
    runs = [replace(run(train__return=12345.0), config={"seed": seed}, directory=Path(str(seed))) for seed in numbers]
    rows = run_rows(group_runs(runs))
    assert [row["seed"] for row in rows] == [3, 20240101, 4294967296123456]
    shown = format_rows(rows)
    assert [row["seed"] for row in shown] == ["3", "20240101", "4294967296123456"]
    assert shown[0]["train/return"] == "12\u2009345" and "seed" in numeric_columns(shown)
