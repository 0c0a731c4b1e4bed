"""The door that trains: compose, check every job, then run.

    python -m evorl.run mdp=pong rl=ppo
    python -m evorl.run --multirun mdp=pong rl=ppo rl.lr=1e-3,3e-4 seed=1,2,3
    python -m evorl.run resume=RUN_DIR
    python -m evorl.run init=RUN_DIR rl.lr=1e-4

A run's directory is made once everything is checked and built; it is never overwritten.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # by its name, so that launchers can send this module's job to other processes
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["run", *sys.argv[1:]]))

import argparse
import dataclasses
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hydra._internal.hydra import Hydra
from hydra._internal.utils import _run_hydra, get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from evorl import __version__, config
from evorl.overrides import TUNED, parse, require
from evorl.record.files import replace
from evorl.util.errors import BadRequest, nearest
from evorl.util.streams import unheeded

if TYPE_CHECKING:
    from evorl.train import Experiment

AMENDABLE = ("budget", "record")
"""Keys that a resumed run may change: whatever else it writes must be what one that never stopped would."""


def main(words: Sequence[str] | None = None) -> int:
    """Exit code of ``evorl.run`` with these arguments."""
    return config.door(lambda: run(sys.argv[1:] if words is None else words))


def run(words: Sequence[str]) -> None:
    """Do what the command line asks for. Raises `BadRequest` before anything is written."""
    parser = get_args_parser()
    args = _arguments(parser, words)
    path = Path(args.config_path) if args.config_path else config.CONF
    name = args.config_name or "config"
    past = next((one.value() for one in parse(args.overrides) if one.key_or_group == "resume"), None)
    if past is not None:
        return _resume(Path(str(past)), args)
    with config.opened(path, args.config_dir) as hydra:
        if _shows(args):
            composed = config.compose(hydra, args.overrides, name, RunMode.MULTIRUN)
            if args.help:
                return _help(hydra, composed, args.overrides, name)
        elif args.multirun or "hydra.mode=MULTIRUN" in args.overrides:
            return _sweep(hydra, args.overrides, name)
        else:
            return _single(config.compose(hydra, args.overrides, name))
    _run_hydra(args, parser, job, str(path.absolute()), name)
    return None


def _help(hydra: Hydra, composed: DictConfig, words: Sequence[str], name: str) -> None:
    from evorl.help import page

    print(page(hydra, composed, words, name))


def job(composed: DictConfig) -> float:
    """Train as the config says, in the directory that Hydra chose; return the fitness. What launchers run."""
    from evorl.train import Interrupted

    unheeded()  # a launcher may have started this process
    hydra = HydraConfig.get()
    directory, sweep = Path(hydra.runtime.output_dir), Path(hydra.sweep.dir).absolute().name
    try:
        return _train(composed, lambda: directory, sweep)
    except Interrupted as stop:
        print(f"evorl: {stop}", file=sys.stderr)
        raise SystemExit(128 + stop.signal) from None  # an Exception would let Hydra begin the next job


# ------------------------------------------------------------------ one new run


def _single(composed: DictConfig) -> None:
    HydraConfig.instance().set_config(composed)
    hydra, chosen = composed.hydra, composed.hydra.runtime.choices
    groups = ["mdp", "rl", "ec", "cluster", *([TUNED] if config.tuned(composed) else [])]
    choices = " ".join(f"{group}={chosen[group]}" for group in groups)
    print(f"evorl {__version__}: {choices} seed={config.resolved(composed)['seed']}", flush=True)
    _train(composed, lambda: _place(hydra.run.dir, "hydra.run.dir", hydra.overrides.hydra))


def _train(composed: DictConfig, choose: Callable[[], Path], sweep: str | None = None) -> float:
    from evorl.record.checkpoint import lock
    from evorl.record.provenance import write_provenance
    from evorl.train import train

    data, experiment = _checked(composed, HydraConfig.get().overrides.task)
    if experiment.record.group is None and sweep is not None:
        experiment = dataclasses.replace(experiment, record=dataclasses.replace(experiment.record, group=sweep))
        data["record"]["group"] = sweep  # a resumed job stays in its group

    @contextmanager
    def opened() -> Iterator[Path]:
        directory = choose()
        with lock(directory):
            _write_config(directory, data)
            write_provenance(directory, experiment.seed)
            print(directory, flush=True)
            yield directory

    with _fitting(composed, data["init"]):
        return float(train(experiment, opened, init=data["init"])["fitness"])


@contextmanager
def _fitting(composed: DictConfig, source: str | None) -> Iterator[None]:
    """Says of a policy that does not fit which world to choose, where that is the cause."""
    try:
        yield
    except BadRequest as error:
        if source is None or error.key != "init":
            raise
        world = _choices(Path(source), "init")["mdp"]
        if world == composed.hydra.runtime.choices["mdp"]:
            raise
        raise BadRequest(f"{source} is a run of {world}, whose policy does not fit: add mdp={world}", "init") from error


def _checked(composed: DictConfig, words: Sequence[str]) -> tuple[dict[str, Any], Experiment]:
    """The job as plain data and as a typed experiment. Raises `BadRequest`."""
    data = config.resolved(composed)
    if data["replay"] is not None:
        raise BadRequest("only asynchronous runs keep a journal to replay, and this version has none", "replay")
    if data["resume"] is not None:
        raise BadRequest("goes on with one run, alone on the command line", "resume")
    if data["init"] is not None:
        source = Path(str(data["init"]))
        config.recorded(source, "init")
        data["init"] = str(source.absolute())  # a resume may begin again, from elsewhere
    return data, config.experiment(data, config.trusted(words, data))


def _write_config(directory: Path, data: dict[str, Any]) -> None:
    """``.hydra/`` as Hydra would write it, but resolved, and config.yaml last: it makes the directory a run."""
    folder = directory / ".hydra"
    folder.mkdir()
    hydra = cast(DictConfig, HydraConfig.instance().cfg)
    with read_write(hydra.hydra.runtime), open_dict(hydra.hydra.runtime):
        hydra.hydra.runtime.output_dir = str(directory.absolute())
    replace(folder / "hydra.yaml", OmegaConf.to_yaml(hydra).encode())
    replace(folder / "overrides.yaml", OmegaConf.to_yaml(hydra.hydra.overrides.task).encode())
    replace(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(data)).encode())


def _place(path: str, key: str, words: Sequence[str]) -> Path:
    """A new, empty directory: the one that the command line names, or the usual one with a number where it is taken."""
    place = Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if any(word.startswith(f"{key}=") for word in words):
            place.mkdir(exist_ok=True)
            if any(place.iterdir()):
                raise BadRequest(f"{place} is not empty, and nothing is ever overwritten", key)
            return place
        return _numbered(place)
    except OSError as error:
        raise BadRequest(f"cannot make {place}: {error.strerror}", key) from error


def _numbered(place: Path) -> Path:
    for number in count(1):
        try:
            place.mkdir()  # exclusive: of many processes, one gets it
            return place
        except FileExistsError:
            place = place.with_name(f"{place.name.removesuffix(f'-{number - 1}')}-{number}")
    raise AssertionError


# ------------------------------------------------------------------ many runs


def _sweep(hydra: Hydra, words: Sequence[str], name: str) -> None:
    """Check every job, then leave them to Hydra's sweeper and launcher."""
    words = [*(word for word in words if not word.startswith("hydra.mode=")), "hydra.mode=MULTIRUN"]
    base = config.compose(hydra, words, name, RunMode.MULTIRUN)
    if base.hydra.callbacks:
        raise BadRequest("are code that a config would run; evorl calls none", "hydra.callbacks")
    HydraConfig.instance().set_config(base)
    jobs = _jobs(hydra, base)
    print(f"evorl {__version__}: {len(jobs)} jobs", flush=True)
    _check(hydra, base, jobs, name)
    place = _place(base.hydra.sweep.dir, "hydra.sweep.dir", base.hydra.overrides.hydra)
    hydra.multirun(name, job, [*words, f"hydra.sweep.dir={_quoted(str(place))}"])


