"""What a call of Python says as the words of a command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evorl.api.plain import plain
from evorl.cli.overrides import GROUPS, format_value, parse
from evorl.training.experiment import Experiment
from evorl.util.errors import BadRequest

Words = str | Sequence[str] | Mapping[str, Any]
"""``"mdp=pong rl=ppo"``, quoted as in a shell; ``["mdp=pong", "rl=ppo"]`` or ``{"rl.lr": 1e-3}``."""


def listed(words: Sequence[Any], keys: Mapping[str, Any], several: bool = False) -> list[str]:
    """Return the words of a command line; those of a text are quoted as in a shell. Raises `BadRequest`.

    ``several``: a list holds values of its key, each of which is tried.
    """
    return [part for word in (*words, keys) for part in _parts(word, several)]


def _parts(word: Any, several: bool) -> Iterator[str]:
    if isinstance(word, str):
        try:
            yield from shlex.split(word)
        except ValueError as error:
            raise BadRequest(f"{word!r} is no line of words: {error}") from None
    elif isinstance(word, Experiment):
        raise BadRequest("an experiment is whole, without other words; change it by dataclasses.replace")
    elif isinstance(word, Mapping):
        for key, value in word.items():
            if key in GROUPS and isinstance(value, Mapping):
                within = next(iter(value), "KEY")
                raise BadRequest(f'is a choice by name, and its keys have dots: {{"{key}.{within}": ...}}', key)
            yield f"{key}={(_choices if several else text)(value, str(key))}"
    elif isinstance(word, list | tuple) and all(isinstance(part, str | os.PathLike) for part in word):
        yield from map(os.fspath, word)
    else:
        raise BadRequest(f'expected words as "mdp=pong", ["mdp=pong"] or {{"mdp": "pong"}}, got {word!r:.100}')


def text(value: Any, key: str = "") -> str:
    """A value as a word of the command line has it, which is read as the same value again. Raises `BadRequest`."""
    data = plain(value, key)
    for name in _names(data):
        if not _is_read_again(name):
            raise BadRequest(f"{name!r} cannot be written as a name in a mapping", key)
    return format_value(data)


def _choices(value: Any, key: str) -> str:
    """The values of a key in a sweep."""
    data = plain(value, key)
    if data == []:
        raise BadRequest("a list of values is empty", key)
    return ",".join(text(part, key) for part in data) if isinstance(data, list) else text(data, key)


def _names(data: Any) -> Iterator[Any]:
    """The names in mappings, also within."""
    if isinstance(data, dict):
        yield from data
    for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _names(part)


def _is_read_again(name: Any) -> bool:
    try:
        value = parse([f"x={format_value({name: 0})}"])[0].value()
    except BadRequest:
        return False
    return isinstance(value, dict) and [*value] == [name]
