"""Runs from Python: train, sweep, resume and load, with the words of the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evorl.analysis.runs import RunRecord, flatten, further_lines, read_json, read_run
from evorl.api.experiments import run_experiment
from evorl.api.policy import Policy, at_least
from evorl.cli import config
from evorl.cli.overrides import format_value, quote
from evorl.jobs.saved_policies import loaded_policy
from evorl.jobs.sweep import JobsFailed
from evorl.record import latest
from evorl.record.provenance import POLICY_ONLY
from evorl.reproduction.kept_policies import find
from evorl.run import run as command
from evorl.training.experiment import Experiment
from evorl.training.session import Interrupted
from evorl.util import run_directory
from evorl.util.closes import Closes
from evorl.util.errors import BadRequest

if TYPE_CHECKING:
    import pandas

Words = str | Sequence[str] | Mapping[str, Any]
"""``"mdp=pong rl=ppo"``, quoted as in a shell; ``["mdp=pong", "rl=ppo"]`` or ``{"rl.lr": 1e-3}``."""


def run(*words: Words | Experiment, **keys: Any) -> RunResult:
    """Train as ``python -m evorl.run WORD...`` does, and return the run.

        evorl.run("mdp=cartpole rl=ppo", {"rl.lr": 1e-3}, seed=1)

    The first argument may be an `evorl.experiment` instead. Ctrl-C saves and raises KeyboardInterrupt; `resume` goes
    on. Raises `BadRequest`, a ValueError, before anything is written.
    """
    if words and isinstance(words[0], Experiment):
        if words[1:] or keys:
            raise BadRequest("an experiment is whole; change it by dataclasses.replace")
        with _signals():
            return RunResult(run_experiment(words[0]), trust=words[0].packages)
    return _command(_listed(words, keys))


def sweep(*words: Words, **keys: Any) -> list[RunResult]:
    """Train every combination, as ``python -m evorl.run --multirun WORD...`` does; return the runs.

        evorl.sweep("mdp=cartpole rl=ppo,dqn seed=1,2,3")

    Several values of a key may be a list: ``seed=[1, 2, 3]``. A job that failed is among the runs; its ``state`` is
    ``failed``.
    """
    several = {key: value for key, value in keys.items() if isinstance(value, list | tuple)}
    plain = {key: value for key, value in keys.items() if key not in several}
    lists = [f"{key}={','.join(map(_text, value))}" for key, value in several.items()]
    listed = [*_listed(words, plain), *lists]
    try:
        directory = _command(["--multirun", *listed]).directory
    except JobsFailed as failed:
        directory = failed.directory
    from evorl.analysis.sweeps import started_jobs

    return [RunResult(directory / folder, trust=_trusted(listed)) for folder in started_jobs(directory)]


def resume(directory: str | Path, *words: Words, **keys: Any) -> RunResult:
    """Go on with a run exactly where it stopped, as ``python -m evorl.run resume=DIRECTORY WORD...`` does.

    evorl.resume(run.directory, {"budget.steps": 200_000})
    """
    return _command([f"resume={_text(str(directory))}", *_listed(words, keys)])


def load(
    directory: str | Path,
    checkpoint: str | int = "latest",
    individual: str | int | None = None,
    trust: Sequence[str] = (),
) -> RunResult:
    """Load a run directory; ``"latest"`` is the run that began last, ``"zoo/ppo_pong"`` a policy of `evorl.zoo`.

    ``checkpoint``: ``"latest"`` or ``"last"``, ``"best"``, or a step that the run keeps. ``individual``: an id, or
    ``"best"``, of a population. ``trust``: packages outside evorl whose classes the run's config may import.
    """
    named = str(directory)
    place = find(named[4:]).directory if named.startswith("zoo/") else Path(latest.named(named, "run"))
    config.experiment_of_run(place, tuple(trust))  # raises `BadRequest` now, and not at the first use
    return RunResult(place, str(checkpoint), individual, tuple(trust))


class RunResult(Closes):
    """A run directory: what was trained, and how it went. Its parts are read when they are asked for.

    ``with`` closes it, which matters for worlds that start other programs.
    """

    def __init__(
        self,
        directory: Path,
        checkpoint: str = "latest",
        individual: str | int | None = None,
        trust: tuple[str, ...] = (),
    ) -> None:
        self.directory, self.checkpoint, self.individual, self.trust = directory, checkpoint, individual, trust

    def __repr__(self) -> str:
        score = "" if self.fitness is None else f", fitness {self.fitness:.6g}"
        return f"RunResult({str(self.directory)!r}, {self.state}{score})"

    def close(self) -> None:
        """End what the policy's world has open, such as games in other programs; the next use begins anew."""
        vars(self).pop("policy", None)
        if (opened := vars(self).pop("experiment", None)) is not None:
            opened.mdp.close()

    @cached_property
    def experiment(self) -> Experiment:
        """The config as typed dataclasses."""
        return config.experiment_of_run(self.directory, self.trust)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config as plain data, as it stands in the run directory."""
        return config.read_run_config(self.directory, "run")

    @cached_property
    def record(self) -> RunRecord:
        """The records of the run, as reports read them."""
        return read_run(self.directory)

    @cached_property
    def _kept(self) -> Mapping[str, Any] | None:
        """How a policy was evaluated when it was exported; None for a run, which has records instead."""
        return read_json(self.directory, POLICY_ONLY)

    @property
    def state(self) -> str:
        """``finished``, also for an exported policy; ``running``, ``interrupted``, ``failed`` or ``not begun``."""
        return self.record.state if self._kept is None else "finished"

    @property
    def result(self) -> Mapping[str, Any] | None:
        """The content of result.json, of an exported policy that of evaluation.json; None while there is no result."""
        return self.record.result if self._kept is None else self._kept

    @property
    def fitness(self) -> float | None:
        """The fitness of the last evaluation; None while there is no result."""
        return None if self.result is None else self.result.get("fitness")

    @cached_property
    def policy(self) -> Policy:
        """The policy of the checkpoint; of a population that of the best individual, or of ``individual``."""
        experiment = self.experiment
        loaded = loaded_policy(experiment, self.directory, self.checkpoint, self.individual)
        return Policy(loaded.learner, experiment.mdp, experiment.seed)

    def evaluate(self, episodes: int | None = None, seed: int | None = None) -> dict[str, float]:
        """Evaluate the policy as ``python -m evorl.evaluate`` does; return its numbers (``return_mean`` and others).

        With the run's own seed and number of episodes, the default, they are those that the run recorded.
        """
        from evorl.rl.evaluation import evaluate_policy, fitness

        experiment = self.experiment
        seed = experiment.seed if seed is None else seed
        episodes = experiment.eval.episodes if episodes is None else episodes
        at_least(1, episodes, "episodes")
        at_least(0, seed, "seed")
        metrics = evaluate_policy(self.policy.learner, experiment.mdp, seed, episodes, experiment.eval.max_steps)
        return {"fitness": fitness(metrics)} | {name.removeprefix("eval/"): x for name, x in metrics.items()}

    @cached_property
    def metrics(self) -> pandas.DataFrame:
        """The metrics by environment step: a column for each (docs/metrics.md), and ``time`` in seconds."""
        frame = _frame(self._rows("metrics.jsonl"))
        return frame if frame.empty else frame.groupby("step").last()  # an evaluation has a line of its own

    @cached_property
    def population(self) -> pandas.DataFrame:
        """The rows of population.jsonl, an individual each; empty for a run without a population."""
        return _frame(self._rows("population.jsonl"))

    def plot(self, *metrics: str) -> Any:
        """Return a matplotlib figure of these metrics, or of the fitness and the return in training.

        run.plot("train/return", "policy/entropy")
        """
        from evorl.analysis.figures import render, run_figure

        figure: Any = run_figure(self.record, metrics)
        figure._repr_png_ = lambda: render(figure)["png"]  # by which a notebook shows it, without pyplot
        return figure

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        for line in further_lines(self.directory, name):
            try:
                row = run_directory.parse_json(line)
            except ValueError:
                continue  # the last line of a run that was killed
            if isinstance(row, dict):
                yield flatten(row)


def _frame(rows: Iterator[dict[str, Any]]) -> pandas.DataFrame:
    try:
        import pandas
    except ModuleNotFoundError:
        raise BadRequest("frames need pandas: pip install 'evorl-suite[pandas]'") from None
    return pandas.DataFrame(list(rows))


def _listed(words: Sequence[Any], keys: Mapping[str, Any]) -> list[str]:
    """The words of a command line; those of a text are quoted as in a shell. Raises `BadRequest`."""
    listed: list[str] = []
    for word in (*words, keys):
        if isinstance(word, str):
            try:
                listed += shlex.split(word)
            except ValueError as error:
                raise BadRequest(f"{word!r} is no line of words: {error}") from None
        elif isinstance(word, Mapping):
            listed += [f"{key}={_text(value)}" for key, value in word.items()]
        else:
            listed += [str(part) for part in word]
    return listed


def _command(words: Sequence[str]) -> RunResult:
    """Do the work of a command line; return the run, or the sweep's directory as one."""
    with _signals():
        directory = command(words)
    if directory is None:
        raise BadRequest("asks for information, which the command line prints")
    return RunResult(directory, trust=_trusted(words))


def _trusted(words: Sequence[str]) -> tuple[str, ...]:
    return config.trusted_packages([word for word in words if not word.startswith("-")], {})


def _text(value: Any) -> str:
    """A value as a word of the command line has it."""
    plain = not isinstance(value, str) or re.fullmatch(r"[\w./:@+-]+", value)
    return format_value(value) if plain else quote(value)


@contextmanager
def _signals() -> Iterator[None]:
    """Raise KeyboardInterrupt where a signal stopped a run, which has saved."""
    try:
        yield
    except Interrupted as stop:
        raise KeyboardInterrupt(str(stop)) from None
    except JobsFailed:
        raise
    except SystemExit as stop:  # of a sweep; it has printed how to go on
        raise KeyboardInterrupt(f"exit code {stop.code}") from None
