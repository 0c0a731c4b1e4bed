"""Attributes that a state holds as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evorl.util.saved import restore, saved

NAMES = ("place", "count", "rounds")


def counters(first: int) -> Any:
    return SimpleNamespace(place=np.arange(3) + first, count=first, rounds=[first], other=first)


def test_the_named_attributes_are_copied_there_and_back() -> None:
    before, after = counters(5), counters(0)
    state = saved(before, NAMES)
    assert [*state] == [*NAMES]
    seen = after.place  # others may hold it
    restore(after, NAMES, state)
    before.place += 1
    before.rounds.append(9)
    state["rounds"].append(9)
    assert after.place is seen and seen.tolist() == [5, 6, 7]
    assert (after.count, after.rounds, after.other) == (5, [5], 0)


def test_own_names_may_begin_with_a_prefix() -> None:
    owner = SimpleNamespace(_count=3)
    assert saved(owner, ("count",), "_") == {"count": 3}
    restore(owner, ("count",), {"count": 4}, "_")
    assert vars(owner) == {"_count": 4}


def test_an_array_of_another_shape_is_refused_and_nothing_is_changed() -> None:
    owner = counters(0)
    with pytest.raises(ValueError, match=r"^place: the state has shape \(1,\), this object \(3,\)$"):
        restore(owner, ("count", "place"), {"count": 7, "place": np.zeros(1)})
    assert owner.count == 0
