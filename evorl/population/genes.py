"""Which config values evolve: a tree of ranges becomes genes, and genes become an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from typing import Any, cast, get_type_hints

from msgspec import inspect

from evorl.ec.reward import REWARD
from evorl.ec.space import Gene, Value
from evorl.mdp.core import Spec, World
from evorl.training.experiment import Experiment
from evorl.training.train import spec
from evorl.util.errors import BadRequest
from evorl.util.typed import type_info, typed, unknown

GROUPS = ("mdp", "rl")
"""The config groups whose keys may evolve; all other keys belong to the run, not to an individual."""
FIXED = (
    "rl.net",
    "rl.policies",
    "rl.critic_activation",
    "rl.normalize_inputs",
    "rl.members",
    "rl.threads",
    "rl.learners",
    "rl.compile",
    "rl.optimizer",
    "rl.capacity",
    "rl.compress",
    "rl.sampling",
    "rl.replay.queue",
    "rl.replay.circular",
    "rl.replay.uniform",
    "rl.replay.elite",
    "rl.replay.attentive",
    "rl.replay.prioritized.capacity",
    "rl.projection",
    "rl.dueling",
    "rl.noisy",
    "rl.distribution",
    "rl.atoms",
    "rl.support",
    "rl.rescale",
    "mdp.budget",
)
"""Keys that must be the same for all individuals: what they inherit must fit, and bits must not change."""
FROZEN = (
    "rl.slots", "rl.horizon", "rl.minibatch", "rl.clip", "rl.value_clip", "rl.max_grad_norm", "rl.adam_epsilon",
    "rl.normalize_advantage", "rl.batch", "rl.tau", "rl.target_noise", "rl.target_clip", "rl.target_entropy",
    "rl.learn_alpha", "rl.double", "rl.huber", "rl.reduction",
    "rl.rmsprop_epsilon", "rl.rmsprop_decay", "rl.correction", "rl.worker_clip",
    "rl.rho_bar", "rl.c_bar", "rl.rho_pg_bar", "rl.clone_policy", "rl.clone_value", "rl.clone_kl", "rl.clone_error",
    "rl.clone_on", "rl.kl_mask", "rl.kl_mask_to",
)  # fmt: skip
"""Keys that a compiled gradient step holds in its code."""
LEAF = {"low", "high", "log", "choices"}


def genes(tree: Mapping[str, Any], experiment: Experiment) -> tuple[Gene, ...]:
    """The genes of ``ec.genes``. Raises `BadRequest` for a key that does not exist, and a range that it cannot have."""
    leaves = (pair for pair in _leaves(tree, experiment) if pair[1] != {} or not _keys(experiment, pair[0]))
    all_genes = [_gene(name, leaf, experiment) for name, leaf in leaves]
    usual = spec(experiment.mdp) if any(_is_world_key(gene.name) for gene in all_genes) else None
    return tuple(_checked(gene, experiment, usual) for gene in all_genes)


def with_values(experiment: Experiment, values: Mapping[str, Value]) -> Experiment:
    """The experiment of an individual. Raises `BadRequest` for a combination that is impossible."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        if name.startswith(REWARD):
            continue
        *path, last = name.split(".")
        reduce(lambda node, key: node.setdefault(key, {}), path, tree)[last] = value
    changed: Experiment = _with_replaced(experiment, tree)
    return changed


def value_of(experiment: Experiment, name: str) -> Value:
    """Return the config's value at a dotted key."""
    node: Any = experiment
    for key in name.split("."):
        node = node[key] if isinstance(node, Mapping) else getattr(node, key)
    value: Value = node
    return value


