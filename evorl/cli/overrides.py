"""The KEY=VALUE words of a command line: parsing them, and one clear line for a word that is wrong.

Hydra's errors name neither the key nor the nearest valid choice. When Hydra rejects a command line, `explain_refusal`
finds the first wrong word.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, RangeSweep, Sweep
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evorl.cli.descriptions import descriptions
from evorl.cli.foreign_words import renamed
from evorl.cli.groups import choices_below, files_of, options
from evorl.cli.hints import below, in_place_of, value_of
from evorl.cli.hydra_internals import HasConfigLoader, Hydra, parse_override, split_key
from evorl.util.errors import BadRequest, abbreviates, nearest, one_edit
from evorl.util.typed import shown, unknown

GROUPS = ("mdp", "rl", "ec", "cluster", "record")
"""Keys of `Experiment` whose class a config file names."""
FOLDERS = ("debug", "experiment")
"""Folders of conf/ that are added with a plus: +debug=tiny."""
TUNED = "tuned"
"""The folder with a file for a pair of world and algorithm, which is included by default; ~tuned leaves it out."""
PLACE = {"hydra.run.dir": "run output dir directory"}
"""A key of Hydra that users look for under other names, with the words of these names."""
ALIKE = 0.8
"""Minimum similarity (difflib's ratio) of a key of another choice to be suggested."""
MOST_VALUES = 1_000_000
"""Of a range."""
REFUSALS = (HydraException, OmegaConfBaseException, ValueError, TypeError)
"""The errors of Hydra for words that it cannot compose."""


Said = Callable[[], Mapping[str, str]]
"""A function that returns the comment of each dotted key. It reads all config files, so only errors call it."""


def parse(overrides: Sequence[str], hydra: HasConfigLoader | None = None) -> list[Override]:
    """Parse command-line words; with ``hydra``, glob(*) can list the choices of a group.

    Raises `BadRequest` for a word that Hydra cannot parse.
    """
    return [_parse(text, hydra) for text in overrides]


def check_group(hydra: Hydra, one: Override) -> None:
    """Raise `BadRequest` for a choice that a group does not have, or for no choice of a required group.

    Hydra ignores a wrong choice of an optional group.
    """
    if not _is_group(hydra, one) or one.is_sweep_override():
        return
    group, value = one.key_or_group, one.value()
    if one.is_delete():
        if group not in (*FOLDERS, TUNED):
            raise BadRequest("every run has one", group)
        return
    if isinstance(value, list) and group not in FOLDERS:
        raise BadRequest(f"takes one choice, got {format_value(value)}", group)
    for choice in value if isinstance(value, list) else [value]:
        _check_choice(hydra, one, choice)


def check_left_out(one: Override) -> None:
    """Raise `BadRequest` for a word that removes a key which every run needs."""
    key = one.key_or_group
    if one.is_delete() and key not in (*FOLDERS, TUNED) and (key.startswith("hydra.") or "." not in key):
        raise BadRequest("every run has one", key)


def explain_refusal(hydra: Hydra, given: Sequence[Override], name: str, error: Exception) -> BadRequest:
    """The reason why Hydra rejected these words: the first wrong word, or else Hydra's own message."""
    groups = [one for one in given if _is_group(hydra, one)]
    try:
        for one in given:
            if one.is_sweep_override():
                raise BadRequest("several values; add --multirun to run each, or [..] for a list", one.key_or_group)
        try:
            base = _composed(hydra, name, groups)
        except REFUSALS:
            _check_forms(_composed(hydra, name, []), groups)
            raise
        words = [str(one.input_line) for one in groups]
        for one in given:
            if one not in groups:
                check_group_key(hydra, base, base.hydra.runtime.choices, one)
                _check_key(base, one, lambda: key_descriptions(hydra, base, words, name))
    except BadRequest as found:
        return found
    except REFUSALS as other:
        error = other
    return BadRequest(first_line(error))


def key_descriptions(hydra: Hydra, base: DictConfig, words: Sequence[str], name: str) -> dict[str, str]:
    """The comments that the files of a config have for its keys."""
    return {key: comment for key, (comment, _) in descriptions(hydra, base, words, name).items()}


def require(config: DictConfig, key: str, said: Said = dict) -> Any:
    """Return the value at the dotted ``key`` of ``config``, unresolved. Raises `BadRequest` for an unknown key.

    ``said`` returns the descriptions of keys; an error message searches them for the nearest key.
    """
    node: Any = config
    names = split_key(key)
    for depth, name in enumerate(names):
        parent = ".".join(names[:depth])
        if not OmegaConf.is_dict(node):
            raise BadRequest(f"{parent} is a value; it has no keys", key)
        if name not in list(node):  # `in` alone is False for a value that is missing (???)
            raise _unknown_key(config, node, parent, name, said, whole=len(names) == 1)
        node = node._get_node(name)  # unresolved: a missing value or an interpolation is fine here
    return node if OmegaConf.is_config(node) else node._value()


def unknown_word(name: str, names: Iterable[str], said: Said = dict) -> BadRequest:
    """The error for an unknown first word of a key, with the nearest valid one as users write it (+debug)."""
    error = unknown(name, [*names, *FOLDERS, TUNED], said=lambda: {**said(), **PLACE})
    return BadRequest(re.sub(rf"\b({'|'.join(FOLDERS)})\b", r"+\1", error.args[0]), error.key)


def format_value(value: Any) -> str:
    """A value as a command line writes it."""
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {format_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_value, value)) + "]"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value) or "''"


