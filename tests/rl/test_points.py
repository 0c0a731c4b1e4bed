"""Who has won a game, by the result or else by the return."""

from __future__ import annotations

from evorl.rl.core import Episode
from evorl.rl.points import points


def episode(ret: float, **results: float) -> Episode:
    return Episode(ret, 1, (ret,), results)


def test_the_result_counts_where_there_is_one() -> None:
    assert points(episode(-9, win=1.0), episode(9, win=0.0)) == 1
    assert points(episode(9, win=0.0), episode(-9, win=1.0)) == 0
    assert points(episode(0, win=0.5), episode(0, win=0.5)) == 0.5
    assert points(episode(1, win=0.5)) == 0.5


def test_else_the_greater_return_or_one_above_zero() -> None:
    assert [points(episode(x), episode(y)) for x, y in ((3, 2), (2, 2), (-3, -2))] == [1, 0.5, 0]
    assert [points(episode(x)) for x in (2, 0, -2)] == [1, 0.5, 0]
