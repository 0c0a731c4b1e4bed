"""The command that trains: compose, check every job, then run.

    python -m evorl.run mdp=pong rl=ppo
    python -m evorl.run --multirun mdp=pong rl=ppo rl.lr=1e-3,3e-4 seed=1,2,3
    python -m evorl.run resume=RUN_DIR    (RUN_DIR may be latest: the run below runs/ that began last)
    python -m evorl.run init=RUN_DIR rl.lr=1e-4
    python -m evorl.run --list    (every choice of every group, one in a line)

A run's directory is made once everything is checked and built; it is never overwritten.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # start as the command evorl, which handles signals during start-up
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["run", *sys.argv[1:]]))

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatch
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from evorl import __version__
from evorl.cli import config
from evorl.cli.completion import complete
from evorl.cli.foreign_words import translate
from evorl.cli.hints import for_word
from evorl.cli.hydra_internals import Hydra, get_args_parser, show_info
from evorl.cli.overrides import GROUPS, TUNED, format_value, in_quotes, parse, single_value
from evorl.cli.refusals import check_hydra
from evorl.cli.repeats import check_chosen_once
from evorl.jobs import job
from evorl.jobs.amendments import AMENDABLE, GENES, amended_config
from evorl.jobs.directories import new_directory
from evorl.jobs.identity import located
from evorl.jobs.limits import check_fitness_limit, check_goes_on, larger_limits
from evorl.jobs.sweep import sweep
from evorl.record import run_names
from evorl.record.provenance import POLICY_ONLY
from evorl.record.result import set_aside, sound_result
from evorl.util import command, run_directory
from evorl.util.errors import BadRequest, nearest, nearest_or_all
from evorl.util.names import check_names
from evorl.util.text import say

if TYPE_CHECKING:
    from evorl.training.experiment import Experiment


def main(words: Sequence[str] | None = None) -> int:
    """Run ``evorl.run`` with these arguments and return its exit code."""
    return config.command_line(_typed, words)


def _typed(words: Sequence[str]) -> None:
    check_chosen_once(words)  # from Python, where a program may add words to others, the last one counts
    run(words)


def run(words: Sequence[str]) -> Path | None:
    """Do the work of the command line; return the directory of the run or the sweep, None for mere information.

    Raises `BadRequest` before anything is written, and `JobsFailed` at the end of a sweep.
    """
    return work(*parsed(words))


def parsed(words: Sequence[str]) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Return the parser of the command line, and what it made of these words. Raises `BadRequest`."""
    # in place of Hydra's --version, which prints Hydra's own and ends the process
    parser = argparse.ArgumentParser(parents=[get_args_parser()], add_help=False, conflict_handler="resolve")
    parser.add_argument("--version", action="store_true", help="show the version of evorl")
    parser.add_argument("--list", action="store_true", help="list every choice of every group, one in a line")
    args = _arguments(parser, words)
    if not args.shell_completion:
        for word in args.overrides:
            _check_has_key(word, args)
        args.overrides = [_with_directory(in_quotes(word)) for word in args.overrides]
    return parser, args


