"""Many runs from one command: every job is checked before the first begins, and a sweep may be run again.

Hydra's sweeper and launcher send each job where it runs; `task` is what they run. Into a directory that already
holds the sweep, the same command finishes what is missing: finished jobs answer from their result, interrupted
and failed ones go on from their last checkpoint. A job that fails notes why in its directory and ends no other.
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, cast

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from msgspec import Meta
from omegaconf import DictConfig, OmegaConf, open_dict

from evorl import __version__
from evorl.cli import config
from evorl.cli.hydra_internals import Hydra
from evorl.cli.overrides import parse, quote
from evorl.cluster.local import Local
from evorl.jobs import job
from evorl.util.errors import BadRequest, nearest, reason
from evorl.util.typed import typed
from evorl.util.types import Count, Natural, NonNegative

KEY = "hydra.sweep.dir"
RAYS = "hydra_plugins.hydra_ray_launcher"
PATIENCE_S = 15.0


@dataclass(frozen=True, kw_only=True)
class RayInit:
    """The keys of ``ray.init`` that ``conf/hydra/launcher/ray.yaml`` names; it takes others as well."""

    address: str | None = None
    num_cpus: Natural | None = None
    num_gpus: Natural | None = None
    object_store_memory: Count | None = None
    include_dashboard: bool = False


@dataclass(frozen=True, kw_only=True)
class RayRemote:
    """The same of what each job takes."""

    num_cpus: NonNegative = 1
    num_gpus: NonNegative = 0
    max_retries: Annotated[int, Meta(ge=-1)] = 3
    """-1: without end."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What one job of a sweep would be."""

    words: Sequence[str]
    folder: str
    """Where it lies in the directory of the sweep."""
    composed: DictConfig
    data: dict[str, Any]
    experiment: Any


def task(composed: DictConfig) -> float:
    """Train as the config says, in the directory that Hydra chose; return the fitness. What launchers run.

    A failed job notes why, and returns NaN. Raises `BadRequest` where the directory holds another run.
    """
    from evorl.record import failure
    from evorl.record.checkpoint import RunLocked
    from evorl.training.session import Interrupted
    from evorl.util.streams import unheeded

    unheeded()  # a launcher may have started this process
    hydra = HydraConfig.get()
    directory = Path(hydra.runtime.output_dir)
    try:
        return _outcome(composed, hydra, directory)
    except Interrupted as stop:
        print(f"evorl: {stop}", file=sys.stderr)
        raise SystemExit(128 + stop.signal) from None  # an Exception would let Hydra begin the next job
    except (RunLocked, OtherRun):
        raise
    except Exception as error:
        failure.write(directory, error)
        print(f"evorl: {directory} failed: {reason(error)}", file=sys.stderr, flush=True)
        return math.nan


def _outcome(composed: DictConfig, hydra: HydraConf, directory: Path) -> float:
    from evorl.analysis.runs import read_json

    group = Path(hydra.sweep.dir).absolute().name
    data, experiment = job.checked_experiment(config.resolved(composed), hydra.overrides.task, group)
    if not job.is_run(directory):
        return job.start_run(composed, data, experiment, lambda: directory)
    _wait_for_old_workers(directory)
    _check_same_config(directory, data)
    result = read_json(directory / "result.json")
    if result is not None:
        print(f"{directory} has finished", flush=True)
        return math.nan if result["fitness"] is None else float(result["fitness"])
    print(f"{directory} goes on", flush=True)
    return job.resume_run(directory, data, experiment, lambda: None)


def _wait_for_old_workers(directory: Path) -> None:
    """The workers of a launcher that was killed let go of their runs within seconds."""
    from evorl.analysis.runs import is_locked

    ends = time.monotonic() + PATIENCE_S
    while is_locked(directory) and time.monotonic() < ends:
        time.sleep(0.1)


