"""The jobs of a sweep before the first one starts: which they are, and whether each can run.

Every job is composed, checked and let go: a config takes 150 kB, and a grid may have ten thousand. What reads one later
has it composed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import accumulate, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import IntervalSweep, Override
from omegaconf import DictConfig, open_dict

from evorl.cli import config
from evorl.cli.hydra_internals import Hydra
from evorl.cli.overrides import TUNED, parse
from evorl.cli.refusals import check_hydra_of_job
from evorl.cluster.local import Local
from evorl.jobs import job, run_players
from evorl.jobs.identity import check_same_config
from evorl.util import run_directory
from evorl.util.errors import BadRequest
from evorl.util.names import check_names

if TYPE_CHECKING:
    from evorl.training.experiment import Experiment

KEY = "hydra.sweep.dir"
SUBDIR = "hydra.sweep.subdir"


@dataclass(frozen=True, kw_only=True)
class Composed:
    """The config of a job, as its launcher will compose it."""

    folder: str
    """Its directory, relative to the sweep's."""
    config: DictConfig
    data: dict[str, Any]
    experiment: Experiment


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a sweep keeps of each job before it runs."""

    number: int
    words: Sequence[str]
    folder: str
    built: bytes = b""
    """A digest of what its world and learner are built of."""


Compose = Callable[[Sequence[str], int], Composed]
"""Composes a job of these words and this number."""


def chooses_jobs(base: DictConfig) -> bool:
    """Whether the sweeper chooses jobs while it runs, so that they are not known before."""
    return not str(base.hydra.sweeper.get("_target_")).endswith(".BasicSweeper")


def combinations(hydra: Hydra, base: DictConfig) -> list[list[str]]:
    """The words of every job of Hydra's basic sweeper; for other sweepers, the ends of each interval."""
    words = [f"{key}={value}" for key, value in (base.hydra.sweeper.get("params") or {}).items()]
    overrides = parse([*words, *config.task_words(base)], hydra)
    for override in overrides:
        if override.is_interval_sweep() and not chooses_jobs(base):
            raise BadRequest(
                "an interval needs a sweeper that searches: hydra/sweeper=evorl; the basic one takes lists",
                override.key_or_group,
            )
    # as in Hydra, the last word for a key counts
    last = {override.get_key_element(): _values(override) for override in overrides}
    if empty := [key for key, values in last.items() if not values]:
        raise BadRequest("has no value", empty[0])
    return [list(chosen) for chosen in product(*last.values())]


def _values(override: Override) -> list[str]:
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if override.is_discrete_sweep():
        return [f"{key}={value}" for value in override.sweep_string_iterator()]
    interval = override.value()
    assert isinstance(interval, IntervalSweep)
    return [f"{key}={interval.start}", f"{key}={interval.end}"]


def composes(hydra: Hydra, base: DictConfig, name: str) -> Compose:
    """Return what composes the jobs of a command, each as the launcher will. It raises `BadRequest`."""
    return partial(_composed, hydra, base, name)


def _composed(hydra: Hydra, base: DictConfig, name: str, words: Sequence[str], number: int) -> Composed:
    composed = config.compose(hydra, [*config.hydra_words(base), *words], name)
    check_hydra_of_job(composed)
    with open_dict(composed):
        composed.hydra.job.num = composed.hydra.job.id = number
    HydraConfig.instance().set_config(composed)  # of which ${hydra:job.num} in a word is
    try:
        folder = str(composed.hydra.sweep.subdir)
        advice = "; hydra.job.config.override_dirname.exclude_keys=[KEY,...] shortens it"
        check_names(Path(folder), f"job {number}'s directory", SUBDIR, advice)  # before torch is imported
        data, experiment = job.checked_experiment(config.resolved(composed), words)
    finally:
        HydraConfig.instance().set_config(base)
    return Composed(folder=folder, config=composed, data=data, experiment=experiment)


