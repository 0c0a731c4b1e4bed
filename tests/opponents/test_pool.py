"""The pool of snapshots: who plays next, whose games are counted, and who is kept."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from evorl.opponents.core import Fixed, PastSelves, Weights
from evorl.opponents.pool import LATEST, OWN, RULE, RUNS, Game, Opponent, Pool
from evorl.ops.proportions import wilson

WEIGHTS = [torch.arange(4.0), torch.tensor(2.0)]


def pool_of(count: int, **keys: Any) -> Pool:
    pool = Pool(PastSelves(**{"snapshot": 10, "capacity": 100, **keys}))
    for number in range(count):
        pool.add_if_due([x + number for x in WEIGHTS], 10 * number, 0)
    return pool


def play(pool: Pool, points: dict[int, list[float]]) -> None:
    pool.record([Game(number, x) for number, all_points in points.items() for x in all_points], ())


POINTS = {0: [1.0, 1.0, 1.0, 1.0], 1: [0.0, 0.5], 2: [], 3: [1.0]}
SCORES = (1.0, 0.25, 0.5, 1.0)


@pytest.mark.parametrize(
    ("choice", "weights"),
    [
        ("uniform", (1, 1, 1, 1)),
        ("newest", (0, 0, 0, 1)),
        ("hard", [(1 - x) ** 2 for x in SCORES]),
        ("even", [x * (1 - x) for x in SCORES]),
    ],
)
@pytest.mark.parametrize("explore", [0.0, 0.3])
@pytest.mark.parametrize("latest", [0.0, 0.8])
def test_chances_are_those_of_the_definitions(choice: str, weights: Any, explore: float, latest: float) -> None:
    pool = pool_of(4, choice=choice, explore=explore, latest=latest)
    play(pool, POINTS)
    rarest = np.array([0, 0, 1, 0])  # nobody has played against snapshot 2
    wanted = (1 - explore) * np.array(weights) / np.sum(weights) + explore * rarest
    table = pool.table()
    assert table.numbers.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(table.chances, [latest, *((1 - latest) * wanted)], atol=1e-15)
    assert [float(weights[1]) for weights in table.weights] == [2.0, 3.0, 4.0, 5.0]


RULE_AND_RUNS = {"rule": True, "runs": ("a", "b")}
OTHERS = [Opponent(RUNS, "a", 70, [WEIGHTS[0] - 1], 1), Opponent(RUNS - 1, "b", 80, [WEIGHTS[0] - 2], 2)]


def pool_of_all(count: int, **keys: Any) -> Pool:
    """A rule player, policies of two other runs, and snapshots."""
    config = PastSelves(**{"snapshot": 10, "latest": 0.0, **RULE_AND_RUNS, **keys})
    pool = Pool(config, [replace(one, last=deque()) for one in OTHERS])
    for number in range(count):
        pool.add_if_due([x + number for x in WEIGHTS], 10 * number, 0)
    return pool


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [("uniform", [1 / 5] * 5), ("cycle", [1 / 5] * 5), ("weights", [4 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 8])],
)
def test_rule_players_and_runs_are_in_the_pool(choice: str, wanted: list[float]) -> None:
    """By weights 4, 2 and 2 of the kinds, runs and snapshots have halves of theirs."""
    weights = {"weights": Weights(rule=4, runs=2, past=2)} if choice == "weights" else {}
    pool = pool_of_all(2, choice=choice, **weights)
    table = pool.table()
    assert table.numbers.tolist() == [RULE, RUNS, RUNS - 1, 0, 1] and table.forms.tolist() == [OWN, 1, 2, OWN, OWN]
    np.testing.assert_allclose(table.chances, [0, *wanted])
    assert table.cycle == (choice == "cycle") and [len(x) for x in table.weights] == [0, 1, 1, 2, 2]


def test_the_hardest_of_all_plays_most() -> None:
    pool = pool_of_all(1, choice="hard")
    play(pool, {RULE: [1.0], RUNS: [0.0], RUNS - 1: [0.5], 0: [1.0]})
    np.testing.assert_allclose(pool.table().chances, [0, 0, 0.8, 0.2, 0])


def test_a_state_holds_the_policies_of_other_runs() -> None:
    first, second = pool_of_all(2), Pool(PastSelves(**{"snapshot": 10, "latest": 0.0, **RULE_AND_RUNS}), nameless())
    play(first, {RULE: [1.0], RUNS: [0.0, 0.5], RUNS - 1: [1.0]})
    second.load_state_dict(first.state_dict())
    assert first.rows(30) == second.rows(30)
    for mine, theirs in zip(first.table().weights, second.table().weights, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(mine, theirs, strict=True))
    with pytest.raises(ValueError, match="other rule players or runs than the config"):
        Pool(PastSelves(snapshot=10, rule=True)).load_state_dict(first.state_dict())


def nameless() -> list[Opponent]:
    """The runs as a resumed run knows them before it has loaded its checkpoint."""
    return [Opponent(one.number, "", 0, [], one.form) for one in OTHERS]


def test_a_pool_without_snapshots_takes_none() -> None:
    pool = Pool(Fixed())
    pool.add_if_due(WEIGHTS, 100, 0)
    assert pool.table().numbers.tolist() == [RULE] and pool.table().chances.tolist() == [0, 1]
    assert [row["opponent"] for row in pool.rows(100)] == ["rule"]


def test_a_pool_that_always_loses_is_met_evenly() -> None:
    pool = pool_of(3, choice="hard", latest=0.0)
    play(pool, {0: [1.0], 1: [1.0], 2: [1.0]})
    np.testing.assert_allclose(pool.table().chances, [0, 1 / 3, 1 / 3, 1 / 3])


def test_a_score_is_the_mean_of_the_last_games() -> None:
    pool = pool_of(1, window=3)
    play(pool, {0: [0.0, 0.0, 1.0, 0.5, 1.0]})
    low, high = wilson(2.5, 3)
    assert pool.rows(40)[1] == {
        "step": 40, "opponent": "snapshot 0", "born": 0, "present": True, "chance": 0.5,
        "games": 5, "wins": 2, "draws": 1, "losses": 2, "score": 2.5 / 3, "low": low, "high": high,
    }  # fmt: skip


def test_games_against_the_present_policy_are_counted_apart() -> None:
    pool = pool_of(1)
    play(pool, {LATEST: [1.0, 0.0, 0.5]})
    assert pool.metrics() == {"opponents/size": 1, "opponents/score_latest": 0.5}
    play(pool, {0: [1.0]})
    assert pool.metrics() == {
        "opponents/size": 1, "opponents/score": 1, "opponents/score_worst": 1, "opponents/score_latest": 0.5,
        "opponents/exploitability": 0,
    }  # fmt: skip


def test_snapshots_are_taken_when_they_are_due() -> None:
    pool = pool_of(0, snapshot=100)
    for step in range(0, 1000, 30):
        pool.add_if_due(WEIGHTS, step, 0)
    assert [one.step for one in pool.snapshots] == [0, 120, 210, 300, 420, 510, 600, 720, 810, 900]


def test_snapshots_may_be_taken_by_updates() -> None:
    pool = pool_of(0, snapshot=100, updates=4)
    for update in range(0, 17, 3):
        pool.add_if_due(WEIGHTS, 1000 * update, update)
    assert [one.step for one in pool.snapshots] == [0, 6000, 9000, 12000]


def test_a_snapshot_does_not_follow_the_learner() -> None:
    pool, weights = pool_of(0), [x.clone() for x in WEIGHTS]
    pool.add_if_due(weights, 0, 0)
    weights[0].add_(1.0)
    assert torch.equal(pool.table().weights[0][0], WEIGHTS[0])


@pytest.mark.parametrize(("won", "promoted"), [(59, False), (60, True)])
def test_promotion_asks_for_the_lower_bound(won: int, promoted: bool) -> None:
    """60 of 100 is the least whose Wilson bound is above one half."""
    pool = pool_of(1, promote=0.5)
    play(pool, {0: [1.0] * won + [0.0] * (100 - won), LATEST: [1.0] * 500})
    pool.add_if_due(WEIGHTS, 10, 0)
    assert (len(pool.snapshots) == 2) == promoted
    pool.add_if_due(WEIGHTS, 20, 0)  # without a further game nothing is known
    assert (len(pool.snapshots) == 2) == promoted


def test_the_oldest_leaves_but_goes_on_in_games_that_have_begun() -> None:
    pool = pool_of(3, capacity=3, latest=0.25)
    pool.record([], seated=[LATEST, 0, 2])
    pool.add_if_due(WEIGHTS, 30, 0)
    table = pool.table()
    assert table.numbers.tolist() == [1, 2, 3, 0]
    np.testing.assert_allclose(table.chances, [0.25, 0.25, 0.25, 0.25, 0])
    (forgotten,) = pool.record([Game(0, 1.0)], seated=[LATEST, 2])
    assert (forgotten.number, forgotten.games) == (0, 1)
    assert pool.table().numbers.tolist() == [1, 2, 3]
    assert [row["opponent"] for row in pool.rows(40)] == ["latest", "snapshot 1", "snapshot 2", "snapshot 3"]


def test_memory_is_bounded_by_the_capacity_and_the_games_that_go_on() -> None:
    pool = pool_of(50, capacity=4)
    assert len(pool.table().weights) == 4 + 46  # nobody has said yet that no game goes on
    pool.record([], seated=[3, 49])
    assert sorted(pool.table().numbers.tolist()) == [3, 46, 47, 48, 49]


def test_a_restored_pool_goes_on_alike() -> None:
    first = pool_of(5, capacity=4, choice="hard", promote=0.5)
    play(first, {LATEST: [1.0], 0: [1.0, 0.5]})
    first.add_if_due(WEIGHTS, 50, 0)
    second = Pool(first.config)
    second.load_state_dict(first.state_dict())
    for pool in (first, second):
        play(pool, {0: [0.0] * 30})
        pool.add_if_due(WEIGHTS, 60, 0)
    assert first.rows(60) == second.rows(60) and first.metrics() == second.metrics()
    a, b = first.table(), second.table()
    assert a.numbers.tolist() == b.numbers.tolist() and a.chances.tolist() == b.chances.tolist()
    assert all(
        torch.equal(x, y) for xs, ys in zip(a.weights, b.weights, strict=True) for x, y in zip(xs, ys, strict=True)
    )
