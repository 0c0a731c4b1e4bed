"""Many runs from one command: all jobs are checked before the first starts, and the same command resumes a sweep.

Hydra's sweeper and launcher send each job where it runs; `task` is what they run. Into a directory that already
holds the sweep, the same command finishes what is missing: finished jobs answer from their result, interrupted
and failed ones resume from their last checkpoint. A failed job records the reason in its directory and stops no other.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from evorl import __version__
from evorl.cli import config
from evorl.cli.hydra_internals import Hydra, multirun
from evorl.cli.overrides import FOLDERS, GROUPS, parse
from evorl.cli.refusals import check_hydra, check_hydra_of_job
from evorl.jobs import job, launchers, promotion
from evorl.jobs.directories import new_directory, place_of
from evorl.jobs.identity import OtherRun, check_same_config
from evorl.jobs.planning import KEY, check_jobs, chooses_jobs, combinations, composes, plan_jobs, refuse_links
from evorl.record.result import set_aside, sound_result
from evorl.util import command, run_directory
from evorl.util.errors import BadRequest, reason
from evorl.util.stop import leave, owns_process
from evorl.util.text import printable, say

if TYPE_CHECKING:
    from evorl.jobs.search import Search

PATIENCE_S = 15.0


def task(composed: DictConfig) -> float:
    """Train as the config says, in the directory that Hydra chose; return the fitness. Launchers call this function.

    A failed job records the reason and returns NaN. Raises `BadRequest` if the directory holds another run.
    """
    from evorl.record import failure
    from evorl.record.lock import RunLocked
    from evorl.training.session import Interrupted
    from evorl.util.streams import ignore_write_errors

    ignore_write_errors()  # a launcher may have started this process
    directory = Path(HydraConfig.get().runtime.output_dir)
    earlier = failure.stamp(directory)
    try:
        return _outcome(composed, directory)
    except Interrupted as stop:
        say(f"evorl: {stop}", sys.stderr)
        raise SystemExit(128 + stop.signal) from None  # after an Exception Hydra would start the next job
    except (RunLocked, OtherRun):
        raise
    except Exception as error:
        failure.write(directory, error, earlier)
        say(f"evorl: {directory} failed: {reason(error)}", sys.stderr)
        return math.nan


def _outcome(composed: DictConfig, directory: Path) -> float:
    from evorl.jobs import search

    own = HydraConfig.instance().cfg
    assert isinstance(own, DictConfig)
    words, group = config.task_words(own), Path(own.hydra.sweep.dir).absolute().name
    data, experiment = job.checked_experiment(config.resolved(composed), words, group)
    if not job.is_run(directory):
        return job.start_run(own, words, data, experiment, lambda: directory, KEY)
    _wait_for_old_workers(directory)
    stopped = search.stops_jobs(own)
    data = check_same_config(directory, data, KEY, *promotion.GROWING * stopped)
    result = promotion.sound_result_after(directory, data["budget"]["steps"]) if stopped else sound_result(directory)
    if result is not None:
        say(f"{directory} has finished")
        return math.nan if result["fitness"] is None else float(result["fitness"])
    say(f"{directory} goes on")
    experiment = config.experiment(data, config.trusted_packages(words, data))

    def amend() -> None:
        set_aside(directory)  # a damaged result, or that of a smaller budget
        if stopped:
            run_directory.replace(directory, job.CONFIG, job.config_yaml(data))

    return job.resume_run(directory, words, data, experiment, amend, key=KEY)


def _wait_for_old_workers(directory: Path) -> None:
    """Wait for the workers of a killed launcher, which release their runs within seconds."""
    from evorl.record.lock import is_locked

    ends = time.monotonic() + PATIENCE_S
    while is_locked(directory) and time.monotonic() < ends:
        time.sleep(0.1)


class JobsFailed(SystemExit):
    """Jobs of a sweep failed; the reasons are printed. The command exits with code 1."""

    def __init__(self, directory: Path) -> None:
        super().__init__(1)
        self.directory = directory


def sweep(hydra: Hydra, words: Sequence[str], name: str) -> Path:
    """Check every job, then pass them to Hydra's sweeper and launcher; return the sweep's directory.

    Raises `BadRequest` before anything is written, and `JobsFailed` if jobs failed.
    """
    from evorl.analysis import sweeps
    from evorl.jobs import search, search_loop
    from evorl.record.lock import lock

    words = [search.chosen_evolver(word, hydra) for word in words if not word.startswith("hydra.mode=")]
    words = _left_to_jobs(hydra, [*words, "hydra.mode=MULTIRUN"])
    check_hydra(parse(words, hydra), sweep=True)
    base = config.compose(hydra, words, name, RunMode.MULTIRUN)
    check_hydra_of_job(base)
    launchers.check(base)
    HydraConfig.instance().set_config(base)
    job_search = search.read_search(base, hydra) if search.is_search(base) else None
    compose = composes(hydra, base, name)
    listed = job_search.extremes() if job_search else combinations(hydra, base)
    plans, chosen = plan_jobs(listed, compose)
    jobs = job_search.keys.jobs if job_search else len(plans)
    print(f"evorl {__version__}: {jobs} job{'s' * (jobs != 1)}", flush=True)
    _print_notes(chosen, job_search)
    place = place_of(base.hydra.sweep.dir, KEY, config.hydra_words(base)).absolute()
    if chooses_jobs(base) and place.is_dir():
        refuse_links(place, [entry.name for entry in run_directory.entries(place) if entry.name.isdecimal()])
    if job_search:
        job_search.check(place, [compose(words, number).experiment for number, words in enumerate(listed)])
        for number, next_job in search_loop.next_jobs(job_search, place).items():
            if job.is_run(place / str(number)):
                data = compose(next_job, number).data
                check_same_config(place / str(number), data, KEY, *promotion.GROWING * (job_search.steps is not None))
    check_jobs(base, place, plans, compose, known=not chooses_jobs(base))
    index = {} if chooses_jobs(base) else {plan.folder: plan.words for plan in plans}
    with _interruptible(place):
        launchers.start_ray(base)
    directory = new_directory(base.hydra.sweep.dir, KEY, config.hydra_words(base), sweeps.is_sweep).absolute()
    with lock(directory, KEY):
        sweeps.write_index(directory, index)
        with _interruptible(directory):
            multirun(hydra, name, task, [*words, f"{KEY}={command.quoted(str(directory))}"])
            if job_search:
                search_loop.name_best_job(job_search, directory)
    if job_search:
        sound = search_loop.print_outcome(job_search, directory)
    else:
        sound = _print_outcome(directory, sweeps.labels(index) or dict.fromkeys(sweeps.started_jobs(directory), ""))
    if not sound:
        raise JobsFailed(directory)
    return directory


@contextmanager
def _interruptible(directory: Path) -> Iterator[None]:
    """On a signal, during a job or between two, print the command that resumes the sweep."""
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread alone
        yield
        return

    def message() -> str:
        done = len([*directory.rglob("result.json")])
        place = command.word(KEY, str(directory))
        return f"evorl: jobs that have finished: {done}; with {place} the same command goes on\n"

    def handle(number: int, frame: FrameType | None) -> None:
        if owns_process.get():
            with suppress(OSError):  # stderr may be closed
                os.write(2, message().encode())  # unbuffered: the signal may have interrupted a print
        leave(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except SystemExit:  # after a job that has saved, or of a call from Python
        sys.stderr.write(message())
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _left_to_jobs(hydra: Hydra, words: Sequence[str]) -> list[str]:
    """The words, with values of a group's keys as lists of one where choices vary.

    Hydra composes the sweep itself with every word that does not vary, where a key of a choice that does may be
    unknown: rl=ppo,td3 rl.batch=100. A list is left to the jobs.
    """
    overrides = parse(words, hydra)
    if not any(override.is_sweep_override() and override.key_or_group in (*GROUPS, *FOLDERS) for override in overrides):
        return [*words]
    return [
        f"{override.get_key_element()}=choice({override.get_value_element_as_str()})"
        if override.key_or_group.partition(".")[0] in GROUPS and "." in override.key_or_group
        and not (override.is_sweep_override() or override.is_delete())
        else word
        for override, word in zip(overrides, words, strict=True)
    ]  # fmt: skip


# ------------------------------------------------------------------ after the last job


def _print_notes(chosen: Iterable[Mapping[str, str]], job_search: Search | None) -> None:
    from evorl.analysis.notes import uneven_tuning

    for line in uneven_tuning(chosen):
        say(line)
    if job_search and (notice := job_search.evolution.notice(job_search.at_once)):
        say(notice)


def _print_outcome(directory: Path, labels: Mapping[str, str]) -> bool:
    """Print the results, how many jobs finished and why others failed; return whether all finished."""
    from evorl.analysis import sweeps

    reasons = {folder: sweeps.why_unfinished(directory / folder) for folder in labels}
    failed = {folder: why for folder, why in reasons.items() if why is not None}
    _show(directory, [directory / folder for folder in labels])
    report = command.line("report", str(directory))
    say(f"{len(labels) - len(failed)} of {len(labels)} jobs have finished: {report}")
    if failed:
        lines = [printable(f"  {folder} {labels[folder]}: {why}") for folder, why in failed.items()]
        again = command.word(KEY, str(directory))
        notice = f"evorl: {len(failed)} of {len(labels)} jobs failed; with {again} they run again"
        say("\n".join([notice, *lines]), sys.stderr)
    return not failed


def _show(directory: Path, jobs: Collection[Path]) -> None:
    """Print a table of the jobs whose records can be read."""
    from evorl.analysis.runs import read_runs
    from evorl.analysis.sweeps import pending_jobs
    from evorl.analysis.terminal_tables import print_tables

    try:
        runs, left_out = read_runs([place for place in jobs if job.is_run(place)])
    except (BadRequest, OSError) as error:
        runs, left_out = [], [str(error)]
    for note in left_out:
        say(f"evorl: {note}", sys.stderr)
    if runs:
        known = {*jobs}
        print_tables(runs, [pending for pending in pending_jobs([directory]) if pending.directory in known])
