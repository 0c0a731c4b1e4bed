"""PBT's decisions on tables made by hand, its test against SciPy's, and what exploring does to genes."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from evorl.ec.core import Evaluation, Individual
from evorl.ec.pbt import PBT, Strategy, explore, perturbed, pioneer, portion, welch
from evorl.ec.space import Gene, Space
from evorl.util.errors import BadRequest

LR = Gene("rl.lr", 1e-5, 1e-1, log=True)
SPACE = Space((LR,), 2, lambda number: np.full(2, number, np.float32))


def told(evolver: Strategy, scores: Sequence[float | Sequence[float]], asked: list[Individual]) -> None:
    """Evaluations of these individuals, each with a fitness, or its episodes'."""
    evaluations = []
    for one, score in zip(asked, scores, strict=True):
        episodes = np.atleast_1d(np.asarray(score, float))
        evaluations.append(Evaluation(one, (float(episodes.mean()),), 1, {"fitness": episodes}))
    evolver.tell(evaluations)


def second(scores: Sequence[float | Sequence[float]], **keys: object) -> list[Individual]:
    """What the members of a first round go on as."""
    hyper = PBT(population=len(scores), asynchronous=False, **keys)
    evolver = hyper.evolver(SPACE, 3)
    told(evolver, scores, evolver.ask())
    return evolver.ask()


# ------------------------------------------------------------------ who is taken over, and by whom


def test_truncation_replaces_the_worst_by_one_of_the_best() -> None:
    hyper = PBT(population=10, asynchronous=False, exploit="truncation", worst=0.2, pioneers=0.2, resample=0.0)
    evolver = hyper.evolver(SPACE, 3)
    before = evolver.ask()
    told(evolver, [5, 1, 4, 9, 3, 2, 8, 7, 6, 10], before)
    after = evolver.ask()
    replaced = {place for place, one in enumerate(after) if one.role == "exploited"}
    assert replaced == {1, 5}
    assert all(after[place].parents[0] in (3, 9) for place in replaced)
    assert all(after[place].parents == (place,) for place in range(10) if place not in replaced)
    for place, one in enumerate(after):
        assert one.weights is not None and one.weights[0] == one.parents[0]
        factor = LR.value(one.genes[0]) / LR.value(before[one.parents[0]].genes[0])
        assert factor in (pytest.approx(0.8), pytest.approx(1.2)) if place in replaced else factor == 1.0
        assert place in replaced or one.role == "goes on"


