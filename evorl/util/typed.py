"""Plain data as typed, frozen dataclasses: strict types, bounds, and errors that name the dotted key."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import cleandoc, getsource
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from evorl.util.errors import BadRequest, nearest

T = TypeVar("T")
BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
"""What other formats write for true and false."""

_TYPES: dict[Any, inspect.Type] = {}


def typed(data: object, kind: type[T], key: str = "", swept: bool = False) -> T:
    """``data`` (nested mappings, lists and scalars) as a dataclass ``kind`` that sits at the dotted ``key``.

    Types are strict, but a whole float such as 1e6 serves for an integer, and a list for a tuple. ``swept``: the keys
    are those of a sweep, too, which takes several values.
    Raises `BadRequest` for an unknown or missing name, a wrong type, a number that is not finite or out of
    bounds, and for the combinations that a ``__post_init__`` refuses.
    """
    fitted = _fit(data, type_info(kind), key)
    try:
        return msgspec.convert(fitted, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, data, type_info(kind), key, _path(error, fitted, kind), swept) from None


def unknown(
    name: str, choices: Iterable[str], key: str = "", descriptions: Callable[[], Mapping[str, str]] = dict
) -> BadRequest:
    """The error for an unknown name within ``key``, with the nearest valid one.

    ``descriptions`` returns what the choices mean, by name.
    """
    prefix = f"{key}." if key else ""
    listed = ", ".join(choice for choice in choices if not choice.startswith("_"))
    close = nearest(name, choices, descriptions) or f"; there are: {listed or 'none'}"
    return BadRequest(f"unknown key{close.replace('mean ', f'mean {prefix}', 1)}", f"{prefix}{name}")


def completed(data: Mapping[str, Any], made: object) -> dict[str, Any]:
    """``data``, of which a dataclass was made, with the fields that it lacks; also nested, but not within a choice of
    types."""
    whole, kind = dict(data), type_info(type(made))
    assert isinstance(kind, inspect.DataclassType)
    for field in kind.fields:
        value = getattr(made, field.name)
        if field.name not in whole:
            whole[field.name] = msgspec.json.decode(msgspec.json.encode(value))  # with lists for tuples
        elif isinstance(field.type, inspect.DataclassType):
            whole[field.name] = completed(whole[field.name], value)
    return whole


def type_info(kind: Any) -> inspect.Type:
    """What msgspec knows of a type. It would read the annotations of a dataclass again at each call."""
    if kind not in _TYPES:
        _TYPES[kind] = inspect.type_info(kind)
    return _TYPES[kind]


def has_place(kind: type, names: Sequence[str], adds: bool = False) -> bool:
    """Whether a dataclass has a field at ``names``, nested; ``adds``: or a mapping there that may get a new name."""
    kinds = [type_info(kind)]
    for name in names:
        if adds and any(isinstance(arm, inspect.DictType | inspect.AnyType) for arm in kinds):
            return True
        kinds = [inner for arm in kinds if isinstance(arm, inspect.DataclassType) for inner in _inside(arm, name)]
    return bool(kinds)


def documented(kind: type) -> Iterator[tuple[str, Any, str]]:
    """Each field of a dataclass: name, default (`dataclasses.MISSING` where there is none) and docstring."""
    body = ast.parse(textwrap.dedent(getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    said = {
        field.target.id: cleandoc(text.value.value).replace("\n", " ")
        for field, text in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }  # fmt: skip
    for field in dataclasses.fields(kind):
        yield field.name, field.default, said.get(field.name, "")


def shown(value: object) -> str:
    """A config value as a user would write it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return repr(value)