def plan_jobs(listed: Sequence[Sequence[str]], compose: Compose) -> tuple[list[Planned], list[dict[str, str]]]:
    """Compose and check the jobs of these words; return them, and the different choices of files among them."""
    plans, chosen = [], {}
    for number, words in enumerate(listed):
        composed = compose(words, number)
        made_of = _choices(composed.config)
        chosen[repr(made_of)] = made_of
        plans.append(Planned(number=number, words=words, folder=composed.folder, built=_built(composed)))
    return plans, [*chosen.values()]


def _built(composed: Composed) -> bytes:
    """A digest of what the world and the learner of a job are built of."""
    e = composed.experiment
    parts = repr(e.mdp) + repr((e.rl, e.ec, e.opponents, e.reward, e.device, job.start(composed.data)))
    return blake2b(parts.encode(errors="surrogatepass"), digest_size=16).digest()


def _choices(composed: DictConfig) -> dict[str, str]:
    """The file of each group that a job is composed of, as its run will record it."""
    chosen = {str(group): str(name) for group, name in composed.hydra.runtime.choices.items() if name is not None}
    return chosen if config.uses_tuned(composed) else {group: name for group, name in chosen.items() if group != TUNED}


# ------------------------------------------------------------------ before the first job


def check_jobs(base: DictConfig, directory: Path, planned: Sequence[Planned], compose: Compose, known: bool) -> None:
    """Check that every job can run in this directory. Raises `BadRequest` before anything is written."""
    from evorl.analysis import sweeps

    missing = planned
    if known:
        _check_folders(base, directory, planned)
        for plan in planned:
            if job.is_run(directory / plan.folder):
                check_same_config(directory / plan.folder, compose(plan.words, plan.number).data, KEY)
        missing = [plan for plan in planned if sweeps.why_unfinished(directory / plan.folder) is not None]
    _build(missing, compose)


def _check_folders(base: DictConfig, directory: Path, planned: Sequence[Planned]) -> None:
    """Raise `BadRequest` unless each job has a folder of its own below the sweep's, and the same one at a resume."""
    if "now:" in str(base.hydra._get_node("sweep")._get_node("subdir")._value()):
        raise BadRequest("has the time in it, so that a resume would not find the jobs again", SUBDIR)
    taken: dict[Path, int] = {}
    for number, plan in enumerate(planned):
        folder = Path(plan.folder)
        if folder.is_absolute() or ".." in folder.parts or not folder.parts:
            raise BadRequest(f"job {number} would not lie below the directory of the sweep but in {folder}", SUBDIR)
        if folder in taken:
            raise BadRequest(f"jobs {taken[folder]} and {number} would both lie in {folder}", SUBDIR)
        refuse_links(directory, accumulate(folder.parts, "{}/{}".format))
        taken[folder] = number
    for folder, number in taken.items():
        if above := next((parent for parent in folder.parents if parent in taken), None):
            raise BadRequest(f"job {number} would lie inside job {taken[above]}, in {folder}", SUBDIR)


def refuse_links(directory: Path, names: Iterable[str]) -> None:
    for name in names:
        if run_directory.is_link(directory, name):
            raise BadRequest(f"{directory / name} is a link, and none in a sweep is followed", KEY)


def _build(planned: Sequence[Planned], compose: Compose) -> None:
    """Build the world and learner of each job once in this process, so that no job fails to build hours later.

    The cluster is checked when the job starts, perhaps on another machine. Raises `BadRequest`.
    """
    from evorl.population.work import new_work

    for plan in {plan.built: plan for plan in planned}.values():
        composed = compose(plan.words, plan.number)
        with job.explain_misfit(composed.config, composed.data["init"]):
            others = run_players.others_of(composed.experiment, composed.data)
            if (init := job.start(composed.data)) is None:
                composed.experiment.mdp.check_results()
            new_work(replace(composed.experiment, cluster=Local()), init, None, others).close()
