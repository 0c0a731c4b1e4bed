"""What a world that crashes again and again costs a run: never what was finished, and never a false result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from evolution_runs import journal
from harness import Alone, Faulty, newest, rows, train_in

from evorl.ec.random import Random
from evorl.ec.sga import SGA
from evorl.jobs import best_job
from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Discrete, Input, Spec, State, Step, World, WorldError
from evorl.nets.policy import Net
from evorl.population.loop import Population
from evorl.record import checkpoint
from evorl.record.core import Record
from evorl.rl.ppo import PPO
from evorl.training.experiment import Budget, Checkpoints, Evaluation, Experiment
from evorl.training.train import spec
from evorl.util.seed import generator

pytestmark = pytest.mark.usefixtures("at_once")
STEPS = 640
SMALL = PPO(slots=4, horizon=16, minibatch=32, passes=2, net=Net(hidden=(8,)))


@dataclass(frozen=True, kw_only=True)
class CrashesInEvaluations(Faulty):
    """Training is sound."""

    length: int = 50
    sound: bool = False

    def evaluation_world(self) -> World:
        return self if self.sound else Faulty(fault="crash", at=40)


@dataclass(frozen=True, kw_only=True)
class Cliff(BattleWorld):
    """Three decisions, each worth the skill. One crashes the simulator of those whose skill is above 5."""

    skill: float = 0.0
    at: int = 3
    """The decision that crashes it."""
    chance: float = 0.0
    """Chance of an episode that it crashes whoever plays; this follows its key."""
    gone: str = "/nowhere"
    """A file; while it exists, nothing can be played."""

    @property
    def spec(self) -> Spec:
        return Spec((Input("x", (1,)),), Discrete(2))

    def reset(self, *players: int, seed: int) -> Alone:
        if Path(self.gone).exists():
            raise ConnectionError("no server")
        return Alone(Climber(self, seed))


class Climber:
    def __init__(self, world: Cliff, seed: int) -> None:
        self.world, self.t = world, 0
        self.falls = world.skill > 5 or generator("cliff", seed).random() < world.chance

    @property
    def state(self) -> State:
        return State((np.full(1, self.t, np.float32),))

    async def __call__(self, action: Array) -> Step:
        self.t += 1
        if self.t == self.world.at and self.falls:
            raise RuntimeError("fell from the cliff")
        return Step(np.array([self.world.skill], np.float32), terminated=self.t == 3)

    def result(self) -> Mapping[str, float]:
        return {"return": 3 * self.world.skill}


def experiment(**changed: Any) -> Experiment:
    usual = Experiment(
        mdp=CrashesInEvaluations(), rl=SMALL, record=Record(tensorboard=False, hardware=False),
        budget=Budget(steps=STEPS), eval=Evaluation(every=0, episodes=2), checkpoint=Checkpoints(every=0),
    )  # fmt: skip
    return replace(usual, **changed)


@pytest.mark.slow_cases(but=("at the end",))
@pytest.mark.parametrize("every", [0, 256], ids=["at the end", "on the way"])
def test_an_evaluation_that_crashes_loses_nothing(
    every: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crashing = experiment(eval=Evaluation(every=every, episodes=2))
    run, step = tmp_path / "run", every or STEPS
    with pytest.raises(WorldError, match="the roof fell in at decision 40"):
        train_in(run, crashing)
    state = newest(run)
    assert state["run"]["steps"] == step == checkpoint.steps(run)[-1] and state["evaluation_due"]
    assert f"saved at step {step}; once it is mended, resume with: " in capsys.readouterr().out
    assert not any("eval/return_mean" in row for row in rows(run)) and not (run / "result.json").exists()
    result = train_in(run, replace(crashing, mdp=CrashesInEvaluations(sound=True)))
    assert result["steps"] == STEPS and result["eval"]["length_mean"] == 50
    assert next(row["step"] for row in rows(run) if "eval/return_mean" in row) == step


EVOLUTIONS = {
    "play": SGA(population=8, episodes=1, together=4, genes={"mdp": {"skill": [0, 10]}}),
    "train": Random(population=8, episodes=1, lifetime="train", train_steps=64, genes={"mdp": {"skill": [0, 10]}}),
}


@pytest.mark.slow_cases(but=("play-1",))
@pytest.mark.parametrize(("lifetime", "at"), [("play", 1), ("play", 3), ("train", 3)])
def test_an_individual_whose_episode_crashes_has_no_fitness(lifetime: str, at: int, tmp_path: Path) -> None:
    """Also where its first decision does, before any failed episode has taken a step."""
    evolution = EVOLUTIONS[lifetime]
    steps = 60 if lifetime == "play" else 1200
    best = train_in(tmp_path / "run", experiment(mdp=Cliff(at=at), ec=evolution, budget=Budget(steps=steps)))["best"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "population.jsonl").read_text().splitlines()]
    fitness = {line["genes"]["mdp.skill"]: line["objectives"]["fitness"] for line in lines}
    assert {skill > 5 for skill in fitness} == {True, False}
    for skill, reached in fitness.items():
        assert reached is None if skill > 5 else reached == pytest.approx(3 * skill)
    assert best["fitness"] == pytest.approx(max(3 * skill for skill in fitness if skill <= 5))


def test_who_crashes_in_every_replay_is_named_by_its_first_fitness(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = experiment(
        mdp=Cliff(chance=0.3), ec=EVOLUTIONS["play"], budget=Budget(steps=60), eval=Evaluation(every=0, episodes=30)
    )
    result = train_in(tmp_path / "run", found)
    assert result["best"]["selected_by"] == "first fitness" and result["best"]["fitness"] > 0
    assert np.isnan(result["eval"]["return_mean"])
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if "cannot be replayed" in line]
    assert lines and all(line.endswith("RuntimeError: fell from the cliff") for line in lines)
    assert "Traceback" not in said


def test_a_job_whose_episodes_crash_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    crashing = experiment(mdp=Cliff(skill=6))
    learner = SMALL.learner(spec(crashing.mdp), 0, torch.device("cpu"))
    search: Any = SimpleNamespace(seed=0)
    scores, _ = best_job._replay(search, "3", best_job.Policy(crashing, learner), "select 0", 2)
    assert scores.tolist() == [-np.inf]
    line = caplog.messages[-1]
    assert line.startswith("job 3 cannot be replayed: Cliff failed 3 times in the episode of slot 0 with seed ")
    assert line.endswith(": RuntimeError: fell from the cliff") and "\n" not in line


def test_a_world_that_cannot_be_played_ends_a_population_which_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A game server that is gone, say, tells nothing of the individuals: they are evaluated again."""
    gone, run = tmp_path / "gone", tmp_path / "run"
    ec = SGA(population=8, episodes=1, together=2)
    found = experiment(mdp=Cliff(gone=str(gone), skill=1), ec=ec, budget=Budget(steps=60))
    train_in(tmp_path / "whole", found)
    learn = Population._learn

    def last(self: Population, *given: Any) -> Any:
        if self.evaluations >= 6:
            gone.touch()
        return learn(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Population, "_learn", last)
        with pytest.raises(WorldError, match="ConnectionError: no server"):
            train_in(run, found)
    saved = newest(run)["run"]
    assert saved["steps"] == 3 * saved["evaluations"] >= 18
    assert f"saved at step {saved['steps']}; once it is mended, resume with: " in capsys.readouterr().out
    gone.unlink()
    train_in(run, found)
    assert journal(run) == journal(tmp_path / "whole")
