"""What a call of Python says is what the command line reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.core.override_parser.types import ChoiceSweep, QuotedString
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evorl.api.plain import plain
from evorl.api.words import listed, text
from evorl.cli.overrides import parse
from evorl.util import command
from evorl.util.errors import BadRequest

NUMBERS = st.integers() | st.floats(allow_nan=False)
NAMES = st.from_regex(r"[A-Za-z_][\w.:=,(){}\[\] \\-]*[\w\\]", fullmatch=True).filter(str.isascii)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def read(word: str) -> Any:
    """The value of a word, or the values that it tries."""
    value = parse([word])[0].value()
    if not isinstance(value, ChoiceSweep):
        return value
    return [part.text if isinstance(part, QuotedString) else part for part in value.list]


@settings(max_examples=300)
@given(st.text())
@example("\\").via("a mark that would not end")
@example("it's \\'so\\' \\\\")
@example("null")
@example("1e-3")
@example("a,b")
@example("a=b(c)")
@example("${seed}")
@example("two\nlines")
@example("")
def test_a_text_is_read_as_itself(word: str) -> None:
    assert read(f"x={text(word)}") == word
    assert read(f"x={text([word, {'name': word}])}") == [word, {"name": word}]
    for mark in "'\"":
        assert read(f"x={command.quoted(word, mark)}") == read(f"x={command.literal(word, mark)}") == word


@settings(max_examples=100)
@given(VALUES)
def test_a_value_is_read_as_itself(value: Any) -> None:
    assert repr(read(f"x={text(value)}")) == repr(value)


@settings(max_examples=50)
@given(st.lists(SCALARS, min_size=2, max_size=4))
def test_each_value_of_a_list_is_tried(values: list[Any]) -> None:
    for words in (listed([{"x": values}], {}, several=True), listed([], {"x": tuple(values)}, several=True)):
        assert repr(read(*words)) == repr(values)


def test_a_word_is_quoted_only_where_it_must_be() -> None:
    """Choices, and what a report shows."""
    for word in ("cartpole", "CartPole-v1", "my_envs.grid:World", "runs/2026-01-02/a", "/tmp/a", "../a", "${seed}"):
        assert text(word) == word


class Colour(Enum):
    RED = "red"


class Kind(StrEnum):
    FAST = "fast"


@dataclass
class Part:
    size: Any = 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Path("/tmp/a,b"), "/tmp/a,b"), (np.float64(0.5), 0.5), (np.float32(0.5), 0.5), (np.longdouble(0.5), 0.5),
        (np.int64(3), 3), (np.bool_(True), True), (np.str_("a"), "a"), (Kind.FAST, "fast"), (range(3), [0, 1, 2]),
        ((1, 2), [1, 2]), (np.arange(3), [0, 1, 2]), (np.eye(2), [[1.0, 0.0], [0.0, 1.0]]), (np.array(2.5), 2.5),
        (torch.tensor([1, 2]), [1, 2]), ({"a": np.int8(1), "b": [Path("x")]}, {"a": 1, "b": ["x"]}),
        (Part(size=np.int64(2)), {"size": 2}),
    ],
)  # fmt: skip
def test_values_of_libraries_are_plain(value: Any, expected: Any) -> None:
    found = plain(value)
    assert repr(found) == repr(expected) and read(f"x={text(value)}") == expected


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, "got a set"), (Colour.RED, "got a Colour"), (Part, "got the class Part"), (b"a", "got a bytes"),
        (print, "got a builtin_function_or_method"), (Part(size=print), "^rl.lr.size: expected a number, a text, "),
        ({"a": [print]}, "^rl.lr.a: expected"), ({"it's": 1}, 'rl.lr: "it\'s" cannot be written as a name'),
        ({"null": 1}, "rl.lr: 'null' cannot be written as a name"), ([{"1": 1}], "rl.lr: '1' cannot"),
    ],
)  # fmt: skip
def test_what_no_word_can_say_is_refused(value: Any, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        text(value, "rl.lr")


def test_lists_hold_values_of_a_sweep_and_are_values_elsewhere() -> None:
    keys = {"rl.lr": [1e-3, 1e-4], "seed": range(2), "rl.gamma": np.array([0.9, 0.99]), "init": [Path("a,b"), None]}
    words = ["rl.lr=0.001,0.0001", "seed=0,1", "rl.gamma=0.9,0.99", "init='a,b',null"]
    assert listed([keys], {}, several=True) == listed([], keys, several=True) == words
    assert listed([{"rl.net.hidden": [[64, 64], [8]]}], {}, several=True) == ["rl.net.hidden=[64, 64],[8]"]
    assert listed([{"rl.net.hidden": (64, 64)}], {"seed": 1}) == ["rl.net.hidden=[64, 64]", "seed=1"]
    assert listed(["mdp=pong 'a b'", ["rl=ppo"]], {}, several=True) == ["mdp=pong", "a b", "rl=ppo"]
    for empty in ([], (), range(0), np.zeros(0)):
        with pytest.raises(BadRequest, match=r"^seed: a list of values is empty$"):
            listed([{"seed": empty}], {}, several=True)


def test_keys_of_a_group_have_dots() -> None:
    with pytest.raises(BadRequest, match=r'^rl: is a choice by name, and its keys have dots: \{"rl.lr": ...\}$'):
        listed([{"mdp": "cartpole", "rl": {"lr": 1e-3}}], {})


@pytest.mark.parametrize("word", [None, 3, ["mdp=pong", 3], Path("runs/a"), {"seed=1"}])
def test_other_words_are_refused(word: Any) -> None:
    with pytest.raises(BadRequest, match=r'^expected words as "mdp=pong", '):
        listed([word], {})
