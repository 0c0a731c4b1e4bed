"""What ``--help`` shows: every choice, and every key with its default and its meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import Template

from hydra._internal.hydra import Hydra
from omegaconf import DictConfig

from evorl.cli.descriptions import Meanings, meanings
from evorl.cli.overrides import require, written

_WIDTH = 16  # of the column of defaults; longer ones push their meaning aside


def page(hydra: Hydra, composed: DictConfig, words: Sequence[str], name: str) -> str:
    """The help for a command line of these ``words``, whose config is ``composed``."""
    found = [*rows(composed, meanings(hydra, composed, words, name))]
    width = max(len(key) for key, _, _ in found)
    lines = [f"{key:{width}}  {value:{_WIDTH}}  {meaning}".rstrip() for key, value, meaning in found]
    groups = hydra.format_config_groups(lambda group: not group.startswith("hydra"))
    return Template(composed.hydra.help.template).safe_substitute(
        APP_CONFIG_GROUPS=groups, CONFIG="\n".join([*lines, ""])
    )


def rows(node: DictConfig, known: Meanings, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Every key with its default, as a command line writes it, and its meaning; a block's own line has no default."""
    for name in map(str, node):
        key, child = f"{prefix}{name}", require(node, name)
        meaning, block = known.get(key, ("", True))
        if name == "_target_" or key == "hydra":
            continue
        if not isinstance(child, DictConfig) or not block:
            yield key, written(child), meaning
            continue
        if meaning:
            yield key, "", meaning
        yield from rows(child, known, f"{key}.")
