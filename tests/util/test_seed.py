"""Keyed random numbers: the same everywhere and for ever, uniform, and apart from each other."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.util.seed import Episodes, Grouped, Keys, generator, key, mix, seed31, uniform

words = st.lists(st.integers() | st.text(max_size=5), max_size=4)
keys64 = st.integers(0, 2**64 - 1)


def u64(*numbers: int) -> Keys:
    return np.array(numbers, np.uint64)


# ------------------------------------------------------------------ the same for ever: a change breaks every resume


def test_keys_are_golden() -> None:
    assert key(1, "a") == 9221374186959825746
    assert key(0) == 7163381271710615482


def test_generators_are_golden() -> None:
    assert generator(3, "x").random(2) == pytest.approx([0.91433377, 0.7375], abs=1e-8)


def test_episode_keys_are_golden() -> None:
    assert Episodes(7)(np.arange(2), np.array(3)).tolist() == [15018251018696761132, 2352201823615050958]
    assert seed31(15018251018696761132) == ((15018251018696761132 >> 34) << 1)


def test_streams_are_the_published_splitmix64() -> None:
    """The first outputs for the seed 1234567, as the algorithm's public test vectors give them."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert uniform(u64(1234567), np.arange(4)).tolist() == [(x >> 11) / 2**53 for x in published]


def test_no_number_depends_on_the_process() -> None:
    numbers = "key('a', 1), generator('b').random(), uniform(Episodes(1)(2, 3), 4).item()"
    code = f"from evorl.util.seed import *; print({numbers})"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    here = f"{key('a', 1)} {generator('b').random()} {uniform(Episodes(1)(2, 3), 4).item()}\n"
    assert runs == [here, here]


# ------------------------------------------------------------------ different words, different numbers


@given(words, words)
def test_different_words_have_different_keys(a: list[int | str], b: list[int | str]) -> None:
    assert (key(*a) == key(*b)) == (a == b)


@pytest.mark.parametrize("other", [(1, "ab"), ("1", "a"), (1, "a", ""), (1,), (11, "a")])
def test_nearby_words_have_different_keys(other: tuple[int | str, ...]) -> None:
    assert key(1, "a") != key(*other)


def test_mix_is_a_bijection() -> None:
    """On the finaliser's own inverse: xor-shifts and odd multiplications undone in reverse."""

    def unshift(x: int, by: int) -> int:
        y = x
        for _ in range(64 // by):
            y = x ^ (y >> by)
        return y

    for number in (0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF):
        x = unshift(int(mix(np.uint64(number))), 31)
        x = unshift(x * pow(0x94D049BB133111EB, -1, 2**64) % 2**64, 27)
        assert unshift(x * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64, 30) == number


def test_training_and_evaluation_keys_never_meet() -> None:
    slots, episodes = np.arange(100)[:, None], np.arange(1000)
    for seed in range(3):
        training, evaluation = Episodes(seed)(slots, episodes), Episodes(seed, evaluation=True)(slots, episodes)
        assert not (training & np.uint64(1)).any()
        assert (evaluation & np.uint64(1)).all()
        assert len(np.unique(np.concatenate((training, evaluation), axis=None))) == 200_000


def test_runs_purposes_slots_and_episodes_have_their_own_keys() -> None:
    made = [
        Episodes(seed, purpose)(np.arange(50)[:, None], np.arange(50))
        for seed in range(4)
        for purpose in ("train", "fitness")
    ]
    assert len(np.unique(np.concatenate(made, axis=None))) == 8 * 2500


@given(keys64)
def test_simulator_seeds_keep_the_evaluation_bit_and_fit(episode: int) -> None:
    assert 0 <= seed31(episode) < 2**31
    assert seed31(episode) % 2 == episode % 2


# ------------------------------------------------------------------ uniform, independent, elementwise


def draws(streams: int, count: int) -> np.ndarray:
    """[streams, count] of the run's training episodes."""
    return uniform(Episodes(0)(np.arange(streams), 0)[:, None], np.arange(count))


@pytest.mark.parametrize(("streams", "count"), [(1, 200_000), (200_000, 1), (400, 500)])
def test_draws_are_uniform(streams: int, count: int) -> None:
    found = draws(streams, count).ravel()
    assert found.min() >= 0
    assert found.max() < 1
    observed = np.bincount((found * 100).astype(int), minlength=100)
    chi_square = ((observed - 2000) ** 2 / 2000).sum()  # 99 degrees of freedom
    assert 50 < chi_square < 160  # each side beyond 1 in 5000; the draws are fixed, so it holds or it does not


def test_streams_and_successive_draws_are_uncorrelated() -> None:
    found = draws(100, 5000)
    between = np.corrcoef(found) - np.eye(100)
    assert np.abs(between).max() < 5 / np.sqrt(5000)
    successive = [np.corrcoef(x[:-1], x[1:])[0, 1] for x in found]
    assert np.abs(successive).max() < 5 / np.sqrt(5000)


@given(st.lists(st.tuples(keys64, st.integers(0, 2**40)), min_size=1, max_size=10))
def test_an_array_of_draws_is_each_draw_alone(pairs: list[tuple[int, int]]) -> None:
    keys, counters = u64(*(k for k, _ in pairs)), np.array([c for _, c in pairs])
    assert uniform(keys, counters).tolist() == [float(uniform(np.uint64(k), c)) for k, c in pairs]


@given(
    st.integers(0, 2**31), st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 2**40)), min_size=1, max_size=10)
)
def test_an_array_of_episode_keys_is_each_key_alone(seed: int, pairs: list[tuple[int, int]]) -> None:
    episodes = Episodes(seed)
    together = episodes(np.array([s for s, _ in pairs]), np.array([n for _, n in pairs]))
    assert together.tolist() == [int(episodes(s, n)) for s, n in pairs]


@pytest.mark.parametrize("groups", [("a",), ("a", "a", "a"), ("b", "a", "b")])
def test_grouped_slots_play_the_episodes_of_their_purpose(groups: tuple[str, ...]) -> None:
    width, episodes = 4, np.arange(3)
    slots = np.arange(width * len(groups))
    expected = [[int(Episodes(5, groups[s // width], evaluation=True)(s % width, e)) for e in episodes] for s in slots]
    keys = Grouped(5, evaluation=True, width=width, groups=groups)
    assert keys(slots[:, None], episodes).tolist() == expected
    assert [keys(int(s), episodes).tolist() for s in slots] == expected
    assert keys(slots, np.zeros_like(slots)).tolist() == [row[0] for row in expected]
