"""Games as individuals: their results against slow definitions, what is trained, and what is refused.

That they resume exactly, and that workers change nothing, is tested with all evolutions (test_loop.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evolution_runs import CASES, PONG, QUICK, journal
from harness import experiment_of, go

import evorl
from evorl import evaluate, export
from evorl.ec.core import IndependentEvolution, pack
from evorl.inference.check import Compared
from evorl.population import balance_evaluator, episodes
from evorl.population.balance_evaluator import BalanceEvaluator, changed, play_game
from evorl.population.evaluation import evaluation_plan
from evorl.population.genes import genes
from evorl.population.loop import Population
from evorl.population.results import IndividualResult
from evorl.rl.core import Episode
from evorl.rl.evaluation import EvaluationNoise
from evorl.training.experiment import Experiment
from evorl.training.train import spec
from evorl.util import seed as seeds

DUEL = ("mdp=duel", "mdp.ground.limit=6", "mdp.ground.size=6")
BALANCE = ("ec=nsga2", "ec.lifetime=balance", "ec.train_steps=128", "ec.objectives=[evenness,{change:-1}]")
HEALTH = "+ec.genes.mdp.knight.health=[50,150]"


def judged(experiment: Experiment) -> IndividualResult:
    """The first individual of an experiment."""
    assert isinstance(experiment.ec, IndependentEvolution)
    plan = evaluation_plan(experiment, experiment.ec)
    (first,) = experiment.ec.evolver(plan.space).ask(1)
    evaluator = plan.make(0)
    assert isinstance(evaluator, BalanceEvaluator)
    return IndividualResult(*evaluator.evaluate(pack([first])).each[0])


def test_results_are_those_of_the_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven made-up games of the duel, in which each side made known choices."""
    draw = np.random.default_rng(0)
    wins = [1.0, 1.0, 0.5, 0.0, 1.0, 0.0, 1.0]
    slots, actions = draw.integers(0, 14, 300), np.stack([draw.integers(0, n, 300) for n in (5, 8)], 1)
    actions[slots % 2 == 1, 0] = 3  # the second side always uses one skill
    asked: dict[str, Any] = {}

    def played(
        world: object, learner: object, keys: object, episodes: int, most: int, *, deterministic: bool,
        count: Callable[..., None],
    ) -> list[Episode]:  # fmt: skip
        asked.update(episodes=episodes, deterministic=deterministic)
        for half in np.array_split(np.arange(300), 2):
            count(slots[half], actions[half])
        both = [(win, 1 - win) for win in wins]
        return [
            Episode(2 * win - 1, float(10 + game), (0.0, 0.0), {"win": win, "seconds": 1.0})
            for game, sides in enumerate(both)
            for win in sides
        ]

    monkeypatch.setattr(balance_evaluator, "play_keyed_episodes", played)
    experiment = experiment_of(*DUEL)
    learner = experiment.rl.learner(experiment.mdp.spec, 0, "cpu")
    result, cost = play_game(experiment.mdp, learner, seeds.Episodes(0), 13, experiment)
    assert asked == {"episodes": 14, "deterministic": False}  # whole games, with the policy as it learns
    assert result["first_wins"].tolist() == wins and result["draws"].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert result["evenness"].tolist() == pytest.approx([1 - 2 * abs(4.5 / 7 - 0.5)])
    assert cost == sum(range(10, 17)) and result["length"].mean() == 13
    entropies = []
    for side in (0, 1):
        for component, n in enumerate((5, 8)):
            shares = [
                sum(1 for s, a in zip(slots, actions, strict=True) if s % 2 == side and a[component] == choice)
                for choice in range(n)
            ]
            entropies.append(-sum(x / sum(shares) * math.log(x / sum(shares), n) for x in shares if x))
    assert result["variety"].tolist() == pytest.approx([sum(entropies) / 4])
    assert entropies[2] == 0


