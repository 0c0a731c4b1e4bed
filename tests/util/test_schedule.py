"""Schedules as config values and as functions of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.util.schedule import Anneal, Schedule, value


@dataclass(frozen=True, kw_only=True)
class Settings:
    lr: Schedule = 3e-4


bounds = st.floats(0, 1e3)
horizons = st.floats(1e-3, 1e9)
kinds = st.sampled_from(["linear", "cosine"])
anneals = st.builds(Anneal, start=bounds, end=bounds, steps=horizons, kind=kinds)


@given(st.floats(0, 1e3), st.floats(0, 1e9))
def test_a_number_is_constant(number: float, step: float) -> None:
    assert value(number, step) == number


@given(anneals, st.floats(0, 1e9))
def test_an_annealing_meets_both_ends_and_stays_there(schedule: Anneal, beyond: float) -> None:
    assert value(schedule, 0) == schedule.start
    assert value(schedule, schedule.steps) == schedule.end
    assert value(schedule, schedule.steps + beyond) == schedule.end


@given(anneals, st.floats(0, 1), st.floats(0, 1))
def test_an_annealing_moves_one_way(schedule: Anneal, early: float, late: float) -> None:
    early, late = sorted((early * schedule.steps, late * schedule.steps))
    sign = math.copysign(1, schedule.end - schedule.start)
    assert sign * value(schedule, early) <= sign * value(schedule, late) + 1e-9


@pytest.mark.parametrize(
    ("kind", "quarter", "half"), [("linear", 3.0, 2.0), ("cosine", 2 + math.sqrt(2), 2.0)], ids=["linear", "cosine"]
)
def test_the_shape_of_an_annealing(kind: Literal["linear", "cosine"], quarter: float, half: float) -> None:
    schedule = Anneal(start=4, end=0, steps=1000, kind=kind)
    assert value(schedule, 250) == pytest.approx(quarter)
    assert value(schedule, 500) == pytest.approx(half)


@pytest.mark.parametrize(("kind", "half"), [("linear", 1 + 3 / 8), ("cosine", 1 + 3 / 8)])
def test_a_power_bends_an_annealing(kind: Literal["linear", "cosine"], half: float) -> None:
    """Polynomial decay: (1 - x)^3 of the way is left."""
    schedule = Anneal(start=4, end=1, steps=1000, kind=kind, power=3)
    assert value(schedule, 500) == pytest.approx(half)
    assert (value(schedule, 0), value(schedule, 1000)) == (4, 1)


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (3e-4, 3e-4),
        (1, 1.0),
        ({"start": 3e-4, "end": 0, "steps": 1e6}, Anneal(start=3e-4, end=0, steps=1e6)),
        ({"start": 1, "end": 2, "steps": 10, "kind": "cosine"}, Anneal(start=1, end=2, steps=10, kind="cosine")),
    ],
)
def test_a_config_value_converts(given_value: Any, expected: Schedule) -> None:
    assert msgspec.convert({"lr": given_value}, Settings) == Settings(lr=expected)


@pytest.mark.parametrize(
    ("given_value", "where"),
    [
        (-1e-3, "$.lr"),
        ("3e-4", "$.lr"),
        (math.nan, "$.lr"),
        ({"start": -1, "end": 0, "steps": 1}, "$.lr.start"),
        ({"start": 1, "end": "0", "steps": 1}, "$.lr.end"),
        ({"start": 1, "end": 0, "steps": 0}, "$.lr.steps"),
        ({"start": 1, "end": 0, "steps": 1, "kind": "step"}, "$.lr.kind"),
        ({"start": 1, "end": 0}, "$.lr"),
        ({"start": 1, "end": math.inf, "steps": 1}, "$.lr"),
    ],
)
def test_an_impossible_config_value_is_refused_where_it_stands(given_value: Any, where: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refusal:
        msgspec.convert({"lr": given_value}, Settings)
    assert f"`{where}`" in str(refusal.value)


def test_endless_annealing_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        Anneal(start=1, end=0, steps=math.inf)
