"""Evaluations end in worlds whose episodes do not: episodes are truncated, with a warning, and keep their return."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from harness import Faulty, go

from evorl.mdp.core import World
from evorl.mdp.gymnasium import Gymnasium
from evorl.nets.policy import Net
from evorl.rl import evaluation
from evorl.rl.core import Learner
from evorl.rl.evaluation import play_episodes, progress_shown
from evorl.rl.films import film
from evorl.rl.ppo import PPO
from evorl.training.train import spec

MODULE = '''
import gymnasium
import numpy as np


class Endless(gymnasium.Env):
    """Reward 1 at every step, for ever."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)
'''
WORDS = (
    *("mdp=gymnasium", "mdp.id=endless_env:Endless", "trust=[endless_env]", "mdp.reward_scale=0.5", "eval.episodes=2"),
    *("eval.max_steps=20", "eval.every=0", "checkpoint.every=0", "rl.net.hidden=[4]", "record.tensorboard=false"),
)
SEARCH = ("ec.population=3", "ec.episodes=2", "budget.steps=240")
RUNS = {
    "learner": ("rl=ppo", "rl.slots=2", "rl.horizon=8", "rl.minibatch=16", "budget.steps=32"),
    "play": ("rl=ppo", "ec=sga", *SEARCH),
    "train": ("rl=ppo", "ec=pbt", "ec.train_steps=16", "rl.slots=2", "rl.horizon=8", "rl.minibatch=16", *SEARCH),
    "shared critic": ("rl=td3", "ec=cem_rl", "ec.population=4", "ec.trained=2", "rl.batch=8", "budget.steps=200"),
}


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("endless")
    (folder / "endless_env.py").write_text(MODULE, "utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield Gymnasium(id="endless_env:Endless", reward_scale=0.5)
    sys.path.remove(str(folder))
    sys.modules.pop("endless_env", None)


def learner_of(world: World) -> Learner:
    return PPO(net=Net(hidden=(4,))).learner(spec(world), 0, torch.device("cpu"))


def test_an_environment_without_an_end_is_truncated(endless: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "evorl"):
        played = play_episodes(learner_of(endless), endless, 0, 3, 50, deterministic=True)
    assert [(one.ret, one.length, one.rewards) for one in played] == [(50.0, 50.0, (25.0,))] * 3
    assert [one.message for one in caplog.records] == [
        "3 of 3 evaluation episodes had no end and were truncated after 50 steps (eval.max_steps)"
    ]


def test_a_battle_without_an_end_is_truncated_with_its_result() -> None:
    world = Faulty(length=10**9)
    played = play_episodes(learner_of(world), world, 0, 3, 50, deterministic=True)
    assert [(one.length, one.results) for one in played] == [(50.0, {"score": 50.0})] * 3


def test_episodes_that_follow_those_of_an_evaluation_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The first of the 64 slots plays two of 65 episodes, and the others play on meanwhile."""
    world = Faulty(length=10**9)
    assert len(play_episodes(learner_of(world), world, 0, 65, 5, deterministic=True)) == 65
    assert [one.message.partition(" had")[0] for one in caplog.records] == ["65 of 65 evaluation episodes"]


@pytest.mark.parametrize("limit", [10, 70])
def test_a_limit_of_the_world_comes_first(limit: int, endless: World, caplog: pytest.LogCaptureFixture) -> None:
    world = Gymnasium(id="endless_env:Endless", time_limit=limit)
    played = play_episodes(learner_of(world), world, 0, 2, 50, deterministic=True)
    assert [one.length for one in played] == [limit] * 2 and not caplog.records


def test_a_film_ends(endless: World) -> None:
    assert len([*film(learner_of(endless), endless, 0, 0, 1, 12).frames]) == 13


@pytest.mark.slow_cases("train")
@pytest.mark.parametrize("kind", RUNS)
def test_every_run_ends(kind: str, endless: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(*WORDS, *RUNS[kind], f"hydra.run.dir={tmp_path / 'run'}") == 0
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert result["eval"]["return_mean"] == result["eval"]["length_mean"] == 20
    out = capsys.readouterr().out
    notice = "this world declares no limit of steps: evaluations truncate episodes after 20 (eval.max_steps)"
    assert out.count(notice) == 1
    if kind != "learner":
        lines = (tmp_path / "run" / "population.jsonl").read_text("utf-8").splitlines()
        assert {json.loads(line)["results"]["length"] for line in lines} == {20.0}


def test_a_long_evaluation_says_how_far_it_is(endless: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PROGRESS_PERIOD_S", 0.0)
    lines: list[str] = []
    with progress_shown(lines.append):
        play_episodes(learner_of(endless), endless, 0, 2, 3, deterministic=True)
    assert [line.rpartition(",")[0] for line in lines] == [
        f"evaluating: 0 of 2 episodes, the longest at {n} decisions" for n in range(3)
    ]


def test_a_sample_of_a_long_episode_takes_the_bytes_of_its_actions(endless: World) -> None:
    from evorl.util.seed import Episodes

    with closing(endless.arena(1, Episodes(0))) as arena:
        for _ in range(5000):
            arena.send(arena.recv().slots, torch.zeros(1, 1).numpy())
        log = arena._engine._log
        assert len(log) == 5000 and log._rows.nbytes <= 4 * 2 * 5000 + 4 * 64
