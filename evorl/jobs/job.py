"""One run in its directory: start, resume, and the config that is written there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from evorl.analysis import sweeps
from evorl.cli import config
from evorl.cli.overrides import TUNED, parse
from evorl.jobs import limits, run_players
from evorl.record import provenance
from evorl.record.provenance import POLICY_ONLY
from evorl.util import command, run_directory, yaml_text
from evorl.util.errors import BadRequest
from evorl.util.text import say
from evorl.util.typed import completed, shown, typed

if TYPE_CHECKING:
    from evorl.opponents.sampler import RunPolicy
    from evorl.record.provenance import Source
    from evorl.training.core import Work
    from evorl.training.experiment import Experiment
    from evorl.training.session import OpenRun
    from evorl.training.train import Start
    from evorl.util.types import StateDict

CONFIG, HYDRA = ".hydra/config.yaml", ".hydra/hydra.yaml"
"""The files of a run with its config, and with what Hydra recorded."""


def checked_experiment(
    resolved: Mapping[str, Any], words: Sequence[str], group: str | None = None
) -> tuple[dict[str, Any], Experiment]:
    """Return a run's config as plain data, with the keys that no file lists, and as a typed experiment.

    Raises `BadRequest`.

    ``group`` is the W&B group, unless the config names one.
    """
    data = dict(resolved)
    if data["replay"] is not None:
        raise BadRequest("repeats one run, alone on the command line", "replay")
    if data["resume"] is not None:
        raise BadRequest("goes on with one run, alone on the command line", "resume")
    with_optimizer = typed(data["init_optimizer"], bool, "init_optimizer")
    if data["init"] is not None:
        source = Path(str(data["init"]))
        past = config.read_run_config(source, "init")
        data["init"] = str(source.absolute())  # a resume may start it again from another working directory
    elif with_optimizer:
        raise BadRequest("goes with init=RUN_DIR", "init_optimizer")
    if words_of_runs := run_players.words_of(data):
        data["opponents"] = {**data["opponents"], "runs": run_players.absolute(words_of_runs)}
    made = config.experiment(data, config.trusted_packages(words, data))
    if with_optimizer and (theirs := _optimizer(past)) != (ours := optimizer(made)):
        raise BadRequest(f"{data['init']} has the state of {theirs}, and this run has {ours}", "init_optimizer")
    limits.check_fitness_limit(made)
    data |= {name: completed(data[name], getattr(made, name)) for name in ("rl", "ec") if data[name]}
    changed = {name: {**data[name], "every": every} for name, every in made.own_periods().items()}
    if group is not None and made.record.group is None:
        changed["record"] = {**data["record"], "group": group}
    if changed:
        data |= changed
        made = config.experiment(data, config.trusted_packages(words, data))
    return data, made


def optimizer(experiment: Experiment) -> str:
    """The name of its optimiser; learners that leave no choice have Adam."""
    return str(getattr(experiment.rl, "optimizer", "adam"))


def _optimizer(past: Mapping[str, Any]) -> str:
    """The same of a run's config."""
    rl = past.get("rl")
    return str(rl.get("optimizer", "adam")) if isinstance(rl, Mapping) else "adam"


def start_run(
    composed: DictConfig,
    words: Sequence[str],
    data: dict[str, Any],
    experiment: Experiment,
    choose: Callable[[], Path],
    key: str,
) -> float:
    """Run an experiment in a new directory and return its fitness.

    ``words`` are those of the command line. ``choose`` makes the directory after all checks; ``key`` names it.
    """
    from evorl.training.session import BuiltRun, run_to_end

    with explain_misfit(composed, data["init"]):
        _announce(experiment.cluster.begins)
        others = run_players.others_of(experiment, data)
        run, source = _new_work(data, experiment, data["replay"], others)
        _announce(experiment.rl.begins)
        if data["replay"] is None:
            for notice in _notices(experiment, words):
                say(notice)
        result = run_to_end(
            BuiltRun(lambda: run), lambda: _started(choose(), key, composed, words, data, experiment, source, others)
        )
        return float(result["fitness"])


def _announce(begins: str) -> None:
    if begins:
        print(begins, flush=True)


