"""What to type for words of other suites: keys at the top and below a group, and names of choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.override_parser.types import Override

from evorl.cli import foreign_choices
from evorl.cli.foreign_words import renamed, translate
from evorl.cli.groups import choices_below, files_of, needing, options
from evorl.cli.hydra_internals import Hydra
from evorl.util.errors import BadRequest, one_edit

KINDS = ("rl", "ec", "mdp", "cluster", "opponents")
"""Groups of which a name may be a choice of another one."""


def check_foreign(hydra: Hydra, override: Override, words: Sequence[Override]) -> None:
    """Raise `BadRequest` for a key of another suite, with evorl's words. ``words`` are all of the command line."""
    chosen = [str(each.value()) for each in words if each.key_or_group == "rl" and not each.is_sweep_override()]
    algorithm = chosen[-1] if chosen and chosen[-1] in options(hydra, "rl") else "ppo"
    keys = {f"rl.{key!s}" for file in files_of(hydra, "rl", algorithm) for key in file}

    def has(key: str) -> bool:
        return not key.startswith("rl.") or ".".join(key.split(".")[:2]) in keys

    if translation := translate(override.key_or_group, value_of(override), options(hydra, "mdp"), has):
        raise BadRequest(f"unknown key; in evorl this is {translation}", override.key_or_group)


def below(key: str, value: str, has: Callable[[str], bool]) -> str:
    """Return the hint for a word of another suite below a group (``rl.n_steps``); an empty string for any other word.

    ``has`` says whether the run has a key.
    """
    name = key.partition(".")[2]
    for word in dict.fromkeys((name, name.rpartition(".")[2], name.partition(".")[0])):
        meant = renamed(word, has)
        if meant not in (None, key) and has(str(meant)):
            return f"; did you mean {meant}?"
        if meant is None and (translation := translate(word, value, (), has)):
            return f"; in evorl this is {translation}"
    return ""


def in_place_of(hydra: Hydra, group: str, name: str) -> str | None:
    """Return what to type for a name that is no choice of a group, such as rl=rainbow; None if nothing is known."""
    others = [f"{kind}={name}" for kind in KINDS if kind != group and name in options(hydra, kind)]
    if group not in KINDS or others:
        return others[0] if others else None
    if group in ("rl", "ec"):
        return foreign_choices.algorithm(name) or (f"+experiment={name}" if _experiment(hydra, name) else None)
    if group != "mdp":
        return None
    files: dict[str, Any] = {choice: next(files_of(hydra, group, choice), {}) for choice in options(hydra, group)}
    ids = {str(file.get("id")): choice for choice, file in files.items()}
    return foreign_choices.world(name, ids, lambda extra: needing(hydra, group, extra))


def for_word(hydra: Hydra, word: str) -> str | None:
    """Return what to type for a word without a key that names a choice, such as cartpole; None if it names none."""
    kinds = ("", "rl", "mdp") if re.fullmatch(r"[\w/-]+", word) else ("",)  # a name with a dot may be a file's
    if meant := next(filter(None, (in_place_of(hydra, kind, word) for kind in kinds)), None):
        return meant
    choices = {choice: kind for kind in reversed(KINDS) for choice in options(hydra, kind)}
    return next((f"{choices[choice]}={choice}" for choice in choices if one_edit(word, choice)), None)


def _experiment(hydra: Hydra, name: str) -> bool:
    return name in choices_below(hydra, "experiment")


def value_of(override: Override) -> str:
    """The value of a word, as it was written."""
    return str(override.input_line).partition("=")[2]
