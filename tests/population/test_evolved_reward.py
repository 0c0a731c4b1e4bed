"""Rewards that evolve: learners follow them, and nobody is selected by them.

That such runs resume exactly, and that workers change nothing, is tested with all evolutions (test_loop.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from evolution_runs import CASES, LR, QUICK, journal
from harness import experiment_of, go, newest

from evorl.ec.core import IndependentEvolution, Individual, pack, unpack_evaluations
from evorl.mdp.shaped import RewardNetwork, Shaped, numbers, scales
from evorl.population.episodes import play_fitness_episodes
from evorl.population.evaluation import evaluation_plan
from evorl.population.results import IndividualResult
from evorl.population.train_evaluator import TrainEvaluator
from evorl.training.experiment import Experiment
from evorl.training.train import spec

WORDS = (*QUICK, "mdp=cartpole", "ec=nsga2", "ec.lifetime=train", "ec.train_steps=256", "ec.episodes=4")


def reward(*words: str) -> Experiment:
    return experiment_of(*WORDS, "ec.reward.kind=immediate", "ec.reward.hidden=2", *words)


def begun(experiment: Experiment) -> tuple[Individual, TrainEvaluator, IndependentEvolution]:
    assert isinstance(experiment.ec, IndependentEvolution)
    plan = evaluation_plan(experiment, experiment.ec)
    (first,) = experiment.ec.evolver(plan.space).ask(1)
    evaluator = plan.make(0)
    assert isinstance(evaluator, TrainEvaluator)
    return first, evaluator, experiment.ec


def lived(evaluator: TrainEvaluator, individual: Individual) -> IndividualResult:
    return IndividualResult(*evaluator.evaluate(pack([individual])).each[0])


def test_an_individual_is_selected_by_the_world_s_fitness() -> None:
    """However large its reward: its objectives are those that its weights earn in the world itself."""
    experiment = reward("ec.reward.scale=1000")
    individual, evaluator, evolution = begun(experiment)
    answer = lived(evaluator, individual._replace(genes=np.full_like(individual.genes, 2.0)))
    learner = experiment.rl.learner(spec(experiment.mdp), 0, torch.device("cpu"))
    assert evaluator.evolution is evolution and answer.weights is not None
    state = learner.state_dict()
    shapes, at = {name: x.shape for name, x in state["policy"].items()}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        state["policy"][name] = torch.tensor(answer.weights[at : at + size]).reshape(shape)
        at += size
    learner.load_state_dict(state)
    played = play_fitness_episodes(experiment, learner, experiment.seed, evolution, individual.id)
    assert answer.result["fitness"].tolist() == [episode.ret for episode in played]
    assert answer.objectives == [np.mean([episode.ret for episode in played])] and answer.objectives[0] <= 500
    assert answer.result["return"].tolist() == answer.result["length"].tolist()  # 1 in each step, and nothing more


def test_a_learner_follows_its_reward() -> None:
    """Of two with the same weights and the same games those with another reward learn something else; a reward that is
    0 everywhere changes nothing."""
    individual, evaluator, _ = begun(reward())
    plain, unshaped, _ = begun(experiment_of(*WORDS))
    none = lived(unshaped, plain)
    zero = lived(evaluator, individual._replace(genes=np.zeros_like(individual.genes), weights=plain.weights))
    some = lived(evaluator, individual._replace(weights=plain.weights))
    assert none.weights is not None and zero.weights is not None and some.weights is not None
    assert none.weights.tobytes() == zero.weights.tobytes() != some.weights.tobytes()


def test_the_genes_are_the_network_s_weights() -> None:
    experiment = reward("+ec.genes.rl.lr=[0.001,0.01]", "ec.reward.bound=3")
    individual, evaluator, _ = begun(experiment)
    names = [gene.name for gene in evaluator.space.genes]
    assert names == ["rl.lr", *(f"ec.reward.{k}" for k in range(RewardNetwork.weights(4, 2)))]
    assert all((gene.low, gene.high) == (-3, 3) for gene in evaluator.space.genes[1:])
    world = evaluator._rewarding(experiment, individual)
    assert isinstance(world, Shaped) and isinstance(world.reward, RewardNetwork)
    assert world.gamma == pytest.approx(experiment.rl.gamma)
    again = RewardNetwork(individual.genes[1:], 2, 1.0, scales(experiment.mdp))
    x = np.random.default_rng(0).normal(size=(5, numbers(spec(experiment.mdp))))
    assert world.reward((x,)).tolist() == again((x,)).tolist()


def test_a_child_s_reward_comes_from_its_parents(tmp_path: Path) -> None:
    assert go(*QUICK, *CASES["reward"], "budget.steps=2500", f"hydra.run.dir={tmp_path / 'run'}") == 0
    rows = journal(tmp_path / "run")
    assert {row["role"] for row in rows} == {"initial", "child"}
    assert all(sum(name.startswith("ec.reward.") for name in row["genes"]) == 13 for row in rows)
    assert all(row["objectives"]["fitness"] == row["results"]["return"] for row in rows)


def test_a_resumed_run_with_other_genes_keeps_its_rewards(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def people() -> dict[int, list[float]]:
        found = unpack_evaluations(newest(run)["run"]["evolver"]["population"])
        return {one.individual.id: one.individual.genes.tolist() for one in found}

    words = (*WORDS, "ec=sga", "ec.reward.kind=immediate", "ec.reward.hidden=2", LR, "ec.train_steps=64")
    assert go(*words, "budget.steps=1200", f"hydra.run.dir={run}") == 0
    before, step = people(), newest(run)["run"]["steps"]
    assert go(f"resume={run}", "+ec.genes.rl.clip=[0.1,0.3]", f"budget.steps={step + 1}") == 0
    after = people()
    kept = before.keys() & after.keys()
    assert kept and all(after[one][2:] == before[one][1:] for one in kept)  # after rl.lr and rl.clip
    assert go(f"resume={run}", "~ec.genes", f"budget.steps={step + 300}") == 0
    assert {*journal(run)[-1]["genes"]} == {f"ec.reward.{k}" for k in range(13)}


@pytest.mark.parametrize(
    "words",
    [
        ("mdp=cartpole", "ec=nsga2"),
        ("mdp=duel", "ec=nsga2", "ec.lifetime=balance"),
        ("mdp=pong", "ec=coevolution"),
        ("mdp=problem", "mdp.id=zdt1", "ec=nsga2", "ec.lifetime=train"),
    ],
)
def test_where_nobody_follows_it(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(*words, "ec.reward.kind=potential", f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert "ec.reward.kind: learners that train" in capsys.readouterr().err and not (tmp_path / "run").exists()
