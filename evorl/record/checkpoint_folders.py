"""The folders of checkpoints: how one gets its name and takes another's place, and which are kept.

A checkpoint is written as ``.<step>.partial`` and renamed once it is complete. An older one of the same step is called
``.<step>.replaced`` before, and counts under this name until the new one is there. So whenever a process is killed,
one of them is found, also by who may not write in the directory.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from pathlib import Path

from evorl.util import run_directory

HOME = "checkpoints"
_STEP = "0|[1-9][0-9]{0,15}"
_REPLACED = re.compile(rf"\.({_STEP})\.replaced")
_COUNTED = re.compile(rf"({_STEP})|{_REPLACED.pattern}")
_LEFTOVER = re.compile(r"\.(\d+|latest)\.(partial|removed|replaced)")
_log = logging.getLogger("evorl")


def steps(run_dir: Path) -> list[int]:
    """Return the steps that have a checkpoint directory, ascending. The checkpoints are not verified.

    A link is no checkpoint. Raises `Unsafe` if ``checkpoints`` itself is a link.
    """
    try:
        entries = run_directory.entries(run_dir, HOME)
    except FileNotFoundError:
        return []
    found = [_COUNTED.fullmatch(entry.name) for entry in entries if entry.kind == "folder"]
    return sorted({int(name[1] or name[2]) for name in found if name})


def place(run_dir: Path, step: int) -> str:
    """The folder of a checkpoint: its own, or what an interrupted save has left of it."""
    own, replaced = f"{HOME}/{step}", f"{HOME}/.{step}.replaced"
    interrupted = run_directory.is_folder(run_dir, replaced) and not run_directory.is_folder(run_dir, own)
    return replaced if interrupted else own


def put(run_dir: Path, temporary: str, step: int) -> None:
    """Give a complete checkpoint its name. One that has the name keeps another, under which it counts, until then."""
    target, replaced = f"{HOME}/{step}", f"{HOME}/.{step}.replaced"
    if run_directory.is_link(run_dir, target):
        aside = run_directory.set_aside(run_dir, target, "link")
        _log.warning("%s was a link, which is kept as %s", run_dir / target, aside)
    if there := run_directory.exists_at_all(run_dir, target):
        run_directory.rename(run_dir, target, replaced)
    run_directory.rename(run_dir, temporary, target)
    run_directory.sync(run_dir, HOME)
    if there:
        run_directory.remove(run_dir, replaced)


def tidy(run_dir: Path) -> None:
    """Remove what interrupted saves left. A checkpoint that was not replaced after all gets its name back."""
    for entry in run_directory.entries(run_dir, HOME):
        name, old = f"{HOME}/{entry.name}", _REPLACED.fullmatch(entry.name)
        if old is None or run_directory.is_folder(run_dir, f"{HOME}/{old[1]}"):
            if _LEFTOVER.fullmatch(entry.name):
                run_directory.remove(run_dir, name)
        elif not run_directory.exists_at_all(run_dir, f"{HOME}/{old[1]}"):
            run_directory.rename(run_dir, name, f"{HOME}/{old[1]}")


def prune(run_dir: Path, step: int, keep: int, best: int | None) -> None:
    # A checkpoint beyond this step is damaged, else the run would have resumed there: it does not count as kept.
    reached = [old for old in steps(run_dir) if old <= step]
    for old in reached[:-keep]:
        if old != best:
            _discard(run_dir, str(old))


def _discard(run_dir: Path, name: str) -> None:
    """Remove a checkpoint. It is renamed first, so an interruption leaves no partial checkpoint."""
    if run_directory.exists_at_all(run_dir, f"{HOME}/{name}"):
        run_directory.rename(run_dir, f"{HOME}/{name}", f"{HOME}/.{name}.removed")
        run_directory.remove(run_dir, f"{HOME}/.{name}.removed")


def tell_of_links(run_dir: Path) -> None:
    """Warn of each checkpoint that is a link, since none is followed: somebody may have moved it elsewhere."""
    with suppress(FileNotFoundError):
        links = [entry.name for entry in run_directory.entries(run_dir, HOME) if entry.kind == "link"]
        if links:
            _log.warning("%s: links are not followed, and left alone: %s", run_dir / HOME, ", ".join(links))
