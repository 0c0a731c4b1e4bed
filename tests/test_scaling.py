"""The model of large clusters: its limits, which follow without it, and the page that quotes it."""

from __future__ import annotations

import json
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
    place = Place(call=(3e-5, 1e-7), take=(3e-5, 1e-7), post_s=2e-5, memory=4e9, curve=3e8)
    return work, place


def test_one_worker_with_free_messages_is_play_and_learn_in_turn() -> None:
    from scaling import stream, sync

    work, place = example()
    free = replace(place, call=(0.0, 0.0), take=(0.0, 0.0), post_s=0.0, memory=1e30, curve=1e30, network=1e30)
    assert sync(work, free, 1) == pytest.approx(2048 / 0.07)
    assert stream(work, free, 1) == pytest.approx(2048 / 0.05)
    assert stream(work, free, 1000) == pytest.approx(2048 / 0.02)


def test_weights_to_everybody_after_every_fragment_is_what_stops_a_stream() -> None:
    """In a star the driver encrypts n copies of the weights for each fragment."""
    from scaling import stream

    work, place = example()
    light = replace(work, learn_s=0.0)
    assert stream(light, place, 6000) == pytest.approx(2048 * 3e8 / (1.4e5 + 6000 * 4e4))
    assert stream(light, place, 6000, "one") > 100 * stream(light, place, 6000)


@given(workers=st.integers(1, 6000), learn=st.floats(0, 1), play=st.floats(1e-3, 10))
def test_no_faster_than_all_workers_nor_than_the_learner(workers: int, learn: float, play: float) -> None:
    from scaling import crowded, stream, sync

    work, place = example()
    work = replace(work, learn_s=learn, play_s=play)
    ideal = 1.000001 * min(workers * 2048 / play, 2048 / max(learn, 1e-9))
    assert 0 < sync(work, place, workers) <= ideal
    assert 0 < crowded(work, place, workers, 2) <= stream(work, place, workers) <= ideal
    assert stream(work, place, workers) <= 1.000001 * stream(work, place, workers, "one")


@given(workers=st.integers(65, 6000))
def test_fewer_copies_are_never_later(workers: int) -> None:
    from scaling import copies, out

    work, place = example()
    assert copies(place, workers, "tree") <= copies(place, workers, "host") <= copies(place, workers, "star")
    assert out(work, place, workers, "host") <= out(work, place, workers, "star")


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
