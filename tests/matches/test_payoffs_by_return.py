"""Payoffs by returns, against slow definitions, and poker hands that are seldom won but win much."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorl.evaluate import main
from evorl.matches.judge import judge, sentences
from evorl.matches.players import Player
from evorl.matches.records import key
from evorl.matches.returns import returns
from evorl.ops.student_t import half_width
from tests.harness import go

GAMES = ["mdp=openspiel", "mdp.game=kuhn_poker", "rl=ppo", "rl.slots=16", "rl.minibatch=32", "budget.steps=2000"]


@given(st.lists(st.lists(st.floats(-5, 5), min_size=2, max_size=6), min_size=3, max_size=3), st.integers(0, 9))
def test_means_and_intervals_are_those_of_keys(keys: list[list[float]], seed: int) -> None:
    pairs = [*combinations(range(3), 2)]
    found = returns({pair: np.array(each) for pair, each in zip(pairs, keys, strict=True)}, 3, 4, seed)
    for (i, j), each in zip(pairs, keys, strict=True):
        mean, reach = sum(each) / len(each), half_width(each)
        assert found.mean[i, j] == pytest.approx(mean) and found.mean[j, i] == -found.mean[i, j]
        assert found.bounds[:, i, j] == pytest.approx([mean - reach, mean + reach])
        assert found.bounds[:, j, i] == pytest.approx([-mean - reach, -mean + reach])
    for table in (*found.drawn, *found.by_chance):
        assert np.array_equal(table, -table.T) and not table.diagonal().any()


def test_draws_have_the_error_of_the_mean_and_no_cycles_but_by_chance() -> None:
    generator = np.random.default_rng(0)
    truth = {(0, 1): 1.0, (1, 2): 1.0, (0, 2): -1.0}  # a cycle
    found = returns({pair: generator.normal(mean, 2, 400) for pair, mean in truth.items()}, 3, 4000, 0)
    assert found.drawn.mean(0) == pytest.approx(found.mean, abs=0.01)
    assert found.drawn.std(0)[0, 1] == pytest.approx(2 / 20, rel=0.1)
    rating = found.mean.mean(1)
    assert found.by_chance.mean(0) == pytest.approx(rating[:, None] - rating[None], abs=0.01)


def judged(margins: dict[tuple[int, int], list[float]], points: dict[tuple[int, int], list[float]]) -> Any:
    """Three players; of the pair in which the later one plays first, both are turned round."""
    learner = cast(Any, object())
    players = [Player(f"p{i}", mark, learner=learner) for i, mark in enumerate("bac")]
    told: list[dict[tuple[str, str], list[float]]] = [{}, {}]
    for pair in margins:
        names, swapped = key(players[pair[0]], players[pair[1]])
        for kept, own in zip(told, (points[pair], margins[pair]), strict=True):
            turned = [1 - x for x in own] if kept is told[0] else [-x for x in own]
            kept[names] = [turned[k ^ 1] for k in range(len(turned))] if swapped else own
    return judge(players, told[0], 0), judge(players, told[0], 0, told[1])


def test_who_wins_seldom_but_much_is_best_by_returns() -> None:
    """Player 0 loses 3 of 4 hands to each of the others, by 1, and wins 6 in the fourth."""
    rare = {"margins": [-1.0, -1.0, -1.0, 6.0] * 20, "points": [0.0, 0.0, 0.0, 1.0] * 20}
    even = {"margins": [1.0, -1.0] * 40, "points": [1.0, 0.0] * 40}
    by_pair = {(0, 1): rare, (0, 2): rare, (1, 2): even}
    points, by_returns = judged(*({pair: one[what] for pair, one in by_pair.items()} for what in ("margins", "points")))
    assert (points.by, by_returns.by) == ("points", "return")
    assert points.nash == pytest.approx([0, 0.5, 0.5]) and by_returns.nash == pytest.approx([1, 0, 0])
    assert points.alpha.argmin() == by_returns.alpha.argmax() == 0
    assert by_returns.payoff == pytest.approx(np.array([[0, 0.75, 0.75], [-0.75, 0, 0], [-0.75, 0, 0]]))
    assert by_returns.exploitability == pytest.approx([0, 0.75, 0.75]) and by_returns.worst.tolist()[1:] == [0, 0]
    assert points.payoff == pytest.approx(points.score - 0.5)
    assert np.array_equal(points.rating, by_returns.rating)  # of points in both
    assert "of the payoffs" in " ".join(sentences(by_returns, list("abc"), ("first", "second")))


def test_payoffs_without_chance_have_no_cycles_and_no_zero_has_a_sign() -> None:
    """Whoever is stronger wins by a fixed margin in every game, which only rounding says anything else of."""
    for first, second in ((0.1, 0.2), (0.3, 1.7), (2.3, 0.7)):
        margins = {(0, 1): [first] * 40, (1, 2): [second] * 40, (0, 2): [first + second] * 40}
        _, found = judged(margins, {pair: [1.0] * 40 for pair in margins})
        assert "One rating says who beats whom" in " ".join(sentences(found, list("abc"), ("first", "second")))
    pairs = [*combinations(range(3), 2)]
    drawn = judged({pair: [0.0] * 40 for pair in pairs}, {pair: [0.5] * 40 for pair in pairs})
    for found in drawn:
        assert not np.signbit(found.exploitability).any() and not np.signbit(found.payoff).any()


def test_nash_averaging_of_returns_does_not_depend_on_their_unit() -> None:
    margins = {(0, 1): [2.0, 0.0] * 20, (1, 2): [1.0] * 40, (0, 2): [-1.0] * 40}
    points = {pair: [0.5] * 40 for pair in margins}
    for scale in (1.0, 1e7, 1e-12):
        scaled = {pair: [scale * x for x in each] for pair, each in margins.items()}
        assert judged(scaled, points)[1].nash == pytest.approx([1 / 3] * 3)


@pytest.mark.slow
def test_a_poker_matrix_by_returns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspiel")
    runs = [tmp_path / name for name in ("a", "b")]
    for seed, run in enumerate(runs):
        assert go(*GAMES, f"seed={seed}", f"hydra.run.dir={run}") == 0
    out, words = tmp_path / "matrix", [f"players=[{runs[0]},{runs[1]}]", "matrix=true", "games=40"]
    assert main([*words, f"out={out}", "by=return"]) == 0
    whole = json.loads((out / "matrix.json").read_text())
    assert whole["judgement"]["by"] == "return" and (out / "returns.png").exists()
    (line,) = map(json.loads, (out / "games.jsonl").read_text().splitlines())
    mean = np.mean(line["margins"])
    assert abs(whole["judgement"]["payoff"][0][1]) == pytest.approx(abs(mean)) and {*np.abs(line["margins"])} <= {1, 2}
    assert "payoff_low" in (out / "matrix.csv").read_text().splitlines()[0]
    old = {name: value for name, value in line.items() if name != "margins"}  # of a version that kept none
    (out / "games.jsonl").write_text(json.dumps(old) + "\n")
    capsys.readouterr()
    assert main([*words, f"out={out}"]) == 0 and main([*words, f"out={out}", "by=return"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"evorl: out: {out} has games of a version that kept no returns; choose another directory"
    )
    assert main([*words[:2], "games=2", "by=return"]) == 2
    assert capsys.readouterr().err == "evorl: games: by=return needs 4 games of each pair or more\n"
