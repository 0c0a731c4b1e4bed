"""``import evorl``: runs, sweeps and run directories from Python, with the words of the command line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import evorl
from evorl.mdp.gymnasium.world import Gymnasium
from evorl.rl.ppo import PPO
from evorl.training.experiment import Budget, Checkpoints, Evaluation, Experiment
from evorl.training.train import Run
from evorl.util.errors import BadRequest

SMALL: dict[str, Any] = {
    "budget.steps": 256, "rl.slots": 4, "rl.horizon": 16, "rl.minibatch": 32, "eval.every": 0, "eval.episodes": 2,
    "record.tensorboard": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(place: Path) -> evorl.RunResult:
    before = os.getcwd()
    os.chdir(place)
    try:
        return evorl.run("mdp=cartpole rl=ppo", SMALL, seed=3)
    finally:
        os.chdir(before)


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def test_a_run_and_what_is_read_of_it(trained: evorl.RunResult) -> None:
    assert trained.state == "finished" and trained.config["seed"] == 3
    assert trained.evaluate()["fitness"] == trained.fitness
    assert trained.metrics.index[-1] == 256 and trained.metrics["eval/return_mean"].iloc[-1] == trained.fitness
    assert trained.population.empty
    assert trained.policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert [axes.get_title(loc="left") or axes.get_title() for axes in trained.plot("train/return").axes]
    assert "finished" in repr(trained)


def test_a_run_is_loaded_by_its_directory_or_as_the_latest(trained: evorl.RunResult) -> None:
    seen = [0.1, 0.2, 0.3, 0.4]
    for directory in (trained.directory, str(trained.directory), "latest"):
        loaded = evorl.load(directory)
        assert loaded.policy.act(seen) == trained.policy.act(seen)
    for checkpoint in (256, "last", "latest"):
        assert evorl.load(trained.directory, checkpoint=checkpoint).policy.act(seen) == trained.policy.act(seen)


@pytest.mark.parametrize(("key", "number"), [("episodes", 0), ("episodes", -1), ("seed", -1)])
def test_an_evaluation_refuses_the_numbers_that_the_command_refuses(
    key: str, number: int, trained: evorl.RunResult
) -> None:
    with pytest.raises(BadRequest, match=rf"^{key}: expected int >= \d, got {number}$"):
        trained.evaluate(**{key: number})
    assert trained.evaluate(seed=0) != trained.evaluate()


def test_a_run_is_closed_with_what_its_world_holds(trained: evorl.RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[Any]()
    monkeypatch.setattr(Gymnasium, "close", lambda world: closed.append(world))
    with evorl.load(trained.directory) as run:
        world, action = run.experiment.mdp, run.policy.act([0.1, 0.2, 0.3, 0.4])
        assert not closed
    assert len(closed) == 1 and closed[0] is world
    run.close()
    assert len(closed) == 1, "it has opened nothing since"
    assert run.policy.act([0.1, 0.2, 0.3, 0.4]) == action, "and can be used again"


def test_a_run_without_metrics_has_no_plot(trained: evorl.RunResult, tmp_path: Path) -> None:
    shutil.copytree(trained.directory, tmp_path / "run")
    (tmp_path / "run/metrics.jsonl").write_text("")
    for metrics in ((), ("train/return",)):
        with pytest.raises(BadRequest, match=r"/run has recorded no metrics$"):
            evorl.load(tmp_path / "run").plot(*metrics)
    (tmp_path / "run/metrics.jsonl").write_text('{"step": 1, "time": 1.0, "policy/entropy": 0.5}\n')
    with pytest.raises(BadRequest, match=r"has recorded none of eval/fitness_mean, .*; name others"):
        evorl.load(tmp_path / "run").plot()
    assert evorl.load(tmp_path / "run").plot("policy/entropy").axes


def test_a_run_goes_on(place: Path) -> None:
    first = evorl.run({"mdp": "cartpole", **SMALL}, seed=4)
    longer = evorl.resume(first.directory, {"budget.steps": 512})
    assert longer.directory == first.directory and longer.result is not None and longer.result["steps"] == 512


def test_a_sweep_returns_its_runs_those_that_failed_as_well() -> None:
    runs = evorl.sweep("mdp=cartpole", SMALL, **{"rl.gamma": [0.9, 0.99]})
    assert [run.config["rl"]["gamma"] for run in runs] == [0.9, 0.99]
    assert [run.state for run in runs] == ["finished"] * 2


def test_an_experiment_of_dataclasses_is_a_run_like_any_other() -> None:
    made = evorl.experiment(
        Gymnasium(id="CartPole-v1"), PPO(slots=4, horizon=16, minibatch=32), budget=Budget(steps=128),
        eval=Evaluation(every=0, episodes=2), checkpoint=Checkpoints(every=0), seed=5,
    )  # fmt: skip
    run = evorl.run(made)
    assert run.experiment == made
    assert evorl.resume(run.directory, {"budget.steps": 256}).state == "finished"


@dataclass(frozen=True, kw_only=True)
class Own(Gymnasium):
    """A world that a test puts into a script."""


def test_a_class_that_no_other_process_can_import_is_refused_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a run could be trained, and not be loaded."""

    class Local(PPO):
        pass

    world, before = Gymnasium(id="CartPole-v1"), sorted(place.rglob("*"))
    why = r"^rl: Local is a class of a function, which cannot be imported again: put it into a file \(module\)$"
    with pytest.raises(BadRequest, match=why):
        evorl.experiment(world, Local())
    assert evorl.experiment(Own(id="CartPole-v1"), PPO()).mdp.id == world.id
    monkeypatch.setattr(Own, "__module__", "__main__")
    with pytest.raises(BadRequest, match=r"^mdp: Own is a class of a script or a notebook, which cannot"):
        evorl.experiment(Own(id="CartPole-v1"), PPO())
    with pytest.raises(BadRequest, match=r"^mdp: Own"):
        evorl.run(Experiment(mdp=Own(id="CartPole-v1"), rl=PPO()))
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("mdp=cartpol", "cartpole"),
        ({"mdp": "cartpole", "rl.lrr": 1}, "rl.lrr"),
        ("--help", "information"),
        ("mdp=cartpole 'rl.lr=1", "is no line of words: No closing quotation"),
        ("mdp=cartpole seed=1,2", "--multirun"),
    ],
    ids=["choice", "key", "help", "quotes", "several"],
)
def test_a_bad_word_is_told_as_the_command_tells_it(words: Any, why: str, place: Path) -> None:
    before = sorted(place.rglob("*"))
    with pytest.raises(BadRequest, match=why):
        evorl.run(words)
    assert sorted(place.rglob("*")) == before


def test_a_text_is_quoted_as_in_a_shell() -> None:
    """So that a line of the docs can be copied."""
    run = evorl.run("mdp=cartpole rl=ppo 'rl.lr={start: 1e-3, end: 0, steps: 256}'", SMALL)
    assert run.config["rl"]["lr"]["start"] == 1e-3


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="is no run"):
        evorl.load(tmp_path)
    misspelt = "lod"
    with pytest.raises(AttributeError, match=misspelt):
        getattr(evorl, misspelt)


def test_a_signal_saves_and_is_a_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(run: Run) -> Any:
        signal.raise_signal(signal.SIGINT)
        return iterate(run)

    iterate = Run.iterate
    monkeypatch.setattr(Run, "iterate", interrupted)
    with pytest.raises(KeyboardInterrupt, match="resume=") as stop:
        evorl.run("mdp=cartpole", SMALL | {"budget.steps": 10_000_000})
    directory = str(stop.value).rpartition("resume=")[2]
    assert evorl.load(directory).state == "interrupted"


def test_importing_evorl_imports_nothing_heavy() -> None:
    code = "import sys, evorl; print({'torch', 'hydra', 'numpy', 'ray', 'matplotlib'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