@pytest.mark.parametrize("share", ["0", "0.01", "0.1", "0.2", "0.25", "0.28", "0.3", "0.34", "0.5", "0.56", "1"])
def test_a_share_is_rounded_up_whatever_floats_say(share: str) -> None:
    for n in range(1, 31):
        exact = Fraction(share) * n
        assert portion(float(share), n) == -(-exact.numerator // exact.denominator)
    assert [portion(0.2, 5), portion(0.1, 30), portion(0.3, 10), portion(0.28, 25)] == [1, 3, 3, 7]


@pytest.mark.parametrize("worst", [0.0, 0.1, 0.2, 0.25, 0.3])
def test_as_many_are_replaced_as_the_share_says(worst: float) -> None:
    for n in range(1, 31):
        after = second(list(range(n)), exploit="truncation", worst=worst, pioneers=worst)
        replaced = [place for place, one in enumerate(after) if one.role == "exploited"]
        count = portion(worst, n) if n > 1 else 0
        assert replaced == list(range(count)), n
        assert all(after[place].parents[0] >= n - max(count, 1) for place in replaced), n


def test_the_smallest_population_of_the_docs_exploits() -> None:
    assert [one.parents for one in second([1, 2, 3, 4], exploit="truncation")] == [(3,), (1,), (2,), (3,)]


def test_of_equals_nobody_is_replaced_or_a_parent_for_its_place() -> None:
    """Two groups of equals, over many rounds: everybody's turn comes about equally often."""
    evolver = PBT(population=10, asynchronous=False, exploit="truncation").evolver(SPACE, 0)
    gone, parents, asked = Counter[int](), Counter[int](), evolver.ask()
    for _ in range(300):
        told(evolver, [0.0] * 5 + [1.0] * 5, asked)
        places = {one.id: place for place, one in enumerate(asked)}
        asked = evolver.ask()
        for place, one in enumerate(asked):
            if one.role == "exploited":
                gone[place] += 1
                parents[places[one.parents[0]]] += 1
    assert {*gone} == {*range(5)} and {*parents} == {*range(5, 10)}
    assert max(gone.values()) < 2 * min(gone.values()) and max(parents.values()) < 2 * min(parents.values())


def test_equals_replace_nobody() -> None:
    assert {one.role for one in second([1.0] * 10)} == {"goes on"}


SCORES = st.lists(st.integers(-3, 3), min_size=2, max_size=20)  # many ties


@given(SCORES, st.sampled_from([0.1, 0.2, 0.5, 1.0]), st.sampled_from([0.1, 0.2, 0.5, 1.0]))
def test_no_more_than_a_share_gives_way_and_only_to_who_is_better(
    scores: list[int], worst: float, pioneers: float
) -> None:
    after = second(scores, exploit="truncation", worst=worst, pioneers=pioneers)
    replaced = [place for place, one in enumerate(after) if one.role == "exploited"]
    assert len(replaced) <= portion(worst, len(scores))
    assert all(scores[after[place].parents[0]] > scores[place] for place in replaced)
    highest = max((scores[place] for place in replaced), default=min(scores))
    assert sum(score < highest for score in scores) < portion(worst, len(scores))  # the worst it is who do
    assert len({*scores}) > 1 or not replaced


@given(SCORES)
def test_truncation_sees_only_the_order_of_fitnesses(scores: list[int]) -> None:
    plain, other = (second(each, exploit="truncation") for each in (scores, [math.exp(x) for x in scores]))
    for a, b in zip(plain, other, strict=True):
        assert a.parents == b.parents and a.role == b.role and np.array_equal(a.genes, b.genes)


def test_a_rival_is_taken_over_only_where_it_is_significantly_better() -> None:
    noisy, better = [0.0, 1.0, 0.0, 1.0], [10.0, 11.0, 10.0, 11.0]
    assert [one.role for one in second([noisy, better], exploit="ttest")] == ["exploited", "goes on"]
    unsure = [0.0, 10.0, 0.0, 12.0]
    assert [one.role for one in second([noisy, unsure], exploit="ttest")] == ["goes on", "goes on"]


def test_nobody_is_taken_over_before_everybody_is_warm() -> None:
    hyper = PBT(population=5, warm_up=2, exploit="truncation")
    evolver = hyper.evolver(SPACE, 1)
    told(evolver, [1, 2, 3, 4, 5], evolver.ask())
    again = evolver.ask()
    assert {one.role for one in again} == {"goes on"}
    told(evolver, [1, 2, 3, 4, 5], again)
    assert "exploited" in {one.role for one in evolver.ask()}


def test_an_asynchronous_member_goes_on_at_once_and_only_once() -> None:
    evolver = PBT(population=3, warm_up=1).evolver(SPACE, 1)
    asked = evolver.ask()
    assert evolver.ask() == []
    told(evolver, [1.0], asked[1:2])
    (next_one,) = evolver.ask()
    assert next_one.parents == (1,) and evolver.ask() == []


def test_who_failed_goes_on_as_somebody_else() -> None:
    after = second([3, math.nan, 5], exploit="none")
    assert after[1].parents[0] in (0, 2) and after[1].role == "exploited"
    assert [one.role for one in second([math.nan] * 3)] == ["initial"] * 3


def test_pioneers_are_drawn_evenly_from_the_best() -> None:
    people = [Evaluation(Individual(i, np.zeros(1)), (float(i),)) for i in range(10)]
    drawn = [pioneer(people, 0.3, np.random.default_rng(n)).individual.id for n in range(600)]
    assert {*drawn} == {7, 8, 9}
    assert all(150 < drawn.count(i) < 250 for i in (7, 8, 9))


# ------------------------------------------------------------------ Welch's test

NUMBERS = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=12)