def work(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Path | None:
    """Do the work of a parsed command line; see `run`."""
    name = args.config_name or "config"
    if args.version:
        print(__version__)
        return None
    if args.shell_completion:
        with _opened(args) as hydra:
            complete(hydra, args, parser, name)
            return None
    words = {override.key_or_group: override for override in parse(args.overrides)}
    resumed, replayed = (single_value(words[key]) if key in words else None for key in ("resume", "replay"))
    if resumed is not None:
        if replayed is not None:
            raise BadRequest("repeats one run, alone on the command line", "replay")
        return _resume(Path(str(resumed)), args)
    with _opened(args) as hydra:
        if replayed is not None:
            carry_out = _replay(Path(str(replayed)), hydra, args, name)
        elif asked(args):
            _inform(parser, args, hydra, name)
            return None
        elif args.multirun or "hydra.mode=MULTIRUN" in args.overrides:
            return sweep(hydra, args.overrides, name)
        else:
            check_hydra(parse(args.overrides), sweep=False)
            carry_out = _single(config.compose(hydra, args.overrides, name))
    return carry_out()  # without the composer, for which other threads may wait


def _with_directory(word: str) -> str:
    """A word of the command line, with a directory in place of a run's name in resume=, init= or replay=."""
    key, equals, value = word.partition("=")
    if equals and key in ("resume", "init", "replay") and (directory := run_names.named(value, key)) != value:
        return f"{key}={command.quoted(directory)}"
    return word


def _check_has_key(word: str, args: argparse.Namespace) -> None:
    """Raise `BadRequest` for a word without a key that is a choice or a run, with the key that takes it."""
    if "=" in word or word.startswith("~"):
        return
    with _opened(args) as hydra:
        meant = f"resume={word}" if job.is_run(Path(word)) else for_word(hydra, word)
    if meant:
        raise BadRequest(f"cannot read {word!r}; did you mean {meant}?")


def _opened(args: argparse.Namespace) -> AbstractContextManager[Hydra]:
    return config.opened(Path(args.config_path) if args.config_path else config.CONF, args.config_dir)


def _inform(parser: argparse.ArgumentParser, args: argparse.Namespace, hydra: Hydra, name: str) -> None:
    from evorl.cli.help import choices_page, help_page

    if args.list:
        print(choices_page(hydra))
        return
    if args.cfg and (several := [word for word in parse(args.overrides) if word.is_sweep_override()]):
        raise BadRequest("several values; --cfg shows one job", several[0].key_or_group)
    composed = config.compose(hydra, args.overrides, name, RunMode.RUN if args.cfg else RunMode.MULTIRUN)
    if args.package not in (None, "_global_") and OmegaConf.select(composed, args.package) is None:
        raise BadRequest(f"{args.package} is no key{nearest_or_all(args.package, map(str, composed))}", "--package")
    if args.help:
        print(help_page(hydra, composed, args.overrides, name))
    else:
        show_info(hydra, args, parser, name)


# ------------------------------------------------------------------ one new run


def _single(composed: DictConfig) -> Callable[[], Path]:
    """Return what carries out a composed run."""
    chosen = composed.hydra.runtime.choices
    against = [] if chosen.get("opponents", "none") == "none" else ["opponents"]  # a config of one's own may lack it
    learner = [] if chosen["mdp"] == "problem" else ["rl"]  # a problem is not played by a learner
    groups = ["mdp", *learner, "ec", *against, "cluster", *([TUNED] if config.uses_tuned(composed) else [])]
    choices = " ".join(f"{group}={chosen[group]}" for group in groups)
    plain = config.resolved(composed)
    world = f" mdp.id={plain['mdp']['id']}" if chosen["mdp"] == "gymnasium" else ""  # one file, any world
    say(f"evorl {__version__}: {choices}{world} seed={plain['seed']}")  # the checks import torch: seconds
    words, places, place = config.task_words(composed), config.hydra_words(composed), config.directory_of(composed)
    check_names(Path(place), "the run's directory", "hydra.run.dir")

    def carry_out() -> Path:
        data, experiment = job.checked_experiment(plain, words)
        return begin(composed, place, words, data, experiment, places)

    return carry_out


def begin(
    composed: DictConfig,
    place: str,
    words: Sequence[str],
    data: dict[str, Any],
    experiment: Experiment,
    places: Sequence[str],
) -> Path:
    """Carry out a new run at ``place``, and print the commands that follow it; return its directory.

    ``places``: Hydra's words.
    """
    made: list[Path] = []

    def choose() -> Path:
        made.append(new_directory(place, "hydra.run.dir", places))
        return made[0]

    job.start_run(composed, words, data, experiment, choose, "hydra.run.dir")
    _print_next(made[0], experiment)
    return made[0]


def _print_next(directory: Path, experiment: Experiment) -> None:
    """Print the commands for a run that has ended."""
    film = ["video=true"] if experiment.mdp.draws else []
    trust = [command.trust_word(*experiment.trust)] if experiment.trust else []
    say(f"next: {command.evaluate(f'run={directory}', *film, *trust)}")
    say(f"      {command.line('report', str(directory))}")


# ------------------------------------------------------------------ an existing run


def _resume(directory: Path, args: argparse.Namespace) -> Path:
    if args.multirun or asked(args):
        raise BadRequest("goes on with one run, alone on the command line", "resume")
    job.check_resumable(directory)
    opened = partial(_opened, args)
    with config.config_of(directory, "resume"):
        past = config.read_run_config(directory, "resume")
        data, choices = amended_config(past, directory, args.overrides, opened, "resume goes on with", genes=True)
        say(f"evorl {__version__}: resume {directory}")
        experiment = config.experiment(data, config.trusted_packages(args.overrides, {}))
        if data["budget"]["fitness"] != past["budget"]["fitness"]:
            check_fitness_limit(experiment)
        result = sound_result(directory)
        if result is not None and data["budget"] == past["budget"]:
            larger = larger_limits(result, past["budget"])
            if key := _changed_key(args.overrides, data, past):
                raise BadRequest(f"{directory} has ended; another value needs {' '.join(larger)}", key)
            from evorl.record.terminal import print_summary

            print_summary(result, directory)
            say(f"finished; a larger budget goes on: {command.resume(directory, experiment.trust, *larger)}")
            return directory
        _check_checkpoints(directory, data["budget"]["steps"], past["budget"]["steps"])
        if result is not None:
            check_goes_on(result, past["budget"], experiment)

    def amend() -> None:
        set_aside(directory)  # from a smaller budget; with the new config it would count as this run's
        if _genes(data) != _genes(past):
            number = len(_older_configs(directory)) + 1
            run_directory.replace(directory, f".hydra/config.{number}.yaml", job.config_yaml(past))
        if data != past:
            run_directory.replace(directory, job.CONFIG, job.config_yaml(data))
        if choices != job.choices(directory):
            job.write_choices(directory, choices)

    job.resume_run(directory, args.overrides, located(directory, data), experiment, amend, json.loads(_genes(past)))
    _print_next(directory, experiment)
    return directory


def _check_checkpoints(directory: Path, budget: int | None, before: int | None) -> None:
    """Raise `BadRequest` for a run that has ended and lost its checkpoints, and for a budget that is smaller than
    ``before`` and than what the run has played. Say so if it has no checkpoint yet."""
    from evorl.record import checkpoint

    if not (kept := checkpoint.steps(directory)):
        if sound_result(directory) is not None:
            raise BadRequest(f"{directory} has ended, and none of its checkpoints is left to go on from", "resume")
        say("it has no checkpoint yet, and begins anew")
    played = max(kept, default=0)
    if budget is not None and budget < min(played, before or played):
        raise BadRequest(f"{directory} has played {played} steps already", "budget.steps")


def _changed_key(words: Sequence[str], data: Mapping[str, Any], past: Mapping[str, Any]) -> str | None:
    """The first key of these words that changes a config."""
    if _genes(data) != _genes(past):
        return GENES
    keys = [override.key_or_group for override in parse(words)]
    new, old = OmegaConf.create(dict(data)), OmegaConf.create(dict(past))
    return next((key for key in keys if OmegaConf.select(new, key) != OmegaConf.select(old, key)), None)


def _replay(directory: Path, hydra: Hydra, args: argparse.Namespace, name: str) -> Callable[[], Path]:
    """Return what replays an asynchronous evolution in a new directory, with evaluations in the order of the original.

    It ends at the end of the original's journal, unless the command line gives a budget.
    """
    if args.multirun or asked(args):
        raise BadRequest("repeats one run, alone on the command line", "replay")
    if run_directory.exists(directory, POLICY_ONLY):
        raise BadRequest(f"{directory} holds only a policy", "replay")
    check_hydra(parse(args.overrides), sweep=False)
    with config.config_of(directory, "replay"):
        past = config.read_run_config(directory, "replay")
        places = [word for word in args.overrides if word.lstrip("+").startswith("hydra.")]
        others = [word for word in args.overrides if word not in places]
        opened = partial(_opened, args)
        trust = config.trusted_packages(others, {})
        ec = config.experiment(amended_config(past, directory, others, opened, "replay repeats")[0], trust).ec
        if ec is None or not ec.follows_arrival:
            raise BadRequest(
                f"{directory} is no asynchronous evolution; its command alone gives its bits again", "replay"
            )
        if _older_configs(directory):
            raise BadRequest(
                f"the genes of {directory} were changed on the way; a replay has one set of them", "replay"
            )
        past["budget"] = {"steps": _end(directory), "seconds": None, "fitness": None}
        data, choices = amended_config(past, directory, others, opened, "replay repeats")
        experiment = config.experiment(data, trust)
    files = [f"{group}={format_value(choices[group])}" for group in GROUPS if group in choices]
    composed = config.compose(hydra, [*files, f"seed={data['seed']}", *places], name)
    place = config.directory_of(composed)
    say(f"evorl {__version__}: replay {directory}")
    data = located(directory, data) | {"replay": str(directory.absolute())}
    return partial(begin, composed, place, others, data, experiment, places)


def _end(directory: Path) -> int:
    """The step at which a run's journal ends."""
    from evorl.population.journal import IndividualEntry, JobEntry, read_journal

    kind = JobEntry if run_directory.exists_at_all(directory, JobEntry.file) else IndividualEntry
    if step := read_journal(directory, kind, "replay")[-1].step:
        return step
    raise BadRequest(f"{directory} has evaluated no individual yet; there is nothing to replay", "replay")


def _genes(data: Mapping[str, Any]) -> str:
    """The genes of a config as text; their order matters, and comparing dicts would ignore it."""
    return json.dumps((data["ec"] or {}).get("genes"))


def _older_configs(directory: Path) -> list[str]:
    """The names of the configs that a run had before its genes were changed."""
    return [entry.name for entry in run_directory.entries(directory, ".hydra") if fnmatch(entry.name, "config.*.yaml")]


# ------------------------------------------------------------------ the command line


def _arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    parser.exit_on_error = False
    try:
        args, rest = parser.parse_known_intermixed_args(list(words))
    except argparse.ArgumentError as error:
        raise BadRequest(str(error)) from None
    if rest:
        known = [option for action in parser._actions for option in action.option_strings]
        raise BadRequest(f"unknown option{_as_key(rest[0], words) or nearest(rest[0], known)}", rest[0])
    if args.experimental_rerun:
        raise BadRequest(
            "reads a pickle, which could run code; resume=RUN_DIR goes on with a run", "--experimental-rerun"
        )
    if args.resolve and not args.cfg and not args.help:
        raise BadRequest("goes with --cfg", "--resolve")
    if args.package and not args.cfg:
        raise BadRequest("goes with --cfg", "--package")
    if (args.list or args.hydra_help) and args.overrides:
        raise BadRequest(f"takes no words, got {args.overrides[0]!r}", "--list" if args.list else "--hydra-help")
    return args


def _as_key(option: str, words: Sequence[str]) -> str:
    """How to write a dashed option that is a key: ``; keys have no dashes: seed=3``. Empty if it is no key."""
    key, sign, value = option.lstrip("-").partition("=")
    after = [*words[list(words).index(option) + 1 :], ""][0]
    value = value if sign else after if after and after[0] != "-" and "=" not in after else "VALUE"
    if foreign := translate(key, value, [path.stem for path in (config.CONF / "mdp").glob("*.yaml")]):
        return f"; in evorl this is {foreign}"
    if key.partition(".")[0] not in (*GROUPS, *config.COMMAND_KEYS, *AMENDABLE, "seed", "device", "eval", "checkpoint"):
        return ""
    return f"; keys have no dashes: {key}={value}"


def asked(args: argparse.Namespace) -> str | None:
    """The option by which a command line asks for information and not for training; None if it does not."""
    names = ("help", "hydra_help", "cfg", "list", "info", "version", "shell_completion")
    return next((f"--{name.replace('_', '-')}" for name in names if getattr(args, name) not in (None, False)), None)


class _CallableModule(ModuleType):
    """Lets ``evorl.run(...)`` of Python share its name with the module of the command."""

    def __call__(self, *words: Any, **keys: Any) -> Any:
        return import_module("evorl.api.runs").run(*words, **keys)


sys.modules[__name__].__class__ = _CallableModule
