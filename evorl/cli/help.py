"""The texts of ``--help``: every choice, and every key with its default and description; and of ``--list``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import Template

from omegaconf import DictConfig

from evorl.cli.descriptions import Descriptions, descriptions
from evorl.cli.groups import choices_below, folders, options, summary
from evorl.cli.hydra_internals import Hydra
from evorl.cli.overrides import FOLDERS, TUNED, format_value, unresolved

TOLD = ("mdp", "rl", "ec", "opponents")
"""Groups whose choices are listed one by one."""
_WIDTH = 16  # of the column of defaults; a longer default shifts its description


def help_page(hydra: Hydra, composed: DictConfig, words: Sequence[str], name: str) -> str:
    """Return the help text for the command line ``words``, whose composed config is ``composed``."""
    listed = [*rows(composed, descriptions(hydra, composed, words, name))]
    width = max(len(key) for key, _, _ in listed)
    lines = [f"{key:{width}}  {value:{_WIDTH}}  {description}".rstrip() for key, value, description in listed]
    groups = "\n".join(line for group in folders(hydra, "") for line in _choices(hydra, group))
    return Template(composed.hydra.help.template).safe_substitute(
        APP_CONFIG_GROUPS=groups, CONFIG="\n".join([*lines, ""])
    )


def choices_page(hydra: Hydra) -> str:
    """Return the text of ``--list``: every choice of every group, one in a line, as a command line writes it."""
    words = {
        f"{'+' if group in FOLDERS else ''}{group}={choice}": summary(hydra, group, choice)
        for group in folders(hydra, "")
        if group != "hydra"
        for choice in choices_below(hydra, group)
    }
    width = max(map(len, words))
    return "\n".join(f"{word:{width}}  {text}".rstrip() for word, text in words.items())


def _choices(hydra: Hydra, group: str) -> list[str]:
    """The lines about a group: its choices, and a few words on each world, algorithm and evolution."""
    names = options(hydra, group)
    if group == "hydra":
        return []
    if group == TUNED:
        return [f"{group}: {len(names)} pairs of world and algorithm, each taken by itself; ~{TUNED} leaves it out", ""]
    inside = {folder: len(choices_below(hydra, f"{group}/{folder}")) for folder in folders(hydra, group)}
    shown = [*names, *(f"{folder}/... ({count}: +{group}={folder} lists them)" for folder, count in inside.items())]
    wide = max(map(len, names), default=0)
    lines = [f"  {name:{wide}}  {summary(hydra, group, name)}".rstrip() for name in names] if group in TOLD else []
    return [f"{group}: {', '.join(shown)}", *lines, ""]


def rows(node: DictConfig, known: Descriptions, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield every key, its default as a command line writes it, and its description; a block has no default."""
    for name in map(str, node):
        key, child = f"{prefix}{name}", unresolved(node._get_node(name))
        description, block = known.get(key, ("", True))
        if name == "_target_" or key == "hydra":
            continue
        if not isinstance(child, DictConfig) or not block:
            yield key, format_value(child), description
            continue
        if description:
            yield key, "", description
        yield from rows(child, known, f"{key}.")