def _notices(experiment: Experiment, words: Sequence[str]) -> Iterator[str]:
    """Notices of settings that are probably a mistake. ``words`` are those of the command line."""
    from evorl.ec.shared_critic import SharedCriticEvolution, SteadyStateEvolution
    from evorl.population.work import UNUSED
    from evorl.rl.replay_learner import ReplayHyper

    rl, ec, steps = experiment.rl, experiment.ec, experiment.budget.steps or experiment.mdp.budget
    if not experiment.mdp.limited:
        yield (
            f"this world declares no limit of steps: evaluations truncate episodes after {experiment.eval.max_steps:,} "
            "(eval.max_steps); mdp.time_limit=N declares one"
        )
    warm_up = rl.warm_up if isinstance(rl, ReplayHyper) else 0
    if (ec is None or isinstance(ec, SharedCriticEvolution)) and warm_up >= steps:
        yield f"gradient steps begin after {warm_up:,} steps (rl.warm_up), when the budget of {steps:,} is spent"
    if ec is not None and (notice := ec.notice(ec.slots or ec.population)):
        yield notice
    if not isinstance(ec, SharedCriticEvolution):
        return
    if isinstance(ec, SteadyStateEvolution) and experiment.cluster.in_process and ec.slots != 1:
        older = f"with ec.slots={ec.slots} it is only older"
        yield f"use ec.slots=1: one process plays one individual at a time, and {older}"
    keys = {override.key_or_group for override in parse(words)}
    if unused := [name for key in UNUSED if (name := f"rl.{key}") in keys]:
        yield f"no effect on a search with a shared critic: {', '.join(unused)}"
    if not ec.asynchronous:
        before = warm_up if ec.warm_up_actions == "uniform" else 0
        end = before + ec.population * ec.episodes * (experiment.mdp.longest_episode or 0)
        if end > steps:
            yield f"the first generation may end after {end:,} steps, beyond the budget of {steps:,}"


def _new_work(
    data: Mapping[str, Any], experiment: Experiment, before: Path | str | None, others: Sequence[RunPolicy]
) -> tuple[Work, Source | None]:
    """Build a new run; also return the ``init`` checkpoint, which is the one that the run ``before`` recorded."""
    from evorl.population.work import new_work
    from evorl.record import checkpoint
    from evorl.record.provenance import Source, source_of

    known = None if before is None else source_of(Path(before))
    begins = start(data, None if known is None else known.step)
    if begins is None:  # a policy that has learned may end its games otherwise than random actions
        experiment.mdp.check_results()
    work = new_work(experiment, begins, data.get("replay"), others)
    if begins is None:
        return work, None
    step = int(begins.past["steps"])
    source = Source(step, checkpoint.digest(begins.directory, step))
    if known is not None and known.digest not in (None, source.digest):
        work.close()
        raise BadRequest(f"{begins.directory} is another run than the one that {before} started from", "init")
    return work, source


@contextmanager
def _started(
    directory: Path,
    key: str,
    composed: DictConfig,
    words: Sequence[str],
    data: dict[str, Any],
    experiment: Experiment,
    source: Source | None,
    others: Sequence[RunPolicy],
) -> Iterator[OpenRun]:
    from evorl.record.lock import lock

    with lock(directory, key):
        run_directory.remove(directory, provenance.FILE_NAME)  # of a process killed before it wrote its config
        with _attempt(directory, words, experiment, source):
            _write_config(directory, composed, data, others)
            say(directory)
            yield directory, None


def check_resumable(directory: Path) -> None:
    """Raise `BadRequest` if a directory holds a sweep, or only a policy, or cannot be written."""
    if run_directory.exists(directory, sweeps.INDEX_FILE):
        place = command.word("hydra.sweep.dir", str(directory))
        raise BadRequest(f"{directory} is a sweep: the command that began it goes on with it, and {place}", "resume")
    if run_directory.exists(directory, POLICY_ONLY):
        raise BadRequest(
            f"{directory} holds only a policy; {command.word('init', str(directory))} starts a new run from it",
            "resume",
        )
    if os.path.isdir(directory) and not os.access(directory, os.W_OK | os.X_OK):
        raise BadRequest(f"{directory} cannot be written; a copy of it can go on", "resume")


def resume_run(
    directory: Path,
    words: Sequence[str],
    data: Mapping[str, Any],
    experiment: Experiment,
    amend: Callable[[], None],
    genes: Any = None,
    key: str = "resume",
) -> float:
    """Continue a run from its newest checkpoint, or from its start if it has none; return the fitness.

    ``words`` are those of the command line. ``amend`` is called once the directory is locked and the checkpoint loaded.
    ``genes`` is the former ``ec.genes``, and ``key`` names the directory. Raises `BadRequest`, with nothing written, if
    another process holds the run, no checkpoint is complete, or the former genes are no longer valid.
    """
    from evorl.population.loop import Population
    from evorl.population.remap import remap_genes
    from evorl.population.work import new_work
    from evorl.record.checkpoint import steps, tell_of_links
    from evorl.record.lock import lock
    from evorl.training.session import BuiltRun, run_to_end

    def build() -> Work:
        if steps(directory):
            return new_work(experiment, None, data.get("replay"), run_players.kept(directory, experiment))
        others = run_players.others_of(experiment, data)
        return _new_work(data, experiment, directory, others)[0]  # stopped before its first checkpoint

    def prepare(run: Work, state: StateDict) -> StateDict:
        if not isinstance(run, Population):
            return state
        return remap_genes(state, experiment, run.evolver, run.plan.space, genes)

    @contextmanager
    def opened() -> Iterator[OpenRun]:
        with lock(directory, key), _told_at(key):
            tell_of_links(directory)
            state = built.load(directory, prepare)
            with _attempt(directory, words, experiment):
                amend()
                yield directory, state

    _announce(experiment.cluster.begins)
    with _told_at(key):
        built = BuiltRun(build)
    _announce(experiment.rl.begins)
    return float(run_to_end(built, opened)["fitness"])


