"""ASHA and Hyperband against slow transcriptions of their papers' algorithms, and what they promise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evorl.ec.asha import ASHA
from evorl.ec.core import Evaluation, Evolver, Individual
from evorl.ec.early_stopping import EarlyStopping, resource, top, trains_until
from evorl.ec.hyperband import Hyperband
from evorl.ec.pbt import PBT
from evorl.ec.space import Gene, Space
from evorl.util.errors import BadRequest

SPACE = Space((Gene("x", 0.0, 1.0),))
Loss = Callable[[int, Fraction], float]
"""The loss of configuration n, as they are drawn, after a share of the budget; NaN where it fails."""


def luck(number: int, share: Fraction) -> float:
    return float(np.random.default_rng([number, share.numerator, share.denominator]).standard_normal())


def poor(number: int, share: Fraction) -> float:
    """Every third configuration fails, and some are equal."""
    return math.nan if number % 3 == 1 else float(number % 4)


class Watched:
    """An evolver, whose individuals are known by the number of their configuration and their share of the budget."""

    def __init__(self, evolver: Evolver, loss: Loss) -> None:
        self.evolver, self.loss = evolver, loss
        self.number: dict[int, int] = {}  # the configuration of each id
        self.genes: list[float] = []

    def ask(self, limit: int | None = None) -> list[tuple[Individual, int, Fraction]]:
        return [self._known(one) for one in self.evolver.ask(limit)]

    def _known(self, one: Individual) -> tuple[Individual, int, Fraction]:
        if not one.parents:
            self.number[one.id] = len(self.genes)
            self.genes.append(float(one.genes[0]))
        else:
            self.number[one.id] = self.number[one.parents[0]]
        assert self.genes[self.number[one.id]] == one.genes[0]
        return one, self.number[one.id], Fraction(one.role.split()[-1])

    def tell(self, one: Individual) -> None:
        loss = self.loss(self.number[one.id], Fraction(one.role.split()[-1]))
        self.evolver.tell([Evaluation(one, (-loss,), 1)])


# ------------------------------------------------------------------ what begins as in another run


def test_every_individual_of_another_run_is_tried() -> None:
    """Promotions use up ids."""
    values = [k / 8 for k in range(8)]
    space = replace(
        SPACE, initial_values=lambda k: {"x": values[k]} if k < 8 else {}, taken_over=lambda number: number < 8
    )
    evolver, drawn = ASHA(population=8, eta=2, R=4).evolver(space, 1), list[float]()
    for _ in range(24):
        (one,) = evolver.ask(1)
        drawn += [one.genes[0]] if one.role.startswith("initial") else []
        evolver.tell([Evaluation(one, (-float(one.id),))])
    assert drawn[:8] == values and len({*drawn}) == len(drawn) == evolver.begun > 8


def test_what_was_drawn_is_in_the_state() -> None:
    evolver, again, older = (ASHA(population=2, eta=2, R=4).evolver(SPACE, 1) for _ in range(3))
    for _ in range(4):
        evolver.tell([Evaluation(one, (0.0,)) for one in evolver.ask(1)])
    state = evolver.state_dict()
    again.load_state_dict(state)
    older.load_state_dict({key: part for key, part in state.items() if key != "draws"})
    assert again.draws == evolver.draws < evolver.next_id == older.draws


# ------------------------------------------------------------------ ASHA


class Paper:
    """Algorithm 2 of Li et al. 2020, line by line: rungs are lists of (configuration, loss) in the order of arrival."""

    def __init__(self, r: int, R: int, eta: int, s: int) -> None:
        self.r, self.R, self.eta, self.s = r, R, eta, s
        self.top = math.floor(round(math.log(R / r, eta), 9)) - s
        self.rungs: list[list[tuple[int, float]]] = [[] for _ in range(self.top + 1)]
        self.promoted: list[set[int]] = [set() for _ in range(self.top + 1)]
        self.drawn = 0

    def get_job(self) -> tuple[int, int]:
        for k in range(self.top - 1, -1, -1):
            size = math.floor(len(self.rungs[k]) / self.eta)
            candidates = sorted(self.rungs[k], key=lambda entry: (math.isnan(entry[1]), entry[1], self._age(k, entry)))
            promotable = [t for t, loss in candidates[:size] if t not in self.promoted[k] and not math.isnan(loss)]
            if promotable:
                self.promoted[k].add(promotable[0])
                return promotable[0], k + 1
        self.drawn += 1
        return self.drawn - 1, 0

    def _age(self, k: int, entry: tuple[int, float]) -> int:
        """Of equals the one that reached the rung's job first."""
        return self.asked.index((entry[0], k))

    asked: list[tuple[int, int]]