def _fit(value: Any, kind: inspect.Type, key: str) -> Any:
    """Turn whole floats into integers where the type is an integer; reject what `msgspec.convert` would accept."""
    match kind:
        case inspect.DataclassType() if isinstance(value, Mapping):
            return _fit_fields(value, kind, key)
        case inspect.UnionType():
            _check_choice(value, kind.types, key)
            for arm in kind.types:
                if not isinstance(arm, inspect.LiteralType):
                    value = _fit(value, arm, key)
        case inspect.VarTupleType() | inspect.ListType() if isinstance(value, list | tuple):
            return [_fit(element, kind.item_type, key) for element in value]
        case inspect.TupleType() if isinstance(value, list | tuple) and len(value) == len(kind.item_types):
            return [_fit(element, item, key) for element, item in zip(value, kind.item_types, strict=True)]
        case inspect.LiteralType():
            _check_choice(value, [kind], key)
        case inspect.IntType() if isinstance(value, float) and value.is_integer():
            return int(value)
        case inspect.FloatType() if isinstance(value, float) and not math.isfinite(value):
            raise BadRequest(f"expected a finite number, got {value}", key)
    return value


def _check_choice(value: Any, arms: Sequence[inspect.Type], key: str) -> None:
    """Reject a word that no arm of the union allows; true, false and null count as words.

    Where the arms are words alone, a number is refused with them, too.
    """
    literals = [literal for arm in arms if isinstance(arm, inspect.LiteralType) for literal in arm.values]
    words = [*map(str, literals)]
    if not words or value in (words if isinstance(value, str) else literals):
        return
    others = {type(arm) for arm in arms} - {inspect.LiteralType}
    may_be_other = others if value is None else others - {inspect.NoneType}
    if not isinstance(value, str) and (may_be_other or isinstance(value, list | tuple | Mapping)):
        return
    for arm in arms:
        if isinstance(arm, inspect.BoolType):
            words += ["true", "false"]
        elif isinstance(arm, inspect.NoneType):
            words.append("null")
    meant = BOOLEANS.get(str(value).lower())
    close = nearest(value, words) if isinstance(value, str) else ""
    hint = f"; did you mean {meant}?" if meant in words else close
    raise BadRequest(f"expected one of {', '.join(words)}, got {shown(value)}{hint}", key)


def _fit_fields(value: Mapping[str, Any], kind: inspect.DataclassType, key: str) -> dict[str, Any]:
    fields = {field.name: field for field in kind.fields}
    for name in value:
        if name not in fields:
            raise unknown(str(name), fields, key)
    for name, field in fields.items():
        if field.required and name not in value:
            raise BadRequest("a value is needed", _dotted(key, name))
    return {name: _fit(part, fields[name].type, _dotted(key, name)) for name, part in value.items()}


def _path(error: msgspec.ValidationError, fitted: Any, kind: type) -> list[str]:
    """The names and indices that lead to what msgspec found; it writes ``[...]`` for any key of a mapping."""
    names: list[str] = []
    for name in re.findall(r"\[\.\.\.\]|[^.\[\]`]+", str(error).partition(" - at `$")[2]):
        names.append(_failing_key(error, fitted, kind, names) if name == "[...]" else name)
    return names


def _failing_key(error: msgspec.ValidationError, fitted: Any, kind: type, names: Sequence[str]) -> str:
    """The key of the mapping at ``names`` whose value is at fault: the one that fails alike without the others."""

    def only(key: str, data: Any, names: Sequence[str]) -> Any:
        if not names:
            return {key: data[key]}
        if isinstance(data, Mapping):
            return {**data, names[0]: only(key, data[names[0]], names[1:])}
        at = int(names[0])
        return [*data[:at], only(key, data[at], names[1:]), *data[at + 1 :]]

    def fails_alike(key: str) -> bool:
        try:
            msgspec.convert(only(key, fitted, names), kind)
        except msgspec.ValidationError as again:
            return str(again) == str(error)
        return False

    mapping = fitted
    for name in names:
        mapping = mapping[name] if isinstance(mapping, Mapping) else mapping[int(name)]
    return next(str(key) for key in mapping if fails_alike(key))


