"""The command that turns run directories into tables, pictures and one page.

``python -m evorl.report RUN_DIR_OR_GLOB... out=DIR wandb=report``
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # start as the command evorl, which handles signals during start-up
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["report", *sys.argv[1:]]))

import glob
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evorl import __version__
from evorl.analysis.runs import RunRecord, find_runs, read_runs
from evorl.analysis.sweeps import PendingJob, pending_jobs, searches
from evorl.cli import config
from evorl.jobs import wandb_upload
from evorl.util import files
from evorl.util.errors import BadRequest, nearest

USAGE = "usage: python -m evorl.report RUN_DIR_OR_GLOB... [out=DIR] [wandb=report]   (--help tells more)"
HELP = f"""\
{USAGE.partition("   ")[0]}

RUN_DIR_OR_GLOB  a run, a folder of runs (of a sweep, say), or a pattern in quotes: 'runs/pong-*'; as many as you like
out      report  where the page, its pictures and tables go: a new or empty directory, or an older report
wandb            report: also as a W&B report, with the runs that it shows; TABLE.json of a reproduced table may be
                 named beside runs, or alone. Without a server wandb_report.json keeps it, and the same command sends it
project          W&B project of the report; null takes that of the runs
"""
KEYS = ("out", "wandb", "project")
MARK = "report.json"
"""The file that marks a directory as a report and lists the report's files."""


def main(words: Sequence[str] | None = None) -> int:
    """Run ``evorl.report`` with these arguments and return its exit code."""
    return config.exit_code(lambda: report(sys.argv[1:] if words is None else words))


def report(words: Sequence[str]) -> None:
    """Print the tables of the runs, write the report, and print where its page is. Raises `BadRequest`."""
    if {"-h", "--help"} & {*words}:
        print(HELP, end="")
        return
    words, to_wandb = wandb_upload.split(words)
    places, out = parse(words, alone=to_wandb is not None and bool(to_wandb.results))
    runs: Sequence[RunRecord] = []
    content: Mapping[str, bytes] = {}
    if places:
        runs, content = write_report(
            _run_directories(places), pending_jobs(places), searches(places), out
        )  # a run that is named twice counts once
        print(out / "index.html")
    else:
        _write(out, {})
    if to_wandb is not None:
        wandb_upload.send(to_wandb, runs, content, out)


def parse(words: Iterable[str], alone: bool = False) -> tuple[list[Path], Path]:
    """The directories to read, each with runs at or below it, and the output directory. Raises `BadRequest`.

    ``alone``: there may be no directory.
    """
    places: list[Path] = []
    out = Path("report")
    for word in words:
        if word.startswith("out="):
            out = _out(word.removeprefix("out="))
        else:
            places += _matching_directories(word)
            _run_directories(_matching_directories(word))
    if not places and not alone:
        raise BadRequest(f"no run directory given; {USAGE}")
    return places, _check_output(out)


def write_report(
    directories: Sequence[Path], jobs: Sequence[PendingJob], searched: Sequence[Path], out: Path
) -> tuple[list[RunRecord], dict[str, bytes]]:
    """Read the runs, print their tables, and write (or refresh) their report; return the runs and the files.

    It also lists jobs of sweeps that have not started, and draws searches over jobs. Nothing is written before
    everything is computed.
    """
    from evorl.analysis.population import read_search_log
    from evorl.analysis.terminal_tables import print_tables

    runs, left_out = read_runs(directories)
    for note in left_out:
        print(f"evorl: {note}", file=sys.stderr)
    print_tables(runs, jobs)
    sys.stdout.flush()
    from evorl.analysis.report import (
        compose,  # imports Matplotlib and draws for seconds, while the user reads the tables
    )

    content = compose(runs, jobs, left_out, [one for one in map(read_search_log, searched) if one])
    _write(out, content)
    return runs, content


def _write(out: Path, content: Mapping[str, bytes]) -> None:
    """Write the files of a report, and remove those of an earlier one that are no longer part of it."""
    out.mkdir(parents=True, exist_ok=True)
    stale = set(_files_of_report(out)) - set(content)
    files.write_json(out / MARK, {"report": __version__, "files": sorted(content)})
    for name, data in content.items():
        files.replace(out / name, data)
    for name in stale:
        (out / name).unlink(missing_ok=True)


def _run_directories(places: Sequence[Path]) -> list[Path]:
    """The runs at or below these directories. Raises `BadRequest` if there is none."""
    try:
        return find_runs(places)
    except BadRequest:
        if jobs := pending_jobs(places):
            raise BadRequest(f"none of the {len(jobs)} jobs in {places[0]} has begun") from None
        raise


def _matching_directories(word: str) -> list[Path]:
    """The directories that a word of the command line names, or that match it as a pattern."""
    names = [word] if os.path.exists(word) else sorted(glob.glob(word, recursive=True))
    if not names:
        raise _unknown(word)
    return [Path(name) for name in names if len(names) == 1 or Path(name).is_dir()]


def _out(value: str) -> Path:
    if not value:
        raise BadRequest("needs a directory", key="out")
    return Path(value)


def _check_output(out: Path) -> Path:
    """Raise `BadRequest` unless ``out`` is new, empty or an older report."""
    if os.path.lexists(out) and not _is_report(out) and not (out.is_dir() and not any(out.iterdir())):
        raise BadRequest(f"{out} exists and is no report of ours; choose another directory", key="out")
    above = next(parent for parent in [out.absolute(), *out.absolute().parents] if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise BadRequest(f"cannot make {out}: {above} is not a directory one may write in", key="out")
    return out


def _is_report(out: Path) -> bool:
    return (out / MARK).is_file() and "report" in _mark(out)


def _mark(out: Path) -> dict[str, Any]:
    try:
        found = json.loads((out / MARK).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _files_of_report(out: Path) -> list[str]:
    """The file names that an earlier report wrote here."""
    return [name for name in _mark(out).get("files", []) if isinstance(name, str) and re.fullmatch(r"\w[\w.]*", name)]


def _unknown(word: str) -> BadRequest:
    key, equals, _ = word.partition("=")
    if equals and re.fullmatch(r"[\w.+~-]+", key):
        return BadRequest(f"unknown key{nearest(key, KEYS)}; the keys are {', '.join(KEYS)}", key=key)
    above = Path(word).parent
    names = [str(above / name) for name in os.listdir(above)] if above.is_dir() else []
    return BadRequest(f"{word}: no such run directory{nearest(word, names)}")