@pytest.mark.slow_cases("1-1-2-0-poor", "1-9-3-0-poor", "1-64-4-0-poor", "2-40-2-1-poor")
@pytest.mark.parametrize("loss", [luck, poor])
@pytest.mark.parametrize(
    ("r", "R", "eta", "s"), [(1, 9, 3, 0), (1, 64, 4, 0), (2, 40, 2, 1), (1, 1, 2, 0), (3, 80, 3, 0)]
)
@given(order=st.lists(st.integers(0, 5), min_size=80, max_size=80))
@settings(max_examples=8, deadline=None)
def test_asha_is_the_algorithm_of_its_paper(loss: Loss, r: int, R: int, eta: int, s: int, order: list[int]) -> None:
    """Whatever the order in which up to six workers return."""
    paper = Paper(r, R, eta, s)
    paper.asked = []
    ours = Watched(ASHA(r=r, R=R, eta=eta, s=s, population=6).evolver(SPACE, seed=3), loss)
    flight: list[tuple[Individual, int, int]] = []
    for place in order:
        while len(flight) < 6:
            t, k = paper.get_job()
            paper.asked.append((t, k))
            ((one, number, share),) = ours.ask(1)
            assert (number, share) == (t, Fraction(r * eta ** (s + k), R))
            flight.append((one, t, k))
        one, t, k = flight.pop(place)
        paper.rungs[k].append((t, loss(t, Fraction(r * eta ** (s + k), R))))
        ours.tell(one)


@pytest.mark.parametrize(
    ("keys", "notice"),
    [
        ({}, ""), ({"eta": 2, "R": 64}, ""), ({"r": 3, "eta": 2, "R": 24, "s": 1}, ""), ({"R": 1}, ""),
        ({"eta": 3}, "has 27 of R=64 units; R=81 is a power of eta=3"),
        ({"eta": 3, "s": 3}, "has 27 of R=64 units; R=81 is a power of eta=3"),
        ({"R": 3}, "has 1 of R=3 units; R=4 is a power of eta=4"),
        ({"r": 2, "eta": 3, "R": 64}, "has 54 of R=64 units; R=162 is r=2 times a power of eta=3"),
    ],
)  # fmt: skip
def test_asha_says_that_nothing_trains_to_the_end(keys: dict[str, int], notice: str) -> None:
    asha = ASHA(**keys)
    assert asha.notice(8).removeprefix("no configuration trains to the end: the last rung ") == notice
    assert (asha.evolver(SPACE).parts[-1] == f"{asha.R}/{asha.R}") == (not notice)


def test_asha_begins_to_promote_with_the_first_eta_results() -> None:
    ours = Watched(ASHA(eta=4, R=16, population=3).evolver(SPACE), lambda number, share: float(number))
    shares = []
    for _ in range(25):
        ((one, number, share),) = ours.ask(1)
        ours.tell(one)
        shares.append((number, share * 16))
    assert shares[:6] == [(0, 1), (1, 1), (2, 1), (3, 1), (0, 4), (4, 1)]
    assert shares.index((0, 16)) == 20  # at once after the fourth of sixteen reached the middle rung


def test_asha_does_not_sort_its_rungs_for_each_job() -> None:
    """So ten thousand configurations cost the driver seconds."""
    evolver = ASHA(eta=4, R=64).evolver(SPACE, seed=1)
    told = [Evaluation(one, (luck(one.id, Fraction(1)),)) for one in evolver.ask(2000)]
    evolver.tell(told)
    began = time.process_time()
    promoted = [one for _ in range(40) for one in evolver.ask(1)]
    middle = time.process_time()
    for _ in range(40):
        best = sorted(told, key=lambda evaluation: (-evaluation.objectives[0], evaluation.individual.id))
    assert [one.parents for one in promoted] == [(evaluation.individual.id,) for evaluation in best[:40]]
    assert middle - began < time.process_time() - middle


# ------------------------------------------------------------------ Hyperband


