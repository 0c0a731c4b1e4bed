"""Composes and checks configs, and turns them into a typed `Experiment`; runs commands with exit codes.

Hydra composes ``conf/``, then `experiment` makes frozen dataclasses of the result; no package below sees Hydra. Nothing
in a config is executed: a ``_target_`` names a dataclass of evorl, or of a package that the command line trusts. Every
error is a `BadRequest` with the dotted key and the nearest valid name.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evorl import __version__
from evorl.cli import foreign_choices
from evorl.cli.groups import PLUGIN
from evorl.cli.hydra_internals import COMPOSITION_ERRORS, Hydra, open_composer
from evorl.cli.overrides import GROUPS, TUNED, first_line, format_value, parse, single_value
from evorl.cli.refusals import check_former, check_words
from evorl.cli.targets import COMMAND, Untrusted, import_class, trusted, typed_commands
from evorl.record import run_names
from evorl.record.older_configs import with_present_keys
from evorl.record.provenance import plugins_of
from evorl.util import command, plugins, run_directory
from evorl.util.errors import BadRequest, Failure, reason, wrong_data
from evorl.util.names import check_directory, check_name, check_run_is_there
from evorl.util.text import say
from evorl.util.typed import documented, shown, typed, unknown

if TYPE_CHECKING:
    from evorl.training.experiment import Experiment

T = TypeVar("T")

_PACKAGE = Path(__file__).parents[1]
CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"
"""The config files: inside the package in a wheel, beside it in a checkout."""

OPTIONAL = {"ec": "an evolution, such as ec=pbt", "opponents": "opponents, such as opponents=past"}
"""Groups whose file none has no keys, and what to choose instead."""
EXAMPLES = {
    "Gymnasium.id": "mdp.id=LunarLander-v3, or of your own: mdp.id=my_envs.grid:GridWorld 'trust=[my_envs]'",
    "OpenSpiel.game": "mdp.game=leduc_poker",
    "PettingZoo.id": "mdp.id=mpe2.simple_spread_v3, or of your own: mdp.id=my_games.tag:make 'trust=[my_games]'",
}
"""Words for keys that have no default."""
DEVICES = ("auto", "cpu", "cuda")
NAMED_BY_ENTRIES = ("rl.sampling", "rl.net.encoder")
"""Keys whose values are names of entry points, which do not tell the plugin that has them."""
COMMAND_KEYS = ("resume", "init", "init_optimizer", "replay", "trust")
"""Top-level keys that are not fields of `Experiment`."""


def opened(path: Path = CONF, extra: str | None = None) -> AbstractContextManager[Hydra]:
    """Open Hydra's composer over ``path``, with ``extra`` as its --config-dir; one at a time in a process.

    The config files of plugins are searched last.
    """
    if extra is not None and not Path(extra).is_dir():
        raise BadRequest(f"there is no folder {extra}", "--config-dir")
    folders = {
        f"{PLUGIN}{name}": plugin.conf for name, plugin in plugins.installed().items() if plugin.conf is not None
    }
    return open_composer(path, extra, folders)


def compose(hydra: Hydra, overrides: Sequence[str], name: str = "config", mode: RunMode = RunMode.RUN) -> DictConfig:
    """Compose the config of one job, with Hydra's own node. Raises `BadRequest`."""
    words = parse(overrides)
    if mode == RunMode.RUN and (several := [word for word in words if word.is_sweep_override()]):
        raise BadRequest("several values; add --multirun to run each, or [..] for a list", several[0].key_or_group)
    check_words(hydra, words, name)
    try:
        return hydra.compose_config(name, list(overrides), mode, with_log_configuration=False)
    except COMPOSITION_ERRORS as error:  # a value that Hydra's own keys cannot have
        cause = error.__cause__ or error
        line = first_line(cause)
        line = "cannot be null" if line.endswith("is not Optional") else line
        raise BadRequest(line, str(getattr(cause, "full_key", None) or "")) from None


def directory_of(composed: DictConfig) -> str:
    """The directory of a run, from whose config ``${hydra:...}`` takes its values until the next one is composed."""
    HydraConfig.instance().set_config(composed)
    return str(composed.hydra.run.dir)


