"""What a session evaluates and saves where an iteration takes no environment step, as with a shared critic."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import Faulty, fingerprint, newest, rows

from evorl.record import checkpoint
from evorl.record.core import Record
from evorl.record.lock import lock
from evorl.rl.core import Metrics
from evorl.rl.ppo import PPO
from evorl.training.core import Progress
from evorl.training.experiment import Budget, Checkpoints, Evaluation, Experiment
from evorl.training.session import BuiltRun, Interrupted, OpenRun, run_to_end
from evorl.util import run_directory
from evorl.util.types import StateDict

STOP = -1
"""In the place of steps: a signal arrives."""


class Jobs:
    """Work whose iterations take these environment steps, and move its mean each time; it ends with them."""

    due, whole = False, True

    def __init__(self, experiment: Experiment, takes: Sequence[int]) -> None:
        self.experiment, self.takes = experiment, takes
        self.steps = self.mean = 0
        self.best: tuple[float, int] | None = None
        self.evaluated: list[int] = []
        """The mean in each evaluation."""

    @property
    def ended(self) -> bool:
        return self.mean == len(self.takes)

    def iterate(self) -> Progress:
        took = self.takes[self.mean]
        if took == STOP:
            signal.raise_signal(signal.SIGTERM)
        self.steps += max(took, 0)
        self.mean += 1
        return Progress({"train/episodes": self.mean} if took > 0 else {}, jobs=[{"job": self.mean}])

    def evaluate(self) -> Metrics:
        self.evaluated.append(self.mean)
        self.best = self.best or (1.0, self.steps)
        return {"eval/return_mean": 1.0}

    def fitness(self, evaluated: Metrics | None) -> float | None:
        return None if evaluated is None else evaluated["eval/return_mean"]

    def top_individuals(self) -> list[dict[str, Any]]:
        return []

    opponents = top_individuals

    def result(self) -> dict[str, Any]:
        return {}

    def state_dict(self) -> StateDict:
        return {"steps": self.steps, "best": self.best and list(self.best), "learner": {"mean": self.mean}}

    def appended_rows(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        self.steps, self.mean = state["steps"], state["learner"]["mean"]
        self.best = state["best"] and (state["best"][0], state["best"][1])

    def close(self) -> None:
        pass


def go(directory: Path, takes: Sequence[int], evaluate: int = 0, save: int = 0) -> Jobs:
    """Begin a run of these iterations, or go on with it."""
    experiment = Experiment(
        mdp=Faulty(), rl=PPO(), record=Record(tensorboard=False, hardware=False), budget=Budget(steps=10_000),
        eval=Evaluation(every=evaluate, episodes=1), checkpoint=Checkpoints(every=save, keep=3),
    )  # fmt: skip
    works = list[Jobs]()

    def build() -> Jobs:
        works.append(Jobs(experiment, takes))
        return works[-1]

    built = BuiltRun(build)

    @contextmanager
    def opened() -> Iterator[OpenRun]:
        directory.mkdir(exist_ok=True)
        with lock(directory):
            yield directory, built.load(directory, lambda run, state: state)

    run_to_end(built, opened)
    return works[-1]


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Step and mean of each checkpoint that is written."""
    made, save = list[tuple[int, int]](), checkpoint.save

    def noted(directory: Path, step: int, state: StateDict, *others: Any, **named: Any) -> Path:
        made.append((step, state["run"]["learner"]["mean"]))
        return save(directory, step, state, *others, **named)

    monkeypatch.setattr(checkpoint, "save", noted)
    return made


def test_no_step_is_evaluated_or_saved_twice(tmp_path: Path, saves: list[tuple[int, int]]) -> None:
    """Also where the run ends in an iteration without a step. What was evaluated is what is saved."""
    work = go(tmp_path / "run", [100, 0, 0, 100, 0, 0], evaluate=100, save=100)
    assert work.evaluated == [1, 4] and saves == [(100, 1), (200, 4)]
    assert [row["step"] for row in rows(tmp_path / "run") if "eval/return_mean" in row] == [100, 200]


def test_work_before_the_evaluation_of_its_step_is_saved_with_it(tmp_path: Path, saves: list[tuple[int, int]]) -> None:
    work = go(tmp_path / "run", [100, 100, 0, 0], save=100)
    assert work.evaluated == [4] and saves == [(100, 1), (200, 2), (200, 4)]
    state = newest(tmp_path / "run")
    assert state["judged"]["step"] == state["run"]["best"][1] == 200 and state["run"]["learner"]["mean"] == 4


def test_what_was_evaluated_and_could_not_be_saved_is_not_replaced_by_later_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: list[tuple[int, int]]
) -> None:
    save, left = checkpoint.save, [OSError(errno.ENOSPC, "No space left on device")]

    def full_at_first(*given: Any, **named: Any) -> Path:
        if left:
            raise left.pop()
        return save(*given, **named)

    monkeypatch.setattr(checkpoint, "save", full_at_first)
    go(tmp_path / "run", [100, 0, 0, 100], evaluate=100, save=100)
    assert saves == [(200, 4)]


@pytest.mark.parametrize("evaluate", [0, 100])
def test_a_stop_in_an_iteration_without_a_step_changes_nothing(evaluate: int, tmp_path: Path) -> None:
    """The checkpoint of an evaluation stays as it is, and the iteration is done again."""
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    go(alone, [100, 0, 0, 100, 0], evaluate, 100)
    with pytest.raises(Interrupted, match="saved at step 100"):
        go(stopped, [100, 0, STOP, 100, 0], evaluate, 100)
    assert newest(stopped)["run"]["learner"]["mean"] == (1 if evaluate else 3)
    go(stopped, [100, 0, 0, 100, 0], evaluate, 100)
    assert fingerprint(stopped) == fingerprint(alone)
    assert (stopped / "jobs.jsonl").read_text() == (alone / "jobs.jsonl").read_text()


def test_a_stop_at_its_end_is_told_after_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = run_directory.write_json

    def stopped_before(directory: Path, name: str, data: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        write(directory, name, data)

    monkeypatch.setattr(run_directory, "write_json", stopped_before)
    with pytest.raises(Interrupted, match="SIGTERM; the run has finished"):
        go(tmp_path / "run", [100])
    assert (tmp_path / "run" / "result.json").exists()


def test_a_checkpoint_that_cannot_be_loaded_is_written_again(tmp_path: Path) -> None:
    run, takes = tmp_path / "run", [100, 100, 100]
    go(run, takes[:2], save=100)
    bad = newest(run)
    checkpoint.save(run, 200, {**bad, "run": {**bad["run"], "steps": -1}}, keep=3)
    go(run, takes, save=100)
    assert checkpoint.load(run / "checkpoints" / "200")["run"]["steps"] == 200