def quote(text: str) -> str:
    """Text as a command line writes it, with quotes where needed."""
    return "'" + text.replace("'", "\\'") + "'"


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


# ------------------------------------------------------------------ choices of a group


def _is_group(hydra: Hydra, one: Override) -> bool:
    return one.key_or_group in FOLDERS or bool(options(hydra, one.key_or_group))


def _check_choice(hydra: Hydra, one: Override, choice: Any) -> None:
    group = one.key_or_group
    folder, _, name = f"{group}/{choice}".rpartition("/")
    if name in (options(hydra, folder) or options(hydra, group)):
        return
    there = choices_below(hydra, group)
    if inside := [one for one in there if one.startswith(f"{str(choice).rstrip('/')}/")]:
        raise BadRequest(f"{choice} is a folder; in it are: {', '.join(inside)}{_plus_hint(one)}", group)
    if words := in_place_of(hydra, group, str(choice)):
        raise BadRequest(f"no choice {shown(choice)}; in evorl this is {words}", group)
    close = nearest(str(choice), there) or nearest(name, options(hydra, folder) or options(hydra, group))
    if not close:  # folders are named and not listed
        shortly = dict.fromkeys(one.partition("/")[0] + "/..." if "/" in one else one for one in there)
        close = f"; there are: {', '.join(shortly) or 'none'}"
    raise BadRequest(f"no choice {shown(choice)}{close}{_plus_hint(one)}", group)


def _check_forms(base: DictConfig, groups: Sequence[Override]) -> None:
    """Reject the first choice whose prefix or package (+, ~, @) does not fit the rest of the command line."""
    chosen = base.hydra.runtime.choices
    for one in groups:
        group, value = one.key_or_group, format_value(one.value())
        if one.is_delete():
            what = "nothing is chosen" if one.value() is None else f"{value} is not chosen"
            raise BadRequest(f"{what}, so there is nothing to leave out", group)
        if _plus_hint(one):
            raise BadRequest(_plus_hint(one).removeprefix("; "), group)
        if one.package is not None:
            raise BadRequest(f"has its place; write {group}={value} without the @", group)
        if (one.is_add() or one.is_force_add()) and group in chosen:
            raise BadRequest(f"has a choice already; write {group}={value} without the plus", group)


def _plus_hint(one: Override) -> str:
    """The correct form of a choice that needs a plus, for a word that lacks it."""
    group = one.key_or_group
    return f"; choose with a plus: +{group}=NAME" if group in FOLDERS and not one.is_add() else ""


# ------------------------------------------------------------------ keys and values


def check_group_key(hydra: Hydra, base: DictConfig, choices: Mapping[str, Any], one: Override) -> None:
    """Raise `BadRequest` for a key that the chosen world, algorithm or cluster lacks but another choice has.

    A similar key counts too. ``choices`` are the choices that ``base`` was composed of.
    """
    group, _, name = one.key_or_group.partition(".")
    if group not in GROUPS or _has(base, one.key_or_group) or one.is_add() or one.is_force_add():
        return
    mine = f"{group}={choices.get(group)}"
    if homes := _choices_with(hydra, group, name):
        raise BadRequest(f"unknown key of {mine}; it belongs to {', '.join(homes)}", one.key_or_group)
    if hint := below(one.key_or_group, value_of(one), lambda key: _has(base, key)):
        raise BadRequest(f"unknown key{hint}", one.key_or_group)
    others = {key for choice in options(hydra, group) for key in _keys_of(hydra, group, choice)}
    like = [foreign for foreign in [str(renamed(name)).removeprefix(f"{group}.")] if foreign in others]
    if not (like or "." in name or nearest(name, _keys(base, group))):
        like = get_close_matches(name, others, 1, ALIKE)
    if like:
        homes = _choices_with(hydra, group, like[0])
        raise BadRequest(
            f"unknown key of {mine}; did you mean {group}.{like[0]} of {', '.join(homes)}?", one.key_or_group
        )


def _choices_with(hydra: Hydra, group: str, key: str) -> list[str]:
    """The choices of a group that have a key."""
    return [f"{group}={choice}" for choice in options(hydra, group) if _has_key(hydra, group, choice, key)]