def task_words(config: DictConfig) -> list[str]:
    """Return the words of a composed config as they were written, without Hydra's own.

    A list of OmegaConf would resolve a word such as ``rl.minibatch=${rl.horizon}`` where it is read, before the job.
    """
    return _as_written(config, "task")


def hydra_words(config: DictConfig) -> list[str]:
    """Return the words of a composed config that are Hydra's own (``hydra.sweep.dir=...``), as they were written."""
    return _as_written(config, "hydra")


def _as_written(config: DictConfig, which: str) -> list[str]:
    words = OmegaConf.to_container(config.hydra.overrides[which], resolve=False)
    assert isinstance(words, list)
    return [str(word) for word in words]


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return a composed config as plain data: interpolations resolved, without Hydra's own node."""
    evorl_config = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        missing = sorted(OmegaConf.missing_keys(evorl_config))
        data = OmegaConf.to_container(evorl_config, resolve=True)
    except OmegaConfBaseException as error:
        raise BadRequest(first_line(error), str(error.full_key or "")) from None
    if missing:
        group, _, key = missing[0].rpartition(".")
        kind = str(OmegaConf.select(evorl_config, f"{group}._target_", default="")).rpartition(".")[2]
        raise BadRequest(f"a value is needed, such as {EXAMPLES.get(f'{kind}.{key}', f'{missing[0]}=...')}", missing[0])
    assert isinstance(data, dict)
    return {str(key): value for key, value in data.items()}


def experiment(config: Mapping[str, Any], trust: Sequence[str] = ()) -> Experiment:
    """Turn a plain config into the typed experiment. Raises `BadRequest`, with the dotted key, if it cannot run.

    ``trust`` names root modules outside evorl whose classes may be used.
    """
    from evorl.training.experiment import Experiment

    kinds = typing.get_type_hints(Experiment, include_extras=True)
    for name in config:
        if name not in kinds and name not in COMMAND_KEYS:
            raise unknown(name, [*kinds, *COMMAND_KEYS])
    groups = {
        name: _optional_object(config.get(name) or {}, kinds[name], name, trust)
        if name in OPTIONAL
        else group_object(config.get(name), kinds[name], name, trust)
        for name in GROUPS
    }
    check_device(config.get("device"))
    rest = {
        name: typed(value, kinds[name], name, True) for name, value in config.items() if name in kinds.keys() - groups
    }
    for key, root in groups["mdp"].imports():
        if root not in (*plugins.WORLDS, *trust, *plugins.installed()):
            line = f"imports {root}; to run its code add 'trust=[{root}]' to the command line"
            raise Untrusted(line, f"mdp.{key}", root)
    for program in groups["mdp"].commands():
        if program not in trust:
            word = command.trust_word(program)
            raise BadRequest(f"starts a program; to run it add '{word}' to the command line", COMMAND)
    try:
        groups["mdp"].ready()
    except BadRequest as error:
        raise error.under("mdp") from None
    return Experiment(**groups, **rest)


def check_device(name: object) -> None:
    """Raise `BadRequest` for another word for a GPU, with the one of evorl."""
    if hint := foreign_choices.device(name):
        raise BadRequest(f"expected one of {', '.join(DEVICES)}, got {shown(name)}{hint}", "device")


def experiment_of_words(words: Sequence[str]) -> Experiment:
    """Return what the command line ``evorl.run WORD...`` trains. Raises `BadRequest`."""
    with opened() as hydra:
        composed = resolved(compose(hydra, words))
        return experiment(composed, trusted_packages(words, composed))


def files_of_words(words: Sequence[str]) -> list[str]:
    """Return the config files that the command line ``evorl.run WORD...`` composes, from conf/ and without suffix."""
    with opened() as hydra:
        compose(hydra, words)  # raises `BadRequest` if they are refused
        defaults = hydra.config_loader.compute_defaults_list("config", list(words), RunMode.RUN).defaults
        return [default.config_path for default in defaults if default.config_path is not None]


