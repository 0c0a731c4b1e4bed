"""Aggregates: rliable's numbers, intervals, and comparisons that claim no more than the runs show."""

from __future__ import annotations

import tracemalloc
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from evorl.analysis import aggregates, comparison
from evorl.analysis.aggregates import (
    Estimate,
    estimate,
    holm,
    iqm,
    mean,
    median,
    optimality_gap,
    p_value,
    probability_of_improvement,
    smallest_stratified_p_value,
    stratified_p_value,
)
from evorl.analysis.comparison import comparison_rows, comparison_text, summary
from evorl.analysis.groups import Group
from evorl.analysis.runs import RunRecord
from evorl.analysis.scores import world_scores

X = (
    [0.279, 0.768, 0.379, 1.254, 0.217, -0.093, 0.348],
    [0.07, 1.054, 0.286, 0.709, 1.24, 0.567, 0.405],
    [0.501, 0.644, 0.899, 0.107, 0.681, 0.135, 0.315],
)
Y = ([0.279, 0.664, 0.397, -0.016, 0.378], [0.475, 0.832, 0.108, 0.508, 0.081], [0.264, -0.157, 0.431, 0.485, 0.342])
RLIABLE = {  # of rliable 1.2.0 on these scores; intervals of 50,000 and 20,000 resamples
    "iqm": (iqm, X, 0.4649090909090909, 0.30564, 0.65918),
    "mean": (mean, X, 0.5126190476190476, 0.36386, 0.67362),
    "median": (median, X, 0.4688571428571429, 0.32800, 0.69643),
    "optimality gap": (optimality_gap(1.0), X, 0.5134761904761904, 0.37576, 0.64553),
    "improvement": (probability_of_improvement, (*X, *Y), 0.6047619047619047, 0.40952, 0.78571),
}
SCORES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0]), min_size=1, max_size=6)


@pytest.mark.parametrize("name", RLIABLE)
def test_they_are_those_of_rliable(name: str) -> None:
    statistic, tasks, value, low, high = RLIABLE[name]
    found = estimate(statistic, *tasks)
    assert found.value == pytest.approx(value, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)  # the error of 2,000 resamples


def test_an_interval_keeps_the_runs_of_each_task() -> None:
    """Two tasks whose runs agree: a bootstrap over all runs together would spread."""
    assert estimate(iqm, [0.0, 0.0], [1.0, 1.0]) == (0.5, 0.5, 0.5)


def test_a_single_run_has_no_interval() -> None:
    found = estimate(mean, [3.0])
    assert found.value == 3 and np.isnan([found.low, found.high]).all()


@given(SCORES, SCORES)
def test_improvement_by_counting_pairs(x: list[float], y: list[float]) -> None:
    pairs = [(a > b) + 0.5 * (a == b) for a in x for b in y]
    assert probability_of_improvement(np.array(x), np.array(y)) == pytest.approx(sum(pairs) / len(pairs))


def test_a_p_value_by_counting_all_ways_to_split_the_scores() -> None:
    x, y = [3.0, 5.0, 6.0, 8.0], [1.0, 2.0, 4.0]

    def wins(chosen: tuple[float, ...]) -> float:
        others = [one for one in x + y if one not in chosen]
        return sum(a > b for a in chosen for b in others)

    centre = len(x) * len(y) / 2
    ways = [abs(wins(chosen) - centre) for chosen in combinations(x + y, len(x))]
    assert p_value(x, y) == pytest.approx(np.mean([far >= abs(wins(tuple(x)) - centre) for far in ways]))


