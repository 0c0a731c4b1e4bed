"""Write the files of conf/rl, conf/ec and conf/opponents from their dataclasses: ``python scripts/write_conf.py``.

A file begins with what is said of the algorithm and with the ``_target_`` of its dataclass. The rest is written here:
each field with its default, its choices and the first paragraph of its docstring. So a new algorithm needs two lines.
A sampler in a mixture is described by the docstring of its class.
"""

from __future__ import annotations

import ast
import textwrap
from abc import ABC
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from decimal import Decimal
from importlib import import_module
from inspect import cleandoc, getsource
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from evorl.replay.samplers.registry import SAMPLERS, Sampling, names

CONF = Path(__file__).parents[1] / "conf"
FILES = sorted(
    path
    for group in ("rl", "ec", "opponents")
    for path in (CONF / group).glob("*.yaml")
    if "\n_target_: " in path.read_text(encoding="utf-8")
)
WIDEST = 30
"""The column of the comments, unless all keys of a file are shorter; a longer line pushes its own aside."""
UNLISTED = {
    "A3C": ("normalize_inputs", "normalize_rewards", "asynchronous", "correction", "learners"),
    "RolloutHyper": ("policies",),
    "DDPG": ("policies", "net.shared", "net.lstm", "net.std", "net.log_std"),
    "SAC": ("policies", "net.shared", "net.lstm", "net.output"),
    "DQN": ("policies", "net.shared", "net.lstm", "net.std", "net.log_std", "net.output"),
    "R2D2": ("policies", "net.shared", "net.std", "net.log_std", "net.output"),
    "Gymnasium": ("features", "tell_side"),
    "Atari": ("skip_gamma", "features", "tell_side"),
    "World": ("frame_skip", "skip_gamma", "features", "tell_side"),
}
"""Keys that have no effect on an algorithm, or one possible value; by class, also for those that derive from it.
Of a world, the keys that all worlds have.

Those of ``net`` are at the defaults of `Net`, which a file that leaves them out means.
"""


def written(path: Path) -> str:
    """The text of a config file, whose first lines say which dataclass it is of."""
    lines = path.read_text(encoding="utf-8").splitlines()
    end = next(number for number, line in enumerate(lines) if line.startswith("_target_: "))
    kind = target(lines[end])
    hidden = unlisted(kind)
    rows = [(line, said) for key, line, said in keys(kind()) if key not in hidden]
    column = max((len(line) for line, _ in rows if len(line) <= WIDEST), default=0)
    body = [f"{line:{column}} # {said}" if said else line for line, said in rows]
    return "\n".join([*lines[: end + 1], *body, ""])


def target(line: str) -> type:
    """The dataclass that a line ``_target_: MODULE.CLASS`` names."""
    module, _, name = line.removeprefix("_target_: ").rpartition(".")
    kind: type = getattr(import_module(module), name)
    return kind


def unlisted(kind: type) -> tuple[str, ...]:
    """The dotted keys that the file of a dataclass leaves out."""
    return next((UNLISTED[base.__name__] for base in kind.__mro__ if base.__name__ in UNLISTED), ())


def keys(default: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Each field of a dataclass: its dotted key, the line ``key: value``, and its comment."""
    indent = "  " * prefix.count(".")
    kinds, said = get_type_hints(type(default), include_extras=True), docstrings(type(default))
    for name in order(type(default)):
        value = getattr(default, name)
        if is_dataclass(value):
            yield f"{prefix}{name}", f"{indent}{name}:", comment("", said.get(name, ""))
            yield from keys(value, f"{prefix}{name}.")
        elif kinds[name] == Sampling and isinstance(value, dict):
            yield f"{prefix}{name}", f"{indent}{name}:", comment("", said[name])
            for sampler, share in value.items():
                rule = first_paragraph(SAMPLERS[sampler].__doc__ or "")
                yield f"{prefix}{name}.{sampler}", f"{indent}  {sampler}: {text(share)}", comment("", rule)
        else:
            words = " | ".join(names(default.replay) if kinds[name] == Sampling else choices(kinds[name]))
            line = f"{indent}{name}: {text(msgspec.to_builtins(value))}"
            yield f"{prefix}{name}", line, comment(words, said[name])


def order(kind: type) -> list[str]:
    """The names of the fields: those that all algorithms have, an algorithm's own, those of mixins, the network."""
    bases = sorted(filter(is_dataclass, reversed(kind.__mro__)), key=lambda base: not issubclass(base, ABC))
    names = dict.fromkeys(name for base in bases for name in vars(base).get("__annotations__", {}))
    known = {field.name for field in fields(kind)}
    return sorted((name for name in names if name in known), key=lambda name: name == "net")


def docstrings(kind: type) -> dict[str, str]:
    """The first paragraph of the docstring of each field, in one line; an overridden field keeps that of its base."""
    said: dict[str, str] = {}
    for base in filter(is_dataclass, reversed(kind.__mro__)):
        body = ast.parse(textwrap.dedent(getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in pairwise(body.body):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    said[name] = first_paragraph(words)
    return said


def first_paragraph(words: str) -> str:
    """The first paragraph of a docstring, in one line."""
    return cleandoc(words).partition("\n\n")[0].replace("\n", " ")


def choices(kind: Any) -> list[str]:
    """The words that a field takes; none where it takes true and false too, or numbers."""
    if get_origin(kind) is Annotated:
        return choices(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return [word for word in get_args(kind) if isinstance(word, str)]
    if get_origin(kind) in (Union, UnionType) and bool not in get_args(kind):
        words = [word for arm in get_args(kind) for word in choices(arm)]
        return [*words, "null"] if words and type(None) in get_args(kind) else words
    return []


def comment(words: str, sentence: str) -> str:
    """A docstring as a comment: after the choices, without a capital at its beginning and a full stop at its end."""
    first = sentence.partition(" ")[0]
    if first[1:].islower() or first == "A":
        sentence = sentence[0].lower() + sentence[1:]
    return ": ".join(filter(None, (words, sentence.removesuffix(".").replace("``", "`"))))


def text(value: Any) -> str:
    """A default as YAML: 3.0e-4, 10_000, [64, 64]."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case int():
            return f"{value:_}" if abs(value) >= 10_000 else str(value)
        case float() if value and (abs(value) < 1e-3 or "e" in repr(value)):
            digits, exponent = f"{Decimal(repr(value)):e}".split("e")  # which YAML reads with a point and a sign
            return f"{digits if '.' in digits else f'{digits}.0'}e{exponent}"
        case list() | tuple():
            return f"[{', '.join(map(text, value))}]"
        case dict():
            return "{" + ", ".join(f"{key}: {text(inner)}" for key, inner in value.items()) + "}"
    return str(value)


if __name__ == "__main__":
    for path in FILES:
        path.write_text(written(path), encoding="utf-8")