def group_object(node: Any, base: Any, group: str, trust: Sequence[str]) -> Any:
    """Build the object of a config group from the class that its ``_target_`` names. Raises `BadRequest`."""
    if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
        raise BadRequest(f"names no _target_; choose a file: {group}=NAME", group)
    kind = import_class(node["_target_"], base, f"{group}._target_", trust)
    check_former(node, kind, group)
    return typed({name: value for name, value in node.items() if name != "_target_"}, kind, group, swept=True)


def uses_tuned(config: DictConfig) -> bool:
    """Return whether a composed config includes a file of tuned settings; Hydra records the choice in any case."""
    name = config.hydra.runtime.choices.get(TUNED)
    paths = [Path(source.path) for source in config.hydra.runtime.config_sources if source.schema == "file"]
    return any((path / TUNED / f"{name}.yaml").is_file() for path in paths)


def trusted_packages(overrides: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the root modules that the command line trusts; a config file cannot. Raises `BadRequest`.

    With them are the commands that the command line trusts: also one that it gives itself.
    """
    parsed = parse(overrides)
    names = trusted(parsed)
    stated = config.get("trust") or []
    if stated and tuple(str(name) for name in (stated if isinstance(stated, list) else [stated])) != names:
        raise BadRequest("is taken from the command line only", "trust")
    return names + typed_commands(parsed)


def read_run_config(directory: Path, key: str, name: str = "config") -> dict[str, Any]:
    """Read a file of a run directory's ``.hydra/``. Raises `BadRequest` at ``key`` if it cannot be read."""
    check_run_is_there(directory, key)
    path = directory / ".hydra" / f"{name}.yaml"
    try:
        data = run_directory.read_yaml(directory, f".hydra/{name}.yaml")
    except run_directory.Unsafe as error:
        raise error.under(key) from None
    except (FileNotFoundError, NotADirectoryError):
        inside = sorted(directory.glob("*/.hydra"), key=lambda folder: folder.stat().st_mtime)
        hint = f"; did you mean {inside[-1].parent}?" if inside else ""
        raise BadRequest(f"{directory} is no run (it has no .hydra/{name}.yaml){hint}", key) from None
    except (OSError, ValueError) as error:
        raise BadRequest(f"cannot read {path}: {first_line(error)}", key) from None
    if not isinstance(data, dict):
        raise BadRequest(f"cannot read {path}: it holds no keys", key)
    world = data.get("mdp")
    if name == "config" and isinstance(world, dict) and {"id", "frame_skip", "reward_scale"} <= world.keys():
        world.setdefault("action_masks", False)  # older versions did not use the masks of gymnasium's environments
    whole = {str(name): value for name, value in data.items()}
    return with_present_keys(whole) if name == "config" else whole


def experiment_of_run(directory: Path, trust: Sequence[str] = ()) -> Experiment:
    """Return the experiment of a run directory. Raises `BadRequest`."""
    with config_of(directory, "run"):
        return experiment(read_run_config(directory, "run"), trust)


@contextmanager
def config_of(directory: Path, key: str) -> Iterator[None]:
    """Raise `BadRequest` at ``key`` where the config of a run is damaged, such as by a missing key."""
    with wrong_data(lambda why: BadRequest(f"{directory / '.hydra'} holds no config of a run: {why}", key)):
        try:
            yield
        except BadRequest as error:
            if (missing := _missing_plugin(directory, error)) is None:
                raise
            raise BadRequest(f"{directory} was made with the {missing}, which is not installed here", key) from None
        except OmegaConfBaseException as error:
            raise BadRequest(first_line(error), str(error.full_key or "")) from None


def _missing_plugin(directory: Path, error: BadRequest) -> str | None:
    """The plugin with its version whose absence caused an error with the config of a run; None if it did not."""
    missing = {root: version for root, version in plugins_of(directory).items() if root not in plugins.installed()}
    roots = [error.root] if isinstance(error, Untrusted) else []
    if error.key in NAMED_BY_ENTRIES:
        roots = [*missing]
    return next((f"plugin {root} {missing[root]}" for root in roots if root in missing), None)


def _request_value(kind: Any, word: str, text: str) -> Any:
    """The value of a word of `parse_request`. Optional text is literal, too, unless it is in quotation marks."""
    if kind is str or (kind == str | None and text != "null" and text[:1] not in ("'", '"')):
        return text
    return single_value(parse([word])[0])


def parse_request(kind: type[T], words: Sequence[str]) -> T:
    """Parse the KEY=VALUE words of evaluate or report as a dataclass; strings are literal. Raises `BadRequest`."""
    if {"-h", "--help"} & {*words}:
        print((sys.modules[kind.__module__].__doc__ or "").strip(), *_keys(kind), sep="\n")
        raise SystemExit(0)
    kinds = typing.get_type_hints(kind)
    if "run" in kinds and (paths := [word for word in words if "=" not in word and os.path.exists(word)]):
        raise BadRequest(f"cannot read {paths[0]!r}; did you mean run={paths[0]}?")
    pairs: dict[str, tuple[str, str]] = {}
    for word in words:
        key, _, text = word.partition("=")
        if pairs.setdefault(key, (word, text)) != (word, text):
            raise BadRequest(f"is given twice, as {pairs[key][1]} and as {text}; leave one out", key)
    values = {key: _request_value(kinds.get(key), word, text) for key, (word, text) in pairs.items()}
    if "device" in kinds:
        check_device(values.get("device"))
    if "run" in kinds and "run" in values:  # the truer cause, where other keys are wrong or missing as well
        check_run_is_there(Path(run_names.named(str(values["run"]), "run")), "run")
    return typed(values, kind)


def _keys(kind: type) -> list[str]:
    """Return a help line for each key of a request: name, default and description."""
    rows = [(key, "" if value is MISSING else format_value(value), text) for key, value, text in documented(kind)]
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return ["", *(f"{key:{wide[0]}}  {value:{wide[1]}}  {text}" for key, value, text in rows)]


def command_line(work: Callable[[Sequence[str]], object], words: Sequence[str] | None) -> int:
    """Run a command with its words (None: those of this process) and return its exit code; answer ``--version``."""
    arguments = sys.argv[1:] if words is None else words

    def checked() -> None:
        for word in arguments:
            check_name(word)
        check_directory()
        if "--version" not in arguments:
            work(arguments)
        elif others := [word for word in arguments if word != "--version"]:
            raise BadRequest(f"takes no words, got {others[0]!r}", "--version")
        else:
            print(__version__)

    return exit_code(checked)


def exit_code(work: Callable[[], object]) -> int:
    """Run a command and return its exit code. Print one line for a bad request, cause and traceback for a failure."""
    try:
        work()
    except BadRequest as error:
        say(f"evorl: {plugins.blamed(error)}{error}", sys.stderr)
        return 2
    except KeyboardInterrupt:  # a run that has begun saves, and ends as interrupted
        say("evorl: interrupted", sys.stderr)
        return 128 + signal.SIGINT
    except OmegaConfBaseException as error:  # an interpolation that refers to nothing
        say(f"evorl: {BadRequest(first_line(error), str(error.full_key or ''))}", sys.stderr)
        return 2
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in command.NEEDED:
            print(f"evorl: {command.lacking(error.name)}", file=sys.stderr)
            return 2
        from evorl.training.session import Interrupted

        if isinstance(error, Interrupted):
            say(f"evorl: {error}", sys.stderr)
            return 128 + error.signal
        trace = "" if isinstance(error, Failure) else "".join(traceback.format_exception(error))
        say(f"evorl: {reason(error)}\n{trace}".rstrip("\n"), sys.stderr)
        return 1
    return 0


def _optional_object(node: Mapping[str, Any], kind: Any, group: str, trust: Sequence[str]) -> Any:
    """Build the object of a group that may be left out; None for the file none, which has no keys."""
    if "_target_" in node:
        (base,) = (arm for arm in typing.get_args(kind) if arm is not type(None))
        return group_object(node, base, group, trust)
    for name in node:
        raise BadRequest(f"unknown key: {group}=none has none; choose {OPTIONAL[group]}", f"{group}.{name}")
    return None
