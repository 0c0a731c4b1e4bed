"""Runs from Python: train, sweep, resume and load, with the words of the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evorl.analysis.runs import RunRecord, flatten, further_lines, read_json, read_run
from evorl.api.experiments import run_experiment
from evorl.api.policy import Policy, at_least
from evorl.api.threads import threads
from evorl.api.words import Words, listed, text
from evorl.cli import config
from evorl.cli.targets import Untrusted
from evorl.jobs.saved_policies import (
    LoadedPolicy,
    check_checkpoint,
    check_individual,
    checkpoint_of,
    evaluated_by,
    loaded_policy,
    own_evaluation,
    saved_policy,
)
from evorl.jobs.sweep import JobsFailed
from evorl.record import failure, provenance, result, run_names
from evorl.record.lock import is_locked
from evorl.record.provenance import POLICY_ONLY
from evorl.run import asked, parsed, work
from evorl.training.experiment import Experiment
from evorl.training.session import Interrupted
from evorl.util import command, run_directory
from evorl.util.closes import Closes
from evorl.util.errors import BadRequest
from evorl.util.stop import owns_process

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")

METRICS, POPULATION = "metrics.jsonl", "population.jsonl"
CONFIG = ".hydra/config.yaml"
RECORDS = (CONFIG, ".hydra/hydra.yaml", METRICS, result.FILE_NAME, failure.FILE_NAME, provenance.FILE_NAME)
"""The files of a run that `read_run` reads."""
SIGNAL = 128
"""Exit codes above it are those of signals."""


def run(*words: Words | Experiment, **keys: Any) -> RunResult:
    """Train as ``python -m evorl.run WORD...`` does, and return the run.

        evorl.run("mdp=cartpole rl=ppo", {"rl.lr": 1e-3}, seed=1)

    The first argument may be an `evorl.experiment` instead. Ctrl-C saves and raises KeyboardInterrupt; `resume` goes
    on. Raises `BadRequest`, a ValueError, before anything is written.
    """
    if len(words) == 1 and isinstance(words[0], Experiment) and not keys:
        with _signals():
            directory, trust = run_experiment(words[0])
        return RunResult(directory, trust=trust)
    return _command(listed(words, keys), one=True)


def sweep(*words: Words, **keys: Any) -> list[RunResult]:
    """Train every combination, as ``python -m evorl.run --multirun WORD...`` does; return the runs.

        evorl.sweep("mdp=cartpole rl=ppo,dqn seed=1,2,3")

    A list holds several values of a key, also in a dict: ``seed=[1, 2, 3]``. A value that is a list itself stands in
    one: ``{"rl.net.hidden": [[64, 64]]}``. A job that failed is among the runs; its ``state`` is ``failed``.
    """
    from evorl.analysis.sweeps import started_jobs

    made = _command(["--multirun", *listed(words, keys, several=True)])
    return [RunResult(made.directory / folder, trust=made.trust) for folder in started_jobs(made.directory)]


def resume(directory: str | Path, *words: Words, **keys: Any) -> RunResult:
    """Go on with a run exactly where it stopped, as ``python -m evorl.run resume=DIRECTORY WORD...`` does.

    evorl.resume(run.directory, {"budget.steps": 200_000})
    """
    return _command([f"resume={text(directory)}", *listed(words, keys)])


def load(
    directory: str | Path,
    checkpoint: str | int = "latest",
    individual: str | int | None = None,
    trust: str | Sequence[str] = (),
) -> RunResult:
    """Load a run directory; ``"latest"`` is the run that began last, ``"zoo/ppo_pong"`` a policy of `evorl.zoo`.

    ``checkpoint``: ``"latest"`` or ``"last"``, ``"best"``, or a step that the run keeps. ``individual``: an id, or
    ``"best"``, of a population. ``trust``: packages outside evorl whose classes the run's config may import; a text is
    one of them.
    """
    named = _path(directory)
    trusted = (trust,) if isinstance(trust, str) else tuple(trust) if isinstance(trust, Sequence) else (trust,)
    if not all(isinstance(root, str) for root in trusted):
        raise BadRequest(f"expected names of packages, got {trust!r:.100}", "trust")
    place = Path(run_names.named(named, "run"))
    # raises `BadRequest` now, and not at the first use
    check_individual(_experiment(place, trusted), individual)
    check_checkpoint(place, str(checkpoint))
    return RunResult(place, str(checkpoint), individual, trusted)


class RunResult(Closes):
    """A run directory: what was trained, and how it went.

    Its parts are read when they are asked for, and again when their files have changed. The policy, and the experiment
    of which it is, stay as they were first read until `close`.

    ``with`` closes it, which matters for worlds that start other programs.
    """

    def __init__(
        self,
        directory: Path,
        checkpoint: str = "latest",
        individual: str | int | None = None,
        trust: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory.absolute()  # a notebook may change its own directory
        self.checkpoint, self.individual, self.trust = checkpoint, individual, trust
        self._known: dict[str, tuple[Any, Any]] = {}

    def __repr__(self) -> str:
        score = "" if self.fitness is None else f", fitness {self.fitness:.6g}"
        return f"RunResult({str(self.directory)!r}, {self.state}{score})"

    def close(self) -> None:
        """End what the policy's world has open, such as games in other programs; the next use begins anew."""
        vars(self).pop("policy", None)
        vars(self).pop("_loaded", None)
        if (opened := vars(self).pop("experiment", None)) is not None:
            opened.mdp.close()

    @cached_property
    def experiment(self) -> Experiment:
        """The config as typed dataclasses."""
        return _experiment(self.directory, self.trust)

    @property
    def config(self) -> dict[str, Any]:
        """The config as plain data, as it stands in the run directory."""
        return deepcopy(self._read("config", lambda: config.read_run_config(self.directory, "run"), CONFIG))

    @property
    def record(self) -> RunRecord:
        """The records of the run, as reports read them."""
        return self._read("record", lambda: read_run(self.directory), *RECORDS)

    @property
    def _kept(self) -> Mapping[str, Any] | None:
        """How a policy was evaluated when it was exported; None for a run, which has records instead."""
        return self._read("kept", lambda: read_json(self.directory, POLICY_ONLY), POLICY_ONLY)

    @property
    def state(self) -> str:
        """``finished``, also for an exported policy; ``running``, ``interrupted`` or ``failed``."""
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
        made = self.experiment
        world = self._loaded.game or made.mdp
        return Policy(self._loaded.learner, world, made.seed, made.rl.threads, made.eval.max_steps)

    @cached_property
    def _loaded(self) -> LoadedPolicy:
        with threads():  # loading sets the number for all that the process computes
            return loaded_policy(self.experiment, self.directory, self.checkpoint, self.individual)

    def evaluate(self, episodes: int | None = None, seed: int | None = None) -> dict[str, float]:
        """Evaluate the policy as ``python -m evorl.evaluate device=cpu`` does; return its numbers (``return_mean`` and
        others).

        With the run's own seed and number of episodes, the default, they are those that a run on a CPU recorded.
        """
        from evorl.rl.evaluation import evaluate_policy, fitness

        made = self.experiment
        episodes = at_least(1, made.eval.episodes if episodes is None else episodes, "episodes")
        seed = at_least(0, made.seed if seed is None else seed, "seed")
        with threads(made.rl.threads):
            if self._loaded.game is None:
                metrics = evaluate_policy(self.policy.learner, made.mdp, seed, episodes, made.eval.max_steps)
            else:
                asked = replace(made, seed=seed, eval=replace(made.eval, episodes=episodes))
                path, run = checkpoint_of(self.directory, self.checkpoint)
                saved = saved_policy(made, path, run, self.individual)
                metrics = own_evaluation(evaluated_by(saved, asked, run))
        return {"fitness": fitness(metrics)} | {name.removeprefix("eval/"): x for name, x in metrics.items()}

    @property
    def metrics(self) -> pandas.DataFrame:
        """The metrics by environment step: a column for each (docs/metrics.md), and ``time`` in seconds."""
        return self._read("metrics", self._metrics, METRICS)

    def _metrics(self) -> pandas.DataFrame:
        frame = _frame(self._rows(METRICS))
        return frame if frame.empty else frame.groupby("step").last()  # an evaluation has a line of its own

    @property
    def population(self) -> pandas.DataFrame:
        """The rows of population.jsonl, an individual each; empty for a run without a population."""
        return self._read("population", lambda: _frame(self._rows(POPULATION)), POPULATION)

    def plot(self, *metrics: str | Sequence[str]) -> Any:
        """Return a matplotlib figure of these metrics, or of the fitness and the return in training.

        run.plot("train/return", "policy/entropy")
        """
        from evorl.analysis.figures import render, run_figure

        for each in metrics:
            if not isinstance(each, str | list | tuple):
                raise BadRequest(f"expected names of metrics, got {each!r:.100}", "metrics")
        names = [name for each in metrics for name in ([each] if isinstance(each, str) else each)]
        figure: Any = run_figure(self.record, names)
        figure._repr_png_ = lambda: render(figure)["png"]  # by which a notebook shows it, without pyplot
        return figure

    def _read(self, name: str, read: Callable[[], T], *files: str) -> T:
        """What ``read`` returns, kept until one of these files is another, or a process begins or ends its work."""
        now = is_locked(self.directory), *(_signature(self.directory / file) for file in files)
        if name not in self._known or self._known[name][0] != now:
            self._known[name] = now, read()
        value: T = self._known[name][1]
        return value

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        for line in further_lines(self.directory, name):
            try:
                row = run_directory.parse_json(line)
            except ValueError:
                continue  # the last line of a run that was killed
            if isinstance(row, dict):
                yield flatten(row)


