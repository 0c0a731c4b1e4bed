"""Samplers of rollouts: one conformance check for all, and the rules of each on hand-made tables.

The check that all samplers of transitions pass is in test_samplers.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutating import check_notices, mutate

from evorl.replay.mixture import Mixture, Shares
from evorl.replay.part import Part
from evorl.replay.samplers import nearest
from evorl.replay.samplers.attentive import Attentive, AttentiveRollouts
from evorl.replay.samplers.circular import Circular, CircularKeys
from evorl.replay.samplers.conformance import INPUTS, check_rollouts, encode, toy_rollouts
from evorl.replay.samplers.core import BufferKeys
from evorl.replay.samplers.distances import cosine, kl, p_norm
from evorl.replay.samplers.elite import Elite
from evorl.replay.samplers.nearest import NearestRollouts, pick
from evorl.replay.samplers.prioritized import Prioritized, PrioritizedRollouts
from evorl.replay.samplers.queue import Queue, QueueKeys
from evorl.replay.samplers.registry import RolloutSamplers
from evorl.replay.samplers.uniform import Uniform
from evorl.replay.stacks import take_apart
from evorl.util.errors import BadRequest

FAST: dict[str, Any] = {"capacity": 12, "anneal": 30, "candidates": 3.0, "insertion_candidates": 5}
KINDS: dict[str, tuple[Any, Any, int]] = {
    "queue": (Queue, QueueKeys(), 30),
    "circular": (Circular, CircularKeys(batches=3, passes=2), 32),
    "uniform": (Uniform, BufferKeys(), 12),
    "prioritized": (Prioritized, PrioritizedRollouts(), 12),
    "elite, lag 3": (Elite, NearestRollouts(**FAST, lag=3), 12),
    **{
        f"{kind.name}, {d}, strategy {s}, {i}": (kind, keys(**FAST, distance=d, strategy=s, insertion=i), 12)
        for kind, keys in ((Elite, NearestRollouts), (Attentive, AttentiveRollouts))
        for d, s, i in (("p_norm", 1, "ring"), ("cosine", 2, "elite"), ("kl", 3, "elite"), ("cosine", 4, "ring"))
    },
}
"""Samplers with their options and the rows of their part."""


def check(name: str, compress: bool = False) -> None:
    kind, keys, rows = KINDS[name]
    check_rollouts(lambda rows: kind(keys, rows, 4), rows, compress=compress)


CHOSEN = "elite, kl, strategy 3, elite"


@pytest.mark.slow_cases(
    but=(
        "queue",
        "circular",
        "uniform",
        "prioritized",
        "elite, lag 3",
        "elite, p_norm, strategy 1, ring",
        "attentive, kl, strategy 3, elite",
    )
)  # other keys of two samplers
@pytest.mark.parametrize("kind", KINDS)
def test_it_conforms(kind: str) -> None:
    check(kind)


@pytest.mark.parametrize("kind", ["queue", CHOSEN])
def test_it_conforms_with_compressed_rollouts(kind: str) -> None:
    check(kind, compress=True)


BROKEN: dict[str, tuple[str, Any, str, str]] = {
    "arrivals are miscounted": ("queue", Part.insert, "self.count += new", "self.count += 1"),
    "samples are not counted": ("uniform", Part.sample, "np.add.at(self.chosen, places, 1)", "pass"),
    "fewer than asked": (CHOSEN, nearest.pick, "return order[:size]", "return order[: max(size - 1, 1)]"),
    "one leaves for two": (CHOSEN, Elite._evicted, "items[far.argmax()]", "candidates[0]"),
    "a draw of its own": ("prioritized", Prioritized.draw, "draw(key,", "draw(id(self),"),
    "numbers are not saved": ("uniform", Part.load_state_dict, "in TABLES", "in TABLES[1:]"),
    "no weights": (
        "prioritized",
        Prioritized.weights,
        "return self.priorities.weights(items, self.beta)",
        "return None",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_check_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, function, old, new = BROKEN[name]
    mutate(monkeypatch, function, old, new)
    check_notices(check, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_it_tells_how_many_rollouts_it_holds(kind: str) -> None:
    sampler, keys, rows = KINDS[kind]
    part = Part(sampler(keys, rows, 4), rows, take_apart(toy_rollouts(0, 1), INPUTS))
    part.insert(take_apart(toy_rollouts(0, 7), INPUTS), 0, 1, encode)
    assert part.metrics(0)[f"replay/size_{part.name}"] == 7


# ------------------------------------------------------------------ strategies

DISTANCES = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
TIMES = np.array([0, 2, 0, 1, 1, 0])


@pytest.mark.parametrize(
    ("strategy", "size", "picked"),
    [
        (1, 3, [1, 3, 4]),
        (2, 3, [1, 4, 0]),  # of (1, 2), (3, 4), (5, 6)
        (3, 4, [2, 0, 5, 3]),  # never sampled: 4, 5, 6; then once: 2
        (4, 3, [3, 2, 0]),  # 2 was sampled less than 1; 4 less than 3; 5 and 6 equally often: the nearer
        (4, 4, [3, 2, 0, 5]),  # subsets of (1, 2), (3, 4), 5, 6
        (2, 6, [1, 3, 4, 2, 0, 5]),
    ],
)
def test_strategies_on_a_table(strategy: Any, size: int, picked: list[int]) -> None:
    assert pick(DISTANCES, TIMES, size, strategy).tolist() == picked


@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from([1, 2, 3, 4]), st.integers(0, 99))
def test_a_strategy_picks_as_many_as_asked_and_none_twice(size: int, more: int, strategy: Any, seed: int) -> None:
    draw = np.random.Generator(np.random.Philox(seed))
    candidates = size + more - 1
    picked = pick(draw.integers(0, 4, candidates) / 2, draw.integers(0, 3, candidates), size, strategy)
    assert len(picked) == len({*picked.tolist()}) == size


def part_of(count: int, **keys: Any) -> Part:
    part = Part(Elite(NearestRollouts(**{**FAST, **keys}), 8, 4), 8, toy_rollouts(0, 1))
    part.insert(toy_rollouts(0, count), 0, 1, encode)
    return part


def test_no_rollout_is_drawn_twice_while_there_are_enough() -> None:
    part = part_of(8, strategy=1)
    for step in range(30):
        assert len({*part.sample(8, step, 1, encode).tolist()}) == 8


@pytest.mark.parametrize("strategy", [1, 2, 3, 4])
def test_a_part_with_fewer_rollouts_gives_all_of_them_and_as_many_as_asked(strategy: Any) -> None:
    places = part_of(3, strategy=strategy).sample(7, 0, 1, encode)
    assert sorted(np.bincount(places).tolist()) == [2, 2, 3]


def test_the_nearest_are_chosen_at_first_and_any_at_the_end() -> None:
    part = part_of(8, strategy=1, candidates=4.0, anneal=10)
    elite = part.sampler
    assert isinstance(elite, Elite)
    wanted = elite.distances(part.memory(encode), np.arange(8), 0).argsort()[:2]
    assert {*part.sample(2, 0, 1, encode).tolist()} == {*wanted.tolist()}
    assert elite.last_distance is not None

    def never(_: Any) -> Any:
        raise AssertionError("nothing is encoded for a uniform draw")

    seen = {place for step in range(10, 60) for place in part.sample(2, step, 1, never).tolist()}
    assert seen == {*range(8)}


def test_the_factor_falls_to_one_after_the_documented_number_of_steps() -> None:
    elite = Elite(NearestRollouts(candidates=6.0, anneal=20_000), 4, 4)
    assert [elite.factor(step) for step in (0, 10_000, 20_000, 90_000)] == [6.0, 3.5, 1.0, 1.0]
    assert elite.factor(19_999) > 1


# ------------------------------------------------------------------ insertion


def moved(by: dict[int, float]) -> Any:
    """A network whose features of the rollouts with these numbers are so far from those stored."""
    return lambda found: (
        found["features"] + np.array([by.get(int(n), 0.0) for n in found["input 0"][:, 0]])[:, None, None]
    )


def test_elite_insertion_evicts_the_most_distant() -> None:
    part = part_of(8, insertion="elite", insertion_candidates=8)
    far = moved({2: 3.0, 5: 2.0, 7: 1.0})
    for number, evicted in ((8, 2), (9, 5), (10, 7)):
        part.insert(toy_rollouts(number, 1), 0, 1, far)
        assert evicted not in part.number and number in part.number
    assert {*part.number.tolist()} == {0, 1, 3, 4, 6, 8, 9, 10}


def test_a_ring_evicts_the_oldest() -> None:
    part = part_of(8)
    part.insert(toy_rollouts(8, 3), 0, 1, moved({7: 9.0}))
    assert {*part.number.tolist()} == {3, 4, 5, 6, 7, 8, 9, 10}


def test_insertion_draws_as_many_as_documented() -> None:
    part, asked = part_of(8, insertion="elite", insertion_candidates=3, lag=0), []

    def counted(found: Any) -> Any:
        asked.append(len(found["features"]))
        return encode(found)

    part.insert(toy_rollouts(8, 1), 0, 1, counted)
    part.insert(toy_rollouts(9, 2), 0, 1, counted)
    part.insert(toy_rollouts(11, 4), 0, 1, counted)
    assert asked == [3, 6, 8]  # of eight, none is drawn twice


# ------------------------------------------------------------------ distances


def features(seed: int, count: int = 5) -> Any:
    return np.random.Generator(np.random.Philox(seed)).standard_normal((count, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("distance", [p_norm, cosine, kl])
def test_a_distance_is_zero_for_an_unchanged_network_and_positive_for_another(distance: Any) -> None:
    assert np.abs(distance(features(1), features(1))).max() < 1e-6
    assert distance(features(1), features(2)).min() > 0.01


def test_distances_by_their_definitions() -> None:
    a, b = features(1).astype(float), features(2).astype(float)
    for i in range(5):
        difference = (a[i] - b[i]).reshape(-1)
        assert p_norm(a, b, 3.0)[i] == pytest.approx((np.abs(difference) ** 3).sum() ** (1 / 3))
        x, y = a[i].reshape(-1), b[i].reshape(-1)
        assert cosine(a, b)[i] == pytest.approx(1 - x @ y / np.sqrt((x @ x) * (y @ y)))
        p, q = (np.exp(z[i]) / np.exp(z[i]).sum(-1, keepdims=True) for z in (a, b))
        assert kl(a, b)[i] == pytest.approx((p * np.log(p / q)).sum())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_high_power_is_neither_infinite_nor_zero(scale: float) -> None:
    a, b = (features(seed) * np.float32(scale) for seed in (1, 2))
    difference = np.abs(a.astype(float) - b).reshape(5, -1)
    np.testing.assert_allclose(p_norm(a, b, 24.0), (difference**24).sum(1) ** (1 / 24), rtol=1e-5)
    assert p_norm(a, a, 24.0).tolist() == [0.0] * 5


def test_the_cosine_distance_is_smallest_for_the_most_similar() -> None:
    one = np.ones((1, 1, 2))
    far = [cosine(np.array([[[x, y]]]), one)[0] for x, y in ((1, 1), (1, 0), (-1, -1), (0, 0))]
    assert far == pytest.approx([0, 1 - 0.5**0.5, 2, 1])


def test_attentive_compares_with_the_last_state_of_the_newest_rollout() -> None:
    attentive = Attentive(AttentiveRollouts(**FAST, distance="p_norm"), 12, 4)
    part = Part(attentive, 12, toy_rollouts(0, 1))
    part.insert(toy_rollouts(0, 6), 0, 1, encode)
    now = encode(toy_rollouts(0, 6))
    wanted = [np.sqrt(np.square(now[i] - now[5, -1]).sum()) for i in range(6)]
    distances = attentive.distances(part.memory(encode), np.arange(6), 0)
    np.testing.assert_allclose(distances, wanted, rtol=1e-5)


# ------------------------------------------------------------------ prioritized


def test_prioritized_samples_in_proportion_and_weighs_against_it() -> None:
    sampler = Prioritized(PrioritizedRollouts(alpha=0.5, beta=1.0, eta=0.9), 4, 50)
    part = Part(sampler, 4, toy_rollouts(0, 1))
    part.insert(toy_rollouts(0, 4), 0, 1, encode)
    sampler.learned(np.arange(4), np.array([[1.0, -1.0], [4.0, 4.0], [9.0, -9.0], [1.0, 11.0]]))
    wanted = np.sqrt([1, 4, 9, 0.9 * 11 + 0.1 * 6])
    wanted /= wanted.sum()
    np.testing.assert_allclose(sampler.priorities.probability(np.arange(4)), wanted)
    drawn = np.concatenate([part.sample(50, step, 1, encode) for step in range(100)])
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), wanted, atol=0.01)
    np.testing.assert_allclose(sampler.weights(np.arange(4)), wanted[0] / wanted, rtol=1e-6)
    part.insert(toy_rollouts(4, 1), 0, 1, encode)
    assert part.number[0] == 4 and sampler.priorities.largest == pytest.approx(10.5)
    fourth, fifth = sampler.priorities.probability(np.array([3, 4]))
    assert fourth == fifth  # a new one has the largest priority so far


# ------------------------------------------------------------------ shares and what is due


def mix(**shares: float) -> Shares:
    return Shares(shares, RolloutSamplers())


@pytest.mark.parametrize(
    ("shares", "line"),
    [
        (
            {"queue": 0.5, "uniform": 0.4},
            "must sum to 1, and not to 0.9 (queue 0.5 + uniform 0.4)",
        ),
        ({"elite": 1.0, "uniform": 0.5}, "must sum to 1, and not to 1.5"),
        ({}, "must sum to 1, and not to 0 (no sampler has one)"),
        ({"elite": 0.5, "unifrom": 0.5}, "no sampler 'unifrom'; did you mean uniform?"),
    ],
)
def test_shares_that_do_not_sum_to_one(shares: dict[str, float], line: str) -> None:
    with pytest.raises(BadRequest) as raised:
        mix(**shares)
    assert line in str(raised.value)


def test_shares_sum_within_a_tolerance() -> None:
    third = mix(queue=0.1, uniform=0.2, elite=0.7)  # 0.1 + 0.2 + 0.7 is 0.9999999999999999
    assert third.sizes(20) == {"queue": 2, "uniform": 4, "elite": 14}
    with pytest.raises(
        BadRequest, match=r"^sampling\.uniform: 0\.2 of 12 rollouts .* is 2\.4.*nearest share is 0\.1666"
    ):
        mix(queue=0.5, uniform=0.2, elite=0.3).sizes(12)


def test_a_part_too_small_for_what_arrives_is_refused() -> None:
    small = Shares({"queue": 0.5, "uniform": 0.5}, RolloutSamplers(uniform=BufferKeys(capacity=7)))
    small.check(4, 7)
    with pytest.raises(BadRequest, match=r"^replay\.uniform\.capacity: must be at least 8"):
        small.check(4, 8)


@pytest.mark.parametrize(
    ("shares", "due"),
    [
        ({"queue": 0.5, "uniform": 0.5}, [0, 0, 4, 3, 3]),
        ({"queue": 1.0}, [0, 0, 2, 2, 1]),
        ({"uniform": 1.0}, [0, 0, 1, 2, 1]),
    ],
)
def test_the_queue_sets_the_pace(shares: dict[str, float], due: list[int]) -> None:
    """Six rollouts arrive at once, minibatches have four, and nothing is due before 14 are there."""
    mixture = Mixture(mix(**shares), 4, 6, 14, toy_rollouts(0, 1), 0)
    found, fresh = [], []
    for _ in due:
        mixture.insert(toy_rollouts(mixture.count, 6), 0, encode)
        found.append(0)
        while mixture.due():
            minibatch = mixture.sample(sum(found), encode)
            assert len(minibatch.rollouts["input 0"]) == 4
            where = mixture.slices.get("queue", slice(0, 0))
            fresh += minibatch.rollouts["input 0"][where, 0].tolist()
            found[-1] += 1
    assert found == due
    assert fresh == sorted({*fresh})  # each new rollout once, in order


def test_bytes_of_a_rollout() -> None:
    """Four states of a byte and of a frame of two, two frames before them, four starts, and twelve features."""
    part = Part(Uniform(None, 5, 4), 5, take_apart(toy_rollouts(0, 1), INPUTS))
    assert part.rollouts.bytes_each == 4 * (1 + 2) + 2 * 2 + 4 + 3 * 4 * 4


@pytest.mark.parametrize(("arrived", "kept"), [(9, 9), (15, 0)])
def test_a_full_part_of_another_capacity_begins_empty(arrived: int, kept: int) -> None:
    """Its places are numbers modulo the capacity."""
    like = toy_rollouts(0, 1)
    small, large = (Part(Uniform(None, rows, 4), rows, like) for rows in (10, 16))
    for number in range(arrived):
        small.insert(toy_rollouts(number, 1), 0, 1, encode)
    large.load_state_dict(small.state_dict())
    assert (large.count, large.held) == (kept, kept)
