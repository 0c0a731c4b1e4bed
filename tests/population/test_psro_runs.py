"""PSRO as runs: matches in the workers, the table of the run directory, and what is refused.

That they resume exactly, and that workers change nothing, is tested with all evolutions (test_loop.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evolution_runs import CASES, QUICK, journal
from harness import experiment_of, go
from torch import Tensor

from evorl.ec.core import Evaluation, Individual, pack, unpack_evaluations
from evorl.ec.psro import Strategy
from evorl.evaluate import main as evaluate
from evorl.opponents.play import Matches, Pair
from evorl.ops.payoffs import nash_conv, two_sided
from evorl.population import train_evaluator
from evorl.population.loop import Population
from evorl.record import checkpoint
from evorl.rl.core import NotFinite
from evorl.rl.network_learner import NetworkLearner


@pytest.fixture(scope="module")
def psro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("psro") / "run"
    assert go(*QUICK, *CASES["psro"], f"hydra.run.dir={place}") == 0
    return place


@dataclass(frozen=True)
class Known:
    """A policy, with a learner of its own."""

    learner: NetworkLearner[Any]
    form: str = ""

    @property
    def weights(self) -> list[Tensor]:
        return self.learner.weights()


def test_a_match_is_the_games_of_its_policies() -> None:
    experiment = experiment_of(*QUICK, *CASES["psro"], "rl.normalize_inputs=false")
    population = Population(experiment, experiment.ec)
    evolver, draw = population.evolver, np.random.default_rng(0)
    assert isinstance(evolver, Strategy) and population.plan.learner is not None

    def learned(one: Individual) -> Evaluation:
        weights = draw.normal(size=one.weights.shape).astype(np.float32)
        return Evaluation(one._replace(weights=weights), (0.0,))

    try:
        evolver.tell([learned(one) for one in evolver.ask()])
        matches = evolver.ask()
        answers = [population.plan.make(0).evaluate(pack([population._with_opponents(one)])) for one in matches]
    finally:
        population.close()
    policies = tuple(Known(population.plan.learner(one.individual)) for one in evolver.policies)
    played = 0
    for one, answer in zip(matches, answers, strict=True):
        match, (result,) = one.memory["match"], answer.each
        for other, earned in zip(match["others"], result.memory["games"]["earned"], strict=True):
            pair = Pair(match["player"], other, 0, 4)
            ((_, _, lengths, margins),) = Matches(experiment.mdp, policies, match["key"], False).play([pair])
            assert earned == pytest.approx([(margins[0] + margins[2]) / 2, (margins[1] + margins[3]) / 2])
            played += sum(lengths)
    assert played == sum(answer.each[0].cost for answer in answers) > 0


def test_a_match_that_fails_before_anybody_is_best_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*words: Any) -> Any:
        raise NotFinite("the world broke once")

    experiment = experiment_of(*QUICK, *CASES["psro"], "ec.population=1", "ec.train_steps=64")
    population = Population(experiment, experiment.ec)
    try:
        population.iterate()
        with monkeypatch.context() as patch:
            patch.setattr(train_evaluator, "play_match", fails)
            population.iterate()
        assert population.failed == 1 and population.leader is None
        while population.leader is None:
            population.iterate()
    finally:
        population.close()


def test_the_best_of_a_run_without_a_match_is_not_there_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "run"
    assert go(*QUICK, *CASES["psro"], "budget.steps=1", f"hydra.run.dir={place}") == 0
    capsys.readouterr()
    assert evaluate([f"run={place}"]) == 2
    told = capsys.readouterr().err
    assert told == "evorl: individual: no individual has a fitness yet; this checkpoint holds: 0\n"


def test_the_table_of_each_epoch_is_in_the_run_directory(psro: Path) -> None:
    rows = [json.loads(line) for line in (psro / "payoffs.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [*range(1, len(rows) + 1)] and len(rows) > 1
    for before, row in pairwise(rows):
        size, payoff = len(before["policies"]), np.array(row["payoff"])
        assert row["policies"][:size] == before["policies"] and len(row["policies"]) == size + 2
        assert payoff[:size, :size].tolist() == before["payoff"]
        assert nash_conv(two_sided(payoff), np.array(row["mixtures"])) == pytest.approx(0, abs=1e-8)
        assert row["gain"] is not None
    lines = {line["id"]: line for line in journal(psro)}
    assert [lines[number]["role"] for number in rows[-1]["policies"][:4]] == ["initial"] * 2 + ["oracle"] * 2
    matches = [line for line in lines.values() if line["role"] == "match"]
    assert all(line["objectives"] == {"fitness": None} and line["cost"] > 0 for line in matches)
    assert {line["parents"][0] for line in matches} >= {*rows[-1]["policies"]}


def test_the_best_policy_has_the_largest_share(psro: Path) -> None:
    evolver = checkpoint.run_state(psro)[1]["evolver"]
    ids = [one.individual.id for one in unpack_evaluations(evolver["policies"])]
    shares = dict(zip(ids, np.mean(evolver["mixtures"], 0).tolist(), strict=False))
    result = json.loads((psro / "result.json").read_bytes())
    assert result["best"]["selected_by"] == "share of the mixtures"
    assert result["best"]["score"] == shares[result["best"]["individual"]] == pytest.approx(max(shares.values()))
    assert result["fitness"] == result["eval"]["fitness_mean"]
    metrics = [json.loads(line) for line in (psro / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in metrics if "league/value" in row][-1]
    assert last["league/regret"] == pytest.approx(0, abs=1e-8) and last["league/snapshots"] == len(shares)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mdp=cartpole"], "evorl: ec: the games of CartPole-v1 have one side, so no opponent"),
        (["rl=vtrace"], "evorl: ec: opponents are chosen between two batches; add rl.asynchronous=false"),
        (["ec.asynchronous=true"], "evorl: ec.asynchronous: an epoch waits for all of its oracles and matches"),
        (["ec.games=5"], "evorl: ec.games: must be even, as each policy of a pair plays each side: 5"),
        (["ec.lifetime=play"], "evorl: ec.lifetime: oracles learn; take lifetime=train"),
        (["ec.meta_solver=nsh"], "evorl: ec.meta_solver: "),
    ],
)
def test_what_is_refused(words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go("ec=psro", *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    said = capsys.readouterr().err
    assert said.startswith(text) and said.count("\n") == 1, said
    assert not (tmp_path / "run").exists()


def test_a_game_of_three_sides_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspiel")
    words = ("mdp=openspiel", "mdp.game=kuhn_poker", "+mdp.kwargs.players=3", "ec=psro")
    assert go(*words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert capsys.readouterr().err == "evorl: ec: needs a game of 2 sides, and this one has 3\n"


@pytest.mark.parametrize("game", ["tiny_hanabi", "bargaining"])
def test_a_game_in_which_both_sides_can_win_is_refused(
    game: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspiel")
    assert go("mdp=openspiel", f"mdp.game={game}", "ec=psro", f"hydra.run.dir={tmp_path / 'run'}") == 2
    wanted = "evorl: ec: needs a game in which one side earns what the other loses, and this one is none\n"
    assert capsys.readouterr().err == wanted and not (tmp_path / "run").exists()
