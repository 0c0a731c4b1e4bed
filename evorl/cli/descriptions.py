"""What keys mean: the comments beside them in the config files.

Of several files the first one that knows a key says it; those that only change a default, such as the ones of
conf/tuned, need not repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from hydra._internal.hydra import Hydra
from hydra.types import RunMode
from omegaconf import DictConfig

Meanings = dict[str, tuple[str, bool]]
"""By dotted key: the comment, and whether the file writes a block of keys below it."""


def meanings(hydra: Hydra, composed: DictConfig, words: Sequence[str], name: str) -> Meanings:
    """What the files of a config say of its keys, the first one that knows a key."""
    homes = [Path(one.path) for one in composed.hydra.runtime.config_sources if one.schema == "file"]
    found: Meanings = {}
    for one in hydra.config_loader.compute_defaults_list(name, [*words], RunMode.MULTIRUN).defaults:
        path = next((path for home in homes if (path := home / f"{one.config_path}.yaml").is_file()), None)
        for key, comment, block in _comments(path.read_text(), one.package or "") if path else ():
            known, was_block = found.get(key, ("", block))
            found[key] = (known or comment, was_block)
    return found


def _comments(text: str, package: str) -> Iterator[tuple[str, str, bool]]:
    """Every dotted key of a YAML file with the comment in its line, and whether a block of keys follows."""
    yield from _walk(yaml.compose(text), text.splitlines(), f"{package}." if package else "")


def _walk(node: yaml.Node | None, lines: list[str], prefix: str) -> Iterator[tuple[str, str, bool]]:
    for name, value in node.value if isinstance(node, yaml.MappingNode) else ():
        inline = _inline(value)
        mark = (value if inline else name).end_mark
        comment = re.search(r"\s#\s*(.*)", lines[mark.line][mark.column :])
        block = isinstance(value, yaml.MappingNode) and not inline
        yield f"{prefix}{name.value}", comment[1] if comment else "", block
        if block:
            yield from _walk(value, lines, f"{prefix}{name.value}.")


def _inline(value: yaml.Node) -> bool:
    """Whether a value ends in the line that its comment stands in; else that is the line of its key."""
    if isinstance(value, yaml.CollectionNode):
        return bool(value.flow_style)
    return bool(value.value) and value.style not in ("|", ">")