def test_change_is_told_in_ranges_of_the_genes() -> None:
    words = (
        *("+ec.genes.mdp.knight.health=[100,200]", "+ec.genes.mdp.archer.shoot.damage={low:5,high:20,log:true}"),
        *("+ec.genes.mdp.archer.volley_arrows=[1,5]", "+ec.genes.mdp.ground.pillar={choices:[0.7,1.0]}"),
        "+ec.genes.rl.lr=[0.001,0.01]",
    )
    experiment = experiment_of(*DUEL, *BALANCE, *words)
    assert isinstance(experiment.ec, IndependentEvolution)
    searched = genes(experiment.ec.genes, experiment)
    values = {
        "mdp.knight.health": 152.0, "mdp.archer.shoot.damage": 20.0, "mdp.archer.volley_arrows": 4,
        "mdp.ground.pillar": 1.0, "rl.lr": 0.002,
    }  # fmt: skip
    coordinates = np.array([gene.coordinate(values[gene.name]) for gene in searched])
    apart = [40 / 100, math.log(2) / math.log(4), 1 / 4, 1.0]  # 112, 10, 3 arrows, 0.7
    assert changed(experiment, searched, coordinates).tolist() == pytest.approx(
        [math.sqrt(sum(x * x for x in apart) / 4)]
    )
    own = np.array([gene.coordinate(values[gene.name]) for gene in searched])
    own[:4] = [gene.coordinate(x) for gene, x in zip(searched, (112.0, 10.0, 3, 0.7), strict=False)]
    assert changed(experiment, searched, own).tolist() == [0.0]  # genes of a learner are no change of the game


@pytest.mark.parametrize(
    ("leaf", "apart"),
    [
        ([140, 200], [28 / 60, 88 / 60]),
        ([20, 60], [92 / 40, 52 / 40]),
        ("{low:224,high:448,log:true}", [1.0, 2.0]),
    ],
)
def test_the_designer_s_value_may_be_outside_the_range(leaf: object, apart: list[float]) -> None:
    experiment = experiment_of(*DUEL, *BALANCE, f"+ec.genes.mdp.knight.health={leaf}")
    assert isinstance(experiment.ec, IndependentEvolution)
    searched = genes(experiment.ec.genes, experiment)  # 112 is the designer's
    assert [changed(experiment, searched, np.array([x]))[0] for x in searched[0].bounds] == pytest.approx(apart)


def test_a_side_that_cannot_lose_is_told() -> None:
    words = ("ec.episodes=20", "ec.train_steps=1", "rl.slots=2", "rl.horizon=2", "rl.minibatch=4")
    strong = judged(experiment_of(*QUICK, *DUEL, *BALANCE, HEALTH, *words, "mdp.archer.health=0.01"))
    weak = judged(experiment_of(*QUICK, *DUEL, *BALANCE, HEALTH, *words, "mdp.archer.shoot.damage=1000"))
    assert strong.result["first_wins"].mean() > 0.5 > weak.result["first_wins"].mean()
    assert len(strong.result["first_wins"]) == 10 and strong.objectives[0] == strong.result["evenness"][0] < 1


