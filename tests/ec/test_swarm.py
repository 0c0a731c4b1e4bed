"""Swarms against their equations, particle by particle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evorl.ec.core import Evaluation
from evorl.ec.cso import CSO, learned
from evorl.ec.pso import PSO, velocity
from evorl.ec.space import Space
from evorl.util.errors import BadRequest

quick = settings(max_examples=50)
BOX = Space.box([-1.0] * 3, [1.0] * 3)
WEIGHTS = Space(weights=3)


@quick
@given(st.integers(0, 2**32))
def test_velocities_number_by_number(seed: int) -> None:
    draw = np.random.default_rng(seed)
    v, x, p, q = draw.normal(size=(4, 5, 3))
    r = draw.random((3, 5, 3))
    hyper = PSO(inertia=0.6, own=1.2, swarm=1.7)
    pso, cso = velocity(hyper, v, x, p, q[0], r), learned(v, x, p, q[0], 0.3, r)
    for n in range(5):
        for d in range(3):
            expected = 0.6 * v[n, d] + 1.2 * r[0, n, d] * (p[n, d] - x[n, d]) + 1.7 * r[1, n, d] * (q[0, d] - x[n, d])
            assert pso[n, d] == pytest.approx(expected)
            expected = r[0, n, d] * v[n, d] + r[1, n, d] * (p[n, d] - x[n, d]) + 0.3 * r[2, n, d] * (q[0, d] - x[n, d])
            assert cso[n, d] == pytest.approx(expected)


def test_clercs_constriction() -> None:
    phi = 4.1
    kappa = 2 / abs(2 - phi - math.sqrt(phi**2 - 4 * phi))
    assert PSO().inertia == pytest.approx(kappa, abs=1e-4)
    assert PSO().own == PSO().swarm == pytest.approx(PSO().inertia * phi / 2, abs=1e-3)


def test_a_particle_flies_from_where_it_stands() -> None:
    evolver = PSO(population=4, own=0.0, swarm=0.0, inertia=1.0).evolver(WEIGHTS, 0)
    places = []
    for _ in range(4):
        asked = evolver.ask()
        places.append([one.weights for one in asked])
        evolver.tell([Evaluation(one, (float(one.id % 3),)) for one in asked])
    np.testing.assert_allclose(np.diff(places, axis=0), np.broadcast_to(evolver.v, (3, 4, 3)), atol=1e-6)


def test_a_particle_remembers_its_best() -> None:
    evolver = PSO(population=3).evolver(BOX, 0)
    best: dict[int, tuple[float, int]] = {}
    draw = np.random.default_rng(0)
    for _ in range(20):
        asked = evolver.ask()
        worth = [math.nan if draw.random() < 0.2 else float(draw.integers(10)) for _ in asked]
        for one, f in zip(asked, worth, strict=True):
            if not math.isnan(f) and f > best.get(one.id % 3, (-math.inf, 0))[0]:
                best[one.id % 3] = f, one.id
        evolver.tell([Evaluation(one, (f,)) for one, f in zip(asked, worth, strict=True)])
        assert [(one.objectives[0], one.individual.id) for one in evolver.population] == [best[k] for k in sorted(best)]


def test_a_particle_stops_at_a_bound() -> None:
    evolver = PSO(population=2, own=0.0, swarm=0.0, inertia=1.0).evolver(BOX, 0)
    for _ in range(60):
        evolver.tell([Evaluation(one, (0.0,)) for one in evolver.ask()])
    assert np.isin(evolver.x, [0.0, 1.0]).all() and not evolver.v.any()


def test_no_particle_is_at_two_places_at_once() -> None:
    """Evaluations come back in any order, and the particle that waited longest flies next."""
    evolver = PSO(population=5, asynchronous=True).evolver(BOX, 0)
    draw, flying, waiting = np.random.default_rng(0), {}, []
    for _ in range(200):
        for one in evolver.ask():
            k = evolver.flying[one.id]
            assert k not in flying and (not waiting or k == waiting.pop(0))
            flying[k] = one
        back = draw.choice([*flying], draw.integers(1, len(flying) + 1), replace=False).tolist()
        for k in back:
            place = evolver.x[k].copy()
            evolver.tell([Evaluation(flying.pop(k), (float(draw.normal()),))])
            np.testing.assert_allclose(evolver.x[k], place, atol=1e-12)  # it is where it flew to
        waiting += back
    with pytest.raises(BadRequest, match="6 is more than the population"):
        PSO(population=5, slots=6, asynchronous=True)


def test_a_state_from_when_particles_took_turns_goes_on() -> None:
    """In the middle of a generation, too."""
    first, second = (PSO(population=5).evolver(BOX, 0) for _ in range(2))
    for told in (5, 5, 2):
        asked = first.ask()
        first.tell([Evaluation(one, (float(one.id % 3),)) for one in asked[:told]])
    state = first.state_dict()
    second.load_state_dict({name: part for name, part in state.items() if name not in ("free", "flying", "bests")})
    for evolver in (first, second):
        evolver.tell([Evaluation(one, (float(one.id % 3),)) for one in asked[2:]])
    for one, other in zip(first.ask(), second.ask(), strict=True):
        assert one.id == other.id and np.array_equal(one.genes, other.genes) and one.parents == other.parents


def test_only_the_places_of_who_failed_are_filled_again() -> None:
    evolver = CSO(population=8).evolver(BOX, 0)
    asked = evolver.ask()
    evolver.tell([Evaluation(one, (math.nan if one.id in (2, 5) else 1.0,)) for one in asked])
    again = evolver.ask()
    assert [one.role for one in again] == ["initial", "initial"]
    evolver.tell([Evaluation(one, (1.0,)) for one in again])
    assert {one.role for one in evolver.ask()} == {"learned"}


def test_losers_learn_and_winners_stay() -> None:
    evolver = CSO(population=6).evolver(BOX, 0)
    evolver.tell([Evaluation(one, (float(one.id),)) for one in evolver.ask()])
    before = {one.individual.id: one for one in evolver.population}
    asked = evolver.ask()
    assert len(asked) == 3
    pairs = [one.parents for one in asked]
    assert sorted(number for pair in pairs for number in pair) == list(range(6))
    assert all(loser < winner for loser, winner in pairs)  # the fitness is the id
    for one in asked:
        loser, winner = (before[number].individual.genes for number in one.parents)
        low, high = np.minimum(loser, winner), np.maximum(loser, winner)
        assert ((one.genes >= low - 1e-12) & (one.genes <= high + 1e-12)).all()  # v = 0 and phi = 0: on the way to it
    evolver.tell([Evaluation(one, (math.nan if i == 0 else 0.0,)) for i, one in enumerate(asked)])
    now = [one.individual.id for one in evolver.population]
    winners, news = {winner for _, winner in pairs}, {one.id for one in asked[1:]}
    assert {*now} == winners | news | {pairs[0][0]}  # whose new place failed stays
    assert {*evolver.velocities} == {*now}


def test_losers_pass_on_their_velocity() -> None:
    evolver = CSO(population=4).evolver(WEIGHTS, 0)
    evolver.tell([Evaluation(one, (float(one.id),)) for one in evolver.ask()])
    where = {one.individual.id: one.individual.weights for one in evolver.population}
    for one in evolver.ask():
        assert one.weights is not None and where[one.parents[0]] is not None
        np.testing.assert_allclose(one.weights - where[one.parents[0]], evolver.velocities[one.id], atol=1e-6)
