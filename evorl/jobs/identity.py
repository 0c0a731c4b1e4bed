"""Whether a directory holds the run that a command asks for, wherever it was moved: no absolute path is part of that.

A config names the run that it starts from (``init``) or repeats (``replay``) by an absolute path, and so those whose
policies it plays against (``opponents.runs``). Two such paths are of one run if they are equal, if they lie at the same
place relative to the run that names them, or if the checkpoint there is the one that it started from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import msgspec

from evorl.analysis.runs import flatten, home_of
from evorl.cli.config import read_run_config
from evorl.jobs import job, run_players
from evorl.record import checkpoint
from evorl.record.provenance import source_of
from evorl.util.errors import BadRequest

PATHS = ("init", "replay")
"""Keys of a run's config that hold the absolute path of another run."""
_ABSENT = "nothing"
_NO_CHOICE: tuple[Any, ...] = (None, {})
"""A choice of a group without keys, as ``opponents=none``: as a default, and as a config has it."""


class OtherRun(BadRequest):
    """The directory of a job holds a run with another config."""


def check_same_config(directory: Path, data: Mapping[str, Any], key: str, *but: str) -> dict[str, Any]:
    """Return the config with which a job goes on. Raises `OtherRun` if the run in its directory has another one.

    The keys ``but`` may differ.

    A run that an older version began has null for the periods of evaluations and checkpoints, and keeps them. Keys that
    its version did not have are at their defaults, as in a resume: a new key's default is what was before it.
    """
    begun, config = read_run_config(directory, key), dict(data)
    defaults = _defaults(config)
    for name in ("eval", "checkpoint"):  # they hold a period, as ``every``
        if isinstance(group := begun.get(name), Mapping):
            begun[name] = {**defaults[name], **group}
            if begun[name] == {**config[name], "every": None}:
                config[name] = begun[name]
    past, present = flatten(begun), flatten(job.round_trip(config))
    known = flatten(job.round_trip(defaults))
    past = {name: known[name] for name in present.keys() & known.keys() if not _holds_key(begun, name)} | past
    for name in dict.fromkeys([*present, *past]):
        old, new = (tree.get(name, _ABSENT) for tree in (past, present))
        if old == new or name in ("record.group", *but) or (name in PATHS and same_source(directory, old, new)):
            continue  # the group is named after the directory of a sweep
        if (old in _NO_CHOICE and new in _NO_CHOICE) or (name == run_players.KEY and same_players(directory, old, new)):
            continue
        raise OtherRun(f"job {directory.name} was begun with {old} in {directory}, and is {new} now", name)
    return config


def _holds_key(tree: Any, name: str) -> bool:
    """Whether a nested mapping has a dotted key, or on the way to it something else than a mapping."""
    for part in name.split("."):
        if not isinstance(tree, Mapping):
            return True
        if part not in tree:
            return False
        tree = tree[part]
    return True


def _defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of all keys that have one, nested, of the classes that a config names."""
    from evorl.training.experiment import Experiment

    defaults = _of_fields(Experiment)
    for name, group in config.items():
        if isinstance(group, Mapping) and "_target_" in group:  # a class that was imported to check this config
            module, _, kind = str(group["_target_"]).rpartition(".")
            defaults[name] = _of_fields(getattr(sys.modules[module], kind))
    return defaults


def _of_fields(kind: Any) -> dict[str, Any]:
    """The defaults of a dataclass as plain data, without those that are none, which no config holds either."""
    plain = dict[str, Any]()
    for field in fields(kind):
        made = field.default_factory() if field.default_factory is not MISSING else field.default
        if made is not MISSING and field.init:
            with suppress(TypeError):
                plain[field.name] = msgspec.to_builtins(made)
    return plain


def same_source(directory: Path, old: Any, new: Any) -> bool:
    """Whether the run that a directory's run was begun from, at the path ``old``, is the one at ``new``."""
    if not isinstance(old, str) or not isinstance(new, str):
        return bool(old == new)
    source = source_of(directory)
    same = source is not None and source.digest is not None and _holds(Path(new), source.step, source.digest)
    return old == new or _moved_along(directory, old) == Path(new) or same


def same_players(directory: Path, old: Any, new: Any) -> bool:
    """Whether the words ``old``, by which a directory's run named policies of other runs, mean those of ``new``."""
    if not isinstance(old, list) or not isinstance(new, list):
        return bool(old == new)
    return old == new or [_player_moved_along(directory, str(word)) for word in old] == new


def located(directory: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """A run's config with the present paths of the runs that it names, if they were moved with it.

    Of two runs, the one with the checkpoint that this run started from counts, else the one at the path in the config.
    """
    config, source = dict(data), source_of(directory)
    for name in PATHS:
        if isinstance(path := data.get(name), str):
            runs = [
                folder
                for folder in (Path(path), _moved_along(directory, path))
                if folder is not None and job.is_run(folder)
            ]
            if name == "init" and source is not None and source.digest is not None:
                runs.sort(key=lambda run: not _holds(run, source.step, source.digest))
            config[name] = str(runs[0]) if runs else path
    if words := run_players.words_of(data):
        players = [(word, _player_moved_along(directory, word)) for word in words]
        present = [next(filter(run_players.leads_to_runs, each), each[0]) for each in players]
        config["opponents"] = {**data["opponents"], "runs": present}
    return config


def _moved_along(directory: Path, path: str) -> Path | None:
    """Where another run lies if it was moved together with a run that named its path."""
    home = home_of(directory)
    if home is None or not os.path.isabs(path):
        return None
    return Path(os.path.normpath(os.path.join(directory.absolute(), os.path.relpath(path, home))))


def _player_moved_along(directory: Path, word: str) -> str:
    """The same of a word that names the policy of another run; as it is where that is not known."""
    place = run_players.split(word, run_players.KEY)
    folder = _moved_along(directory, place.directory)
    return word if folder is None else str(place._replace(directory=str(folder)))


def _holds(run: Path, step: int, digest: str | None) -> bool:
    return checkpoint.digest(run, step) == digest
