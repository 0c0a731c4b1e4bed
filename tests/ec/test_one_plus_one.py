"""The 1/5 rule on traces made by hand, and the climb."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evorl.ec.core import Evaluation
from evorl.ec.one_plus_one import OnePlusOne, Strategy
from evorl.ec.space import Space

SPACE = Space(weights=4)


def climb(evolver: Strategy, trace: str) -> list[float]:
    """Tell of one trial after another: + better, = equal, - worse, x failed; sigma's factor after each."""
    steps, level = [], 0.0
    for outcome in trace:
        (one,) = evolver.ask()
        level += outcome == "+"
        f = {"+": level, "=": level, "-": level - 1, "x": math.nan}[outcome]
        evolver.tell([Evaluation(one, (f,))])
        steps.append(evolver.scale)
    return steps


def begun(**options: object) -> Strategy:
    evolver = OnePlusOne(**options).evolver(SPACE, 0)
    climb(evolver, "=")
    return evolver


def test_sigma_waits_for_a_whole_window() -> None:
    assert climb(begun(window=5, every=1), "----") == [1.0] * 4
    assert climb(begun(window=5, every=1), "++++") == [1.0] * 4


@pytest.mark.parametrize(
    ("trace", "powers"),
    [
        ("-----", [0, 0, 0, 0, 1]),
        ("+----", [0, 0, 0, 0, 0]),  # one in five: just right
        ("+-----", [0, 0, 0, 0, 0, 1]),  # the success slides out
        ("++---", [0, 0, 0, 0, -1]),
        ("++-----", [0, 0, 0, 0, -1, -1, 0]),
        ("=xx=-", [0, 0, 0, 0, 1]),  # an equal is no success, nor is a failure
        ("+++++", [0, 0, 0, 0, -1]),
    ],
)
def test_the_fifth_rule(trace: str, powers: list[int]) -> None:
    expected = [0.85**power for power in powers]
    assert climb(begun(window=5, every=1), trace) == pytest.approx(expected)


def test_sigma_changes_every_so_many_trials() -> None:
    assert climb(begun(window=2, every=3), "------") == pytest.approx([1, 1, 0.85, 0.85, 0.85, 0.85**2])


def test_the_windows_defaults() -> None:
    assert (begun().window, begun().every) == (40, 4)
    wide = OnePlusOne().evolver(Space(weights=1000), 0)
    assert (wide.window, wide.every) == (100, 10)


def test_a_child_no_worse_takes_over() -> None:
    evolver = begun()
    ids = []
    for outcome in "-=+x":
        (one,) = evolver.ask()
        assert one.parents == (evolver.population[0].individual.id,)
        f = evolver.population[0].objectives[0] + {"-": -1, "=": 0, "+": 1, "x": math.nan}[outcome]
        evolver.tell([Evaluation(one, (f,))])
        ids.append(evolver.population[0].individual.id == one.id)
    assert ids == [False, True, True, False]


def test_steps_have_the_size_of_sigma() -> None:
    evolver = OnePlusOne(population=3000, sigma=0.2, gene_sigma=0.05).evolver(
        Space(Space.box([0.0], [10.0]).genes, 2, lambda n: np.ones(2, np.float32)), 0
    )
    evolver.tell([Evaluation(one._replace(genes=np.array([5.0])), (0.0,)) for one in evolver.ask()])
    asked = evolver.ask()
    assert np.std([one.genes[0] for one in asked]) == pytest.approx(0.5, rel=0.1)
    assert np.std([one.weights for one in asked], axis=0) == pytest.approx([0.2, 0.2], rel=0.1)


def test_without_a_parent_it_begins_again_elsewhere() -> None:
    evolver = OnePlusOne().evolver(Space.box([0.0], [1.0]), 0)
    tried = []
    for _ in range(3):
        (one,) = evolver.ask()
        assert one.role == "initial" and one.parents == ()
        tried.append(float(one.genes[0]))
        evolver.tell([Evaluation(one, (math.nan,))])
    assert len(set(tried)) == 3
