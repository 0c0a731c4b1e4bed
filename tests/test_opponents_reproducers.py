"""The tables of policies that learned from opponents: the strength of groups of players, and the programs made tiny."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.opponents import league_pong, league_volley, speed
from benchmarks.opponents.arms import Contest, gates, measured, train
from benchmarks.opponents.strength import scores, seats_of, shares
from evorl.cli.config import experiment_of_words
from evorl.ec.league import League
from evorl.reproduction import papers
from evorl.reproduction.loop import Request, first_job, reproduce


def pair(a: str, b: str, *seats: tuple[int, int, int]) -> dict[str, object]:
    """A pair of matrix.json, by the wins, draws and defeats of its first player on either side."""
    each = [{"wins": won, "draws": drawn, "defeats": lost} for won, drawn, lost in seats]
    return {"a": a, "b": b, "a_by_side": each}


def test_scores_of_a_group_are_means_over_the_others() -> None:
    pairs = [
        pair("x", "y", (6, 2, 2), (4, 0, 6)), pair("z", "x", (10, 0, 0), (5, 0, 5)),
        pair("x", "rule", (0, 0, 1), (1, 0, 0)), pair("z", "y", (0, 10, 0), (10, 0, 0)),
    ]  # fmt: skip
    names = ["z", "x", "y"]
    seats = seats_of(pairs, names)
    assert seats.keys() == {(1, 2), (0, 1), (0, 2)}
    assert scores(seats, [1, 2], [0]) == [0.25, 0.25]
    assert scores(seats, [0], [1, 2]) == [0.75]
    assert scores(seats, [1], [2]) == [0.55]


def test_who_beats_everybody_has_all_of_nash_averaging() -> None:
    seats = seats_of([pair("a", "b", (90, 0, 10), (80, 10, 10)), pair("a", "c", (70, 0, 30), (90, 0, 10)),
                      pair("b", "c", (50, 0, 50), (50, 0, 50))], ["a", "b", "c"])  # fmt: skip
    (own, low, high), (others, _, _) = shares(seats, 3, [[0], [1, 2]])
    assert own == pytest.approx(1) and low == high == pytest.approx(1) and others == pytest.approx(0)
    equal = {place: [np.array([50, 0, 50])] * 2 for place in seats}
    share, low, high = shares(equal, 3, [[0, 1]])[0]
    assert share == pytest.approx(2 / 3) and low < 0.5 < high  # a few games say nothing of players that are equal


def test_gates_and_the_words_of_a_result() -> None:
    numbers = {
        arm: {"ahead": [11.0, 12.0], "score": [0.6, 0.7], "nash": (share, share - 0.2, 1.0)}
        for arm, share in (("pfsp", 0.9), ("self", 0.1))
    }
    contest = Contest("pong", "Pong", (), 1, 10.0)
    assert [*gates(contest, numbers).values()] == ["passed", "passed"]
    numbers["pfsp"] |= {"ahead": [12.0, 9.9], "nash": (0.6, 0.4, 1.0)}
    assert [*gates(contest, numbers).values()] == ["failed", "failed"]
    assert len(gates(contest._replace(ahead=None), numbers)) == 1
    assert measured({"arms": numbers}).startswith("PFSP: 10.9 ± 13.3 ahead of the rule player (12.0, 9.9), 0.60 [0.40,")


@pytest.mark.parametrize("program", [league_pong, league_volley])
def test_no_run_learns_from_games_with_the_rule_player(program: object) -> None:
    for size in program.SIZES.values():  # type: ignore[attr-defined]
        for arm in program.CONTEST.arms:  # type: ignore[attr-defined]
            one = experiment_of_words(first_job(train(program.CONTEST, arm, size).words))  # type: ignore[attr-defined]
            if arm == "league":
                assert isinstance(one.ec, League) and one.opponents is None
                assert one.ec.roles.count("main") == 1 and one.budget.steps == size.steps * len(one.ec.roles)
                continue
            assert one.ec is None and one.opponents is not None and not getattr(one.opponents, "rule", False)
            assert getattr(one.opponents, "runs", ()) == () and one.budget.steps == size.steps


def test_speed_compares_runs_that_differ_in_opponents_alone() -> None:
    alone, *others = (experiment_of_words(speed.words(n)) for n in (0, *speed.POOLS))
    for one, n in zip(others, speed.POOLS, strict=True):
        assert (one.mdp, one.rl) == (alone.mdp, alone.rl)
        assert (one.opponents.capacity, one.opponents.latest) == (n, 0)  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arms"), [("league_pong", ["PFSP", "league", "self-play"]), ("league_volley", ["PFSP", "self-play"])]
)
def test_a_tiny_contest_is_judged_and_reported(name: str, arms: list[str], tmp_path: Path) -> None:
    asked = Request(f"opponents/{name}", "tiny", (), tmp_path / "runs", tmp_path / "out", False)
    reproduce(papers.table(asked.name), asked)
    told = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert [row[:2] for row in told["rows"]] == [[title, "2"] for title in arms]
    found, players = told["data"], 2 * len(arms) + 1
    assert len(found["matrix"]["names"]) == players and len(found["matrix"]["pairs"]) == players * (players - 1) // 2
    assert sum(one["nash"][0] for one in found["arms"].values()) == pytest.approx(1)
    assert {f"{name.removeprefix('league_')}_{kind}" for kind in ("curves", "matrix")} == {*told["figures"]}
