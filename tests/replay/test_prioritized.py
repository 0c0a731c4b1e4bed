"""Prioritised sampling: its distribution, its weights against slow ones, and its state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutating import check_mutation
from scipy.stats import chi2

from evorl.replay.samplers.prioritized import Priorities
from evorl.util.seed import key


class SlowPriorities:
    """The same by dictionary, one transition at a time."""

    def __init__(self, alpha: float) -> None:
        self.alpha, self.priority, self.largest, self.seen = alpha, dict[int, float](), 1.0, 0

    def follow(self, low: int, high: int) -> None:
        self.priority = {n: p for n, p in self.priority.items() if n >= low}
        self.priority |= dict.fromkeys(range(max(low, self.seen), high), self.largest)
        self.seen = high

    def update(self, numbers: list[int], priority: list[float]) -> None:
        for n, p in zip(numbers, priority, strict=True):
            self.priority[n] = p
            self.largest = max(self.largest, p)

    def probability(self) -> dict[int, float]:
        total = sum(p**self.alpha for p in self.priority.values())
        return {n: p**self.alpha / total for n, p in self.priority.items()}


def filled(alpha: float, rows: int = 50) -> tuple[Priorities, SlowPriorities]:
    fast, slow, random = Priorities(rows, alpha), SlowPriorities(alpha), np.random.default_rng(1)
    for low, high in ((0, 20), (0, 37), (13, 60), (13, 60), (35, 80)):  # a ring that also forgets early
        numbers, priority = random.integers(low, high, (2, 8)), random.exponential(2.0, (2, 8))
        for one in (fast, slow):
            one.follow(low, high)
        fast.update(numbers, priority)
        slow.update(numbers.reshape(-1).tolist(), priority.reshape(-1).tolist())
    return fast, slow


def check_distribution(alpha: float) -> None:
    fast, slow = filled(alpha)
    drawn, expected = fast.draw(key(5), 0, 500, 32), slow.probability()
    assert set(np.unique(drawn)) <= set(expected) and len(expected) == 45
    counts = np.array([np.count_nonzero(drawn == n) for n in expected])
    exact = np.array([*expected.values()]) * drawn.size
    assert np.sum((counts - exact) ** 2 / exact) < chi2.ppf(0.999, len(exact) - 1)
    for number, probability in zip(drawn.flat, fast.probability(drawn).flat, strict=True):
        assert probability == pytest.approx(expected[number])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_it_draws_in_proportion_to_priorities(alpha: float) -> None:
    check_distribution(alpha)


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_undo_the_bias(beta: float) -> None:
    fast, slow = filled(0.7)
    drawn, expected = fast.draw(key(6), 0, 4, 8), slow.probability()
    for numbers, found in zip(drawn.tolist(), fast.weights(drawn, beta).tolist(), strict=True):
        weight = [(1 / len(expected) / expected[n]) ** beta for n in numbers]
        assert found == pytest.approx([w / max(weight) for w in weight], rel=1e-5)


def test_weights_make_a_mean_that_priorities_do_not_bias() -> None:
    fast, slow = filled(1.0)
    drawn = fast.draw(key(7), 0, 3000, 16)
    weight = 1 / (len(slow.priority) * fast.probability(drawn))  # beta = 1, not normalised
    mean = np.mean([float(n) for n in slow.priority])
    assert np.mean(weight * drawn) == pytest.approx(mean, rel=0.02)


def test_a_minibatch_has_one_transition_of_each_part() -> None:
    fast, _ = filled(0.6)
    leaves = fast.tree[fast.leaves :]
    edges = np.cumsum(leaves)
    drawn = fast.draw(key(8), 3, 20, 10)
    place = drawn % fast.rows
    part = edges[-1] / 10
    assert (edges[place] >= np.arange(10) * part).all()
    assert (edges[place] - leaves[place] <= np.arange(1, 11) * part + 1e-9).all()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 70), st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3)), min_size=1, max_size=8))
def test_the_tree_holds_the_window_and_nothing_else(rows: int, moves: list[tuple[int, int]]) -> None:
    one, low, high = Priorities(rows, 0.6), 0, 0
    for more, fewer in moves:
        high += more
        low = max(min(low + fewer, high - 1), high - rows)
        one.follow(low, high)
        numbers = np.arange(low, high)
        one.update(numbers, 0.1 + numbers % 7)
        assert one.tree[1] == pytest.approx(np.sum((0.1 + numbers % 7) ** 0.6))
        assert np.count_nonzero(one.tree[one.leaves :]) == high - low
        drawn = one.draw(key(high), 0, 3, 5)
        assert drawn.min() >= low and drawn.max() < high


def test_minibatches_depend_on_their_number_alone() -> None:
    fast, _ = filled(0.6)
    whole = fast.draw(key(9), 4, 6, 8)
    for at, first, count in ((slice(0, 2), 4, 2), (slice(2, 6), 6, 4)):
        part = fast.draw(key(9), first, count, 8)
        assert (part == whole[at]).all()


def test_the_last_of_several_priorities_counts_and_new_ones_get_the_largest() -> None:
    one = Priorities(8, 1.0)
    one.follow(0, 4)
    one.update(np.array([[1, 2], [1, 3]]), np.array([[9.0, 2.0], [3.0, 4.0]]))
    one.follow(0, 6)
    assert one.tree[one.leaves :].tolist() == [1, 3, 2, 4, 9, 9, 0, 0]


def test_its_state_draws_the_same() -> None:
    fast, _ = filled(0.6)
    other = Priorities(fast.rows, 0.6)
    other.follow(0, 7)
    other.load_state_dict(fast.state_dict())
    assert (other.tree == fast.tree).all() and (other.low, other.high) == (fast.low, fast.high)
    for one in (fast, other):
        one.follow(40, 85)
    assert (fast.draw(key(1), 0, 5, 9) == other.draw(key(1), 0, 5, 9)).all()


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_priorities_of_another_exponent_are_those_of_its_own(alpha: float) -> None:
    """An individual of a population goes on with the replay of its parent, whose alpha was another."""
    before, after, priority = Priorities(8, alpha), Priorities(8, 0.5), np.array([0.01, 4.0, 0.3, 9.0])
    before.follow(0, 4)
    before.update(np.arange(4), priority)
    after.load_state_dict(before.state_dict())
    known = priority if alpha else np.full(4, 9.0)  # with alpha=0 every priority has the power 1
    np.testing.assert_allclose(after.tree[after.leaves :][:4], known**0.5)
    assert after.largest == 9.0


def test_rounding_never_leads_to_a_leaf_of_nothing() -> None:
    one = Priorities(5, 1.0)
    one.follow(0, 3)
    one.update(np.arange(3), np.array([0.1, 0.2, 0.3]))
    assert one._find(np.array([one.tree[1], np.nextafter(one.tree[1], 0), 0.0])).tolist() == [2, 2, 0]
    assert one.draw(key(0), 0, 1, 1).shape == (1, 1)


MUTATIONS: dict[str, tuple[Any, tuple[Any, ...], Any, str, str]] = {
    "not raised to alpha": (check_distribution, (0.6,), Priorities._power, "priority**self.alpha", "priority"),
    "the mass of the left not left": (
        check_distribution, (0.6,), Priorities._find, "np.where(right, mass - left, mass)", "mass"),
    "old priorities stay": (check_distribution, (0.6,), Priorities.follow, "np.zeros(1)", "np.ones(1)"),
    "weights the wrong way round": (test_weights_undo_the_bias, (0.4,), Priorities.weights, "** -beta", "** beta"),
    "the first of several counts": (
        test_the_last_of_several_priorities_counts_and_new_ones_get_the_largest, (), Priorities.update,
        "numbers.reshape(-1), self._power(priority.reshape(-1))",
        "numbers.reshape(-1)[::-1], self._power(priority.reshape(-1)[::-1])"),
    "new ones get 1": (
        test_the_last_of_several_priorities_counts_and_new_ones_get_the_largest, (), Priorities.follow,
        "np.array([self.largest])", "np.ones(1)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutation(monkeypatch, *MUTATIONS[name])