def sweep(hydra: Hydra, words: Sequence[str], name: str) -> None:
    """Check every job, then leave them to Hydra's sweeper and launcher.

    Raises `BadRequest` before anything is written, and SystemExit where jobs have failed.
    """
    from evorl.analysis import sweeps
    from evorl.jobs import search, search_loop
    from evorl.record.checkpoint import lock

    words = [*(_evolver(word) for word in words if not word.startswith("hydra.mode=")), "hydra.mode=MULTIRUN"]
    base = config.compose(hydra, words, name, RunMode.MULTIRUN)
    if base.hydra.callbacks:
        raise BadRequest("are code that a config would run; evorl calls none", "hydra.callbacks")
    _check_plugins(base)
    HydraConfig.instance().set_config(base)
    asked = search.read_search(base, hydra) if search.is_search(base) else None
    combinations = asked.extremes() if asked else _combinations(hydra, base)
    planned = [_planned(hydra, base, words, name, number) for number, words in enumerate(combinations)]
    print(f"evorl {__version__}: {asked.keys.jobs if asked else len(planned)} jobs", flush=True)
    place = Path(base.hydra.sweep.dir).absolute()
    if asked:
        asked.check(place, [one.experiment for one in planned])
        for number, one in search_loop.next_jobs(asked, place).items():
            if job.is_run(place / str(number)):
                _check_same_config(place / str(number), _planned(hydra, base, one, name, number).data)
    _check(place, planned, known=not _searches(base))
    with _interruptible(place):
        _start_ray(base)
    directory = job.new_directory(base.hydra.sweep.dir, KEY, base.hydra.overrides.hydra, sweeps.is_sweep).absolute()
    with lock(directory, KEY):
        sweeps.write_index(directory, {} if _searches(base) else {one.folder: one.words for one in planned})
        with _interruptible(directory):
            hydra.multirun(name, task, [*words, f"{KEY}={quote(str(directory))}"])
    if asked:
        return search_loop.print_outcome(asked, directory)
    _print_outcome(
        directory, dict.fromkeys(sweeps.started_jobs(directory), "") if _searches(base) else _labels(planned)
    )


