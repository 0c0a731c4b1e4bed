"""The elitist genetic algorithm and random search: who stays, who breeds, and that they find what is there."""

from __future__ import annotations

import numpy as np
import pytest

from evorl.ec.core import Evaluation, Evolver, Individual
from evorl.ec.random import Random
from evorl.ec.sga import SGA
from evorl.ec.space import Space
from evorl.mdp.problem import Problem

BOX = Space.box([0.0], [1.0])


def members(*fitness: float, first: int = 0) -> list[Evaluation]:
    return [Evaluation(Individual(first + n, np.array([0.5])), (f,)) for n, f in enumerate(fitness)]


def ids(population: list[Evaluation]) -> list[int]:
    return [one.individual.id for one in population]


def best(evolver: Evolver, problem: Problem, evaluations: int) -> float:
    found, spent = -np.inf, 0
    while spent < evaluations:
        asked = evolver.ask()
        values = problem.evaluate(np.array([one.genes for one in asked]))[:, 0]
        evolver.tell([Evaluation(one, (f,)) for one, f in zip(asked, values, strict=True)])
        found, spent = max(found, values.max()), spent + len(asked)
    return float(found)


def test_the_elite_stays_and_children_take_the_other_places() -> None:
    evolver = SGA(population=4, elites=1).evolver(BOX)
    kept = evolver.survivors(members(9, 8, 7, 6), members(1, 2, 3, 4, first=10))
    assert ids(kept) == [0, 13, 12, 11]  # the elite, and all children but the worst
    evolver = SGA(population=4, elites=4).evolver(BOX)
    assert ids(evolver.survivors(members(9, 8, 7, 6), members(1, 2, 8, 10, first=10))) == [13, 0, 1, 12]
    evolver = SGA(population=4, elites=0).evolver(BOX)
    assert ids(evolver.survivors(members(9, 8, 7, 6), members(1, 2, 3, 4, first=10))) == [13, 12, 11, 10]


def test_in_steady_state_a_child_replaces_the_worst() -> None:
    always = SGA(population=3, offspring=1).evolver(BOX)
    assert ids(always.survivors(members(9, 8, 7), members(1, first=10))) == [0, 1, 10]
    better = SGA(population=3, offspring=1, elites=3).evolver(BOX)
    assert ids(better.survivors(members(9, 8, 7), members(1, first=10))) == [0, 1, 2]
    assert ids(better.survivors(members(9, 8, 7), members(7, first=10))) == [0, 1, 2]  # no better is not enough
    assert ids(better.survivors(members(9, 8, 7), members(7.5, first=10))) == [0, 1, 10]


@pytest.mark.parametrize("offspring", [1, 3])
def test_a_single_child_takes_after_either_parent(offspring: int) -> None:
    """Crossed or not: of the last pair's two children it is now this one, now the other; numbers have no gap."""
    evolver = SGA(population=2, offspring=offspring, crossover=0.5, mutation=0.0).evolver(BOX)
    parents = [Evaluation(Individual(n, np.array([0.25 + n / 2])), (float(n),)) for n in range(2)]
    evolver.population, evolver.told, evolver.next_id = parents, 2, 2
    pairs = np.array([[1] * ((offspring + 1) // 2), [0] * ((offspring + 1) // 2)])
    last = [evolver.breed(np.random.default_rng(n), pairs, offspring)[-1] for n in range(600)]
    assert [one.id for one in last] == [*range(1 + offspring, 2 + 600 * offspring, offspring)]
    nearer = np.mean([one.genes[0] > 0.5 for one in last])
    assert 0.43 < nearer < 0.57  # to the fitter parent
    alone = [one.parents for one in last if len(one.parents) == 1]
    assert 0.4 < alone.count((1,)) / len(alone) < 0.6 and 200 < len(alone) < 400


def test_the_first_population_is_put_in_order() -> None:
    evolver = SGA(population=3).evolver(BOX)
    assert ids(evolver.survivors([], members(1, 3, 2))) == [1, 2, 0]


def test_truncation_draws_parents_from_the_best_alone() -> None:
    evolver = SGA(population=10, selection="truncation", truncation=0.3).evolver(BOX)
    evolver.ask()
    evolver.tell(members(*map(float, range(10))))
    drawn = evolver.select(np.random.default_rng(0), 200, evolver.keys())
    assert set(drawn.tolist()) == {0, 1, 2}  # of a population in order
    assert {parent for child in evolver.ask() for parent in child.parents} <= {7, 8, 9}


@pytest.mark.slow_cases(but=("sphere-mutation alone", "sphere-generational", "rastrigin-generational"))
@pytest.mark.parametrize(
    "hyper",
    [
        SGA(population=30),
        SGA(population=30, offspring=1, elites=30),
        SGA(population=30, asynchronous=True),
        SGA(population=30, selection="truncation", crossover=0, mutation=0.5),
    ],
    ids=["generational", "steady", "asynchronous", "mutation alone"],
)
@pytest.mark.parametrize("name", ["sphere", "rastrigin"])
def test_it_finds_more_than_chance_does(hyper: SGA, name: str) -> None:
    problem = Problem(id=name, dimensions=5)
    space = Space.box(*problem.bounds)
    chance = best(Random(population=30).evolver(space, 1), problem, 1500)
    assert best(hyper.evolver(space, 1), problem, 1500) > chance / 2  # nearer to 0 by half or more


def test_random_search_remembers_the_best() -> None:
    evolver = Random(population=3).evolver(BOX, 7)
    seen: list[float] = []
    for _ in range(4):
        asked = evolver.ask()
        evolver.tell([Evaluation(one, (float(one.genes[0]),)) for one in asked])
        seen += [float(one.genes[0]) for one in asked]
        assert [one.objectives[0] for one in evolver.population] == sorted(seen, reverse=True)[:3]
