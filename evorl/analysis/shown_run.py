"""The best run of a world as a page shows it: its film, and its config beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evorl.analysis.groups import IGNORED_GROUPS, format_value
from evorl.analysis.runs import RunRecord
from evorl.util import command, run_directory

MOST_BYTES = 2_000_000
"""Largest film within a page; of a larger one the page names the file."""
KINDS = {".mp4": "video/mp4", ".gif": "image/gif"}
FOLDER = "videos"
FIRST = ("mdp", "rl", "ec", "cluster")
"""Config groups whose chosen files stand first."""
_NAME = re.compile(r"(\d+)(-\d+)?(-best|-median)?\.(mp4|gif)")


@dataclass(frozen=True, kw_only=True)
class ShownRun:
    """A run with its film and config."""

    name: str
    film: tuple[str, bytes] | None
    """Media type and content of its newest film; None if it has none, or one that is too large."""
    caption: str
    """What the film is, or how to get one."""
    config: Sequence[Mapping[str, str]]
    """A row for each key, but those of records: key, value."""


def shown_run(run: RunRecord, name: str, keys: Sequence[str] = ()) -> ShownRun:
    """Return what a page shows of a run. ``keys``, those that vary, stand first in its config."""
    film, caption = None, ""
    path = newest_film(run.directory)
    if path is None:
        trust = [word for word in run.words if word.startswith("trust=")]
        filming = command.evaluate(f"run={run.directory}", "checkpoint=best", "video=best", *trust)
        caption = f"No film yet: {filming}" if run.has_learner else ""
    else:
        caption = f"{path.name} of run {name}"
        film = _read(path)
        if film is None:
            caption += f", too large for this page: {path}"
    return ShownRun(name=name, film=film, caption=caption, config=_config(run, keys))


def newest_film(directory: Path) -> Path | None:
    """The film of the newest step in ``videos/``, that of the best episode first; None without films."""
    shown = []
    with suppress(OSError):
        for entry in run_directory.entries(directory, FOLDER):
            if (parts := _NAME.fullmatch(entry.name)) and entry.kind == "file":
                shown.append((int(parts[1]), parts[3] == "-best", entry.name))
    return directory / FOLDER / max(shown)[2] if shown else None


def _read(path: Path) -> tuple[str, bytes] | None:
    """The media type and content of a film; None if it is too large, or no file that can be read."""
    with suppress(OSError):
        return KINDS[path.suffix], bytes(run_directory.read(path.parent.parent, f"{FOLDER}/{path.name}", MOST_BYTES))
    return None


def _config(run: RunRecord, keys: Sequence[str]) -> list[dict[str, str]]:
    chosen = {group: run.choices[group] for group in FIRST if group in run.choices}
    rest = {
        key: format_value(value)
        for key, value in run.config.items()
        if not key.endswith("_target_") and key.partition(".")[0] not in IGNORED_GROUPS
    }
    known = rest | chosen
    every = {key: known[key] for key in [*keys, *chosen, *rest] if key in known}
    return [{"key": key, "value": value} for key, value in every.items()]
