"""Leagues as runs: what travels to a worker and back, who is named best, and what is refused.

That they resume exactly, and that workers and journals change nothing, is tested with all evolutions (test_loop.py).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evolution_runs import CASES, QUICK, journal
from harness import experiment_of, go

from evorl.analysis.payoffs import read_payoffs
from evorl.analysis.runs import RunRecord
from evorl.cli import config
from evorl.ec.core import pack, unpack
from evorl.ec.league import Strategy
from evorl.jobs.run_players import Place, places, policy_at
from evorl.jobs.saved_policies import checkpoint_of, saved_policy
from evorl.matches import players as listed
from evorl.population.loop import Population
from evorl.population.train_evaluator import TrainEvaluator
from evorl.record import checkpoint
from evorl.util.errors import BadRequest


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("league") / "run"
    assert go(*QUICK, *CASES["league"], f"hydra.run.dir={place}") == 0
    return place


def test_a_slice_is_played_against_the_opponents_that_were_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = experiment_of(*QUICK, *CASES["league"], "ec.train_steps=1500")
    population = Population(experiment, experiment.ec)
    evolver = population.evolver
    assert isinstance(evolver, Strategy)
    seen: list[Any] = []
    trained = TrainEvaluator._trained

    def noted(self: TrainEvaluator, run: Any, one: Any, pool: Any) -> Any:
        seen.append((one, pool.table()))
        answer = trained(self, run, one, pool)
        assert run.iteration > 8
        return answer

    monkeypatch.setattr(TrainEvaluator, "_trained", noted)
    try:
        main, *_ = evolver.ask()
        sent = population._with_opponents(main)
        (answer,) = population.plan.make(0).evaluate(pack([sent])).each
    finally:
        population.close()
    ((one, table),) = seen
    matches = evolver.opponents(main.id)
    assert one.memory is None and len(matches) > 2
    assert table.numbers.tolist() == [match.number for match in matches if match.policy is not None]
    by_number, (chances,) = {match.number: match for match in matches}, table.chances
    for number, chance, weights in zip(table.numbers.tolist(), chances[1:], table.weights, strict=True):
        policy = by_number[number].policy
        assert policy is not None and chance == pytest.approx(by_number[number].chance)
        assert torch.equal(weights[0], torch.from_numpy(policy.weights))
    assert chances.sum() == pytest.approx(1)
    games = answer.memory["games"]
    assert {*games["opponents"]} <= {-1, *table.numbers.tolist()} and {*games["points"]} <= {0, 0.5, 1}
    assert len(games["opponents"]) == len(games["points"]) > 8, (
        "the games of several batches, of which one has 4 at most"
    )
    assert [*answer.memory["acting"]["learner"]] == ["moments"] and {"steps", "learner"} <= {*answer.memory}


def test_opponents_are_no_part_of_a_checkpoint_but_once(league: Path) -> None:
    run = checkpoint.run_state(league)[1]
    assert not any("opponents" in one for task in run["in_flight"].values() for one in task["memory"].values())
    evolver = run["evolver"]
    assert {policy for _, _, policy, _ in evolver["snapshots"]} <= {*evolver["policy"]}
    assert len({*evolver["policy"]}) == len(evolver["policies"]["id"])
    assert not any("games" in one.memory for one in unpack(evolver["population"]["individuals"]) if one.memory)


def test_the_best_one_is_the_main_agent_with_the_highest_score(league: Path) -> None:
    rows = [json.loads(line) for line in (league / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "league/score" in row][-1]
    result = json.loads((league / "result.json").read_bytes())
    assert result["best"]["selected_by"] == "score in the league"
    assert result["best"]["score"] == last["league/score"] == last["population/score"]
    assert result["fitness"] == result["best"]["fitness"] == result["eval"]["fitness_mean"] != last["league/score"]
    assert not {"population/best", "population/mean"} & {name for row in rows for name in row}
    assert 0 <= last["league/score_worst"] <= last["league/score"] <= 1
    assert last["league/snapshots"] > 3 and last["league/resets"] >= 1
    roles = [line["role"] for line in journal(league)]
    agents = {line["agent"]: line["agent_role"] for line in journal(league)}
    assert agents == dict(enumerate(["main"] * 3 + ["main exploiter"] + ["league exploiter"] * 2))
    assert roles[:6] == ["initial"] * 6 and "reset" in roles and "goes on" in roles


def test_a_run_that_was_killed_before_its_result_has_the_same(league: Path, tmp_path: Path) -> None:
    """The evaluation was in its last checkpoint, so nothing is evaluated again but for the result."""
    again = tmp_path / "again"
    shutil.copytree(league, again)
    (again / "result.json").unlink()
    assert go(f"resume={again}") == 0
    first, second = (json.loads((run / "result.json").read_bytes()) for run in (league, again))
    for result in (first, second):
        del result["seconds"], result["steps_per_second"]
    assert first == second and first["fitness"] is not None


def test_the_table_of_scores_is_kept_for_each_generation(league: Path) -> None:
    tables = [json.loads(line) for line in (league / "payoffs.jsonl").read_text().splitlines()]
    assert [table["generation"] for table in tables] == list(range(1, len(tables) + 1)) and len(tables) > 1
    rows = {row["step"]: row for row in map(json.loads, (league / "metrics.jsonl").read_text().splitlines())}
    for table in tables:
        agents, score = len(table["agents"]), np.array(table["score"])
        assert score.shape == np.shape(table["games"]) == (6, len(table["players"])) == (6, len(table["policies"]))
        assert table["players"][:agents] == table["agents"] and table["agents"][3] == "main exploiter 3"
        assert (score[np.array(table["games"]) == 0] == 0.5).all() and np.sum(table["games"]) > 0
        mains = score[:3, agents:].mean(1)
        assert mains.max() == pytest.approx(rows[table["step"]]["league/score"])
    (shown,) = map(read_payoffs, [RunRecord(directory=league, config={})])
    assert shown is not None and shown.step == tables[-1]["step"]


def test_snapshots_change_nothing_any_more(league: Path) -> None:
    """The first copies of the main agents have the weights that they began with."""
    experiment = experiment_of(*QUICK, *CASES["league"])
    population = Population(experiment, experiment.ec)
    try:
        population.load_state_dict(checkpoint.run_state(league)[1])
        assert isinstance(population.evolver, Strategy)
        for one, snapshot in zip(population.evolver.kept[:3], population.evolver.snapshots[:3], strict=True):
            start = population.space.weights_of(one.id)
            assert snapshot.agent == one.id and start is not None
            np.testing.assert_array_equal(one.weights, start)
    finally:
        population.close()


def test_a_snapshot_can_be_evaluated(league: Path) -> None:
    evolver = checkpoint.run_state(league)[1]["evolver"]
    ids = dict(zip(evolver["policy"], evolver["policies"]["id"], strict=True))
    snapshots = [ids[policy] for _, _, policy, _ in evolver["snapshots"]]
    gone = next(one for one in snapshots[3:] if one not in evolver["population"]["individuals"]["id"])
    experiment, (path, run) = config.experiment_of_run(league), checkpoint_of(league, "latest")
    saved = saved_policy(experiment, path, run, gone)
    assert saved.individual is not None and saved.individual.id == gone and saved.policy is not None
    packed = next(one for one in unpack(evolver["policies"]) if one.id == gone)
    np.testing.assert_array_equal(saved.individual.weights, packed.weights)
    assert str(saved.policy["moments"]) == str(packed.memory["learner"]["moments"]) != "None"


def test_an_id_is_that_of_one_policy(league: Path) -> None:
    """Individual 0 has learned from the policy that the first snapshot keeps, and left the league."""
    evolver, tables = checkpoint.run_state(league)[1]["evolver"], (league / "payoffs.jsonl").read_text().splitlines()
    kept = [one.id for one in unpack(evolver["policies"])]
    assert 0 in kept and 0 not in evolver["population"]["individuals"]["id"]
    with pytest.raises(BadRequest, match="individual: '0' is none that this checkpoint holds"):
        saved_policy(config.experiment_of_run(league), *checkpoint_of(league, "latest"), 0)
    for table in map(json.loads, tables):
        agents = len(table["agents"])
        assert table["policies"][agents : agents + 3] == [None] * 3
        learned = [one for one in table["policies"][agents:] if one is not None]
        assert len({*learned}) == len(learned) == len(table["policies"]) - agents - 3
    assert json.loads(tables[0])["policies"][:agents] == [*range(agents)]


def test_snapshots_of_a_league_are_players_of_a_matrix(league: Path) -> None:
    entry = listed.read([f"{league}@all", f"{league}@best", "rule"])
    evolver = checkpoint.run_state(league)[1]["evolver"]
    by_number = dict(zip(evolver["policy"], unpack(evolver["policies"]), strict=True))
    snapshots = [by_number[policy] for _, _, policy, _ in evolver["snapshots"]]
    assert [one.name for one in entry.players] == [
        *(f"run@snapshot:{k}" for k in range(len(snapshots))), "run@best", "rule"
    ]  # fmt: skip
    for one, player in zip(snapshots, entry.players, strict=False):
        assert torch.equal(player.weights[0], torch.from_numpy(one.weights))
        assert player.step == (one.memory or {"steps": 0})["steps"]
    assert {player.step for player in entry.players[:3]} == {0} and min(p.step for p in entry.players[3:-2]) >= 512
    with pytest.raises(BadRequest, match=rf"snapshot:99: its latest checkpoint holds {len(snapshots)} snapshots"):
        listed.read([f"{league}@snapshot:99", "rule"])


def test_all_snapshots_of_a_running_league_come_from_one_checkpoint(league: Path, tmp_path: Path) -> None:
    *_, before, last = checkpoint.steps(league)
    run, newest = tmp_path / "run", tmp_path / "run" / "checkpoints" / str(last)
    shutil.copytree(league, run)
    newest.rename(tmp_path / "newest")
    everyone, first = places(f"{run}@all", "players"), Place(str(run), "snapshot:0")
    (tmp_path / "newest").rename(newest)  # the league goes on
    read = [policy_at(place, config.experiment_of_run(run), "players").checkpoint.name for place in (*everyone, first)]
    assert read == [str(before)] * len(everyone) + [str(last)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mdp=cartpole"], "evorl: ec: the games of CartPole-v1 have one side, so no opponent"),
        (["rl=vtrace"], "evorl: ec: opponents are chosen between two batches; add rl.asynchronous=false"),
        (["mdp=problem", "mdp.id=zdt1"], "evorl: ec: a function is no game, so there are no opponents"),
        (["ec.population=3"], "evorl: ec.population: leaves no main agent beside 1 + 2 exploiters"),
        (["ec.lifetime=play"], "evorl: ec.lifetime: the agents of a league learn; take lifetime=train"),
        (["ec.itself=0.9"], "evorl: ec.forgotten: itself and forgotten are more than all games"),
        (["ec.slots=5"], "evorl: ec.slots: 5 is more than the population, whose agents learn one at a time"),
    ],
)
def test_what_is_refused(words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go("ec=league", *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    said = capsys.readouterr().err
    assert said.startswith(text) and said.count("\n") == 1, said
    assert not (tmp_path / "run").exists()