def test_a_p_value_over_tasks_by_counting_all_ways_to_split_the_scores_of_each() -> None:
    x, y = ([3.0, 5.0, 6.0], [2.0, 9.0]), ([1.0, 2.0, 4.0], [7.0, 1.5])

    def improvement(a: tuple[float, ...], every: list[float]) -> float:
        b = [one for one in every if one not in a]
        return sum(p > q for p in a for q in b) / (len(a) * len(b)) - 0.5

    every = [[*a, *b] for a, b in zip(x, y, strict=True)]
    observed = sum(improvement(tuple(a), both) for a, both in zip(x, every, strict=True))
    splits = [[improvement(a, both) for a in combinations(both, len(own))] for own, both in zip(x, every, strict=True)]
    exact = np.mean([abs(sum(ways)) >= abs(observed) - 1e-12 for ways in product(*splits)])
    assert stratified_p_value(x, y) == pytest.approx(exact, abs=0.015)  # three standard errors of 9,999 permutations
    assert stratified_p_value(x[:1], y[:1]) == p_value(x[0], y[0])


def test_the_smallest_p_value() -> None:
    assert smallest_stratified_p_value([(3, 3)]) == pytest.approx(0.1)
    assert smallest_stratified_p_value([(4, 4)]) == pytest.approx(2 / 70)
    assert smallest_stratified_p_value([(3, 3), (2, 2)]) == pytest.approx(2 / (20 * 6))
    assert smallest_stratified_p_value([(1, 1)]) == 1.0


def test_hundreds_of_runs_are_compared_in_time_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact test of as many would not end, and from 515 against 515 on its counts are no floats."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=600), draw.normal(0.2, size=600)
    assert 0 < p_value(x.tolist(), y.tolist()) < 0.01
    few, others = x[:100].tolist(), y[:100].tolist()  # the last size that is exact
    near = scipy.stats.mannwhitneyu(few, others, method="asymptotic").pvalue
    assert p_value(few, others) == pytest.approx(near, rel=0.01)
    monkeypatch.setattr(aggregates, "RESAMPLES", 200)
    monkeypatch.setattr(aggregates, "MOST_PAIRS", 2**22)
    tracemalloc.start()
    estimate(probability_of_improvement, x.tolist(), y.tolist())
    assert tracemalloc.get_traced_memory()[1] < 300e6
    tracemalloc.stop()


def test_equal_scores_do_not_differ() -> None:
    assert p_value([1.0, 1.0, 2.0], [1.0, 2.0, 1.0]) == pytest.approx(1.0)


def test_holm() -> None:
    """By hand: 0.01 * 3, then 0.03 * 2 = 0.06, then 0.04 * 1, which may not be lower than the one before."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


def group(name: str, *fitness: float) -> Group:
    runs = [
        RunRecord(directory=Path(name, str(seed)), config={"seed": seed}, result={"fitness": value})
        for seed, value in enumerate(fitness)
    ]
    return Group({"rl": name}, runs)


def rows(*groups: Group) -> list[dict[str, Any]]:
    """The comparison of the groups at the end of their runs."""
    return comparison_rows(next(world_scores("world", groups, None)))


def said(*groups: Group) -> dict[str, str]:
    return {row["rl"]: row["compared with the first"] for row in rows(*groups)}


def test_groups_are_compared_with_the_highest() -> None:
    found = said(
        group("a2c", 1, 2, 3, 4, 5, 6),
        group("ppo", 11, 12, 13, 14, 15, 16),
        group("td3", 9, 11.5, 12.5, 13.5, 14.5, 17),
    )
    assert [*found] == ["ppo", "td3", "a2c"]
    assert found["a2c"] == "lower (p = 0.0065)"  # 2 of the 924 ways to split, for each of three pairs
    assert found["ppo"] == "highest" and found["td3"].startswith("no difference shown (p = ")


def test_a_group_that_the_test_finds_better_than_the_highest_is_not_said_to_be_lower() -> None:
    """Of 20 runs the highest group has six that are far above the others and 14 below them: 70 % of the pairs."""
    few = group("a2c", *(10 + n / 20 for n in range(14)), *(490.0 + n for n in range(6)))
    most = group("ppo", *(50 + n / 20 for n in range(20)))
    assert said(few, most) == {"a2c": "highest", "ppo": "better in pairs, but not by IQM (p = 0.03)"}
    told = summary(rows(few, most))
    assert told.endswith("Better in pairs, but not by IQM: rl=ppo (better in 70 % of pairs, p = 0.03).")
    assert "Lower" not in told


def test_three_groups_of_four_are_too_few_where_two_are_enough() -> None:
    """2 of 70 ways to split are 0.029, times three pairs 0.086."""
    far = group("a2c", 1, 2, 3, 4), group("ppo", 11, 12, 13, 14)
    assert said(*far)["a2c"] == "lower (p = 0.029)"
    assert said(*far, group("td3", 5, 6, 7, 8))["a2c"] == "too few runs to tell"


@pytest.mark.slow_cases("23-too few runs to tell")
@pytest.mark.parametrize(("groups", "word"), [(22, "lower (p = 0.046)"), (23, "too few runs to tell")])
def test_permutations_tell_no_more_than_their_number(groups: int, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal scores: 9,999 permutations of groups that are far apart give 2 / 10,000, times 231 and 253 pairs."""
    monkeypatch.setattr(
        comparison, "estimate", lambda statistic, *tasks: Estimate(statistic(*map(np.array, tasks)), 0, 0)
    )
    assert said(*(group(str(n), *[float(n)] * 12) for n in range(groups)))["0"] == word