def _path(directory: Any) -> str:
    """A run directory as text. Raises `BadRequest`."""
    if not isinstance(directory, str | os.PathLike):
        raise BadRequest(f"expected a run directory, got {directory!r:.100}", "directory")
    return os.fspath(directory)


def _experiment(directory: Path, trust: Sequence[str]) -> Experiment:
    """The experiment of a run. Raises `BadRequest`; for code that is not trusted it says how Python trusts it."""
    try:
        return config.experiment_of_run(directory, trust)
    except Untrusted as error:
        own = f"needs code of {error.root}; to run it: evorl.load(..., trust={[*trust, error.root]})"
        raise BadRequest(own, error.key) from None


def _frame(rows: Iterator[dict[str, Any]]) -> pandas.DataFrame:
    try:
        import pandas
    except ModuleNotFoundError:
        raise BadRequest("frames need pandas: pip install 'evorl-suite[pandas]'") from None
    return pandas.DataFrame(list(rows))


def _signature(file: Path) -> tuple[int, int, int] | None:
    """What differs once a file has changed."""
    try:
        found = file.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _command(words: Sequence[str], one: bool = False) -> RunResult:
    """Do the work of a command line; return the run, or the sweep's directory as one, also where jobs failed.

    ``one``: raise `BadRequest` for a sweep, whose directory is no run.
    """
    parser, args = parsed(words)
    if one and (args.multirun or "hydra.mode=MULTIRUN" in args.overrides):
        raise BadRequest("several runs; in Python evorl.sweep(...)", "--multirun")
    if option := asked(args):
        raise BadRequest(f"asks for information, which a command line prints: {command.run(*words)}", option)
    trust = config.trusted_packages(args.overrides, {})
    with _signals():
        try:
            directory = work(parser, args)
        except JobsFailed as failed:
            directory = failed.directory
    assert directory is not None, "it asks for no information"
    return RunResult(directory, trust=trust)


@contextmanager
def _signals() -> Iterator[None]:
    """Raise KeyboardInterrupt where a signal stopped a run or a sweep: the program that calls goes on. Training has
    threads of its own.
    """
    owned = owns_process.set(False)
    try:
        with threads():
            yield
    except Interrupted as stop:
        raise KeyboardInterrupt(str(stop)) from None
    except SystemExit as stop:  # of a sweep, or of a second signal
        if not isinstance(stop.code, int) or stop.code <= SIGNAL:
            raise
        raise KeyboardInterrupt(
            "stopped; what was saved before is kept, and the same call, or resume, goes on"
        ) from None
    finally:
        owns_process.reset(owned)