@contextmanager
def _interruptible(directory: Path) -> Iterator[None]:
    """Whatever a signal ends, this process between two jobs or the job in it, says how the sweep goes on."""

    def told() -> str:
        done = len([*directory.rglob("result.json")])
        return f"evorl: jobs that have finished: {done}; with {KEY}={directory} the same command goes on\n"

    def leave(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # nobody reads it any more
            os.write(2, told().encode())  # whatever was being printed
        os._exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except SystemExit:
        sys.stderr.write(told())
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _evolver(word: str) -> str:
    """``hydra.sweeper.evolver=NAME`` as Hydra understands it: a file of conf/ec, in that place."""
    return re.sub(r"^hydra\.sweeper\.evolver=(?=\w+$)", "ec@hydra.sweeper.evolver=", word)


def _check_plugins(base: DictConfig) -> None:
    """Raises `BadRequest` for what Hydra and its launcher would find out in the middle."""
    target = str(base.hydra.launcher.get("_target_"))
    rays = target.startswith(f"{RAYS}.")
    if rays and find_spec(RAYS) is None:
        raise BadRequest("ray needs a package more: pip install 'evorl-suite[ray-launcher]'", "hydra/launcher")
    for part, kind in (("launcher", Launcher), ("sweeper", Sweeper)):
        target, known = str(base.hydra[part].get("_target_")), Plugins.instance().discover(kind)
        names = [f"{one.__module__}.{one.__name__}" for one in known]
        if target not in names:
            raise BadRequest(f"{target} is no {part} that Hydra knows{nearest(target, names)}", f"hydra.{part}")
    if rays:
        for name, keys in (("init", RayInit), ("remote", RayRemote)):
            given = OmegaConf.to_container(base.hydra.launcher.ray[name], resolve=True)
            assert isinstance(given, dict)
            ours = {one.name for one in fields(keys)}
            typed({str(key): x for key, x in given.items() if key in ours}, keys, f"hydra.launcher.ray.{name}")


def _start_ray(base: DictConfig) -> None:
    """Begin the Ray of a launcher that would do so itself, but then have SIGTERM answered by Ray's handler.

    Raises `BadRequest` where it does not start or is not there.
    """
    if str(base.hydra.launcher.get("_target_")) == f"{RAYS}.ray_launcher.RayLauncher":
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # lines of two jobs that look alike are no repetition
        from evorl.cluster.ray.session import init_ray

        words = cast(dict[str, Any], OmegaConf.to_container(base.hydra.launcher.ray.init, resolve=True))
        init_ray("hydra.launcher.ray.init", **words)


# ------------------------------------------------------------------ what a command asks for


def _searches(base: DictConfig) -> bool:
    """Whether a sweeper chooses the jobs as it goes, so that they are not known before."""
    return not str(base.hydra.sweeper.get("_target_")).endswith(".BasicSweeper")


def _combinations(hydra: Hydra, base: DictConfig) -> list[list[str]]:
    """The words of every job that Hydra's basic sweeper makes; where another one searches an interval, its ends."""
    words = [f"{key}={value}" for key, value in (base.hydra.sweeper.get("params") or {}).items()]
    given = parse([*words, *base.hydra.overrides.task], hydra)
    for one in given:
        if one.is_interval_sweep() and not _searches(base):
            raise BadRequest("an interval needs a sweeper that searches; the basic one takes lists", one.key_or_group)
    last = {one.get_key_element(): _values(one) for one in given}  # as there: a key given twice counts once
    return [list(chosen) for chosen in product(*last.values())]


def _values(one: Override) -> list[str]:
    key = one.get_key_element()
    if not one.is_sweep_override():
        return [f"{key}={one.get_value_element_as_str()}"]
    if one.is_discrete_sweep():
        return [f"{key}={value}" for value in one.sweep_string_iterator()]
    interval = one.value()
    assert isinstance(interval, IntervalSweep)
    return [f"{key}={interval.start}", f"{key}={interval.end}"]


def _planned(hydra: Hydra, base: DictConfig, words: Sequence[str], name: str, number: int) -> Planned:
    """A job as the launcher will compose it. Raises `BadRequest`."""
    composed = config.compose(hydra, [*base.hydra.overrides.hydra, *words], name)
    with open_dict(composed):
        composed.hydra.job.num = composed.hydra.job.id = number
    data, experiment = job.checked_experiment(config.resolved(composed), words)
    HydraConfig.instance().set_config(composed)
    folder = str(composed.hydra.sweep.subdir)
    HydraConfig.instance().set_config(base)
    return Planned(words=words, folder=folder, composed=composed, data=data, experiment=experiment)


# ------------------------------------------------------------------ before the first job


class OtherRun(BadRequest):
    """The directory of a job holds a run of another config."""


def _check(directory: Path, planned: Sequence[Planned], known: bool) -> None:
    """Whether every job can be done, and into this directory. Raises `BadRequest` before anything is written."""
    missing = planned
    if known:
        _check_folders(planned)
        for one in planned:
            if job.is_run(directory / one.folder):
                _check_same_config(directory / one.folder, one.data)
        missing = [one for one in planned if not (directory / one.folder / "result.json").exists()]
    _build(missing)


def _check_folders(planned: Sequence[Planned]) -> None:
    taken: dict[str, int] = {}
    for number, one in enumerate(planned):
        if one.folder in taken:
            both = f"jobs {taken[one.folder]} and {number} would both lie in {one.folder}"
            raise BadRequest(both, "hydra.sweep.subdir")
        taken[one.folder] = number


def _build(planned: Sequence[Planned]) -> None:
    """Build once, in this process, what each job would train, so that none is found impossible after hours.

    Where it is to run is asked when it begins: another machine may be meant. Raises `BadRequest`.
    """
    from evorl.population.loop import new_work

    different = {
        repr((e := one.experiment).mdp) + repr((e.rl, e.ec, e.device, job.start(one.data))): one for one in planned
    }
    for one in different.values():
        with job.explain_misfit(one.composed, one.data["init"]):
            new_work(replace(one.experiment, cluster=Local()), job.start(one.data)).close()


def _check_same_config(directory: Path, data: Mapping[str, Any]) -> None:
    """Raises `OtherRun` where the run in a job's directory has another config than the job."""
    from evorl.analysis.runs import flatten

    past, now = flatten(config.read_run_config(directory, KEY)), flatten(job.round_trip(data))
    for key in dict.fromkeys([*now, *past]):
        if key != "record.group" and past.get(key, _ABSENT) != now.get(key, _ABSENT):  # a sweep may be moved
            there, here = (tree.get(key, _ABSENT) for tree in (past, now))
            raise OtherRun(f"job {directory.name} was begun with {there} in {directory}, and is {here} now", key)


_ABSENT = "nothing"


# ------------------------------------------------------------------ after the last


def _labels(planned: Sequence[Planned]) -> dict[str, str]:
    """What tells each job, by its folder, from the others: the words that not all have."""
    common = set.intersection(*(set(one.words) for one in planned))
    return {one.folder: " ".join(word for word in one.words if word not in common) for one in planned}


def _print_outcome(directory: Path, labels: Mapping[str, str]) -> None:
    """Print what became of the jobs, how many finished and why others failed. Raises SystemExit where any did."""
    from evorl.analysis import sweeps

    reasons = {folder: sweeps.failure_reason(directory / folder) for folder in labels}
    failed = {folder: why for folder, why in reasons.items() if why is not None}
    _show(directory, [directory / folder for folder in labels])
    print(f"{len(labels) - len(failed)} of {len(labels)} jobs have finished: python -m evorl.report {directory}")
    if failed:
        lines = [f"  {folder} {labels[folder]}: {why}" for folder, why in failed.items()]
        again = f"evorl: {len(failed)} of {len(labels)} jobs failed; with {KEY}={directory} they run again"
        print("\n".join([again, *lines]), file=sys.stderr)
        raise SystemExit(1)


def _show(directory: Path, jobs: Collection[Path]) -> None:
    """Print a table of those jobs that can be read, where any can."""
    from evorl.analysis.runs import read_runs
    from evorl.analysis.sweeps import pending_jobs
    from evorl.analysis.terminal_tables import print_tables

    try:
        runs, left_out = read_runs([one for one in jobs if job.is_run(one)])
    except (BadRequest, OSError) as error:
        runs, left_out = [], [str(error)]
    for note in left_out:
        print(f"evorl: {note}", file=sys.stderr)
    if runs:
        print_tables(runs, [one for one in pending_jobs([directory]) if one.directory in jobs])
