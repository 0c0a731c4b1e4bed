"""Places and steps that come into another space: what they stand for stays, whatever the units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from evorl.ec import pso
from evorl.ec.cem import CEM
from evorl.ec.cma_es import CMAES
from evorl.ec.core import Evaluation
from evorl.ec.cso import CSO
from evorl.ec.openai_es import OpenAIES
from evorl.ec.pso import PSO
from evorl.ec.space import Gene, Space
from evorl.ec.space_change import SpaceChange, same_unit

BEFORE = Space((Gene("lr", 1e-5, 1e-1, log=True), Gene("a", 0, 8, integer=True), Gene("b", -1, 1), Gene("gone")), 3)
NOW = Space((Gene("b", -4, 4), Gene("new", 2, 6), Gene("lr", 1e-7, 1.0, log=True), Gene("a", -9, 90, integer=True)), 3)
MOVE = SpaceChange(BEFORE, NOW, {"new": 3.0}, 7)
KEPT = {"lr": (0, 2), "a": (1, 3), "b": (2, 0)}
units = st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4)
weights = st.lists(st.floats(-3, 3), min_size=3, max_size=3)


@given(units, weights)
def test_a_place_stands_for_the_same(genes: list[float], rest: list[float]) -> None:
    x = np.array([*genes, *rest])
    y = MOVE.place(x)
    then, now = BEFORE.coordinates_of(x), NOW.coordinates_of(y)
    for was, here in KEPT.values():
        assert now[here] == pytest.approx(then[was], abs=1e-9)
    assert NOW.values(now)["new"] == pytest.approx(3.0)
    np.testing.assert_array_equal(y[4:], x[4:])


@given(units, units, st.lists(st.floats(-1, 1), min_size=7, max_size=7))
def test_steps_and_slopes_follow_from_places(a: list[float], b: list[float], slope: list[float]) -> None:
    """A step is the difference of two places; along it a slope promises what it did."""
    x, y = (np.array([*genes, 0.0, 1.0, 2.0]) for genes in (a, b))
    x[3] = y[3] = 0.5  # nothing is said of who is gone
    step = MOVE.scaled(y - x, 1, 0.0)
    np.testing.assert_allclose(step, MOVE.place(y) - MOVE.place(x), atol=1e-9)
    g = np.array(slope)
    assert MOVE.scaled(g, -1, 0.0) @ step == pytest.approx(g @ (y - x), abs=1e-9)


def test_what_is_new_is_as_given() -> None:
    fresh = np.arange(7.0)
    assert MOVE.scaled(np.ones((2, 7)), 2, fresh).tolist()[0][1] == 1.0
    np.testing.assert_allclose(MOVE.scaled(np.ones(7), 2, -1.0)[:4], [1 / 16, -1.0, (4 / 7) ** 2, (9 / 100) ** 2])


def test_genes_of_another_measure_keep_their_values() -> None:
    before = Space((Gene("x", 1, 100), Gene("c", choices=("a", "b"))))
    now = Space((Gene("x", 1, 100, log=True), Gene("c", choices=("b", "a", "z"))))
    move = SpaceChange(before, now, {}, 1)
    assert not move.kept[0].size and not any(same_unit(a, b) for a, b in zip(before.genes, now.genes, strict=True))
    found = now.values(move.genes(np.array([30.0, 1.0]), 0))
    assert found == {"x": pytest.approx(30.0), "c": "b"}
    np.testing.assert_array_equal(move.scaled(np.ones(2), 1, 5.0), [5.0, 5.0])


def test_a_choice_that_is_no_more_is_drawn_by_the_individuals_number() -> None:
    move = SpaceChange(Space((Gene("c", choices=("a",)),)), Space((Gene("c", choices=("x", "y", "z")),)), {"c": "a"}, 1)
    drawn = [move.present.values(move.genes(np.zeros(1), number))["c"] for number in range(60)]
    assert set(drawn) == {"x", "y", "z"}
    assert drawn == [move.present.values(move.genes(np.zeros(1), number))["c"] for number in range(60)]


def told(evolver: Any, generations: int) -> Any:
    for _ in range(generations):
        asked = evolver.ask()
        worth = [-float(((one.genes - evolver.space.low) ** 2).sum()) for one in asked]
        evolver.tell([Evaluation(one, (f,)) for one, f in zip(asked, worth, strict=True)])
    return evolver


@pytest.mark.parametrize("limit", [200, 3], ids=["full", "separable"])
def test_a_covariance_is_that_of_the_samples_moved(limit: int) -> None:
    """CMA-ES in the new space draws what it would have drawn in the old one, moved; what is new is as at the start."""
    hyper = CMAES(population=8, separable_above=limit)
    before = told(hyper.evolver(BEFORE, 1), 3)
    now = hyper.evolver(NOW, 1)
    now.load_state_dict(now.remap_state(before.state_dict(), MOVE))
    x = before._normal(np.random.default_rng(0), 200_000)
    y = now._normal(np.random.default_rng(1), 200_000)
    steps = MOVE.scaled(x - x.mean(0), 1, 0.0)
    here = [2, 3, 0, 4, 5, 6]
    spread = np.cov(steps[:, here].T)
    unit = np.sqrt(np.outer(spread.diagonal(), spread.diagonal()))
    np.testing.assert_allclose(np.cov(y[:, here].T) / unit, spread / unit, atol=0.02)
    assert y[:, 1].std() == pytest.approx(hyper.gene_sigma, rel=0.02)
    assert abs(np.corrcoef(y[:, [1, 2]].T)[0, 1]) < 0.02
    np.testing.assert_allclose(y.mean(0), MOVE.place(before.cma.mean * before.scales), atol=0.02)


def test_a_covariance_becomes_diagonal_where_there_are_many_genes_and_full_where_few() -> None:
    hyper = CMAES(population=8, separable_above=5)
    few, many = (Space(tuple(Gene(f"x{i}") for i in range(n))) for n in (4, 7))
    usual = {f"x{i}": 0.5 for i in range(7)}
    for a, b in ((few, many), (many, few)):
        before, now = told(hyper.evolver(a, 1), 4), hyper.evolver(b, 1)
        now.load_state_dict(now.remap_state(before.state_dict(), SpaceChange(a, b, usual, 1)))
        assert now.cma._C.ndim == (1 if b is many else 2)
        diagonal = now.cma._C if b is many else now.cma._C.diagonal()
        of = before.cma._C.diagonal() if b is many else before.cma._C
        np.testing.assert_allclose(diagonal[:4], of[:4])
        told(now, 2)


def test_a_gaussian_keeps_its_width_in_the_genes_own_units() -> None:
    hyper = CEM(population=8)
    before, now = told(hyper.evolver(BEFORE, 1), 3), hyper.evolver(NOW, 1)
    now.load_state_dict(now.remap_state(before.state_dict(), MOVE))
    then, here = np.sqrt(before.variance), np.sqrt(now.variance)
    for name, (was, place) in KEPT.items():
        assert here[place] * NOW.range[place] == pytest.approx(then[was] * BEFORE.range[was]), name
    assert here[1] == hyper.gene_sigma
    np.testing.assert_array_equal(here[4:], then[4:])


def test_the_next_generation_of_a_strategy_begins() -> None:
    hyper = OpenAIES(population=6)
    before, now = told(hyper.evolver(BEFORE, 1), 2), hyper.evolver(NOW, 1)
    assert [one.id for one in before.ask(4)] == [12, 13, 14, 15]
    state = now.remap_state(before.state_dict(), MOVE)
    now.load_state_dict(state)
    np.testing.assert_allclose(now.centre.theta, MOVE.place(before.centre.theta))
    assert state["out"] == [] and [one.id for one in now.ask()] == [*range(18, 24)]
    assert now.centre.individual_at(3, 0).id == 18
    ready = told(hyper.evolver(BEFORE, 1), 2)  # between two generations, none is left out
    again = hyper.evolver(NOW, 1)
    again.load_state_dict(again.remap_state(ready.state_dict(), MOVE))
    assert [one.id for one in again.ask(1)] == [12]


NARROW = Space((Gene("lr", 1e-3, 1.1e-3, log=True), Gene("a", 3, 4, integer=True), Gene("b", 0.5, 0.51)), 3)


@pytest.mark.parametrize("hyper", [CEM(population=8), CMAES(population=8), CMAES(population=8, separable_above=3)])
def test_no_narrow_range_makes_a_gene_wider_than_it_was_or_began(hyper: CEM | CMAES) -> None:
    """Else nearly all samples would lie at a bound, for many generations."""
    before, now = told(hyper.evolver(BEFORE, 1), 3), hyper.evolver(NARROW, 1)
    now.load_state_dict(now.remap_state(before.state_dict(), SpaceChange(BEFORE, NARROW, {}, 1)))
    if isinstance(hyper, CEM):
        spread, was = np.sqrt(now.variance), np.sqrt(before.variance)
    else:
        x, y = (one._normal(np.random.default_rng(0), 100_000) for one in (now, before))
        spread, was = x.std(0), y.std(0)
    np.testing.assert_allclose(spread[:3], np.maximum(was[:3], hyper.gene_sigma), rtol=0.02)
    np.testing.assert_allclose(spread[3:], was[4:], rtol=0.02)
    told(now, 2)


def test_a_gene_that_had_no_choice_says_nothing_of_its_spread() -> None:
    before = Space((Gene("x", 3e-4, 3e-4), Gene("y")))
    now = Space((Gene("x", 1e-4, 1e-3), Gene("y")))
    move = SpaceChange(before, now, {}, 1)
    assert now.values(move.genes(np.array([3e-4, 0.5]), 0)) == {"x": pytest.approx(3e-4), "y": 0.5}
    np.testing.assert_array_equal(move.scaled([7.0, 7.0], 1, 0.25), [0.25, 7.0])
    found = CEM(population=8).evolver(now, 1)
    found.load_state_dict(found.remap_state(told(CEM(population=8).evolver(before, 1), 2).state_dict(), move))
    assert np.sqrt(found.variance[0]) == CEM().gene_sigma


@pytest.mark.parametrize("limit", [200, 3], ids=["full", "separable"])
def test_paths_of_the_mean_are_moved_as_the_mean(limit: int) -> None:
    hyper = CMAES(population=8, separable_above=limit)
    before, now = told(hyper.evolver(BEFORE, 1), 3), hyper.evolver(NOW, 1)
    state = before.state_dict()
    now.load_state_dict(now.remap_state(state, MOVE))
    np.testing.assert_allclose(now.cma._pc, MOVE.scaled(state["cma"]["_pc"], 1, 0.0))
    roots = [np.sqrt(one.cma._C) if limit == 3 else linalg.sqrtm(one.cma._C) for one in (before, now)]
    old, new = (np.diag(root) if root.ndim == 1 else root for root in roots)
    moved = MOVE.scaled(old @ state["cma"]["_p_sigma"], 1, 0.0)
    np.testing.assert_allclose(new @ now.cma._p_sigma, moved, atol=1e-8)
    assert np.abs(moved).max() > 0.01


def test_where_only_bounds_change_paths_keep_their_length() -> None:
    wider = Space((Gene("lr", 1e-6, 1.0, log=True), Gene("a", 0, 80, integer=True), Gene("b", -9, 9), Gene("gone")), 3)
    before, now = told(CMAES(population=8).evolver(BEFORE, 1), 3), CMAES(population=8).evolver(wider, 1)
    now.load_state_dict(now.remap_state(before.state_dict(), SpaceChange(BEFORE, wider, {}, 1)))
    assert np.linalg.norm(now.cma._p_sigma) == pytest.approx(np.linalg.norm(before.cma._p_sigma))


def test_a_new_gene_takes_no_longer_steps_than_at_the_start() -> None:
    hyper = OpenAIES(population=20, weight_decay=0.0)
    before, now = told(hyper.evolver(BEFORE, 1), 40), hyper.evolver(NOW, 1)
    now.load_state_dict(now.remap_state(before.state_dict(), MOVE))
    for _ in range(5):
        theta = now.centre.theta
        told(now, 1)
        assert np.abs(now.centre.theta - theta)[1] <= hyper.lr * 1.01


def test_an_optimiser_goes_on_where_only_bounds_change() -> None:
    wider = Space((*BEFORE.genes[:2], Gene("b", -2, 2), BEFORE.genes[3]), 3)
    before = told(OpenAIES(population=6).evolver(BEFORE, 1), 5)
    now = OpenAIES(population=6).evolver(wider, 1)
    now.load_state_dict(now.remap_state(before.state_dict(), SpaceChange(BEFORE, wider, {}, 1)))
    unit = np.array([1, 1, 2, 1, 1, 1, 1])  # a slope by units that are twice as wide
    np.testing.assert_allclose(now.centre.m, before.centre.m * unit)
    np.testing.assert_allclose(now.centre.v, before.centre.v * unit**2)
    assert now.centre.powers == before.centre.powers


@pytest.mark.parametrize("hyper", [PSO(population=6), CSO(population=6)])
def test_a_swarm_flies_on(hyper: PSO | CSO) -> None:
    before, now = told(hyper.evolver(BEFORE, 1), 3), hyper.evolver(NOW, 1)
    now.load_state_dict(now.remap_state(before.state_dict(), MOVE))
    was, here = (
        one.v if isinstance(one, pso.Strategy) else np.array([*one.velocities.values()]) for one in (before, now)
    )
    np.testing.assert_allclose(here[:, [2, 3, 0, 4, 5, 6]], MOVE.scaled(was, 1, 0.0)[:, [2, 3, 0, 4, 5, 6]])
    assert 0 < np.abs(here[:, 1]).max() <= 0.25 and len({*here[:, 1]}) == len(here)
    told(now, 2)


def test_a_value_beyond_a_new_range_is_no_place_to_begin() -> None:
    """All would begin at the bound next to it, and those that only cross would stay there."""
    move = SpaceChange(Space(), Space((Gene("x", 1, 2), Gene("n", 1, 9, integer=True))), {"x": 3.0, "n": 4}, 1)
    drawn = [move.present.values(move.genes(np.empty(0), number)) for number in range(20)]
    assert len({one["x"] for one in drawn}) == 20 and {one["n"] for one in drawn} == {4}