def test_both_sides_learn_and_the_game_is_the_individual_s(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    play = balance_evaluator.play_game

    def watched(world: Any, *rest: Any) -> Any:
        seen.append(world)
        return play(world, *rest)

    monkeypatch.setattr(balance_evaluator, "play_game", watched)
    experiment = experiment_of(*QUICK, *DUEL, *BALANCE, HEALTH, "mdp.side=knight")
    answer = judged(experiment)
    (world,) = seen
    assert world.knight.health != experiment.mdp.knight.health and 50 <= world.knight.health <= 150
    assert world.archer == experiment.mdp.archer
    assert answer.cost >= 128 and answer.weights is not None and answer.memory is not None
    assert answer.memory["steps"] >= 128


@pytest.mark.slow
def test_a_front_of_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(*QUICK, *CASES["balance"], f"hydra.run.dir={tmp_path / 'run'}") == 0
    rows = journal(tmp_path / "run")
    for row in rows:
        assert row["objectives"]["evenness"] == row["results"]["evenness"]
        assert row["objectives"]["-1*change"] == -row["results"]["change"]
        assert row["results"]["change"] == pytest.approx(abs(row["genes"]["mdp.bat_speed"] - 4) / 4)
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert result["best"]["selected_by"] == "first fitness"
    best = max(rows, key=lambda row: row["objectives"]["evenness"])
    assert result["best"]["genes"] == best["genes"]
    assert result["eval"]["change_mean"] == pytest.approx(best["results"]["change"])
    capsys.readouterr()
    assert evaluate.main([f"run={tmp_path / 'run'}", "json=true"]) == 0  # in the game of the best, and not the config's
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {name: again[name] for name in result["eval"]} == result["eval"]
    assert evaluate.main([f"run={tmp_path / 'run'}", f"export={tmp_path / 'kept'}"]) == 2
    assert "export: the policy plays in a game of its own" in capsys.readouterr().err


def test_games_of_other_keys_have_other_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the luck of drawn actions is not the same for each seed, and for fitness and evaluation."""
    drawn: list[int] = []

    def watched(arena: Any, seed: int, deterministic: bool) -> EvaluationNoise:
        drawn.append(seed)
        return EvaluationNoise(arena, seed, deterministic)

    monkeypatch.setattr(episodes, "EvaluationNoise", watched)
    experiment = experiment_of(*QUICK, *DUEL, *BALANCE, HEALTH)
    learner = experiment.rl.learner(spec(experiment.mdp), 1, torch.device("cpu"))
    for seed, purpose in ((0, "fitness"), (1, "fitness"), (0, "evaluate"), (0, "fitness")):
        play_game(experiment.mdp, learner, seeds.Episodes(seed, purpose, evaluation=True), 2, experiment)
    assert len({*drawn}) == 3 and drawn[0] == drawn[3]


def test_the_best_game_is_evaluated_as_itself() -> None:
    experiment = experiment_of(*QUICK, *DUEL, *BALANCE, HEALTH, "ec.population=1", "ec.episodes=4", "eval.episodes=6")
    assert isinstance(experiment.ec, IndependentEvolution)
    population = Population(experiment, experiment.ec)
    try:
        population.iterate()
        leader = population.leader
        assert leader is not None
        metrics = population.evaluate()
        own = population.space.values(leader.individual.genes)
        learner = population.plan.learner(leader.individual) if population.plan.learner else None
        world = replace(experiment.mdp, knight=replace(experiment.mdp.knight, health=own["mdp.knight.health"]))
        keys = seeds.Episodes(experiment.seed, "evaluate", evaluation=True)
        result, _ = play_game(world, learner, keys, 6, experiment)
    finally:
        population.close()
    expected = {f"eval/{name}_mean": x.mean() for name, x in result.items()}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    apart = (own["mdp.knight.health"] - 112) / 100
    assert metrics["eval/change_mean"] == pytest.approx(abs(apart)) and metrics.keys() >= {"eval/return_mean"}


def test_python_and_exports_take_the_game_of_the_individual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("ec.population=2", "ec.episodes=2", "eval.episodes=4", "budget.steps=256", f"hydra.run.dir={tmp_path}/run")
    assert go(*QUICK, *DUEL, *BALANCE, HEALTH, *words) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    run = evorl.load(tmp_path / "run")
    again = run.evaluate() | {"episodes": 4}
    assert {name: again[name] for name in result["eval"]} == result["eval"]
    health = result["best"]["genes"]["mdp.knight.health"]
    assert run.policy.world.knight.health == health != run.experiment.mdp.knight.health
    seen: list[float] = []
    play = Compared.play_games

    def watched(compared: Compared, world: Any, *rest: Any, **keys: Any) -> list[Episode]:
        seen.append(world.knight.health)
        return play(compared, world, *rest, **keys)

    monkeypatch.setattr(Compared, "play_games", watched)
    assert export.main([f"run={tmp_path}/run", f"out={tmp_path}/policy.onnx", "episodes=1"]) == 0
    assert seen == [health]


def test_map_elites_describes_games_by_their_fights(tmp_path: Path) -> None:
    pytest.importorskip("ribs")
    words = (
        *("ec=map_elites", "ec.lifetime=balance", "ec.train_steps=64", "ec.objectives=[evenness]"),
        *("+ec.genes.mdp.bat_speed=[2,6]", "ec.descriptors={length:[0,60,3],variety:[0,1,4]}", "budget.steps=900"),
    )
    assert go(*QUICK, *PONG, *words, f"hydra.run.dir={tmp_path / 'run'}") == 0
    assert all(0 < row["results"]["variety"] <= 1 for row in journal(tmp_path / "run"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("mdp=cartpole",), "ec.lifetime: the games of CartPole-v1 have one side"),
        (("mdp=problem", "mdp.id=zdt1"), "ec.lifetime: a function is no game"),
        (
            ("mdp=duel", "mdp.ground.limit=1", "ec.objectives=[eveness]"),
            "there is no result eveness; did you mean evenness",
        ),
        (
            ("mdp=soccer", "mdp.continuous=true", "mdp.seconds=1", "ec.objectives=[variety]"),
            "there is no result variety",
        ),
        (("mdp=duel", "ec.lifetime=balanced"), "balance"),
        (("mdp=duel",), "ec.objectives: fitness is a mean over both sides; take [evenness]"),
        (
            (
                *DUEL,
                *BALANCE,
                "mdp.ground.storm=0",
                "+ec.genes.mdp.ground.storm={low:1,high:9,log:true}",
            ),
            "ec.genes.mdp.ground.storm: its change is counted from mdp.ground.storm=0",
        ),
    ],
)
def test_what_is_refused(words: tuple[str, ...], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "run"
    assert go("ec=nsga2", "ec.lifetime=balance", *words, f"hydra.run.dir={place}") == 2
    assert why in capsys.readouterr().err.replace("\n", " ") and not place.exists()
