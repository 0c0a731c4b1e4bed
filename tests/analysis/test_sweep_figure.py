"""Figures of sweeps: the kind of figure and the positions of its groups."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from evorl.analysis.figures import render, render_inset
from evorl.analysis.groups import format_value, group_runs
from evorl.analysis.runs import RunRecord
from evorl.analysis.sweep_figure import SweepFitness, parallel_scales, sweep_figure, sweep_fitness


def runs(keys: Sequence[str], rows: Sequence[Sequence[Any]], seeds: int = 2) -> list[RunRecord]:
    """Of fitness 10 i + seed for row i."""
    return [
        RunRecord(
            directory=Path(f"{i}-{seed}"),
            config={"seed": seed, "mdp._target_": "x.Pong"} | dict(zip(keys, row, strict=True)),
            result={"fitness": 10.0 * i + seed, "steps": 1},
        )
        for i, row in enumerate(rows)
        for seed in range(seeds)
    ]


def found(keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> SweepFitness | None:
    return sweep_fitness(group_runs(runs(keys, rows)))


GRID = [[lr, kind] for lr in (0.001, 0.01, 0.1) for kind in ("relu", "tanh")]


def test_two_keys_make_a_map_of_the_means_over_seeds() -> None:
    shown = found(["rl.lr", "rl.kind"], GRID)
    assert shown is not None and shown.is_map
    fitness = {tuple(row): tall for row, tall in zip(shown.values, shown.fitness, strict=True)}
    order = [shown.keys.index(key) for key in ("rl.lr", "rl.kind")]
    assert {tuple(row[k] for k in order): tall for row, tall in fitness.items()} == {
        tuple(row): 10.0 * i + 0.5 for i, row in enumerate(GRID)
    }
    (axes,) = sweep_figure(shown).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.001", "0.01", "0.1"]
    cells = {(text.get_position(), text.get_text()) for text in axes.texts}
    assert cells == {((i // 2, i % 2), f"{float(f'{10 * i + 0.5:.3g}'):g}") for i in range(6)}


def test_more_keys_or_few_crossings_make_parallel_coordinates() -> None:
    three = found(["rl.lr", "rl.kind", "rl.gamma"], [[*row, gamma] for row in GRID for gamma in (0.9, 0.99)])
    sparse = found(["rl.a", "rl.b"], [[0.1 * i, 0.3 * i * i] for i in range(12)])
    for shown, uprights in ((three, 4), (sparse, 3)):
        assert shown is not None and not shown.is_map
        (axes,) = sweep_figure(shown).axes
        lines = [line for line in axes.lines if len(np.asarray(line.get_xdata())) > 2]
        assert (len(lines), len(axes.lines) - len(lines)) == (12, uprights)
        widest = max(lines, key=lambda line: line.get_linewidth())
        ends = {line: np.asarray(line.get_ydata())[-1] for line in lines}
        assert ends[widest] == max(ends.values()) == 1


@pytest.mark.parametrize("rows", [GRID[:2], [[0.1, "a"], [0.1, "b"], [0.1, "c"]]], ids=["two groups", "one key"])
def test_too_little_for_a_picture(rows: list[list[Any]]) -> None:
    assert found(["rl.lr", "rl.kind"], rows) is None


def test_equal_heights_and_missing_values_can_be_drawn() -> None:
    several = runs(["rl.lr", "rl.kind"], GRID[:3], seeds=1) + runs(["rl.lr"], [[0.5]], seeds=1)
    same = [RunRecord(directory=run.directory, config=run.config, result={"fitness": 1.0}) for run in several]
    shown = sweep_fitness(group_runs(same))
    assert shown is not None
    png = render(sweep_figure(shown))["png"]
    with Image.open(io.BytesIO(png)) as image:
        assert image.width > 200
    assert b"<image" not in render_inset(sweep_figure(shown))  # a page fetches nothing


def test_a_group_without_a_fitness_adds_no_axis() -> None:
    several = runs(["rl.lr", "rl.kind", "rl.clip"], [[*row, None] for row in GRID])
    stopped = RunRecord(directory=Path("x"), config=several[0].config | {"rl.clip": 3}, state="interrupted")
    shown = sweep_fitness(group_runs([*several, stopped]))
    assert shown is not None and {*shown.keys} == {"rl.lr", "rl.kind"}


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(0.99, 0.9999, 12),
        np.linspace(100, 110, 12),
        np.geomspace(1e-5, 3e-2, 12),
        np.linspace(0.95, 9.49, 12),
    ],
    ids=["near 1", "near 100", "logarithmic", "rounded up"],
)
def test_a_label_lies_where_its_number_does(values: np.ndarray) -> None:
    shown = found(["rl.a", "rl.b"], [[float(x), float(n * n)] for n, x in enumerate(values)])
    assert shown is not None
    scales = {scale.name: scale for scale in parallel_scales(shown)}
    low, high = float(values.min()), float(values.max())
    through = np.log10 if high / low >= 100 else np.asarray
    marks = {float(text.replace("\u2009", "").replace("−", "-")): place for text, place in scales["rl.a"].ticks.items()}
    assert len(marks) == 5
    for number, place in marks.items():
        assert place == pytest.approx(
            float((through(number) - through(low)) / (through(high) - through(low))), abs=1e-6
        )
    assert len(scales["fitness"].ticks) == 5


def test_fitnesses_that_agree_in_four_digits_have_labels_that_differ() -> None:
    rows = [[0.1 * i, 0.3 * i * i] for i in range(12)]
    groups = group_runs(runs(["rl.a", "rl.b"], rows, seeds=1))
    for number, group in enumerate(groups):
        vars(group.runs[0])["result"] = {"fitness": 123.4500 + 1e-4 * number, "steps": 1}
    shown = sweep_fitness(groups)
    assert shown is not None
    (fitness,) = [scale for scale in parallel_scales(shown) if scale.name == "fitness"]
    assert len(fitness.ticks) == 5


@pytest.mark.parametrize("odd", [None, "other", [64, 64]])
def test_many_values_that_are_not_all_numbers_are_labelled_with_values(odd: Any) -> None:
    shown = found(["rl.a", "rl.b"], [[odd if i == 3 else 0.01 * (i + 1), 0.3 * i * i] for i in range(12)])
    assert shown is not None
    (scale,) = [scale for scale in parallel_scales(shown) if scale.name == "rl.a"]
    values = {format_value(row[shown.keys.index("rl.a")]) for row in shown.values}
    assert len(scale.ticks) == 5 and scale.ticks.keys() <= values
