"""Refuses what a command line names and evorl does not have: choices and keys, each with the nearest that there is.

Hydra alone would say neither the key nor a valid one. So it composes whatever it gets (`evorl.cli.hydra_internals`),
and `check_words` looks at the words before. A key exists if the files of the chosen world, algorithm, evolution and
cluster list it, or if the dataclass that they name has it. Values are checked by `evorl.util.typed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, Node, OmegaConf

from evorl.cli.descriptions import descriptions
from evorl.cli.foreign_words import renamed
from evorl.cli.former_keys import present_words
from evorl.cli.groups import PLUGIN, choices_below, files_of, options, providers
from evorl.cli.hints import below, check_foreign, in_place_of, value_of
from evorl.cli.hydra_internals import COMPOSITION_ERRORS, Hydra, compose_choices, known_logs, split_key
from evorl.cli.overrides import FOLDERS, GROUPS, TUNED, first_line, format_value, lookup, parse, unresolved
from evorl.cli.targets import import_class, trusted
from evorl.util.errors import BadRequest, abbreviates, nearest, one_edit
from evorl.util.typed import has_place, shown, unknown

PLACE = {"hydra.run.dir": "run output dir directory"}
"""A key of Hydra that users look for under other names, with the words of these names."""
OF_SWEEPS = {"hydra.run.dir": False, "hydra.sweep.dir": True, "hydra.sweep.subdir": True}
"""Keys of directories, and whether they are those of a sweep."""
UNUSED = {
    "hydra.job.chdir": "runs stay in the working directory; leave it out",
    "hydra.output_subdir": "evorl writes .hydra/ itself; leave it out",
    "hydra.verbose": "evorl keeps no log of Hydra's; leave it out",
}
"""Keys of Hydra that mean nothing to evorl unless they are null or false; in a sweep its launchers follow them."""
LOGS = ("hydra_logging", "job_logging")
"""Keys of Hydra with configs of `logging`. Its launchers apply them, and such a config can name code that it calls."""
SHOWN = 4
"""Where a group has no choice yet, the message of an unknown key names at most so many of those that have the key."""
ENVIRONMENT = "hydra.job.env_set"
"""Variables of the environment, such as PATH and PYTHONPATH, which decide what code a job runs."""
ALIKE = 0.8
"""Minimum similarity (difflib's ratio) of a key of another choice to be suggested."""


class Keys(NamedTuple):
    """Where the keys of a command line are looked up."""

    hydra: Hydra
    config: DictConfig  # composed of the choices alone, or that of a run
    choices: Mapping[str, Any]
    trust: Sequence[str] = ()
    comments: Callable[[], Mapping[str, str]] = dict
    """Returns the comment of each dotted key. It reads all config files, so only errors call it."""


def check_words(hydra: Hydra, words: Sequence[Override], name: str) -> None:
    """Raise `BadRequest` for the first word that names a choice or a key which does not exist.

    A choice, or a key, that varies in a sweep is the matter of the sweep's jobs.
    """
    for word in words:
        check_foreign(hydra, word, words)
        _check_choices(hydra, word)
    words = [word for word in words if not word.is_sweep_override()]
    choices = [word for word in words if _is_group(hydra, word) or word.key_or_group == "hydra.searchpath"]
    lines = [str(word.input_line) for word in choices]
    try:
        config = compose_choices(hydra, name, lines)
    except COMPOSITION_ERRORS as error:
        with suppress(HydraException):
            _check_forms(compose_choices(hydra, name, []), choices)
        raise BadRequest(first_line(error)) from None

    def comments() -> dict[str, str]:
        return {key: comment for key, (comment, _) in descriptions(hydra, config, lines, name).items()}

    keys = Keys(hydra, config, config.hydra.runtime.choices, trusted(words), comments)
    # what another class has, `evorl.cli.config.group_object` finds out
    added = [group for group in GROUPS if any(word.key_or_group == f"{group}._target_" for word in words)]
    for word in words:
        key = word.key_or_group
        if word not in choices and not any(f"{key}.".startswith(f"{before}.") for before in added):
            check_key(keys, word)
        if word.is_add() or word.is_force_add():
            added.append(key)  # later words may change it or leave it out


def check_former(node: Mapping[str, Any], kind: type, group: str) -> None:
    """Raise `BadRequest` for a key of a config file, of a group with this class, that has another name today."""

    def has(key: str) -> bool:
        return has_place(kind, split_key(key)[1:], adds=True)

    for key, value in _nested(node, group):
        if not has(key) and (present := present_words(key, format_value(value), has)):
            raise BadRequest(f"unknown key; this is {present} now", key)


def _nested(node: Mapping[str, Any], parent: str) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        yield f"{parent}.{name}", value
        if isinstance(value, Mapping):
            yield from _nested(value, f"{parent}.{name}")


def check_hydra(words: Sequence[Override], sweep: bool) -> None:
    """Raise `BadRequest` for a key of Hydra's own that has no effect on one run, or on a sweep."""
    for word in words:
        key, value = word.key_or_group, value_of(word)
        if key in UNUSED and word.value() not in (None, False):
            raise BadRequest(UNUSED[key], key)
        if OF_SWEEPS.get(key, sweep) == sweep or word.is_delete():
            continue
        if sweep:
            raise BadRequest(f"is for one run; hydra.sweep.dir={value} names the directory of a sweep", key)
        one = f"; hydra.run.dir={value} names the directory of one run" if key == "hydra.sweep.dir" else ""
        raise BadRequest(f"is for --multirun{one}", key)


def check_hydra_of_job(composed: DictConfig) -> None:
    """Raise `BadRequest` for what a config file of a sweep sets: one of `UNUSED`, a log that is not Hydra's own, or the
    environment."""
    for key, why in UNUSED.items():
        if unresolved(lookup(composed, key)) not in (None, False):
            raise BadRequest(why, key)
    for kind in LOGS:
        if OmegaConf.to_container(composed.hydra._get_node(kind)) not in known_logs(kind):
            raise BadRequest("can run code, and evorl keeps no log of Hydra's; leave it out", f"hydra.{kind}")
    for name in composed.hydra.job.env_set:
        if f"{ENVIRONMENT}.{name}" not in given_keys(composed):
            raise BadRequest("is taken from the command line only", f"{ENVIRONMENT}.{name}")


def given_keys(composed: DictConfig) -> set[str]:
    """The keys of Hydra's own on the command line, with those of mappings."""
    words = parse([*composed.hydra.overrides.hydra])
    return {word.key_or_group for word in words} | {
        key for word in words if isinstance(node := word.value(), dict) for key, _ in _nested(node, word.key_or_group)
    }


# ------------------------------------------------------------------ choices of a group


def _is_group(hydra: Hydra, word: Override) -> bool:
    return word.key_or_group in FOLDERS or bool(options(hydra, word.key_or_group))


def _check_choices(hydra: Hydra, word: Override) -> None:
    """Raise `BadRequest` for a choice that a group does not have, or for no choice of a required group.

    Hydra ignores a wrong choice of an optional group.
    """
    if not _is_group(hydra, word) or word.is_sweep_override():
        return
    group, value = word.key_or_group, word.value()
    if word.is_delete():
        if group not in (*FOLDERS, TUNED):
            raise BadRequest("every run has one", group)
        return
    if isinstance(value, list) and group not in FOLDERS:
        raise BadRequest(f"takes one choice, got {format_value(value)}", group)
    for choice in value if isinstance(value, list) else [value]:
        _check_choice(hydra, word, choice)


def _check_choice(hydra: Hydra, word: Override, choice: Any) -> None:
    group = word.key_or_group
    folder, _, name = f"{group}/{choice}".rpartition("/")
    if name in (options(hydra, folder) or options(hydra, group)):
        both = providers(hydra, folder, name)[:2]
        if len(both) == 2 and both[0].startswith(PLUGIN):
            raise BadRequest(f"{' and '.join(both)} both have a choice {shown(choice)}; uninstall one of them", group)
        return
    paths = choices_below(hydra, group)
    if inside := [path for path in paths if path.startswith(f"{str(choice).rstrip('/')}/")]:
        raise BadRequest(f"{choice} is a folder; in it are: {', '.join(inside)}{_plus_hint(word)}", group)
    if instead := in_place_of(hydra, group, str(choice)):
        raise BadRequest(f"no choice {shown(choice)}; in evorl this is {instead}", group)
    close = nearest(str(choice), paths) or nearest(name, options(hydra, folder) or options(hydra, group))
    if not close:  # folders are named and not listed
        shortly = dict.fromkeys(path.partition("/")[0] + "/..." if "/" in path else path for path in paths)
        close = f"; there are: {', '.join(shortly) or 'none'}"
    raise BadRequest(f"no choice {shown(choice)}{close}{_plus_hint(word)}", group)


def _check_forms(config: DictConfig, words: Sequence[Override]) -> None:
    """Reject the first choice whose prefix or package (+, ~, @) does not fit the rest of the command line."""
    chosen = config.hydra.runtime.choices
    for word in words:
        group, value = word.key_or_group, format_value(word.value())
        if word.is_delete():
            what = "nothing is chosen" if word.value() is None else f"{value} is not chosen"
            raise BadRequest(f"{what}, so there is nothing to leave out", group)
        if _plus_hint(word):
            raise BadRequest(_plus_hint(word).removeprefix("; "), group)
        if word.package is not None:
            raise BadRequest(f"has its place; write {group}={value} without the @", group)
        if (word.is_add() or word.is_force_add()) and group in chosen:
            raise BadRequest(f"has a choice already; write {group}={value} without the plus", group)


def _plus_hint(word: Override) -> str:
    """The correct form of a choice that needs a plus, for a word that lacks it."""
    group = word.key_or_group
    return f"; choose with a plus: +{group}=NAME" if group in FOLDERS and not word.is_add() else ""


# ------------------------------------------------------------------ keys


def check_key(keys: Keys, word: Override) -> None:
    """Raise `BadRequest` for an unknown key, and for a sign before a key (+, ~) that does not fit it."""
    key, value = word.key_or_group, word.value()
    adds = word.is_add() or word.is_force_add()
    node = lookup(keys.config, key)
    if node is None:
        if word.is_delete() or not _has_place(keys, key, adds):
            raise unknown_key(keys, key, value_of(word))
        return
    before = unresolved(node)
    misfit = list if OmegaConf.is_dict(node) else dict if OmegaConf.is_list(node) else ()
    if word.is_delete():
        _check_left_out(key, before, value)
    elif word.is_add() and before is not None and not isinstance(value, dict | list):
        raise BadRequest(f"is there already; write {key}={format_value(value)} without the plus", key)
    elif isinstance(value, misfit):
        raise BadRequest(f"expected a value like {format_value(before)}, got {format_value(value)}", key)
    elif isinstance(value, dict):
        _check_names(keys, key, value)


def _check_names(keys: Keys, key: str, value: Mapping[Any, Any]) -> None:
    """Reject a name in a mapping that has no place at the key."""
    for name, inner in value.items():
        inside = f"{key}.{name}"
        if lookup(keys.config, inside) is None and not _has_place(keys, inside, adds=True):
            raise unknown_key(keys, inside, format_value(inner))
        if isinstance(inner, dict):
            _check_names(keys, inside, inner)


def _check_left_out(key: str, before: Any, value: Any) -> None:
    if key.startswith("hydra.") or "." not in key:
        raise BadRequest("every run has one", key)
    if before is None:
        raise BadRequest("is null, so there is nothing to leave out", key)
    if value not in (None, before):
        raise BadRequest(f"is {format_value(before)}, not {format_value(value)}", key)


def _has_place(keys: Keys, key: str, adds: bool) -> bool:
    """Whether a key that no file lists may be given: by its dataclass, or as a new name (``adds``) in a mapping."""
    group, *names = split_key(key)
    parent = lookup(keys.config, key.rpartition(".")[0]) if names else None
    if adds and len(names) > 1 and isinstance(parent, DictConfig) and not list(parent):
        return True  # mappings whose names are free begin empty; their classes need not be imported
    target = lookup(keys.config, f"{group}._target_") if group in GROUPS else None
    if target is None:
        return adds and group == "hydra"
    kind = import_class(str(unresolved(target)), object, f"{group}._target_", keys.trust)
    return has_place(kind, names, adds)


def unknown_key(keys: Keys, key: str, value: str) -> BadRequest:
    """The error for a key that does not exist: its name of today, the choices that have it, or the nearest key."""

    def has(other: str) -> bool:
        return lookup(keys.config, other) is not None or _has_place(keys, other, adds=False)

    if present := present_words(key, value, has):
        return BadRequest(f"unknown key; this is {present} now", key)
    node: Node | None = keys.config
    parts, depth = split_key(key), 0
    while isinstance(node, DictConfig) and parts[depth] in list(node):
        node, depth = node._get_node(parts[depth]), depth + 1
    group, name, parent = parts[0], parts[depth], ".".join(parts[:depth])
    if not isinstance(node, DictConfig):
        return BadRequest(f"{parent} is a value; it has no keys", key)
    names = [str(child) for child in node if child != "_target_" or one_edit(name, "_target_")]
    if depth > 1 and not names:
        return BadRequest(f"no such key yet; +{key}=... adds it", key)
    alone = depth == 1 or not nearest(name, names)  # a name deep inside is rather misspelt than that of another choice
    if group in GROUPS and parent and alone and (place := _elsewhere(keys, parts[: depth + 1], names, key, value)):
        return BadRequest(f"unknown key{place}", key)
    at = f"{parent}.{name}" if parent else name
    if parent in GROUPS and not names:
        return BadRequest(f"unknown key; this {parent} has none, another may: --help lists them", at)
    if parent:
        return unknown(
            name, names, parent, lambda: {known: keys.comments().get(f"{parent}.{known}", "") for known in names}
        )
    return _unknown_word(keys, name, names)


def _elsewhere(keys: Keys, parts: Sequence[str], names: Sequence[str], key: str, value: str) -> str:
    """Where an unknown key of a group is known: in other choices of the group, or in other suites; empty if nowhere.

    ``parts`` are those of the key up to the name that is unknown, ``names`` are the names in that place.
    """
    group, name = parts[0], ".".join(parts[1:])
    selection = f"{group}={keys.choices.get(group)}"
    if homes := [*_choices_with(keys.hydra, group, name)]:
        any_will_do = keys.choices.get(group) == "none" and len(homes) > SHOWN + 1
        more = f" and {len(homes) - SHOWN} more" if any_will_do else ""
        return f" of {selection}; it belongs to {', '.join(homes[:SHOWN] if more else homes)}{more}"
    misspelt = key != ".".join(parts) and any(one_edit(parts[-1], other) for other in names)  # mdp.yeward.gamma
    if not misspelt and (hint := below(key, value, lambda other: lookup(keys.config, other) is not None)):
        return hint
    others = {other for choice in options(keys.hydra, group) for other in _keys_of(keys.hydra, group, choice)}
    like = [word for word in [str(renamed(name)).removeprefix(f"{group}.")] if word in others]
    if not like and len(parts) == 2 and not nearest(name, names):
        like = get_close_matches(name, others, 1, ALIKE)
    if not like:
        return ""
    return f" of {selection}; did you mean {group}.{like[0]} of {', '.join(_choices_with(keys.hydra, group, like[0]))}?"


def _choices_with(hydra: Hydra, group: str, key: str) -> Iterator[str]:
    """The choices of a group of which a file lists a key."""
    for choice in options(hydra, group):
        if any(lookup(file, key) is not None for file in files_of(hydra, group, choice)):
            yield f"{group}={choice}"


def _keys_of(hydra: Hydra, group: str, choice: str) -> set[str]:
    """The keys of a choice and of the files that it builds on, without nested keys."""
    return {str(key) for file in files_of(hydra, group, choice) for key in file} - {"_target_"}


def _unknown_word(keys: Keys, name: str, names: Iterable[str]) -> BadRequest:
    """The error for an unknown first word of a key, with the nearest valid one as users write it (+debug)."""
    names = list(names)
    inside = [(group, key) for group in names for key in _names(keys.config, group)]
    typo = any(one_edit(name, group) for group in names)  # of a first word; otherwise it may stand for a second one
    homes = [f"{group}.{key}" for group, key in inside if key == name or (abbreviates(key, name) and not typo)]
    if homes:
        return BadRequest(f"unknown key; did you mean {homes[0]}?", name)
    error = unknown(name, [*names, *FOLDERS, TUNED], descriptions=lambda: {**keys.comments(), **PLACE})
    return BadRequest(re.sub(rf"\b({'|'.join(FOLDERS)})\b", r"+\1", error.args[0]), error.key)


def _names(config: DictConfig, group: str) -> list[str]:
    node = lookup(config, group)
    return [str(name) for name in node] if isinstance(node, DictConfig) else []