def _check(hydra: Hydra, base: DictConfig, jobs: list[list[str]], name: str) -> None:
    """Build once what each job would train, so that none is found impossible after hours. Raises `BadRequest`."""
    composed = [config.compose(hydra, [*base.hydra.overrides.hydra, *words], name) for words in jobs]
    checked = [(one, *_checked(one, words)) for one, words in zip(composed, jobs, strict=True)]
    from evorl.train import prepared

    different = {repr((e.mdp, e.rl, e.device, data["init"])): (one, e, data) for one, data, e in checked}
    for one, experiment, data in different.values():
        with _fitting(one, data["init"]):
            prepared(experiment, data["init"]).close()


def _jobs(hydra: Hydra, base: DictConfig) -> list[list[str]]:
    """The words of every job that Hydra's basic sweeper makes; where another one searches an interval, its ends."""
    sweeper = base.hydra.sweeper
    words = [f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()]
    given = parse([*words, *base.hydra.overrides.task], hydra)
    for one in given:
        if one.is_interval_sweep() and str(sweeper.get("_target_")).endswith(".BasicSweeper"):
            raise BadRequest("an interval needs a sweeper that searches; the basic one takes lists", one.key_or_group)
    return [list(chosen) for chosen in product(*map(_values, given))]


def _values(one: Override) -> list[str]:
    key = one.get_key_element()
    if not one.is_sweep_override():
        return [f"{key}={one.get_value_element_as_str()}"]
    if one.is_discrete_sweep():
        return [f"{key}={value}" for value in one.sweep_string_iterator()]
    interval = one.value()
    assert isinstance(interval, IntervalSweep)
    return [f"{key}={interval.start}", f"{key}={interval.end}"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


# ------------------------------------------------------------------ an old run


def _resume(directory: Path, args: argparse.Namespace) -> None:
    if args.multirun or _shows(args):
        raise BadRequest("goes on with one run, alone on the command line", "resume")
    past = config.recorded(directory, "resume")
    now = _amended(past, directory, args.overrides)
    print(f"evorl {__version__}: resume {directory}", flush=True)
    experiment = config.experiment(now, config.trusted(args.overrides, {}))
    result = directory / "result.json"
    if result.exists() and now["budget"] == past["budget"]:
        return _finished(directory, json.loads(result.read_bytes()))
    from evorl.record.checkpoint import lock, steps
    from evorl.record.provenance import write_provenance
    from evorl.train import train

    @contextmanager
    def opened() -> Iterator[Path]:
        with lock(directory):
            write_provenance(directory, experiment.seed)
            if result.exists():  # of a smaller budget; with the new config it would be taken for this one's
                result.rename(result.with_suffix(f".{json.loads(result.read_bytes())['steps']}.json"))
            if now != past:
                replace(directory / ".hydra" / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(now)).encode())
            yield directory

    begins = now.get("init") and not steps(directory)  # it was stopped before its first checkpoint
    train(experiment, opened, init=now["init"] if begins else None)


