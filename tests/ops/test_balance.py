"""Numbers of balance against slow definitions."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.ops.balance import change, evenness, variety

POINTS = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=50)
COUNTS = st.lists(st.integers(0, 1000), min_size=2, max_size=12)


@given(POINTS)
def test_evenness_counts_wins_and_half_of_the_draws(points: list[float]) -> None:
    wins = sum(1 for x in points if x == 1) + sum(0.5 for x in points if x == 0.5)
    losses = len(points) - wins
    assert evenness(points) == pytest.approx(1 - abs(wins - losses) / len(points))
    assert evenness(points) == pytest.approx(evenness([1 - x for x in points]))  # whatever side is the first
    assert 0 <= evenness(points) <= 1


def test_evenness_of_known_games() -> None:
    assert evenness([1, 1, 1, 1, 0]) == pytest.approx(0.4)  # 80 : 20
    assert evenness([1, 0]) == evenness([0.5]) == 1 and evenness([1]) == evenness([0, 0]) == 0


@given(COUNTS)
def test_variety_is_the_entropy_of_single_choices(counts: list[int]) -> None:
    choices = [choice for choice, times in enumerate(counts) for _ in range(times)]
    bits = 0.0
    for times in Counter(choices).values():
        bits -= times / len(choices) * math.log2(times / len(choices))
    assert variety(counts) == pytest.approx(bits / math.log2(len(counts)), abs=1e-12)
    assert variety(counts) == pytest.approx(variety(counts[::-1])) and 0 <= variety(counts) <= 1 + 1e-12


def test_variety_of_known_choices() -> None:
    assert variety([5, 5, 5]) == pytest.approx(1) and variety([7, 0, 0]) == 0
    assert variety([0, 0]) == variety([3]) == 0


@given(st.lists(st.floats(-1, 1), max_size=9))
def test_change_is_a_root_mean_square(differences: list[float]) -> None:
    total = 0.0
    for x in differences:
        total += x**2
    assert change(differences) == pytest.approx(math.sqrt(total / max(len(differences), 1)), abs=1e-12)
