"""Attentive sampling of transitions on tables made by hand, and its properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutating import check_notices, mutate

from evorl.replay.samplers import nearest
from evorl.replay.samplers.attentive import Attentive
from evorl.replay.samplers.conformance import ToyTransitions
from evorl.replay.samplers.nearest import Nearest, NearestTransitions, annealed, draw
from evorl.util.seed import generator


@dataclass(frozen=True)
class Table(ToyTransitions):
    """Transitions whose states have these vectors; the agent is in the state of the transition ``now``."""

    now: int
    vectors: Callable[[Any], Any]

    def current(self, step: int) -> int:
        return self.now

    def features(self, items: Any) -> Any:
        return self.vectors(items)[:, None]


def attentive(key: int, step: int, size: int, low: int, high: int, now: int, keys: Any, vectors: Any) -> Any:
    memory = Table(high - low, high, low, high - low, now, vectors)
    return Attentive(keys, high - low, size).draw(memory, key, range(step, step + 1), size)[0]


ANGLES = np.array([0.0, 90.0, 10.0, 180.0, 350.0, 45.0, 300.0, 20.0])
"""Of transitions 100 to 107: their states are (cos, sin), of lengths that a cosine does not see."""


def table(numbers: Any) -> Any:
    angle = np.deg2rad(ANGLES[numbers - 100])
    return (1 + numbers[:, None] % 3) * np.stack([np.cos(angle), np.sin(angle)], -1)


@pytest.mark.parametrize(
    ("now", "size", "expected"),
    [(100, 3, [100, 102, 104]), (101, 2, [101, 105]), (106, 4, [106, 104, 100, 102]), (103, 1, [103])],
)
def test_the_most_similar_of_all(now: int, size: int, expected: list[int]) -> None:
    """With enough candidates all transitions are among them."""
    check_table(now, size, expected)


def check_table(now: int, size: int, expected: list[int]) -> None:
    keys = NearestTransitions(candidates=8.0, anneal=1_000_000)
    assert sorted(attentive(3, 0, size, 100, 108, now, keys, table)) == sorted(expected)


def test_the_distance_decides() -> None:
    """Transitions 100 and 103 lie at 1 and 3 on a line, 101 at -0.1, 102 at 1.5 beside it."""
    places = np.array([[1.0, 0.0], [-0.1, 0.0], [1.5, 1.0], [3.0, 0.0]])

    def vectors(numbers: Any) -> Any:
        return places[numbers - 100]

    def chosen(distance: Any) -> list[int]:
        keys = NearestTransitions(candidates=2.0, anneal=100, distance=distance)
        return sorted(attentive(0, 0, 2, 100, 104, 100, keys, vectors).tolist())

    assert chosen("cosine") == [100, 103] and chosen("p_norm") == [100, 101]


NUMBERS = st.integers(0, 10**6)


@given(
    key=NUMBERS, step=st.integers(0, 30), size=st.integers(1, 20), low=NUMBERS, held=st.integers(1, 60),
    candidates=st.floats(1, 8), anneal=st.integers(1, 30), data=st.data(),
)  # fmt: skip
def test_a_choice(
    key: int, step: int, size: int, low: int, held: int, candidates: float, anneal: int, data: Any
) -> None:
    """As many as were asked for, none twice while there are enough, the nearest of the candidates, repeatably."""
    check_choice(key, step, size, low, held, candidates, anneal, data.draw(st.integers(low, low + held - 1)))


def check_choice(key: int, step: int, size: int, low: int, held: int, candidates: float, anneal: int, now: int) -> None:
    keys = NearestTransitions(candidates=candidates, anneal=anneal)
    seen: list[Any] = []

    def vectors(numbers: Any) -> Any:
        seen.append(numbers)
        return np.array([generator("state", int(n)).standard_normal(3) for n in numbers])

    chosen, again = (attentive(key, step, size, low, low + held, now, keys, vectors) for _ in range(2))
    assert chosen.shape == (size,) and (chosen == again).all()
    assert ((chosen >= low) & (chosen < low + held)).all()
    assert len({*chosen.tolist()}) == min(size, held)
    wanted = int(max(candidates - (candidates - 1) * step / anneal, 1) * size)
    if min(wanted, held) <= size:
        assert not seen  # uniform: nothing is compared
        return
    *drawn, current = seen[0].tolist()
    assert current == now and len(drawn) == len({*drawn}) == min(wanted, held)
    x = vectors(np.array([*drawn, now]))
    unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
    similarity = dict(zip(drawn, (unit[:-1] @ unit[-1]).tolist(), strict=True))
    worst = min(similarity[n] for n in chosen.tolist())
    assert all(s <= worst + 1e-9 for n, s in similarity.items() if n not in chosen)


def test_all_candidates_are_equally_likely() -> None:
    keys = NearestTransitions(candidates=1.0)
    found = np.concatenate([attentive(5, step, 4, 50, 60, 59, keys, table) for step in range(2000)])
    share = np.bincount(found - 50, minlength=10) / len(found)
    np.testing.assert_allclose(share, 0.1, atol=0.015)


def check_annealing() -> None:
    assert [annealed(5.0, step, 200) for step in (0, 50, 100, 150, 199)] == pytest.approx([5, 4, 3, 2, 1.02])
    assert [annealed(5.0, step, 200) for step in (200, 201, 10**6)] == [1, 1, 1]


def test_lambda_falls_to_one_at_the_step_that_is_asked_for() -> None:
    check_annealing()


CHOICE = (check_choice, (7, 2, 5, 100, 40, 4.0, 30, 120))
MUTATIONS: dict[str, tuple[Any, Any, str, str]] = {
    "the least similar": (
        (check_table, (100, 3, [100, 102, 104])), nearest.pick, "distances.argsort", "(-distances).argsort"),
    "no nearness": (CHOICE, Nearest._nearest, "candidates[picked]", "candidates[:size]"),
    "another state": (CHOICE, Attentive.distances, "features[-1:, -1:]", "features[:1, -1:]"),
    "lambda at its start": (CHOICE, Nearest._candidates, "self.factor(step)", "self.factor(0)"),
    "one draw for all steps": (
        (lambda: check_apart(), ()), Nearest._candidates, "memory.random(key, step)", "memory.random(key, 0)"),
    "with replacement": (CHOICE, draw, "replace=False", "replace=True"),
    "lambda ends late": ((check_annealing, ()), nearest.annealed, "(candidates - 1) * step", "(candidates - 2) * step"),
}  # fmt: skip


def check_apart() -> None:
    keys = NearestTransitions(candidates=1.0)
    first, second = (attentive(5, step, 4, 0, 1000, 9, keys, table) for step in (0, 1))
    assert (first != second).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (check, args), function, old, new = MUTATIONS[name]
    check(*args)
    mutate(monkeypatch, function, old, new)
    check_notices(check, *args)