def _finished(directory: Path, result: dict[str, Any]) -> None:
    from evorl.record.terminal import summary

    summary(result, directory)
    again = shlex.quote(f"resume={directory}")
    print(f"finished; a larger budget goes on: python -m evorl.run {again} budget.steps={2 * result['steps']}")


def _amended(past: dict[str, Any], directory: Path, words: Sequence[str]) -> dict[str, Any]:
    """The config of a run with what a resume may change. Raises `BadRequest` for a key that differs otherwise."""
    now = OmegaConf.create(past)
    choices = _choices(directory)
    for one in parse(words):
        key, value = one.key_or_group, one.value()
        if key in ("resume", "trust"):
            continue
        if key in choices:
            old: Any = choices[key]
        else:
            require(now, key)
            old = OmegaConf.select(now, key)
        if key.partition(".")[0] in AMENDABLE and key not in choices:
            OmegaConf.update(now, key, value)
        elif old != value:
            raise BadRequest(f"is {old} in that run, and stays; init={directory} starts a new run from its policy", key)
    data = OmegaConf.to_container(now, resolve=False)
    assert isinstance(data, dict)
    return {str(key): value for key, value in data.items()}


def _choices(directory: Path, key: str = "resume") -> dict[str, Any]:
    """The file that a run took of each group of its config. Raises `BadRequest` at ``key``."""
    hydra = config.recorded(directory, key, "hydra")
    try:
        return dict(hydra["hydra"]["runtime"]["choices"])
    except (KeyError, TypeError, ValueError):
        raise BadRequest(f"{directory / '.hydra' / 'hydra.yaml'} is damaged: it has no choices", key) from None


# ------------------------------------------------------------------ the command line


def _arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    parser.exit_on_error = False
    try:
        args, rest = parser.parse_known_intermixed_args(list(words))
    except argparse.ArgumentError as error:
        raise BadRequest(str(error)) from None
    if rest:
        known = [option for action in parser._actions for option in action.option_strings]
        raise BadRequest(f"unknown option{nearest(rest[0], known)}", rest[0])
    if args.experimental_rerun:
        raise BadRequest(
            "reads a pickle, which could run code; resume=RUN_DIR goes on with a run", "--experimental-rerun"
        )
    if args.resolve and not args.cfg and not args.help:
        raise BadRequest("goes with --cfg", "--resolve")
    return args


def _shows(args: argparse.Namespace) -> bool:
    """Whether the command line asks to be told something rather than to train."""
    return bool(args.help or args.hydra_help or args.cfg or args.shell_completion or args.info is not None)
