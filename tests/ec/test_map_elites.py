"""MAP-Elites against an archive kept slowly by hand."""

from __future__ import annotations

import builtins
import math
import sys
from typing import Any

import numpy as np
import pytest

from evorl.ec.core import Evaluation, Individual
from evorl.ec.map_elites import MapElites, offspring
from evorl.ec.space import Gene, Space
from evorl.util.errors import BadRequest

SPACE = Space.box([0.0] * 3, [1.0] * 3)
GRID = {"height": (0.0, 2.0, 4), "x1": (0.0, 1.0, 3)}


def evaluated(one: Individual) -> Evaluation:
    height = one.genes.sum() + np.array([-0.5, 0.0, 0.5])
    f = math.nan if one.id % 7 == 3 else round(float(-one.genes[2]), 1)
    return Evaluation(one, (f,), 1, {"height": height})


def cell(one: Evaluation) -> tuple[int, int]:
    height, x1 = float(np.mean(one.result["height"])), float(one.individual.genes[1])
    return min(max(int(height / 0.5), 0), 3), min(int(x1 * 3), 2)


@pytest.mark.parametrize("emitter", ["iso_line", "gaussian"])
def test_each_cell_keeps_its_fittest(emitter: str) -> None:
    evolver = MapElites(population=10, descriptors=GRID, emitter=emitter, sigma=0.1).evolver(SPACE, 1)
    slow: dict[tuple[int, int], float] = {}
    coverage = 0.0
    for _ in range(20):
        now = [evaluated(one) for one in evolver.ask()]
        for one in now:
            if one.objectives[0] > slow.get(cell(one), -math.inf):
                slow[cell(one)] = one.objectives[0]
        told = evolver.tell(now)
        coverage = told["population/coverage"]
        assert told["population/beyond"] == sum(np.mean(one.result["height"]) > 2.0 for one in now) / len(now)
        kept = [(cell(one), one.objectives[0]) for one in evolver.population]
        assert kept == [(place, slow[place]) for place in sorted(slow)]
    assert coverage == len(slow) / 12 and len(slow) > 6


def test_emitters_have_the_spread_of_their_equations() -> None:
    draw = np.random.default_rng(0)
    a, b = np.zeros((50_000, 2)), np.tile([3.0, 0.0], (50_000, 1))
    for emitter, line in (("gaussian", 0.0), ("iso_line", 0.2)):
        x = offspring(MapElites(emitter=emitter, line=0.2), np.array([0.1, 0.5]), a, b, draw)
        np.testing.assert_allclose(x.std(0), [math.hypot(0.1, 3 * line), 0.5], rtol=0.03)
        np.testing.assert_allclose(x.mean(0), 0, atol=0.02)


def test_parents_are_elites() -> None:
    evolver = MapElites(population=10, descriptors=GRID).evolver(SPACE, 1)
    for _ in range(5):
        elites = {one.individual.id for one in evolver.population}
        asked = evolver.ask()
        assert all({*one.parents} <= elites for one in asked)
        evolver.tell([evaluated(one) for one in asked])


def test_a_restored_archive_is_the_one_that_was_saved() -> None:
    hyper = MapElites(population=10, descriptors=GRID)
    evolver, again = hyper.evolver(SPACE, 1), hyper.evolver(SPACE, 1)
    for _ in range(5):
        evolver.tell([evaluated(one) for one in evolver.ask()])
    again.load_state_dict(evolver.state_dict())
    one, other = evolver.archive.data(), again.archive.data()
    for name in ("solution", "objective", "measures", "index"):
        assert np.array_equal(one[name][np.argsort(one["index"])], other[name][np.argsort(other["index"])])


def test_an_individual_without_a_descriptor_enters_no_cell() -> None:
    evolver = MapElites(population=2, descriptors={"height": (0.0, 1.0, 2)}).evolver(SPACE, 0)
    evolver.tell([Evaluation(one, (1.0,), 1, {"height": np.array([np.nan, 1.0])}) for one in evolver.ask()])
    assert evolver.population == []


def test_a_descriptor_that_nobody_reports() -> None:
    space = Space((Gene("kind", choices=("a", "b")),))
    for name, said in (("hight", r"descriptors\.hight: .*did you mean height\?; there are: height"), ("kind", "kind")):
        evolver = MapElites(population=2, descriptors={name: (0.0, 1.0, 2)}).evolver(space, 0)
        with pytest.raises(BadRequest, match=said):
            evolver.tell([Evaluation(one, (1.0,), 1, {"height": np.ones(1)}) for one in evolver.ask()])


def test_what_it_needs_is_said() -> None:
    with pytest.raises(BadRequest, match="descriptors: map_elites needs at least one"):
        MapElites().evolver(SPACE)
    with pytest.raises(BadRequest, match=r"descriptors\.height: needs low < high"):
        MapElites(descriptors={"height": (1.0, 1.0, 2)})


def test_without_pyribs_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        if name.partition(".")[0] == "ribs":
            raise ImportError(name)
        return real(name, *args)

    for name in [name for name in sys.modules if name.partition(".")[0] == "ribs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BadRequest, match=r"needs pyribs: pip install 'evorl-suite\[qd\]'"):
        MapElites(descriptors=GRID).evolver(SPACE)
