"""NSGA-II: who survives, who breeds, what children inherit, and the front of ZDT1."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.ec.core import Evaluation, Individual, failed, objectives
from evorl.ec.nsga2 import NSGA2, Strategy
from evorl.ec.random import Random
from evorl.ec.space import Space
from evorl.mdp.problem import Problem
from evorl.ops.pareto import hypervolume

BOX = Space.box([0.0] * 3, [1.0] * 3)
WEIGHTED = Space(BOX.genes, 6, lambda n: np.full(6, n, np.float32), (2, 4))


def evaluated(one: Individual) -> Evaluation:
    return Evaluation(one, (float(one.genes[0]), float(1 - one.genes[0] - one.genes[1])))


def step(evolver: Strategy) -> list[Individual]:
    asked = evolver.ask()
    evolver.tell([evaluated(one) for one in asked])
    return asked


def members(f: list[tuple[float, ...]], space: Space = BOX) -> list[Evaluation]:
    """Individuals 0, 1, ... with the given objectives."""
    return [
        Evaluation(Individual(n, np.full(len(space.genes), 0.01 * n), space.weights_of(n), memory={"n": n}), one)
        for n, one in enumerate(f)
    ]


@pytest.mark.slow_cases(but=("1",))  # another seed
@pytest.mark.parametrize("seed", range(10))
def test_zdt1_as_the_field_solves_it(seed: int) -> None:
    problem = Problem(id="zdt1", dimensions=30)
    evolver = NSGA2(population=100).evolver(Space.box(*problem.bounds), seed)
    for _ in range(250):
        asked = evolver.ask()
        values = problem.evaluate(np.array([one.genes for one in asked]))
        evolver.tell([Evaluation(one, tuple(f)) for one, f in zip(asked, values, strict=True)])
    assert hypervolume(objectives(evolver.population), [-1.1, -1.1]) >= 0.868


@pytest.mark.slow_cases(but=("changes1",))
@pytest.mark.parametrize("changes", [{"offspring": 1}, {"asynchronous": True}, {"offspring": 1, "asynchronous": True}])
def test_steady_state_and_asynchronous_forms_find_the_front_too(changes: dict[str, object]) -> None:
    problem = Problem(id="zdt1", dimensions=6)

    def found(hyper: NSGA2 | Random) -> float:
        evolver = hyper.evolver(Space.box(*problem.bounds), 2)
        waiting: list[Individual] = []
        for _ in range(1500):
            waiting += evolver.ask(4 - len(waiting))
            one = waiting.pop(0)
            evolver.tell([Evaluation(one, tuple(problem.evaluate(one.genes[None])[0]))])
        return hypervolume(objectives(evolver.population), [-1.1, -1.1])

    assert found(NSGA2(population=20, **changes)) > 0.8 > 0.6 > found(Random(population=20))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=20), st.integers(1, 10))
def test_survivors_are_the_first_fronts(values: list[tuple[int, int]], size: int) -> None:
    evolver = NSGA2(population=size).evolver(BOX, 0)
    pool = members([(float(a), float(b)) for a, b in values])
    kept = evolver.survivors(pool[: len(pool) // 2], pool[len(pool) // 2 :])
    assert len(kept) == min(size, len(pool)) and all(any(one is other for other in pool) for one in kept)
    chosen = {one.individual.id for one in kept}
    for one in kept:
        for lost in (other for other in pool if other.individual.id not in chosen):
            a, b = lost.objectives, one.objectives
            assert not (a[0] >= b[0] and a[1] >= b[1] and a != b)


def test_of_the_last_front_the_crowded_go() -> None:
    evolver = NSGA2(population=4).evolver(BOX, 0)
    pool = members([(0.0, 10.0), (1.0, 9.0), (1.1, 8.9), (5.0, 5.0), (10.0, 0.0), (-1.0, -1.0)])
    kept = evolver.survivors(pool[:3], pool[3:])
    assert {one.individual.id for one in kept} == {0, 2, 3, 4}  # 1 has the nearest neighbours; 5 is dominated


def test_survivors_keep_what_they_were() -> None:
    evolver = NSGA2(population=6).evolver(WEIGHTED, 4)
    first = {one.id: one for one in step(evolver)}
    told = {one.individual.id: one for one in evolver.population}
    step(evolver)
    survived = [one for one in evolver.population if one.individual.id in first]
    assert survived and all(one is told[one.individual.id] for one in survived)
    assert all(one.individual.role == "initial" and one.individual.parents == () for one in survived)


@pytest.mark.parametrize("optimizer", [False, True])
def test_a_lamarckian_survivor_keeps_what_it_learned_and_hands_it_on(optimizer: bool) -> None:
    evolver = NSGA2(population=4, lifetime="train", inherit_optimizer=optimizer).evolver(WEIGHTED, 4)
    asked = evolver.ask()
    learned = [
        one._replace(weights=one.weights + 100, memory={"n": one.id}) for one in asked if one.weights is not None
    ]
    evolver.tell([evaluated(one) for one in learned])
    weights = {one.id: one.weights for one in learned}
    for child in evolver.ask():
        np.testing.assert_array_equal(child.weights, weights[child.parents[0]])
        assert child.memory == {"n": child.parents[0]} and child.role == "child"


def test_the_fitter_parent_is_named_first_and_gives_its_weights() -> None:
    fronts = [(float(-n), float(-n)) for n in range(8)]  # each dominates the next
    evolver = NSGA2(population=8, weight_std=0.0).evolver(WEIGHTED, 0)
    evolver.ask()
    evolver.tell(members(fronts, WEIGHTED))
    children = evolver.ask()
    assert len(children) == 8
    for child in children:
        assert child.parents[0] == min(child.parents) and child.memory == {"n": child.parents[0]}
        np.testing.assert_array_equal(child.weights, np.full(6, child.parents[0], np.float32))
    assert sum(child.parents[0] for child in children) / 8 < 2.5  # 3.5 without selection


def test_who_is_not_crossed_is_its_own_parents_copy() -> None:
    evolver = NSGA2(population=9, crossover=0.0, mutation=0.0, weight_std=0.0).evolver(WEIGHTED, 0)
    evolver.ask()
    evolver.tell(members([(float(n), float(-n)) for n in range(9)], WEIGHTED))
    parents = {one.individual.id: one.individual for one in evolver.population}
    children = evolver.ask()
    assert len(children) == 9
    for child in children:
        (parent,) = child.parents
        np.testing.assert_array_equal(child.genes, parents[parent].genes)
        np.testing.assert_array_equal(child.weights, parents[parent].weights)


def test_weights_by_layers_and_noise() -> None:
    fronts = [(float(n), float(-n)) for n in range(50)]
    evolver = NSGA2(population=50, weights="layers", weight_std=0.0).evolver(WEIGHTED, 0)
    evolver.ask()
    evolver.tell(members(fronts, WEIGHTED))
    mixed = 0
    for child in evolver.ask():
        assert child.weights is not None
        assert (child.weights[:2] == child.weights[0]).all() and (child.weights[2:] == child.weights[2]).all()
        assert {child.weights[0], child.weights[2]} <= set(child.parents)
        mixed += child.weights[0] != child.weights[2]
    assert 10 < mixed < 40
    assert NSGA2().noise == 0.02 and NSGA2(lifetime="train").noise == 0 and NSGA2(weight_std=0.5).noise == 0.5


def test_noise_moves_every_weight() -> None:
    evolver = NSGA2(population=50, weight_std=0.5).evolver(WEIGHTED, 0)
    evolver.ask()
    evolver.tell(members([(float(n), float(-n)) for n in range(50)], WEIGHTED))
    steps = np.concatenate([one.weights - one.parents[0] for one in evolver.ask() if one.weights is not None])
    assert steps.std() == pytest.approx(0.5, rel=0.15) and abs(steps.mean()) < 0.1 and (steps != 0).all()


def test_steady_state_breeds_one_at_a_time() -> None:
    evolver = NSGA2(population=5, offspring=1).evolver(BOX, 0)
    assert len(step(evolver)) == 5
    for _ in range(4):
        before = {one.individual.id for one in evolver.population}
        assert len(step(evolver)) == 1
        assert len({one.individual.id for one in evolver.population} - before) <= 1 and len(evolver.population) == 5


def test_who_lacks_one_objective_has_failed_in_all() -> None:
    f = objectives(members([(math.nan, 2.0), (1.0, math.inf), (1.0, math.nan)]))
    assert f.tolist() == [[-math.inf, -math.inf], [1.0, math.inf], [-math.inf, -math.inf]]
    assert failed(f).tolist() == [True, False, True]
