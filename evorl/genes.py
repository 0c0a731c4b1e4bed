"""Which config values evolve: a tree of ranges becomes genes, and genes become an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from typing import Any, get_type_hints

from msgspec import inspect

from evorl.ec.space import Gene, Value
from evorl.experiment import Experiment
from evorl.util.errors import BadRequest
from evorl.util.typed import typed, unknown

ROOMS = ("mdp", "rl")
"""The rooms whose keys may evolve; what is outside them belongs to the run, not to an individual."""
FIXED = ("rl.net", "rl.members", "rl.threads", "rl.compile", "mdp.budget")
"""Keys that an individual cannot have for its own: weights that it inherits must fit, and bits must not change."""
FROZEN = (
    "rl.slots", "rl.horizon", "rl.minibatch", "rl.clip", "rl.value_clip", "rl.max_grad_norm", "rl.adam_epsilon",
    "rl.normalize_advantage",
)  # fmt: skip
"""Keys that a compiled gradient step holds in its code."""
LEAF = {"low", "high", "log", "choices"}


def genes(tree: Mapping[str, Any], experiment: Experiment) -> tuple[Gene, ...]:
    """The genes of ``ec.genes``. Raises `BadRequest` for a key that does not exist, and a range that it cannot have."""
    found = tuple(_gene(name, leaf, experiment) for name, leaf in _leaves(tree, ""))
    for gene in found:
        ends = gene.choices or (gene.value(gene.bounds[0]), gene.value(gene.bounds[1]))
        for end in ends:
            _checked(experiment, gene.name, end)
    return found


def with_values(experiment: Experiment, values: Mapping[str, Value]) -> Experiment:
    """The experiment of an individual. Raises `BadRequest` for a combination that is impossible."""
    changed: Experiment = reduce(lambda now, one: _replaced(now, one[0].split("."), one[1]), values.items(), experiment)
    return changed


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, node in tree.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(node, Mapping) and not LEAF & {*node}:
            yield from _leaves(node, key)
        else:
            yield key, node


def _gene(name: str, leaf: Any, experiment: Experiment) -> Gene:
    at = f"ec.genes.{name}"
    room = name.partition(".")[0]
    if room not in ROOMS:
        raise unknown(room, ROOMS, "ec.genes")
    for key in FIXED:
        if f"{name}.".startswith(f"{key}."):
            raise BadRequest(f"{key} is the same for all individuals", at)
    if experiment.rl.compile and name in FROZEN:
        raise BadRequest("with rl.compile each of its values would be compiled anew, half a minute", at)
    kinds = _kinds(experiment, name.split("."), at)
    given = dict(leaf) if isinstance(leaf, Mapping) else {"low": leaf[0], "high": leaf[1]} if _pair(leaf) else {}
    for key in given:
        if key not in LEAF:
            raise unknown(str(key), sorted(LEAF), at)
    if "choices" in given and len(given) == 1 and isinstance(given["choices"], list | tuple) and given["choices"]:
        return Gene(name, choices=tuple(given["choices"]))
    if not {"low", "high"} <= {*given} or "choices" in given:
        raise BadRequest("a range is [low, high], {low, high, log} or {choices}", at)
    numbers = [kind for kind in kinds if isinstance(kind, inspect.IntType | inspect.FloatType)]
    if not numbers:
        raise BadRequest("is no number; give {choices: [...]}", at)
    try:
        return Gene(
            name, typed(given["low"], float, f"{at}.low"), typed(given["high"], float, f"{at}.high"),
            typed(given.get("log", False), bool, f"{at}.log"), all(isinstance(k, inspect.IntType) for k in numbers),
        )  # fmt: skip
    except ValueError as error:
        raise BadRequest(str(error), at) from None


def _pair(leaf: Any) -> bool:
    return isinstance(leaf, list | tuple) and len(leaf) == 2


def _kinds(node: Any, path: list[str], at: str) -> list[inspect.Type]:
    """What a key may hold. Raises `BadRequest` where there is none."""
    first, *rest = path
    if isinstance(node, Mapping):
        if first not in node or rest:
            raise unknown(first, list(node), at.rpartition(".")[0])
        return [inspect.FloatType()]
    names = [one.name for one in fields(node)]
    if first not in names:
        raise unknown(first, names, at[: at.rindex(f".{first}")])
    value = getattr(node, first)
    if rest:
        if not (is_dataclass(value) or isinstance(value, Mapping)):
            raise unknown(rest[0], [], at[: at.rindex(f".{rest[0]}")])
        return _kinds(value, rest, at)
    kind = inspect.type_info(get_type_hints(type(node), include_extras=True)[first])
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]


def _checked(experiment: Experiment, name: str, value: Value) -> None:
    """Raise `BadRequest` where a key cannot have a value."""
    path = name.split(".")
    try:
        with_values(experiment, {name: value})
        holder: Any = experiment
        for one in path[:-1]:
            holder = holder[one] if isinstance(holder, Mapping) else getattr(holder, one)
        if is_dataclass(holder):
            typed(value, get_type_hints(type(holder), include_extras=True)[path[-1]], name)
    except (BadRequest, ValueError) as error:
        reason = error.args[0] if isinstance(error, BadRequest) else error
        raise BadRequest(f"its range reaches {value}: {reason}", f"ec.genes.{name}") from None


def _replaced(node: Any, path: list[str], value: Value) -> Any:
    """A copy of nested dataclasses and mappings with another value at a path."""
    first, *rest = path
    old: Any = node[first] if isinstance(node, Mapping) else getattr(node, first)
    new = _replaced(old, rest, value) if rest else value
    if isinstance(node, Mapping):
        return {**node, first: new}
    return replace(node, **{first: new})