@contextmanager
def _told_at(key: str) -> Iterator[None]:
    """Name at a key what cannot be read or written in a run directory."""
    try:
        yield
    except run_directory.Unsafe as error:
        raise error if error.key else error.under(key) from None


def start(data: Mapping[str, Any], step: int | None = None) -> Start | None:
    """Return the ``init`` run of a config, at a checkpoint's step; None means the newest checkpoint."""
    from evorl.training.train import Start

    source = data.get("init")
    return None if source is None else Start(Path(str(source)), bool(data.get("init_optimizer")), step)


@contextmanager
def _attempt(
    directory: Path, words: Sequence[str], experiment: Experiment, source: Source | None = None
) -> Iterator[None]:
    from evorl.record import failure
    from evorl.record.provenance import write_provenance
    from evorl.training.session import Interrupted

    with failure.recorded(directory, unless=Interrupted):
        write_provenance(directory, experiment.seed, words, source, experiment.packages)
        yield


@contextmanager
def explain_misfit(composed: DictConfig, source: str | None) -> Iterator[None]:
    """Name the world to choose if a policy does not fit because it is of another world."""
    try:
        yield
    except BadRequest as error:
        if source is None or error.key != "init" or not (Path(source) / ".hydra" / "hydra.yaml").exists():
            raise  # a policy that was exported alone has no choices: its misfit is all that is known
        world = choices(Path(source), "init")["mdp"]
        if world == composed.hydra.runtime.choices["mdp"]:
            raise
        raise BadRequest(f"{source} is a run of {world}, whose policy does not fit: add mdp={world}", "init") from error


def choices(directory: Path, key: str = "resume") -> dict[str, Any]:
    """Return the config file that a run chose in each group. Raises `BadRequest` at ``key``."""
    hydra, path = config.read_run_config(directory, key, "hydra"), directory / ".hydra" / "hydra.yaml"
    try:
        choices_of_run = dict(hydra["hydra"]["runtime"]["choices"])
    except (KeyError, TypeError, ValueError):
        raise BadRequest(f"{path} is damaged: it has no choices", key) from None
    for group, choice in choices_of_run.items():  # each names a file below conf/, which a later command reads
        if not all(map(_is_below, [group, *(choice if isinstance(choice, list) else [choice])])):
            raise BadRequest(f"{path} is damaged: {shown(choice)} is no choice of {shown(group)}", key)
    return choices_of_run


def _is_below(name: object) -> bool:
    """Return whether a name of a config file or folder leads to nothing outside the folder that it is in."""
    return all(re.fullmatch(r"[\w@][\w@.\-]*", part) for part in str(name).split("/"))


def write_choices(directory: Path, choices: Mapping[str, Any]) -> None:
    """Record the config files chosen in each group."""
    hydra = config.read_run_config(directory, "resume", "hydra")
    hydra["hydra"]["runtime"]["choices"] = dict(choices)
    run_directory.replace(directory, HYDRA, config_yaml(hydra))


# ------------------------------------------------------------------ the run directory


def is_run(directory: Path) -> bool:
    """Return whether a directory holds a run; its config is written last."""
    return run_directory.exists(directory, CONFIG)


def round_trip(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as it is read back from its YAML file."""
    return cast(dict[str, Any], yaml_text.parse(config_yaml(data)))


def config_yaml(data: Mapping[str, Any]) -> bytes:
    return OmegaConf.to_yaml(OmegaConf.create(dict(data))).encode()


def _write_config(directory: Path, composed: DictConfig, data: dict[str, Any], others: Sequence[RunPolicy]) -> None:
    """Write ``.hydra/`` as Hydra would, but resolved; config.yaml comes last, since it makes the directory a run.

    Hydra's own part is of ``composed``, since the global one may be that of another thread by now.
    """
    run_directory.make_folder(directory, ".hydra")  # it exists if a job was killed here and starts again
    hydra = OmegaConf.masked_copy(composed, "hydra")
    with read_write(hydra.hydra.runtime), open_dict(hydra.hydra.runtime):
        hydra.hydra.runtime.output_dir = str(directory.absolute())
        if not config.uses_tuned(hydra):  # Hydra records the name of a file that is not there
            hydra.hydra.runtime.choices[TUNED] = None
    run_directory.replace(directory, HYDRA, OmegaConf.to_yaml(hydra).encode())
    run_directory.replace(directory, ".hydra/overrides.yaml", OmegaConf.to_yaml(hydra.hydra.overrides.task).encode())
    run_players.keep(directory, others)
    run_directory.replace(directory, CONFIG, config_yaml(data))
