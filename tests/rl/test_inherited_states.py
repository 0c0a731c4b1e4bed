"""What a learner takes over from another one: from the run of ``init=``, from a population, and from a parent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import Chain, GameWorld, Pushing

from evorl.ec.core import Evaluation, Individual, pack_evaluations
from evorl.ec.pbt import PBT
from evorl.nets.policy import Net
from evorl.population.evaluation import evaluation_plan
from evorl.population.evaluation_plan import EvaluationPlan
from evorl.population.opposed import layout_of
from evorl.population.train_evaluator import TrainEvaluator, _inherit
from evorl.population.warm_start import initial_states
from evorl.rl.ddpg import DDPG
from evorl.rl.dqn import DQN
from evorl.rl.sac import SAC
from evorl.rl.td3 import TD3
from evorl.training.experiment import Experiment
from evorl.training.train import Run, Start, new_run, spec
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict

torch.set_num_threads(1)
SHAPE: dict[str, Any] = {"slots": 1, "horizon": 4, "batch": 4, "samples_per_step": 4.0, "warm_up": 4, "capacity": 100}
TANH = Net(hidden=(4,), activation="relu", output="tanh")
GAUSSIAN = Net(hidden=(4,), activation="relu", std="state")
LEARNERS = {
    "td3": (TD3(**SHAPE, net=TANH), Pushing),
    "ddpg": (DDPG(**SHAPE, net=TANH), Pushing),
    "sac": (SAC(**SHAPE, net=GAUSSIAN), Pushing),
    "dqn": (DQN(**SHAPE, net=Net(hidden=(4,))), Chain),
}
LEARNED = ("policy", "policy_target", "critic", "alpha")
OPTIMIZERS = {
    "td3": {"optimizer", "critic_optimizer"},
    "ddpg": {"optimizer", "critic_optimizer"},
    "sac": {"optimizer", "critic_optimizer", "alpha_optimizer"},
    "dqn": {"optimizer"},
}


def experiment_of(name: str, **more: Any) -> Experiment:
    hyper, game = LEARNERS[name]
    return Experiment(mdp=GameWorld(game=game), rl=hyper, device="cpu", **more)


def change(learner: Any, seed: int) -> None:
    """Change all that gradient steps change."""
    random = torch.Generator().manual_seed(seed)
    for x in learner.tensors():
        x.copy_(torch.rand(x.shape, generator=random))


def state_of(name: str, seed: int = 1) -> StateDict:
    experiment = experiment_of(name)
    learner = experiment.rl.learner(spec(experiment.mdp), 7, torch.device("cpu"))
    change(learner, seed)
    return learner.state_dict()


def start(directory: Path, optimizer: bool, **past: Any) -> Start:
    """A start from a run with this state, without its checkpoint."""
    made = Start(directory, optimizer)
    vars(made)["past"] = past
    return made


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(part, other[key]) for key, part in one.items())
    return torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def check(name: str, found: StateDict, wanted: StateDict, optimizer: bool) -> None:
    """Everything learned is taken over, and the optimisers on request; else they are new."""
    for part in (part for part in LEARNED if part in wanted):
        assert same(found[part], wanted[part]), part
    for part in OPTIMIZERS[name]:
        assert same(found[part], wanted[part]) == optimizer, part
        assert any(x.any() for x in found[part].values()) == optimizer, part


@pytest.mark.parametrize("optimizer", [False, True], ids=["", "optimizer"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_starts_from_all_that_another_has_learned(name: str, optimizer: bool) -> None:
    state = state_of(name)
    run = new_run(experiment_of(name, seed=5), start(Path("there"), optimizer, learner=state))
    found = run.learner.state_dict()
    run.close()
    check(name, found, state, optimizer)
    assert found["gradient_steps"] == 0


def plan_of(name: str, optimizer: bool) -> tuple[Experiment, PBT, EvaluationPlan]:
    evolution = PBT(population=2, train_steps=8, episodes=1, inherit_optimizer=optimizer)
    experiment = experiment_of(name, ec=evolution)
    return experiment, evolution, evaluation_plan(experiment, evolution)


def begun(plan: EvaluationPlan, weights: Any, memory: StateDict | None) -> StateDict:
    assert plan.learner is not None
    return plan.learner(Individual(0, np.zeros(0), weights, memory=memory)).state_dict()


@pytest.mark.parametrize("optimizer", [False, True], ids=["", "optimizer"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_population_starts_from_all_that_a_run_has_learned(name: str, optimizer: bool) -> None:
    state, (_, _, plan) = state_of(name), plan_of(name, optimizer)
    (initial,) = initial_states(start(Path("there"), optimizer, learner=state), plan, 2)
    found = begun(plan, initial.weights, initial.memory)
    check(name, found, state, optimizer)
    assert found["gradient_steps"] == 0


@pytest.mark.parametrize("optimizer", [False, True], ids=["", "optimizer"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_population_starts_from_all_that_another_has_learned(name: str, optimizer: bool, tmp_path: Path) -> None:
    states, (_, _, plan) = [state_of(name, seed) for seed in (1, 2)], plan_of(name, optimizer)
    people = []
    for number, state in enumerate(states):
        weights = torch.cat([x.flatten() for x in state["policy"].values()]).numpy()
        memory = {"steps": 8, "learner": {part: x for part, x in state.items() if part not in ("policy", "replay")}}
        people.append(Evaluation(Individual(number, np.zeros(0), weights, memory=memory), (-float(number),)))
    lines = [{"id": number, "step": 8, "genes": {}, "objectives": {}} for number in (0, 1)]
    (tmp_path / "population.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    past = {"leader": pack_evaluations(people[:1]), "evolver": {"population": pack_evaluations(people)}}
    found = initial_states(start(tmp_path, optimizer, learner=states[0], **past), plan, 2)
    for initial, state in zip(found, states, strict=True):
        check(name, begun(plan, initial.weights, initial.memory), state, optimizer)


@pytest.mark.parametrize("optimizer", [False, True], ids=["", "optimizer"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_child_inherits_all_that_its_parent_has_learned(
    name: str, optimizer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, evolution, plan = plan_of(name, optimizer)
    ended: dict[str, Any] = {}

    def iterate(run: Run) -> None:
        change(run.learner, 3)
        run.steps += evolution.train_steps
        ended.update(run.learner.state_dict())

    monkeypatch.setattr(Run, "iterate", iterate)
    weights = plan.space.weights_of(0)
    answer = TrainEvaluator(experiment, evolution, (), 0)._live(Individual(0, np.zeros(0), weights))
    check(name, begun(plan, answer.weights, answer.memory), ended, optimizer)


def test_a_temperature_that_is_not_learned_is_the_runs_own() -> None:
    """It may be a gene, too."""
    own = SAC(**SHAPE, net=GAUSSIAN, learn_alpha=False, alpha=0.25).learner(Pushing.spec, 0, torch.device("cpu"))
    own.load_state_dict(state_of("sac"))
    assert float(own.temperature.log.exp()) == pytest.approx(0.25)


@pytest.mark.parametrize("name", ["td3", "ddpg", "sac"])
def test_a_state_of_an_older_version_gives_all_but_its_optimisers(name: str) -> None:
    state, experiment = state_of(name), experiment_of(name)
    old = {part: x for part, x in state.items() if part not in ("critic_optimizer", "alpha_optimizer")}
    old["critic"] = {**state["critic"], "optimizer": state["optimizer"]}
    old |= {"alpha": {**state["alpha"], **state["optimizer"]}} if "alpha" in state else {}
    learner = experiment.rl.learner(spec(experiment.mdp), 0, torch.device("cpu"))
    with pytest.raises(BadRequest, match="resume: an older version wrote this state"):
        learner.load_state_dict(old)
    learner.load_policy(old)
    check(name, learner.state_dict(), state, optimizer=False)


def test_a_target_network_begins_as_a_copy_of_the_given_policy() -> None:
    hyper = DQN(slots=1, batch=4, warm_up=4, capacity=100)
    given, own = (hyper.learner(Chain.spec, seed, torch.device("cpu")) for seed in (1, 2))
    layout = layout_of(given)
    weights = layout.flatten(given.state_dict()["policy"]).numpy()
    _inherit(own, layout, weights, None)
    assert torch.equal(own.theta, given.theta) and torch.equal(own.theta_target, own.theta)
    other = given.state_dict()["policy_target"]
    other = {name: x + 1 for name, x in other.items()}
    _inherit(own, layout, weights, {"learner": {"policy_target": other}})
    assert torch.equal(own.theta_target, given.theta + 1)
