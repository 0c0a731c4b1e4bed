"""The config of a run that goes on or is repeated: which keys the command line may change, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from evorl.cli import config
from evorl.cli.hints import value_of
from evorl.cli.hydra_internals import Hydra
from evorl.cli.overrides import FOLDERS, format_value, lookup, parse
from evorl.cli.refusals import Keys, unknown_key
from evorl.jobs import job
from evorl.util.errors import BadRequest

Opened = Callable[[], AbstractContextManager[Hydra]]
"""Opens Hydra's composer over the config folders of the command line."""
AMENDABLE = ("budget", "record", "cluster")
"""Keys that a resumed run may change: they do not change what the run writes."""
LEARNERS = "rl.learners"
"""The key of the number of learners, which it may change as well: what changes is the last bits of sums."""
DECLARED = {"evorl.mdp.remote.Remote": ("mdp.time_limit",)}
"""Keys that it may change as well, by the world: they declare what a game does by itself."""
GENES = "ec.genes"
"""The key of genes, which a resumed population may change as well."""


def amended_config(
    past: dict[str, Any], directory: Path, words: Sequence[str], opened: Opened, does: str, genes: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config of a run with the changes that a resume allows, and its choices of files.

    ``words`` are those of the command line. ``does`` names the action in errors; ``genes`` says whether these may
    change too. Raises `BadRequest` for any other changed key.
    """
    amended = OmegaConf.create(past)
    choices = job.choices(directory, does.split()[0])
    in_order = sorted(parse(words), key=lambda override: override.key_or_group != "cluster")  # a choice before its keys
    for override in in_order:
        key, value = override.key_or_group, override.value()
        if key in ("resume", "replay", "trust"):
            continue
        if key in FOLDERS or key.startswith("hydra."):
            raise BadRequest(f"has no place here: {does} a run as it is", key)
        if genes and f"{key}.".startswith(f"{GENES}.") and not override.is_sweep_override():
            _amend_genes(amended, choices, override, opened)
            continue
        if override.is_delete() or override.is_sweep_override():
            raise BadRequest(f"takes one value here: {key}=VALUE", key)
        if key == "init" and value is not None:
            raise BadRequest(f"starts a new run, and {does} an old one: give one of the two", key)
        if key == "cluster" and value != choices[key]:
            amended[key], choices[key] = _cluster(value, opened), value
        if key in choices:
            old: Any = choices[key]
        else:
            _check_key(amended, choices, override, opened)
            old, value = OmegaConf.select(amended, key), _resolved(amended, key, value)
        declared = key in DECLARED.get(str(OmegaConf.select(amended, "mdp._target_")), ())
        if (key.partition(".")[0] in AMENDABLE and key not in choices) or (genes and (key == LEARNERS or declared)):
            OmegaConf.update(amended, key, value)
        elif old != value:
            raise BadRequest(f"is {old} in that run, and stays; init={directory} starts a new run from its policy", key)
    data = OmegaConf.to_container(amended, resolve=False)
    assert isinstance(data, dict)
    return {str(key): value for key, value in data.items()}, choices


def _resolved(data: DictConfig, key: str, value: Any) -> Any:
    """The value of a word with ``${...}`` resolved in a run's config, which holds values alone."""
    if "${" not in str(value):
        return value
    tried = deepcopy(data)
    OmegaConf.update(tried, key, value, merge=False, force_add=True)
    current = OmegaConf.select(tried, key)
    return OmegaConf.to_container(current, resolve=True) if OmegaConf.is_config(current) else current


def _amend_genes(data: DictConfig, choices: dict[str, Any], override: Override, opened: Opened) -> None:
    """Apply one word about genes to a run's config: another range, a new gene (plus), or a removed one (~)."""
    key = override.key_or_group
    if not data.ec:
        raise BadRequest("that run is no evolution", key)
    exists = OmegaConf.select(data, key) is not None
    if override.is_add() and exists:
        raise BadRequest(f"is there already; write {key}={format_value(override.value())} without the plus", key)
    if not override.is_add():
        _check_key(data, choices, override, opened)
    if override.is_delete() and key != GENES:
        parent, _, name = key.rpartition(".")
        del OmegaConf.select(data, parent)[name]
    else:
        value = {} if override.is_delete() else _resolved(data, key, override.value())
        OmegaConf.update(data, key, value, merge=False, force_add=True)


def _check_key(data: DictConfig, choices: dict[str, Any], override: Override, opened: Opened) -> None:
    """Raise `BadRequest` for a key that the config of a run does not have."""
    if lookup(data, override.key_or_group) is None:
        with opened() as hydra:
            raise unknown_key(Keys(hydra, data, choices), override.key_or_group, value_of(override))


def _cluster(choice: Any, opened: Opened) -> Any:
    """The config of a choice of conf/cluster."""
    with opened() as hydra:
        return config.resolved(config.compose(hydra, [f"cluster={format_value(choice)}"]))["cluster"]
