"""The model of large clusters: its limits, which follow without it, and the page that quotes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

SPEED = Path(__file__).parents[1] / "benchmarks" / "speed"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SPEED))


def example() -> tuple[Any, Any]:
    from scaling import Place, Work

    work = Work(fragment=2048.0, play_s=0.05, learn_s=0.02, weights=4e4, answer=1.4e5)
    place = Place(call=(3e-5, 1e-7), take=(3e-5, 1e-7), memory=4e9, curve=3e8)
    return work, place


def test_one_worker_with_free_messages_is_play_and_learn_in_turn() -> None:
    from scaling import stream, sync

    work, place = example()
    free = replace(place, call=(0.0, 0.0), take=(0.0, 0.0), memory=1e30, curve=1e30, network=1e30)
    assert sync(work, free, 1) == pytest.approx(2048 / 0.07)
    assert stream(work, free, 1) == pytest.approx(2048 / 0.05)
    assert stream(work, free, 1000) == pytest.approx(2048 / 0.02)


def test_a_stream_does_not_fall_with_more_workers() -> None:
    """What the driver sends for each fragment is one copy of the weights."""
    from scaling import stream

    work, place = example()
    light, flat = replace(work, learn_s=0.0), replace(place, take=(3e-5, 0.0))
    assert stream(light, flat, 6000) == pytest.approx(2048 * 3e8 / (1.4e5 + 4e4))
    assert stream(light, flat, 1000) == stream(light, flat, 6000)


@given(workers=st.integers(1, 6000), learn=st.floats(0, 1), play=st.floats(1e-3, 10))
def test_no_faster_than_all_workers_nor_than_the_learner(workers: int, learn: float, play: float) -> None:
    from scaling import crowded, stream, sync

    work, place = example()
    work = replace(work, learn_s=learn, play_s=play)
    ideal = 1.000001 * min(workers * 2048 / play, 2048 / max(learn, 1e-9))
    assert 0 < sync(work, place, workers) <= ideal
    assert 0 < crowded(work, place, workers, 2) <= stream(work, place, workers) <= ideal


@given(workers=st.integers(65, 6000))
def test_a_tree_is_never_later_than_a_star(workers: int) -> None:
    from scaling import out

    work, place = example()
    assert out(work, place, workers, "none") < out(work, place, workers, "tree") <= out(work, place, workers, "star")


@given(hosts=st.integers(1, 400), degree=st.integers(2, 8))
def test_a_tree_is_as_deep_as_ours(hosts: int, degree: int) -> None:
    from scaling import levels

    from evorl.cluster.transport.broadcast_relay import FAN_OUT, branches

    def depth(places: Sequence[int]) -> int:
        return 1 + max(depth(beyond) for _, beyond in branches(places)) if places else 0

    assert levels(hosts, FAN_OUT) == depth(range(hosts))
    assert levels(hosts, degree) <= hosts


def test_what_the_page_quotes_is_what_was_written() -> None:
    from model import BEGIN, END, PAGE, quoted

    results = json.loads((SPEED / "results" / "model.json").read_text())
    shown = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert shown.strip() == "\n".join(quoted(results))


def test_constants_are_found_quickly() -> None:
    from constants import curve, messages, work
    from model import A3C

    found = work(A3C.replace("slots=16", "slots=2").replace("horizon=128", "horizon=4"), 0)
    assert found.fragment > 0 and found.weights > 0 and found.answer > found.weights
    assert all(seconds > 0 for seconds in messages(2, 1000, 0).values())
    assert curve(0) > 0