@pytest.mark.slow
def test_of_ten_alike_groups_few_families_have_one_that_is_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest is chosen after the runs: corrected for nine comparisons alone, 9 of these families had one."""
    monkeypatch.setattr(
        comparison, "estimate", lambda statistic, *tasks: Estimate(statistic(*map(np.array, tasks)), 0, 0)
    )
    draws = np.random.default_rng(3).normal(size=(100, 10, 8)).tolist()
    families = [said(*(group(str(n), *scores) for n, scores in enumerate(one))) for one in draws]
    assert sum(any(word.startswith("lower") for word in one.values()) for one in families) <= 5


def test_three_runs_are_too_few_however_far_apart() -> None:
    found = rows(group("a2c", 1, 2, 3), group("ppo", 100, 200, 300))
    assert [row["compared with the first"] for row in found] == ["highest", "too few runs to tell"]
    assert found[1]["P(first better)"] == 1
    text = comparison_text(found)
    assert text[0]["IQM [95 %]"] == "200 [100, 300]" and text[0]["P(first better) [95 %]"] == ""
    assert text[1]["P(first better) [95 %]"] == "1 [1, 1]"


def test_groups_of_single_runs_are_not_compared() -> None:
    assert rows(group("a2c", 1), group("ppo", 2)) == []
    assert rows(group("a2c", 1, 2), group("ppo", 2)) == []


def test_the_same_algorithm_under_other_seeds_is_no_difference() -> None:
    """Of 200 comparisons of alike scores, at most as many as the level says are called different."""
    generator = np.random.default_rng(1)
    draws = [generator.normal(0, 1, (2, 10)) for _ in range(200)]
    assert sum(p_value(x.tolist(), y.tolist()) < 0.05 for x, y in draws) <= 17  # 5 % and two standard errors
    assert sum(p_value((x + 2).tolist(), y.tolist()) < 0.05 for x, y in draws) >= 190


def test_alike_algorithms_on_three_worlds_do_not_differ() -> None:
    """Of 100 comparisons of alike scores on three worlds, few are called different; of shifted ones nearly all are."""
    generator = np.random.default_rng(2)
    draws = [generator.normal(0, 1, (2, 3, 4)) for _ in range(100)]
    assert sum(stratified_p_value(x.tolist(), y.tolist()) < 0.05 for x, y in draws) <= 5
    assert sum(stratified_p_value((x + 2).tolist(), y.tolist()) < 0.05 for x, y in draws[:20]) >= 18
