"""The choices of a config group: their names, files, and what a file's first comment says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from omegaconf import DictConfig

from evorl.cli.hydra_internals import ConfigDefault, Hydra, ObjectType, repository_of

PLUGIN = "plugin "
"""Before the name of a plugin, as who provides a folder of config files."""
_EXPLANATION = re.compile(r"[:;]| \((?!1\+1)|\. |\.$|, with | over a |, as | as in | that |, for ")


def options(hydra: Hydra, group: str) -> list[str]:
    """Return the choices of a group, without those in subfolders."""
    return repository_of(hydra).get_group_options(group, ObjectType.CONFIG) if group else []


def folders(hydra: Hydra, group: str) -> list[str]:
    """Return the subfolders of a group."""
    return repository_of(hydra).get_group_options(group, ObjectType.GROUP)


def choices_below(hydra: Hydra, group: str) -> list[str]:
    """Return every choice of a group; those in subfolders as folder/name."""
    inside = {folder: choices_below(hydra, f"{group}/{folder}") for folder in folders(hydra, group)}
    return [*options(hydra, group), *(f"{folder}/{name}" for folder, names in inside.items() for name in names)]


def files_of(hydra: Hydra, group: str, choice: str) -> Iterator[DictConfig]:
    """Yield the file of a choice, and those that it builds on."""
    file = repository_of(hydra).load_config(f"{group}/{choice}")
    if file is None:
        return
    yield cast(DictConfig, file.config)
    for entry in file.defaults_list or []:
        if isinstance(entry, ConfigDefault) and not entry.is_self():
            yield from files_of(hydra, group, str(entry.path))


def providers(hydra: Hydra, group: str, choice: str) -> list[str]:
    """Return who provides a file of a choice: ``plugin NAME`` for each plugin; the first provider's file counts."""
    sources = [source for source in repository_of(hydra).get_sources() if source.scheme() == "file"]
    return [source.provider for source in sources if Path(source.path, group, f"{choice}.yaml").is_file()]


def choice_of_class(hydra: Hydra, group: str, target: str | None) -> str:
    """Return the choice whose file names this class, the first by name; the class's own name where none does."""
    if target is None:
        return "none"
    for choice in sorted(options(hydra, group)):
        if next(files_of(hydra, group, choice)).get("_target_") == target:
            return choice
    return target.rpartition(".")[2]


def comment(hydra: Hydra, group: str, choice: str) -> str:
    """Return the first comment of a choice's file, as one line."""
    for source in repository_of(hydra).get_sources():
        if source.scheme() == "file" and (path := Path(source.path, group, f"{choice}.yaml")).is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            first = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
            return " ".join(line.lstrip("# ") for line in lines[:first] if not line.startswith("# @package"))
    return ""


def summary(hydra: Hydra, group: str, choice: str) -> str:
    """Return a few words on a choice: its comment up to the first sign that begins an explanation."""
    text = comment(hydra, group, choice)
    name, colon, rest = text.partition(": ")
    if colon and len(name.split()) == 1:  # the name of an algorithm, which the choice has as well
        text = rest
    text = _EXPLANATION.split(text, maxsplit=1)[0].strip().rstrip(",")
    text = re.sub(r"^(The|A|An) ", "", text)
    return text[:1].upper() + text[1:] if " " in text and "=" not in text.split()[0] else text


def needing(hydra: Hydra, group: str, extra: str) -> list[str]:
    """Return the choices of a group whose comment says that they need an extra of evorl."""
    return [choice for choice in options(hydra, group) if f"the extra {extra}." in comment(hydra, group, choice)]
