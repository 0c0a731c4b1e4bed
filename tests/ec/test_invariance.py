"""Methods that rank see only the order of fitnesses; nobody leaves the bounds, however hard fitness pulls outwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from evorl.ec.cem import CEM
from evorl.ec.cma_es import CMAES
from evorl.ec.core import Evaluation, IndependentEvolution, Individual
from evorl.ec.cso import CSO
from evorl.ec.map_elites import MapElites
from evorl.ec.nsga2 import NSGA2
from evorl.ec.nsga3 import NSGA3
from evorl.ec.one_plus_one import OnePlusOne
from evorl.ec.openai_es import OpenAIES
from evorl.ec.pbt import PBT
from evorl.ec.pso import PSO
from evorl.ec.random import Random
from evorl.ec.sga import SGA
from evorl.ec.space import Gene, Space

GRID = {"x0": (-2.0, 3.0, 10), "x1": (-2.0, 3.0, 10)}
ALL: list[IndependentEvolution] = [
    OpenAIES(population=8, sigma=0.1), CEM(population=8), OnePlusOne(population=2), CMAES(population=8),
    CMAES(population=8, separable_above=1), PSO(population=8), CSO(population=8, phi=0.1),
    MapElites(population=8, descriptors=GRID), SGA(population=8), SGA(population=8, selection="truncation"),
    NSGA2(population=8), NSGA3(population=8), Random(population=8),
]  # fmt: skip
TRUNCATION = PBT(population=8, asynchronous=False, exploit="truncation")  # its million draws: test_pbt
MIXED = (
    Gene("x0", -2.0, 3.0), Gene("x1", 1e-3, 1e-2), Gene("x2", 5.0, 5.0), Gene("x3", 1e-5, 1e-1, log=True),
    Gene("x4", 1, 9, integer=True), Gene("x5", 1, 300, log=True, integer=True), Gene("x6", choices=("a", "b", "c")),
)  # fmt: skip


def each(*hypers: IndependentEvolution) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("hyper", hypers, ids=lambda hyper: type(hyper).__name__)


def asked(hyper: IndependentEvolution, shape: Callable[[float], float], space: Space) -> list[Individual]:
    evolver, individuals = hyper.evolver(space, 5), []
    for _ in range(15):
        now = evolver.ask()
        individuals += now
        worth = [-float(((one.genes - 0.3) ** 2).sum() + (one.weights**2).sum()) for one in now]
        evolver.tell([Evaluation(one, (shape(f),)) for one, f in zip(now, worth, strict=True)])
    return individuals


@each(*ALL, TRUNCATION)
def test_only_the_order_of_fitnesses_matters(hyper: IndependentEvolution) -> None:
    space = Space(Space.box([-2] * 3, [3] * 3).genes, 4, lambda n: np.full(4, 0.1 * n, np.float32))
    plain = asked(hyper, lambda f: f, space)
    for shape in (lambda f: 7 * f + 1e3, lambda f: -((-f) ** 0.5), lambda f: float(np.tanh(f / 50))):
        other = asked(hyper, shape, space)
        assert all(np.array_equal(a.genes, b.genes) for a, b in zip(plain, other, strict=True))
        assert all(np.array_equal(a.weights, b.weights) for a, b in zip(plain, other, strict=True))


@pytest.mark.slow_cases(but=("CEM",))
@each(*ALL)
def test_bounds_hold_over_a_million_draws(hyper: IndependentEvolution) -> None:
    space = Space((*MIXED, *(Gene(f"x{i}") for i in range(len(MIXED), 20))))
    evolver = type(hyper)(**{**vars(hyper), "population": 250}).evolver(space, 0)
    drawn = 0
    while drawn < 1_000_000:
        now = evolver.ask()
        x = np.array([one.genes for one in now])
        assert (x >= space.low).all() and (x <= space.high).all()
        for gene, coordinates in zip(MIXED, x.T.tolist(), strict=False):
            values = {gene.value(one) for one in coordinates}
            assert values <= {*gene.choices} if gene.choices else gene.low <= min(values) <= max(values) <= gene.high
        drawn += x.size
        f = x[:, 0] - x[:, 1:].sum(1)
        evolver.tell([Evaluation(one, (worth,)) for one, worth in zip(now, f.tolist(), strict=True)])
