"""The curves of the committed table of test problems end where its numbers do, and each evolver has its picture."""

from __future__ import annotations

import json

import pytest

from benchmarks.ec.figures import RESULTS, SEVERAL, SINGLE, before_the_others, is_peer, read


def test_the_curves_end_where_the_numbers_of_the_table_do() -> None:
    curves = read(RESULTS / "problems.csv")
    told = json.loads((RESULTS / "problems.json").read_text())["at the end"]
    assert curves.keys() == told.keys() >= {*SINGLE, *SEVERAL}
    for problem, ends in told.items():
        sign = -1 if problem in SINGLE else 1  # least values, of what is maximised
        assert curves[problem].keys() == ends.keys()
        for name, values in ends.items():
            found = curves[problem][name].values
            assert sign * found[:, -1] == pytest.approx(values, rel=1e-5) and found.shape[0] == len(values)


def test_every_evolver_of_the_table_has_a_picture() -> None:
    names = {name for name in read(RESULTS / "problems.csv")["sphere"] if not is_peer(name)}
    assert {path.stem for path in (RESULTS / "curves").iterdir()} == names


@pytest.mark.parametrize(("name", "problems"), [("cma_es", SINGLE), ("nsga2", SEVERAL)])
def test_an_evolver_stands_before_the_others(name: str, problems: tuple[str, ...]) -> None:
    curves = read(RESULTS / "problems.csv")
    figure = before_the_others(curves, name)
    assert [axes.get_title() for axes in figure.axes] == [*problems]
    for axes, problem in zip(figure.axes, problems, strict=True):
        assert len(axes.lines) == len(curves[problem]) and axes.lines[-1].get_label() == name
        assert {line.get_color() for line in axes.lines[:-1]} == {"0.72"}
