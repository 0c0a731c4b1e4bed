"""Descriptions of config keys: the comments beside them in the config files.

If several files contain a key, the first file in the defaults list gives its description. Files that only change a
default, such as those of conf/tuned, need no comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from hydra.types import RunMode
from omegaconf import DictConfig

from evorl.cli.hydra_internals import Hydra

Descriptions = dict[str, tuple[str, bool]]
"""By dotted key: the comment, and whether the key holds a block of keys."""


def descriptions(hydra: Hydra, composed: DictConfig, words: Sequence[str], name: str) -> Descriptions:
    """Collect the comment of every key from the files that a config is composed of."""
    homes = [Path(source.path) for source in composed.hydra.runtime.config_sources if source.schema == "file"]
    read: Descriptions = {}
    for default in hydra.config_loader.compute_defaults_list(name, [*words], RunMode.MULTIRUN).defaults:
        path = next((path for home in homes if (path := home / f"{default.config_path}.yaml").is_file()), None)
        for key, comment, block in _comments(path.read_text(encoding="utf-8"), default.package or "") if path else ():
            known, was_block = read.get(key, ("", block))
            read[key] = (known or comment, was_block)
    return read


def _comments(text: str, package: str) -> Iterator[tuple[str, str, bool]]:
    """Yield every dotted key of a YAML file, the comment in its line, and whether it holds a block of keys."""
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
    """Whether the comment is in the line where the value ends; otherwise it is in the line of the key."""
    if isinstance(value, yaml.CollectionNode):
        return bool(value.flow_style)
    return bool(value.value) and value.style not in ("|", ">")