@settings(max_examples=200)
@given(NUMBERS, NUMBERS)
def test_welch_is_scipys(a: list[float], b: list[float]) -> None:
    x, y = (Evaluation(Individual(0, np.zeros(0)), (0.0,), 0, {"fitness": np.array(one)}) for one in (a, b))
    if min(np.var(a), np.var(b)) < 1e-6:  # SciPy loses its digits there
        return
    assert welch(x, y, "fitness") == pytest.approx(ttest_ind(a, b, equal_var=False).pvalue, abs=1e-9)


def test_without_episodes_nothing_is_known() -> None:
    alone = Evaluation(Individual(0, np.zeros(0)), (1.0,))
    assert welch(alone, alone, "fitness") == 1.0
    known = alone._replace(result={"fitness": np.array([1.0, 2.0]), "lazy": np.array([0.5])})
    other = alone._replace(result={"fitness": np.array([8.0, 9.0]), "lazy": np.array([0.5])})
    assert welch(known, other, "fitness") < 0.05
    assert welch(known, other, {"fitness": 1.0, "lazy": 1.0}) == 1.0  # the latter only as a mean


def test_a_rival_is_tested_by_what_is_maximised() -> None:
    """Fitness differs clearly between these two, and the objective does not; then the other way round."""
    alike, clear = np.array([0.4, 0.6, 0.5, 0.3]), np.array([10.0, 11.0, 10.5, 9.5])
    x = Evaluation(Individual(0, np.zeros(0)), (), 0, {"fitness": alike, "lazy": alike, "busy": alike})
    y = Evaluation(Individual(1, np.zeros(0)), (), 0, {"fitness": clear, "lazy": alike + 0.01, "busy": -clear})
    assert welch(x, y, "fitness") < 0.05 < welch(x, y, "lazy")
    assert welch(x, y, {"fitness": 1.0, "busy": 1.0}) < 0.05  # 2 alike of the one, 0 of the other
    assert welch(x, y, {"fitness": 0.5, "lazy": 1.0}) == pytest.approx(
        ttest_ind(1.5 * alike, 0.5 * clear + alike + 0.01, equal_var=False).pvalue
    )
    hyper = PBT(population=2, asynchronous=False, exploit="ttest", objectives=("lazy",))
    for objective, roles in (("lazy", ["goes on", "goes on"]), ("fitness", ["exploited", "goes on"])):
        evolver = dataclasses.replace(hyper, objectives=(objective,)).evolver(SPACE, 3)
        pair = zip(evolver.ask(), (x, y), strict=True)
        evolver.tell([one._replace(individual=this, objectives=(one.result[objective].mean(),)) for this, one in pair])
        assert [one.role for one in evolver.ask()] == roles


# ------------------------------------------------------------------ exploring


def test_a_gene_is_multiplied_by_either_factor() -> None:
    for gene in (LR, Gene("x", 0.0, 1.0)):
        at = gene.coordinate(0.05)
        assert gene.value(perturbed(gene, at, 0.8, False)) == pytest.approx(0.04)
        assert gene.value(perturbed(gene, at, 1.2, True)) == pytest.approx(0.06)
    whole = Gene("n", 1, 20, integer=True)
    assert [whole.value(perturbed(whole, 10.0, f, f > 1)) for f in (0.8, 1.2)] == [8, 12]
    assert [whole.value(perturbed(whole, 2.0, f, f > 1)) for f in (0.8, 1.2)] == [1, 3]  # by one at least
    assert [whole.value(perturbed(whole, 10.0, f, f > 1.6)) for f in (1.5, 2.0)] == [15, 20]  # both upwards
    assert whole.value(perturbed(whole, 2.0, 1.1, False)) == 3
    below = Gene("m", -20, -1, integer=True)
    assert [below.value(perturbed(below, -10.0, f, f > 1)) for f in (0.8, 1.2)] == [-8, -12]  # as a real would
    choice = Gene("c", choices=("a", "b", "c"))
    assert [choice.value(perturbed(choice, 1.0, f, f > 1)) for f in (0.8, 1.2)] == ["a", "c"]