def _refusal(
    error: msgspec.ValidationError, data: Any, kind: inspect.Type, key: str, names: Sequence[str], swept: bool
) -> BadRequest:
    """What msgspec found at ``names``, in the words of the config: the dotted key and the value that was given."""
    text = str(error).partition(" - at `$")[0]
    at = _dotted(key, ".".join(name for name in names if not name.isdecimal()))
    cause = error.__cause__
    if isinstance(cause, BadRequest):
        return BadRequest(str(cause.args[0]), _dotted(at, cause.key))
    if isinstance(cause, ValueError):
        return BadRequest(str(cause), at)
    kinds = _arms(kind)
    for name in names:
        data = data[int(name)] if isinstance(data, list | tuple) else data[name]
        kinds = [inner for arm in kinds for inner in _inside(arm, name)]
    wanted = text.replace("`", "").replace("array", _list(kinds)).split(", got ")[0]
    if "object" in wanted:
        wanted = wanted.replace(" | ", " or ").replace("object", _mapping(kinds))
    return BadRequest(
        f"{wanted[0].lower()}{wanted[1:]}, got {shown(data)}{_meant(data, kinds, at if swept else '')}", at
    )


def _meant(value: Any, kinds: Sequence[inspect.Type], key: str) -> str:
    """The end of a refusal: what a value of no such type may have meant; else nothing. ``key``: one of a sweep."""
    if isinstance(value, str) and any(isinstance(arm, inspect.BoolType) for arm in kinds):
        return f"; did you mean {BOOLEANS[value.lower()]}?" if value.lower() in BOOLEANS else ""
    scalars, lists = (int, float, bool, str), inspect.ListType | inspect.VarTupleType | inspect.TupleType
    several = isinstance(value, list | tuple) and bool(value) and all(isinstance(item, scalars) for item in value)
    if key and several and not any(isinstance(arm, lists) for arm in kinds):
        each = ",".join(item if isinstance(item, str) else json.dumps(item) for item in value)
        return f"; to run each, --multirun {key}={each}, in Python evorl.sweep"
    return ""


def _arms(kind: inspect.Type) -> list[inspect.Type]:
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]


def _inside(kind: inspect.Type, name: str) -> list[inspect.Type]:
    """The type of the item at a name, or an index, within a value of this type."""
    match kind:
        case inspect.DataclassType():
            return [arm for field in kind.fields if field.name == name for arm in _arms(field.type)]
        case inspect.VarTupleType() | inspect.ListType():
            return _arms(kind.item_type)
        case inspect.TupleType():
            return _arms(kind.item_types[int(name)])
        case inspect.DictType():
            return _arms(kind.value_type)
    return []


def _list(kinds: Iterable[inspect.Type]) -> str:
    """The kinds that a config writes as [...], with the types of their items."""
    for kind in kinds:
        if isinstance(kind, inspect.TupleType):
            return f"a list [{', '.join(_word(item) for item in kind.item_types)}]"
        if isinstance(kind, inspect.VarTupleType | inspect.ListType):
            return f"a list [{_word(kind.item_type)}, ...]"
    return "a list"


def _word(kind: inspect.Type) -> str:
    """A type in one or a few words."""
    match kind:
        case inspect.UnionType():
            return " or ".join(map(_word, kind.types))
        case inspect.LiteralType():
            return " or ".join(map(str, kind.values))
        case inspect.DictType() | inspect.DataclassType():
            return "mapping"
        case inspect.VarTupleType() | inspect.TupleType() | inspect.ListType():
            return "list"
        case inspect.NoneType():
            return "null"
    return type(kind).__name__.removesuffix("Type").lower()


def _mapping(kinds: Iterable[inspect.Type]) -> str:
    """The kinds that a config writes as {...}, with their keys."""
    names = [field.name for kind in kinds if isinstance(kind, inspect.DataclassType) for field in kind.fields]
    return f"a mapping with the keys {', '.join(names)}" if names else "a mapping"


def _dotted(*names: str) -> str:
    return ".".join(name for name in names if name)