def hyperband(R: int, eta: int, r: int, loss: Loss) -> Iterator[list[tuple[int, Fraction]]]:
    """Algorithm 1 of Li et al. 2018, line by line: the configurations of each rung, with the share that they get."""
    drawn = 0
    s_max = math.floor(round(math.log(R / r, eta), 9))
    budget = (s_max + 1) * R
    while True:
        for s in range(s_max, -1, -1):
            n = math.ceil(Fraction(budget, R) * Fraction(eta**s, s + 1))
            least = Fraction(R, eta**s)
            T = list(range(drawn, drawn + n))
            drawn += n
            for i in range(s + 1):
                n_i, r_i = math.floor(Fraction(n, eta**i)), least * eta**i
                yield [(t, r_i / R) for t in T]
                L = {t: loss(t, r_i / R) for t in T}
                T = sorted((t for t in T if not math.isnan(L[t])), key=lambda t: (L[t], T.index(t)))
                T = T[: math.floor(Fraction(n_i, eta))]
                if not T:
                    break


@pytest.mark.parametrize("loss", [luck, poor])
@pytest.mark.parametrize(("R", "eta", "r"), [(81, 3, 1), (16, 2, 1), (100, 3, 5), (27, 4, 1), (1, 3, 1)])
def test_hyperband_is_the_algorithm_of_its_paper(R: int, eta: int, r: int, loss: Loss) -> None:
    ours = Watched(Hyperband(R=R, eta=eta, r=r).evolver(SPACE, seed=1), loss)
    for rung, _ in zip(hyperband(R, eta, r, loss), range(25), strict=False):
        asked = ours.ask()
        assert sorted((number, share) for _, number, share in asked) == sorted(rung)
        for one, _, _ in reversed(asked):
            ours.tell(one)


def test_the_brackets_of_the_papers_example() -> None:
    """eta = 3, R = 81: algorithm 1 rounds n up, so brackets 3 to 1 have a few more than table 1 of the paper."""
    h = Hyperband()
    assert [h.size(s) for s in (4, 3, 2, 1, 0)] == [81, 34, 15, 8, 5]
    ours, sizes = Watched(h.evolver(SPACE), luck), []
    for _ in range(15):
        asked = ours.ask()
        sizes.append((len(asked), int(asked[0][2] * 81)))
        for one, _, _ in asked:
            ours.tell(one)
    first, second = sizes[:5], sizes[5:9]
    assert first == [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)] and second == [(34, 3), (11, 9), (3, 27), (1, 81)]


@pytest.mark.parametrize("keys", [{}, {"R": 16, "eta": 2}, {"R": 100, "r": 5}, {"R": 1}, {"R": 27, "eta": 4, "r": 2}])
def test_hyperband_says_that_no_rung_has_as_many_configurations(keys: dict[str, int]) -> None:
    h = Hyperband(**keys)
    rungs, s_max = hyperband(h.R, h.eta, h.r, luck), h.rungs
    most = max(len(next(rungs)) for _ in range((s_max + 1) * (s_max + 2) // 2))
    assert h.notice(most) == ""
    line = f"at most {most} configurations train at once, those of a rung, and not {most + 1}; asha waits for no rung"
    assert h.notice(most + 1) == line


# ------------------------------------------------------------------ both


def test_of_a_budget_of_steps_everybody_gets_its_share_rounded_up() -> None:
    def of(role: str) -> Individual:
        return Individual(0, np.zeros(0), role=role)

    assert [resource(of(f"promoted {part}"), 1000) for part in ("1/64", "16/64", "64/64", "1/3")] == [
        16,
        250,
        1000,
        334,
    ]
    assert trains_until(ASHA(train_steps=640), of("initial 1/64"), 0) == 10
    assert trains_until(ASHA(train_steps=640), of("promoted 4/64"), 12) == 40
    assert trains_until(PBT(train_steps=640), of("goes on"), 12) == 652


def test_the_best_are_those_that_did_not_fail_the_older_first() -> None:
    told = [Evaluation(Individual(n, np.zeros(0)), (f,)) for n, f in enumerate([1.0, math.nan, 2.0, 1.0, -math.inf])]
    assert [one.individual.id for one in top(told, 9)] == [2, 0, 3]
    assert [one.individual.id for one in top(told[::-1], 2)] == [2, 0]


@pytest.mark.parametrize(
    ("make", "keys", "line"),
    [
        (ASHA, {"lifetime": "play"}, "lifetime: what is stopped early is training; take lifetime=train"),
        (Hyperband, {"r": 82}, "r: 82 is more than the whole budget of R=81 units"),
        (ASHA, {"s": 4}, "s: r eta^s is more than R=64 units; s is 3 at most"),
        (Hyperband, {"asynchronous": True}, "asynchronous: a rung waits for all of its configurations; take ec=asha"),
    ],
)
def test_what_cannot_be_is_refused(make: type[EarlyStopping], keys: dict[str, object], line: str) -> None:
    with pytest.raises(BadRequest) as refused:
        make(**keys)
    assert str(refused.value) == line