@pytest.mark.slow_cases(but=("3",))
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_steps_between_choices_favour_none(count: int) -> None:
    """Also from beyond the last one, where a step past it was brought back to the bound."""
    space, hyper = Space((Gene("c", choices=tuple(range(count))),)), PBT(resample=0.0)
    draw, x, seen = np.random.default_rng(0), np.array([0.0]), Counter[object]()
    for _ in range(20_000):
        x = explore(x, space, hyper, draw)
        seen[space.genes[0].value(float(x[0]))] += 1
    assert all(times == pytest.approx(20_000 / count, rel=0.15) for times in seen.values()) and len(seen) == count


GENES = (LR, Gene("x", -1.0, 2.0), Gene("n", 1, 9, integer=True), Gene("c", choices=(1, 2, 3)), Gene("fixed", 4, 4))


@pytest.mark.slow
def test_explored_genes_stay_within_their_bounds_over_a_million_draws() -> None:
    space, hyper = Space(GENES * 50), PBT()
    draw = np.random.default_rng(0)
    x = space.sample(draw, 1)[0]
    for _ in range(1_000_000 // len(x)):
        x = explore(x, space, hyper, draw)
        assert (x >= space.low).all() and (x <= space.high).all()


def test_genes_are_drawn_anew_as_often_as_it_is_said() -> None:
    space, hyper = Space((Gene("x", 0.0, 1.0),)), PBT(resample=0.25)
    x = np.array([0.5])
    ends = [explore(x, space, hyper, np.random.default_rng(n))[0] for n in range(2000)]
    kept = sum(end in (0.4, 0.6) for end in ends)
    assert 1420 < kept < 1580


def test_more_slots_than_members_are_refused() -> None:
    with pytest.raises(BadRequest, match="is more than the population"):
        PBT(population=3, slots=4)


# ------------------------------------------------------------------ the population as opponents


def played(evolver: Strategy, asked: list[Individual], scores: list[float]) -> None:
    """Members come back from a slice of games, a little changed."""
    for one, score in zip(asked, scores, strict=True):
        memory = {"steps": 1, "games": {"opponents": [0], "points": [1.0]}, "acting": {"learner": {"moments": one.id}}}
        after = one._replace(weights=one.weights + np.float32(1), memory=memory)
        evolver.tell([Evaluation(after, (score,))])


def against(evolver: Strategy, one: Individual) -> list[float | None]:
    """The first weight of each opponent; None for the member itself."""
    matches = evolver.opponents(one.id)
    assert [match.number for match in matches] == [0, 1, 2] and {match.chance for match in matches} == {1 / 3}
    return [None if match.policy is None else float(match.policy.weights[0]) for match in matches]


def test_a_member_plays_the_policies_that_the_others_have() -> None:
    space = Space(weights=1, fresh=lambda number: np.array([10 * number], np.float32))
    evolver = PBT(population=3, opponents="population").evolver(space, 0)
    first = evolver.ask()
    assert [against(evolver, one) for one in first] == [[None, 10, 20], [0, None, 20], [0, 10, None]]
    played(evolver, first[:1], [1.0])
    (again,) = evolver.ask()
    assert against(evolver, again) == [None, 10, 20]
    assert against(evolver, first[1]) == [0, None, 20], "those of a slice stay the same"
    played(evolver, first[1:], [1.0, float("nan")])
    _, third = evolver.ask()
    assert against(evolver, third)[:2] == [1, 11], "who fails keeps the policy that it had"
    policy = evolver.opponents(third.id)[0].policy
    assert policy is not None and policy.memory == {"learner": {"moments": 0}}
    assert again.memory == {"steps": 1}
    assert {*evolver.policies.by_number} == {1, 2, 3, 4}, "of those that were replaced the one that still plays"


def test_the_world_is_the_opponent_where_nothing_else_is_said() -> None:
    assert not PBT().opposes and "policies" not in PBT().evolver(SPACE, 0).state_dict()
    with pytest.raises(BadRequest, match="take lifetime=train"):
        PBT(opponents="population", lifetime="play")
