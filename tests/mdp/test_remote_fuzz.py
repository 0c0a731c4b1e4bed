"""No frame of a game does more than lose its battles, and what comes through has the offered form."""

from __future__ import annotations

import resource

import pytest
from remote_fuzz import attack, attack_hello, attack_websocket


def test_hostile_frames() -> None:
    outcomes = attack(3_000)
    assert sum(outcomes.values()) >= 3_000
    assert min(outcomes["right"], outcomes["refused"], outcomes["taken"]) > 30


def test_hostile_offers() -> None:
    outcomes = attack_hello(2_000)
    assert min(outcomes["right"], outcomes["refused"]) > 50


def test_hostile_websockets() -> None:
    outcomes = attack_websocket(1_000)
    assert min(outcomes["right"], outcomes["refused"]) > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_hundred_thousand_hostile_frames(seed: int) -> None:
    attack(1_000, seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attack(20_000, seed)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10  # KiB
