"""The session of a run in its directory: the loop, evaluations, checkpoints, signals and the result."""

from __future__ import annotations

import logging
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import msgspec

from evorl.cluster.core import Stopped, stoppable
from evorl.mdp.core import WorldError
from evorl.record import checkpoint, state_tree
from evorl.record.core import Recorder, RowFile, recorder_state
from evorl.record.terminal import Terminal, print_summary
from evorl.rl.core import Metrics
from evorl.rl.evaluation import in_whole_games, progress_shown
from evorl.training.core import Work
from evorl.util import command, descriptors, run_directory
from evorl.util.errors import Failure
from evorl.util.stop import leave, stop_requested
from evorl.util.types import StateDict, Steps

log = logging.getLogger("evorl")
RESERVE = 16
"""Descriptors that a checkpoint and the end of a run take."""


class Interrupted(Exception):
    """A signal stopped the run, after it saved, or came while it ended: nothing is to begin after it."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}; {what}")
        self.signal = number


OpenRun = tuple[Path, StateDict | None]
"""A locked run directory, and the state of the checkpoint to resume from; None for a new run."""


def run_to_end(built: BuiltRun, opened: Callable[[], AbstractContextManager[OpenRun]]) -> dict[str, Any]:
    """Run until the budget is spent, then close the run; return the content of result.json.

    ``opened`` opens and locks the run directory; a run with a checkpoint, which it has loaded into ``built``, continues
    from it exactly. Raises `Interrupted` (after a clean save, or after the result), `Failure` if open files run out
    (after a clean save) or if a disk stays full (the last checkpoint stays), `WorldError` (likewise, but a learner's
    training goes on from the last checkpoint), `NotFinite` (the last checkpoint stays), and OSError if the final
    checkpoint or the result cannot be written.
    """
    try:
        with opened() as (directory, state):
            session = Session(built.run, directory, state)
            try:
                return session.go()
            finally:
                session.segments.remove_ahead()
    finally:
        built.close()


class BuiltRun:
    """A run that was built and may load a checkpoint; after one that could be loaded in part only it is built again."""

    def __init__(self, build: Callable[[], Work]) -> None:
        self._build = build
        self._run: Work | None = build()
        self._untouched = True

    @property
    def run(self) -> Work:
        assert self._run is not None
        return self._run

    def close(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.close()

    def load(self, directory: Path, prepare: Callable[[Work, StateDict], StateDict]) -> StateDict | None:
        """Load the newest checkpoint that can be; return its state, or None if no checkpoint was saved.

        ``prepare`` makes from a run and a checkpoint's ``run`` what the run loads. Raises `DamagedCheckpoint` if no
        checkpoint can be loaded.
        """
        newest = checkpoint.newest(directory, take=lambda state: self._taken(state, prepare))
        return None if newest is None else newest[1]

    def _taken(self, state: StateDict, prepare: Callable[[Work, StateDict], StateDict]) -> StateDict:
        if not self._untouched:
            self.close()
            self._run = self._build()
        self._untouched = False
        prepared = prepare(self.run, state["run"])
        state_tree.require_form(prepared, self.run.state_dict(), ("run",))
        self.run.load_state_dict(prepared)
        run, judged = self.run, state["judged"]
        due = state.get("evaluation_due", False)  # missing in runs of older versions
        progress = {"steps": run.steps, "best": run.best, "judged": judged, "evaluation_due": due}
        msgspec.convert(progress, _Progress).require(recorder_state(state["recorder"]).steps)
        return state


class _Progress(msgspec.Struct):
    """The progress of a run in a checkpoint; a damaged one may have steps without an end, such as NaN."""

    steps: Steps
    best: tuple[float, Steps] | None
    judged: _Judged | None
    evaluation_due: bool

    def require(self, recorded: Mapping[str, int]) -> None:
        """Require that the rows recorded last, by prefix, are those of this progress. Raises ValueError."""
        judged = None if self.judged is None else self.judged.step
        if recorded.get("eval") != judged or (self.evaluation_due and judged == self.steps):
            raise ValueError(f"the last evaluation was after {judged} steps, its row after {recorded.get('eval')}")
        if late := [name for name, step in recorded.items() if step > self.steps]:
            raise ValueError(f"the last row of {late[0]}/ is after {recorded[late[0]]} steps of {self.steps}")


class _Judged(msgspec.Struct):
    step: Steps
    metrics: dict[str, float]


class Session:
    """A run in its directory, from its start or resume to its end."""

    def __init__(self, run: Work, directory: Path, state: StateDict | None) -> None:
        self.run, self.directory = run, directory
        e = run.experiment
        self.limit = e.budget.steps or e.mdp.budget
        self.eval_every, self.save_every = (e.periods()[name] for name in ("eval", "checkpoint"))
        self.saved = -1  # step of the newest checkpoint
        self.saved_evaluation = False  # whether it has the evaluation of its step
        self.last_evaluation: tuple[int, Metrics] | None = None  # the newest evaluation
        self.evaluation_due = False  # at this step; a signal ended it before
        recorded, spent = None, 0.0
        if state is not None:
            self.saved, recorded = run.steps, state["recorder"]
            spent = float(recorded["time"])
            self.evaluation_due = state.get("evaluation_due", False)  # missing in runs of older versions
            self.last_evaluation = (
                None if state["judged"] is None else (state["judged"]["step"], state["judged"]["metrics"])
            )
            self.saved_evaluation = self._evaluated_now()
        self.writes_ahead = True  # rows, before the next checkpoint needs them
        self.segments = checkpoint.segments_of(directory, None if state is None else self.saved)
        left = None if e.budget.seconds is None else max(e.budget.seconds - spent, 0.0)
        self.terminal = Terminal(self.limit, left, run.steps, individuals=run.top_individuals)
        settings = msgspec.to_builtins(e)
        self.recorder = Recorder(directory, e.record, settings, recorded, e.packages)  # the last: its files are open

    def go(self) -> dict[str, Any]:
        with self.recorder, self.terminal, _signals(self.terminal.print_from_signal_handler) as caught:
            if self.evaluation_due:
                self._evaluate(caught)
                self._save_if_possible()
            while not self._over():
                self._advance(caught)
            if not self._evaluated_now():
                self._evaluate(caught)
            self._save()  # again, if a stop at the very end saved it before this evaluation
            result = self._result()
            run_directory.write_json(self.directory, "result.json", result)
        print_summary(result, self.directory)
        if caught:
            raise Interrupted(caught[0], "the run has finished")
        return result

    def _advance(self, caught: list[int]) -> None:
        """Run one iteration, then evaluate and save if due. Saves and raises `Interrupted` after a signal."""
        before = self.run.steps
        try:
            progress = self.run.iterate()
        except Stopped:
            self._interrupt(caught)
        except WorldError:
            self._tell_what_is_kept(self.run.whole)
            raise
        if self.run.steps > before:  # a population's evaluation may have failed before its first step
            self._write(progress.metrics)
        self._write_rows("population.jsonl", progress.evaluated)
        self._write_rows("jobs.jsonl", progress.jobs)
        self._write_rows("opponents.jsonl", progress.opponents)
        self._write_rows("payoffs.jsonl", progress.payoffs)
        ends = not caught and not self._evaluated_now() and self._over()
        if evaluates := ends or _due(self.eval_every, before, self.run.steps):
            self._evaluate(caught)  # before saving, so that the checkpoint contains it
        if caught:
            self._interrupt(caught)
        if descriptors.left() < RESERVE:
            self._end_without_descriptors()
        if evaluates or _due(self.save_every, before, self.run.steps):
            self._save_if_possible()
        elif self.writes_ahead and (self.save_every or self.eval_every):
            self._write_ahead_if_possible()

    def _interrupt(self, caught: list[int]) -> NoReturn:
        self._save()
        self.recorder.close()  # here, so that no sink reports a failure
        raise Interrupted(caught[0], f"saved at step {self.run.steps}; resume with: {self._again}")

    def _tell_what_is_kept(self, whole: bool) -> None:
        """Print how a run whose world has failed can be resumed; save first if its state is ``whole``."""
        if whole and self.saved != self.run.steps:
            self._save_if_possible()
        if self.saved < 0:
            log.error("the world has failed, before the first checkpoint (checkpoint.every); the cause:")
        else:
            log.error(
                "the world has failed; saved at step %d; once it is mended, resume with: %s; the cause:",
                self.saved, self._again,
            )  # fmt: skip

    @property
    def _again(self) -> str:
        """The command that resumes the run."""
        return command.resume(self.directory, self.run.experiment.trust)

    def _end_without_descriptors(self) -> NoReturn:
        """Save and raise `Failure` while there are descriptors for it: later, the process could not even say why."""
        left = descriptors.left()
        self._save()
        self.recorder.close()
        raise Failure(
            f"{left} of the open files that are allowed (ulimit -n) are left; saved at step {self.run.steps}; raise "
            f"the limit, then resume with: {self._again}"
        )

    def _over(self) -> bool:
        return self.run.ended or bool(self._limits_reached())

    def _limits_reached(self) -> dict[str, float]:
        """The limits of the budget that the run has reached, with the number that it has come to."""
        budget, steps = self.run.experiment.budget, self.run.steps
        reached: dict[str, float] = {}
        if steps > self.limit or (steps == self.limit and not self.run.due):
            reached["steps"] = steps
        if budget.seconds is not None and self.recorder.time >= budget.seconds:
            reached["seconds"] = self.recorder.time
        if budget.fitness is not None and self._fitness() >= budget.fitness:
            reached["fitness"] = self._fitness()
        return reached

    def _fitness(self) -> float:
        """Return the fitness reached so far; -inf before there is any."""
        reached = self.run.fitness(None if self.last_evaluation is None else self.last_evaluation[1])
        return -math.inf if reached is None else reached

    def _evaluated_now(self) -> bool:
        return self.last_evaluation is not None and self.last_evaluation[0] == self.run.steps

    def _evaluate(self, caught: list[int]) -> None:
        """Evaluate. A signal ends it: the run saves, raises `Interrupted`, and evaluates when it is resumed."""
        self.evaluation_due = True
        try:
            with stoppable(), progress_shown(self.terminal.show_evaluation):
                metrics = self.run.evaluate()
        except Stopped:
            self._interrupt(caught)
        except WorldError:
            self._tell_what_is_kept(True)
            raise
        self.evaluation_due = False
        self.last_evaluation = (self.run.steps, metrics)
        self._write(self.last_evaluation[1])
        self._write_rows("opponents.jsonl", self.run.opponents())

    def _write_rows(self, name: RowFile, rows: Sequence[dict[str, Any]]) -> None:
        if rows:  # the first ones create the file
            self.recorder.write_rows(name, rows)

    def _write(self, metrics: Metrics) -> None:
        self.recorder.write(self.run.steps, metrics)
        self.terminal.update(self.run.steps, metrics)

    def _save(self) -> None:
        """Save, but not over what was evaluated at this step, which `best` may name.

        What the run has done since without an environment step is in the next checkpoint; a resume does it again.
        """
        if self.saved == self.run.steps and self.saved_evaluation:
            return
        evaluated = (
            None
            if self.last_evaluation is None
            else {"step": self.last_evaluation[0], "metrics": self.last_evaluation[1]}
        )
        state: StateDict = {
            "run": self.run.state_dict(), "recorder": self.recorder.state_dict(), "judged": evaluated,
            "evaluation_due": self.evaluation_due,
        }  # fmt: skip
        keep, best = self.run.experiment.checkpoint.keep, checkpoint.best_step(state["run"])
        checkpoint.save(self.directory, self.run.steps, state, keep, best, segments=self.segments)
        self.saved, self.saved_evaluation, self.writes_ahead = self.run.steps, self._evaluated_now(), True

    def _save_if_possible(self) -> None:
        """Save; on a full disk, warn, keep the last good checkpoint and continue."""
        try:
            self._save()
        except OSError as error:
            log.warning("checkpoint at step %d NOT saved (%s): the last good one stays", self.run.steps, error)

    def _write_ahead_if_possible(self) -> None:
        """Write rows of the next checkpoint; on a full disk, warn and leave them to it."""
        try:
            checkpoint.write_ahead(self.segments, {"run": self.run.appended_rows()})
        except OSError as error:
            self.writes_ahead = False
            log.warning("rows of the next checkpoint NOT written at step %d (%s)", self.run.steps, error)

    def _result(self) -> dict[str, Any]:
        """Return the content of result.json."""
        assert self.last_evaluation is not None
        evaluated = self.last_evaluation[1].items()
        metrics = {name.removeprefix("eval/"): x for name, x in evaluated if name.startswith("eval/")}
        seconds = self.recorder.time
        return {
            "steps": self.run.steps,
            "seconds": seconds,
            "steps_per_second": self.run.steps / seconds,
            "fitness": self._fitness(),
            "ended_by": self._limits_reached(),
            "eval": metrics | ({"episodes": self._eval_episodes()} if "return_mean" in metrics else {}),
            **self.run.result(),
        }

    def _eval_episodes(self) -> int:
        e = self.run.experiment
        return in_whole_games(e.mdp.evaluation_world(), e.eval.episodes)


def _due(every: int, before: int, after: int) -> bool:
    """Return whether a multiple of ``every`` lies in (before, after]; False for ``every=0``."""
    return every > 0 and after // every > before // every


@contextmanager
def _signals(notice: Callable[[str], None]) -> Iterator[list[int]]:
    """Collect the first SIGINT or SIGTERM, to be handled after the iteration; a second one exits at once."""
    caught: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if caught:
            leave(number)  # the last complete checkpoint is intact
        caught.append(number)
        notice("evorl: saving, then stopping; a second signal leaves at once")

    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    stops = stop_requested.set(lambda: bool(caught))
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        stop_requested.reset(stops)
        for number, handler in before.items():
            signal.signal(number, handler)