def _keys_of(hydra: Hydra, group: str, choice: str) -> set[str]:
    """The keys of a choice and of the files that it builds on, without nested keys."""
    return {str(key) for config in files_of(hydra, group, choice) for key in config} - {"_target_"}


def _has_key(hydra: Hydra, group: str, choice: str, key: str) -> bool:
    """Whether a choice, or a file that it builds on, has a key."""
    return any(_has(config, key) for config in files_of(hydra, group, choice))


def _check_key(base: DictConfig, one: Override, said: Said) -> None:
    """Reject an unknown key, a key with a plus that exists, and a value of the wrong type."""
    key, value = one.key_or_group, one.value()
    if (one.is_add() or one.is_force_add()) and not _has(base, key):
        return
    old = require(base, key, said)
    if one.is_add():
        raise BadRequest(f"is there already; write {key}={format_value(value)} without the plus", key)
    if one.is_delete():
        check_left_out(one)
        _check_delete(old, value, key)
        return
    if not one.is_force_add():
        _check_names(base, key, value)
    try:
        OmegaConf.update(base, key, value, force_add=True)
    except OmegaConfBaseException:
        raise BadRequest(f"expected a value like {format_value(old)}, got {format_value(value)}", key) from None


def _check_names(base: DictConfig, key: str, value: Any) -> None:
    """Reject a name in a mapping that the config's mapping does not have."""
    if isinstance(value, dict) and OmegaConf.is_dict(require(base, key)):
        for name, inner in value.items():
            require(base, f"{key}.{name}")
            _check_names(base, f"{key}.{name}", inner)


def _check_delete(old: Any, value: Any, key: str) -> None:
    if old is None:
        raise BadRequest("is null, so there is nothing to leave out", key)
    if value not in (None, old):
        raise BadRequest(f"is {format_value(old)}, not {format_value(value)}", key)


def _has(base: Container, key: str) -> bool:
    if not isinstance(base, DictConfig):
        return False
    try:
        require(base, key)
    except BadRequest:
        return False
    return True


def _unknown_key(config: DictConfig, node: DictConfig, parent: str, name: str, said: Said, whole: bool) -> BadRequest:
    key = f"{parent}.{name}" if parent else name
    names = [str(one) for one in node]
    if parent in GROUPS and not {*names} - {"_target_"} and not nearest(name, names):
        return BadRequest(f"unknown key; this {parent} has none, another may: --help lists them", key)
    if not names:
        return BadRequest(f"no such key yet; +{key}=... adds it", key)
    if parent:
        return unknown(name, names, parent, lambda: {one: said().get(f"{parent}.{one}", "") for one in names})
    keys = [(group, one) for group in names if whole for one in _keys(config, group)]
    typo = any(one_edit(name, one) for one in names)  # of a first word; otherwise it may stand for a second one
    homes = [f"{group}.{one}" for group, one in keys if one == name or (abbreviates(one, name) and not typo)]
    if homes:
        return BadRequest(f"unknown key; did you mean {homes[0]}?", key)
    return unknown_word(name, names, said)


def _keys(config: DictConfig, group: str) -> list[str]:
    node = config._get_node(group)
    return [str(one) for one in node] if isinstance(node, DictConfig) else []


# ------------------------------------------------------------------ Hydra


def _parse(text: str, hydra: HasConfigLoader | None = None) -> Override:
    try:
        found = parse_override(text, hydra)
    except (HydraException, ValueError):
        raise BadRequest(f"cannot read {text!r}; expected KEY=VALUE, quoted if it has special signs") from None
    if not found.key_or_group:
        raise BadRequest(f"cannot read {text!r}; expected KEY=VALUE")
    _check_ranges(found)
    return found


def _check_ranges(one: Override) -> None:
    """Raise `BadRequest` for a range within a list, and for one without an end: Hydra has no values for them."""
    value = one.value()
    if isinstance(value, RangeSweep):
        start, stop, step = value.start, value.stop, value.step
        numbers = [float(x) for x in (start, stop, step) if x is not None]
        if not all(map(math.isfinite, numbers)) or step == 0 or (numbers[1] - numbers[0]) / step > MOST_VALUES:
            raise BadRequest(f"a range has an end and at most {MOST_VALUES:,} values", one.key_or_group)
    elif _has_range(value.list if isinstance(value, ChoiceSweep) else value):
        raise BadRequest("a range stands alone: write its values into the list, as in 0,1,2,7", one.key_or_group)


def _has_range(value: Any) -> bool:
    """Whether one of the values in a list or a mapping is a range or a list of values."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(one, Sweep | Glob) or _has_range(one) for one in inner)


def _composed(hydra: Hydra, name: str, words: Sequence[Override]) -> DictConfig:
    lines = [str(one.input_line) for one in words]
    return hydra.compose_config(name, lines, RunMode.RUN, with_log_configuration=False)
