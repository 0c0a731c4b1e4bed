"""The KEY=VALUE words of a command line: reading them, and writing values as they do.

What a word may name is decided in `evorl.cli.refusals`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, RangeSweep, Sweep
from hydra.errors import HydraException
from omegaconf import DictConfig, Node, OmegaConf

from evorl.cli.hydra_internals import HasConfigLoader, parse_override, split_key
from evorl.util import command
from evorl.util.command import literal, quoted
from evorl.util.errors import BadRequest

GROUPS = ("mdp", "rl", "ec", "opponents", "cluster", "record")
"""Keys of `Experiment` whose class a config file names."""
FOLDERS = ("debug", "experiment")
"""Folders of conf/ that are added with a plus: +debug=tiny."""
TUNED = "tuned"
"""The folder with a file for a pair of world and algorithm, which is included by default; ~tuned leaves it out."""
MOST_VALUES = 1_000_000
"""Of a range."""


def parse(overrides: Sequence[str], hydra: HasConfigLoader | None = None) -> list[Override]:
    """Parse command-line words; with ``hydra``, glob(*) can list the choices of a group.

    Raises `BadRequest` for a word that Hydra cannot parse. Nobody changes what a word was read as.
    """
    return [_parse(text, hydra) if hydra else _read(text) for text in overrides]


def single_value(override: Override) -> Any:
    """The value of a word whose key takes no several ones. Raises `BadRequest`."""
    if override.is_sweep_override():
        key, _, text = str(override.input_line).partition("=")
        raise BadRequest(
            f"several values; a list is written '{key}=[{text}]', and a text with commas '{key}=\"{text}\"'", key
        )
    return override.value()


def lookup(config: DictConfig, key: str) -> Node | None:
    """The node at the dotted ``key`` of ``config``, unresolved; None if there is none."""
    node: Any = config
    for name in split_key(key):
        if not isinstance(node, DictConfig) or name not in list(node):  # `in` alone is False for a missing value (???)
            return None
        node = node._get_node(name)  # an attribute would resolve an interpolation
    assert isinstance(node, Node)
    return node


def unresolved(node: Any) -> Any:
    """What `lookup` found: a value as it was written, or a container."""
    return node if OmegaConf.is_config(node) else node._value()


def format_value(value: Any) -> str:
    """A value as a command line writes it, where `parse` reads the same value."""
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_name(key)}: {format_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_value, value)) + "]"
    if isinstance(value, str):
        return literal(value)
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _name(key: Any) -> str:
    """A name in a mapping, where quotation marks are none."""
    return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", str(key))


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def in_quotes(word: str) -> str:
    """A word of a command line as Hydra reads its text: in quotation marks if it has letters that are not ASCII, and
    names of directories if they look like numbers.
    """
    key, equals, value = word.partition("=")
    if key.lstrip("+") in DIRECTORIES and not {*"'\"({"} & {*value}:
        value = _NUMBER.sub(lambda found: quoted(found[0]), value)
    if equals and not value.isascii() and _TEXT.fullmatch(value):
        value = quoted(value)
    return f"{key}{equals}{value}"


DIRECTORIES = ("resume", "init", "replay", "opponents.runs", "hydra.run.dir", "hydra.sweep.dir")
"""Keys that name directories."""
_NUMBER = re.compile(r"(?i)(?:^|(?<=[\[,])|(?<=, ))(?:true|false|[+-]?(?:inf|nan|\.?\d[\w.+-]*))(?=[],]|$)")
"""What may be a number or a boolean, alone or in a list."""
_TEXT = re.compile(r"(?! )[\w./:@+ -]+(?<! )")
"""Text without signs that mean anything to Hydra."""


def _parse(text: str, hydra: HasConfigLoader | None = None) -> Override:
    try:
        override = parse_override(text, hydra)
    except (HydraException, ValueError):
        raise _unreadable(text) from None
    if not override.key_or_group:
        raise BadRequest(f"cannot read {text!r}; expected KEY=VALUE")
    if _SHUFFLE.search(_QUOTED.sub("", text)):  # it is drawn anew wherever the word is read, and jobs would be others
        raise BadRequest("shuffle gives another order each time; write the values in an order", override.key_or_group)
    _check_ranges(override)
    return override


def _unreadable(text: str) -> BadRequest:
    """The error for a word that Hydra cannot parse, with the word as it is quoted if its value may be a text."""
    key, _, value = text.partition("=")
    if value and not re.match(r"""['"\[{(]|\w+\(""", value):
        with suppress(HydraException, ValueError):
            name = parse_override(f"{key}={quoted(value)}").key_or_group
            return BadRequest(
                f"cannot read {value}; a text with special signs is quoted: {command.word(key, value)}", name
            )
    return BadRequest(f"cannot read {text!r}; expected KEY=VALUE, quoted if it has special signs")


_SHUFFLE, _QUOTED = re.compile(r"\bshuffle\s*\("), re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
"""Hydra's function in a word, and text in quotation marks, where it is none."""

_read = lru_cache(1024)(_parse)  # one command reads its words several times, and Hydra's grammar takes milliseconds


def _check_ranges(override: Override) -> None:
    """Raise `BadRequest` for a range within a list, and for one without an end: Hydra has no values for them."""
    value = override.value()
    if isinstance(value, RangeSweep):
        start, stop, step = value.start, value.stop, value.step
        numbers = [float(x) for x in (start, stop, step) if x is not None]
        if not all(map(math.isfinite, numbers)) or step == 0 or (numbers[1] - numbers[0]) / step > MOST_VALUES:
            raise BadRequest(f"a range has an end and at most {MOST_VALUES:,} values", override.key_or_group)
    elif _has_range(value.list if isinstance(value, ChoiceSweep) else value):
        raise BadRequest("a range stands alone: write its values into the list, as in 0,1,2,7", override.key_or_group)


def _has_range(value: Any) -> bool:
    """Whether one of the values in a list or a mapping is a range or a list of values."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(part, Sweep | Glob) or _has_range(part) for part in inner)
