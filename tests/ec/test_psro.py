"""PSRO: who plays whom, the table of payoffs, and games whose equilibria are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evorl.ec.core import Evaluation, Individual
from evorl.ec.psro import PSRO, Strategy
from evorl.ec.space import Space
from evorl.ops.payoffs import nash, nash_conv, two_sided

SPACE = Space(weights=2, fresh=lambda number: np.array([number, 0], np.float32))


def earned(rng: np.random.Generator, evolver: Strategy, one: Individual) -> np.ndarray:
    return rng.normal(size=(len(evolver._matches[one.id]) - 1, 2))


def told(evolver: Strategy, rng: np.random.Generator, failed: set[int] = frozenset()) -> list[Individual]:
    """Let everybody who is asked for learn or play; return them."""
    asked = evolver.ask()
    evaluations = []
    for one in asked:
        if one.role == "match":
            memory = {} if one.id in failed else {"games": {"earned": earned(rng, evolver, one)}}
            evaluations.append(Evaluation(one._replace(memory=memory), (float("nan"),)))
            continue
        acting = {"learner": {"moments": None}}
        after = one._replace(weights=one.weights + np.float32(0.5), memory={"steps": 1, "acting": acting})
        evaluations.append(Evaluation(after, (float("nan") if one.id in failed else 1.0,)))
    evolver.tell(evaluations)
    return asked


def test_an_epoch_is_oracles_and_their_matches() -> None:
    evolver, rng = PSRO(population=2, slots=3).evolver(SPACE), np.random.default_rng(1)
    first = told(evolver, rng)
    assert [(one.role, one.parents) for one in first] == [("initial", ())] * 2
    matches = told(evolver, rng)
    assert [one.memory["match"]["player"] for one in matches] == [0, 1, 1]  # rows of one and two, in two shares at most
    assert [one.memory["match"]["others"] for one in matches] == [[0], [0], [1]]
    assert evolver.generation == 1 and evolver.payoff.shape == (2, 2)
    oracles = told(evolver, rng)
    assert [(one.role, one.parents, one.weights[1]) for one in oracles] == [
        ("oracle", (0,), 0.5),
        ("oracle", (1,), 0.5),
    ]
    later = told(evolver, rng)
    assert [one.memory["match"]["others"] for one in later] == [[0, 1], [2], [0, 1], [2, 3]]
    assert len({one.memory["match"]["key"] for one in (*matches, *later)}) == 1, "all are on the same episodes"


def test_the_first_oracles_answer_themselves_and_the_next_the_mixture_of_the_other_side() -> None:
    evolver, rng = PSRO(population=3).evolver(SPACE), np.random.default_rng(2)
    assert [match.policy for match in evolver.opponents(0)] == [None]
    told(evolver, rng)
    told(evolver, rng)
    p, q, _ = nash(evolver.payoff)
    matches = {match.number: match for match in evolver.opponents(evolver.next_id - 1)}
    for k in range(3):
        chances = matches[k].by_side if k in matches else (0, 0)
        assert chances == pytest.approx((q[k], p[k])), "as side 0 it meets the mixture of side 1"
    for match in matches.values():
        assert match.policy is evolver.policies[match.number].individual
        assert match.policy.memory == {"learner": {"moments": None}}, "it needs no optimiser to act"
        assert match.chance == pytest.approx(sum(match.by_side) / 2)


def test_the_table_is_what_was_earned_on_either_side() -> None:
    evolver, rng = PSRO(population=2, slots=5).evolver(SPACE), np.random.default_rng(3)
    slow: dict[tuple[int, int], float] = {}
    for _ in range(3):
        told(evolver, rng)
        evaluations = []
        for one in evolver.ask():
            match = one.memory["match"]
            gained = earned(rng, evolver, one)
            evaluations.append(Evaluation(one._replace(memory={"games": {"earned": gained}}), (float("nan"),)))
            for other, (first, second) in zip(match["others"], gained, strict=True):
                slow[match["player"], other] = first
                slow[other, match["player"]] = -second if other != match["player"] else (first - second) / 2
        evolver.tell(evaluations[::-1])
    assert evolver.payoff.shape == (6, 6)
    assert evolver.payoff == pytest.approx(np.array([[slow[i, j] for j in range(6)] for i in range(6)]))
    table = evolver.table()
    assert table["policies"] == [one.individual.id for one in evolver.population] and table["epoch"] == 3
    assert nash_conv(two_sided(np.array(table["payoff"])), np.array(table["mixtures"])) == pytest.approx(0, abs=1e-9)


def test_sides_that_are_alike_have_the_same_mixture() -> None:
    for solver in ("nash", "uniform", "alpha_rank"):
        hyper = PSRO(population=3, symmetric=True, meta_solver=solver)
        evolver, rng = hyper.evolver(SPACE), np.random.default_rng(4)
        for _ in range(4):
            told(evolver, rng)
        assert np.array_equal(evolver.game, -evolver.game.T) and np.array_equal(*evolver.mixtures)
        assert evolver.mixtures.shape == (2, 6) and evolver.mixtures.sum(1) == pytest.approx([1, 1])


def test_the_gain_is_what_the_best_new_policy_of_each_side_earns_more() -> None:
    evolver, rng = PSRO(population=2).evolver(SPACE), np.random.default_rng(5)
    told(evolver, rng)
    told(evolver, rng)
    assert np.isnan(evolver.gain)
    p, q = evolver.mixtures
    told(evolver, rng)
    told(evolver, rng)
    m = evolver.payoff
    value = p @ m[:2, :2] @ q
    gains = max(m[i, :2] @ q - value for i in (2, 3)) + max(value - p @ m[:2, j] for j in (2, 3))
    assert evolver.gain == pytest.approx(gains)


def test_who_failed_begins_anew_and_is_no_policy() -> None:
    evolver, rng = PSRO(population=2).evolver(SPACE), np.random.default_rng(6)
    told(evolver, rng, failed={1})
    told(evolver, rng)
    assert [one.individual.id for one in evolver.population] == [0]
    first, second = told(evolver, rng)
    assert first.parents == (0,) and second.parents == () and second.weights[1] == 0
    matches = {one.memory["match"]["player"]: one.id for one in evolver._queue}
    told(evolver, rng, failed={matches[1]})
    assert [one.individual.id for one in evolver.population] == [0, second.id] and evolver.payoff.shape == (2, 2)
    first, second = evolver.ask()
    assert first.parents == () and second.weights[1] == 0.5


def test_when_nobody_is_left_an_epoch_begins_again() -> None:
    evolver, rng = PSRO().evolver(SPACE), np.random.default_rng(7)
    told(evolver, rng, failed={0})
    told(evolver, rng)
    told(evolver, rng, failed={2})
    assert evolver.generation == 0 and evolver.leader is None and evolver._queue[0].role == "initial"


def test_a_slice_has_a_bounded_number_of_opponents_on_either_side() -> None:
    hyper = PSRO(population=4, opponents=3, meta_solver="uniform")
    evolver, rng = hyper.evolver(SPACE), np.random.default_rng(8)
    for _ in range(6):
        told(evolver, rng)
    sides = np.array([match.by_side for match in evolver.opponents(evolver.next_id - 1)])
    assert (sides > 0).sum(0).max() <= 3 and sides.sum(0) == pytest.approx([1, 1])


# ------------------------------------------------------------------ exact oracles


def exact(payoff: np.ndarray, epochs: int, **changes: Any) -> list[float]:
    """NashConv in a matrix game of the mixtures of each epoch, whose oracles are best responses to them."""
    n, k = payoff.shape
    space = Space(
        weights=n + k, fresh=lambda number: np.eye(n + k, dtype=np.float32)[[number % n, n + number % k]].sum(0)
    )
    evolver, found = PSRO(**changes).evolver(space), []

    def sides(one: Individual) -> tuple[np.ndarray, np.ndarray]:
        assert one.weights is not None
        return one.weights[:n].astype(float), one.weights[n:].astype(float)

    def answered(one: Individual) -> Evaluation:
        weights = one.weights.copy()
        others = [(match, *sides(match.policy)) for match in evolver.opponents(one.id) if match.policy is not None]
        if others:
            q = sum(match.by_side[0] * y for match, _, y in others)
            p = sum(match.by_side[1] * x for match, x, _ in others)
            weights[:] = np.r_[np.eye(n)[(payoff @ q).argmax()], np.eye(k)[(p @ payoff).argmin()]]
        return Evaluation(one._replace(weights=weights), (0.0,))

    def played(one: Individual) -> Evaluation:
        own, *others = (sides(evolver.policies[player].individual) for player in evolver._matches[one.id])
        gained = np.array([[own[0] @ payoff @ y, -x @ payoff @ own[1]] for x, y in others])
        return Evaluation(one._replace(memory={"games": {"earned": gained}}), (float("nan"),))

    while len(found) < epochs:
        before = evolver.generation
        evolver.tell([played(one) if one.role == "match" else answered(one) for one in evolver.ask()])
        if evolver.generation > before:
            mixed = [
                sum(share * sides(one.individual)[side] for share, one in zip(mixture, evolver.population, strict=True))
                for side, mixture in enumerate(evolver.mixtures)
            ]
            found.append(nash_conv(two_sided(payoff), mixed))
    return found


@pytest.mark.slow_cases(but=("0", "1"))  # other seeds
@pytest.mark.parametrize("seed", range(5))
def test_with_exact_oracles_it_is_the_double_oracle_and_ends_at_an_equilibrium(seed: int) -> None:
    """McMahan et al. 2003: it ends at the latest when all strategies are in the table."""
    payoff = np.random.default_rng(seed).normal(size=(6, 4))
    curve = exact(payoff, 25)
    assert curve[0] > 0.1 and curve[-1] == pytest.approx(0, abs=1e-6)


def test_uniform_mixtures_come_near_more_slowly() -> None:
    """Fictitious play, whose NashConv falls like one by the square root of the epochs or faster."""
    payoff = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    curve = exact(payoff, 60, meta_solver="uniform")
    assert 0 < curve[-1] < 0.25 < curve[0]