def _leaves(tree: Mapping[str, Any], experiment: Experiment, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, node in tree.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        # the parameters of a world may have the names of a range's parts
        if isinstance(node, Mapping) and node and not (LEAF & {*node}) - _keys(experiment, key):
            yield from _leaves(node, experiment, key)
        else:
            yield key, node


def _keys(experiment: Experiment, name: str) -> set[str]:
    """The keys that a key holds. The removal of a gene (``~ec.genes...``) may leave it empty."""
    node: Any = experiment
    for key in name.split("."):
        node = node.get(key) if isinstance(node, Mapping) else getattr(node, key, None)
    if is_dataclass(node):
        return {field.name for field in fields(node)}
    return {*node} if isinstance(node, Mapping) else set()


def _gene(name: str, leaf: Any, experiment: Experiment) -> Gene:
    at = f"ec.genes.{name}"
    group = name.partition(".")[0]
    if group not in GROUPS:
        raise unknown(group, GROUPS, "ec.genes")
    for key in FIXED:
        if f"{name}.".startswith(f"{key}."):
            raise BadRequest(f"{key} is the same for all individuals", at)
    if experiment.rl.compile and name in FROZEN:
        raise BadRequest("with rl.compile each of its values would be compiled anew, half a minute", at)
    kinds = _kinds(experiment, name.split("."), at)
    options = dict(leaf) if isinstance(leaf, Mapping) else {"low": leaf[0], "high": leaf[1]} if _pair(leaf) else {}
    for key in options:
        if key not in LEAF:
            raise unknown(str(key), sorted(LEAF), at)
    if (
        "choices" in options
        and len(options) == 1
        and isinstance(options["choices"], list | tuple)
        and options["choices"]
    ):
        if not all(isinstance(choice, float | int | str | bool) for choice in options["choices"]):
            raise BadRequest("a choice is a number, a word, true or false", at)
        return Gene(name, choices=tuple(options["choices"]))
    if not {"low", "high"} <= {*options} or "choices" in options:
        raise BadRequest("a range is [low, high], {low, high, log} or {choices}", at)
    return _range(name, options, kinds, at)


def _range(name: str, options: Mapping[str, Any], kinds: list[inspect.Type], at: str) -> Gene:
    numbers = [kind for kind in kinds if isinstance(kind, inspect.IntType | inspect.FloatType)]
    if not numbers:
        raise BadRequest("is no number; give {choices: [...]}", at)
    whole = all(isinstance(kind, inspect.IntType) for kind in numbers)
    low, high = (typed(options[end], float, f"{at}.{end}") for end in ("low", "high"))
    for end in (low, high):
        if whole and end % 1:
            raise BadRequest(f"takes whole numbers, which {end:g} is not", at)
    try:
        return Gene(name, low, high, typed(options.get("log", False), bool, f"{at}.log"), whole)
    except ValueError as error:
        raise BadRequest(str(error), at) from None


def _pair(leaf: Any) -> bool:
    return isinstance(leaf, list | tuple) and len(leaf) == 2


def _kinds(node: Any, path: list[str], at: str) -> list[inspect.Type]:
    """The types that a key may hold. Raises `BadRequest` where there is no such key."""
    first, *rest = path
    if isinstance(node, Mapping):
        if first not in node or rest:
            raise unknown(first, list(node), at.rpartition(".")[0])
        return [type_info(type(node[first]))]
    names = [field.name for field in fields(node)]
    if first not in names:
        raise unknown(first, names, at[: at.rindex(f".{first}")])
    value = getattr(node, first)
    if rest:
        if not (is_dataclass(value) or isinstance(value, Mapping)):
            raise unknown(rest[0], [], at[: at.rindex(f".{rest[0]}")])
        return _kinds(value, rest, at)
    kind = type_info(get_type_hints(type(node), include_extras=True)[first])
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]


def _checked(gene: Gene, experiment: Experiment, usual: Spec | None) -> Gene:
    """The gene, with choices of its key's type. Raises `BadRequest` where its range includes an invalid value."""
    ends = gene.choices or (gene.value(gene.bounds[0]), gene.value(gene.bounds[1]))
    names = []
    for end in ends:
        try:
            names.append(_checked_value(experiment, gene.name, end))
            world = with_values(experiment, {gene.name: names[-1]}).mdp
            if usual is not None and _is_world_key(gene.name):
                _check_world(world, experiment.mdp, usual)
        except (BadRequest, ValueError) as error:
            reason = error.args[0] if isinstance(error, BadRequest) else error
            raise BadRequest(f"its range reaches {end}: {reason}", f"ec.genes.{gene.name}") from None
    return replace(gene, choices=tuple(names)) if gene.choices else gene


def _is_world_key(name: str) -> bool:
    return name.startswith("mdp.")


def _checked_value(experiment: Experiment, name: str, value: Value) -> Value:
    """A value converted to its key's type. Raises `BadRequest` for a wrong type, or a value out of bounds."""
    node: Any = experiment
    first, *rest = name.split(".")
    while rest and is_dataclass(getattr(node, first)):
        node, (first, *rest) = getattr(node, first), rest
    kind = get_type_hints(type(node), include_extras=True)[first]
    if not rest:
        return cast(Value, typed(value, kind, name))
    return cast(Value, typed({**getattr(node, first), rest[0]: value}, kind, name)[rest[0]])


def _check_world(world: World, own: World, usual: Spec) -> None:
    """Raise `BadRequest` for a world that cannot run here, or that the weights of the ``usual`` world do not fit."""
    if foreign := {root for _, root in world.imports()} - {root for _, root in own.imports()}:
        raise BadRequest(f"imports {foreign.pop()}, which the run's own world does not")
    try:
        world.ready()
        present = spec(world)
    finally:
        world.close()
    other = [field.name for field in fields(Spec) if getattr(present, field.name) != getattr(usual, field.name)]
    if other:
        raise BadRequest(f"its {' and '.join(other)} are not those of mdp, so that no policy fits both")


def _with_replaced(node: Any, tree: Mapping[str, Any]) -> Any:
    """A copy of nested dataclasses and mappings with other values, which their ``__post_init__`` checks together.

    Raises `BadRequest`."""
    new = {}
    for name, branch in tree.items():
        old = node[name] if isinstance(node, Mapping) else getattr(node, name)
        try:
            new[name] = _with_replaced(old, branch) if isinstance(branch, dict) else branch
        except BadRequest as error:
            raise error.under(name) from None
    if isinstance(node, Mapping):
        return {**node, **new}
    try:
        return replace(node, **new)
    except BadRequest:
        raise
    except ValueError as error:  # as for keys on the command line
        raise BadRequest(str(error)) from None
