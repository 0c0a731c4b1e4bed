"""The command that turns run directories into tables, pictures and one page.

    python -m evorl.report RUN_DIR_OR_GLOB... [out=DIR] [by=KEY] [KEY=VALUE...]
    python -m evorl.report multirun/lr by=rl.lr latex=true
    python -m evorl.report multirun/lr live=true

RUN_DIR_OR_GLOB is a run, a folder of runs (of a sweep, say), or a pattern in quotes: 'runs/pong-*'; as many as you
like. The word latest is the run below runs/ that began last.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # start as the command evorl, which handles signals during start-up
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["report", *sys.argv[1:]]))

import glob
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from evorl import __version__
from evorl.analysis.runs import RunRecord, find_runs, read_runs
from evorl.analysis.sources import Choices, Sources, check_choices
from evorl.analysis.sweeps import pending_jobs, searches
from evorl.cli import config
from evorl.jobs import wandb_upload
from evorl.record import run_names
from evorl.reproduction import papers
from evorl.util import files, run_directory
from evorl.util.errors import BadRequest, nearest, one_edit
from evorl.util.names import check_can_be_made, check_names_directory, no_such_run
from evorl.util.text import printable, say

USAGE = "usage: python -m evorl.report RUN_DIR_OR_GLOB... [out=DIR] [by=KEY] [KEY=VALUE...]   (--help tells more)"
MARK = "report.json"
"""The file that marks a directory as a report and lists the report's files."""
Bounds = tuple[float, float]


class NoneBegun(BadRequest):
    """A sweep of which no job has begun."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The keys of the command line."""

    out: str = "report"
    """Where the page, its pictures and tables go: a new or empty directory, or an older report."""
    by: str | tuple[str, ...] = ()
    """A key, or several as [rl.lr,rl.gamma], whose values form the groups; else all keys that differ do."""
    target: float | Bounds | dict[str, float | Bounds] | None = None
    """The fitness that counts as 1, or as [ZERO,ONE]; by world as {pong:20,pendulum:[-1400,-150]}."""
    csv: bool = False
    """All numbers in long form: metrics.csv, results.csv, config.csv, individuals.csv, jobs.csv, statistics.csv."""
    csv_raw: bool = False
    """CSV text as it is. Else text that a spreadsheet takes for a formula (= + - @) begins with an apostrophe."""
    parquet: bool = False
    """The same as parquet, and the tables of the page; needs the extra parquet."""
    latex: bool = False
    """The tables in LaTeX (booktabs), one file each."""
    live: bool = False
    """Serve the page on this machine while the runs go on, until Ctrl-C; nothing is written."""
    wandb: Literal["report"] | None = None
    """report: also as a W&B report, with the runs that it shows. A reproduced table (PAPER/TABLE or its JSON file) may
    be named beside runs, or alone. Without a server wandb_report.json keeps it, and the same command sends it."""
    project: str | None = None
    """W&B project of the report; null takes that of the runs."""


def main(words: Sequence[str] | None = None) -> int:
    """Run ``evorl.report`` with these arguments and return its exit code."""
    return config.command_line(report, words)


def report(words: Sequence[str]) -> None:
    """Print the tables of the runs, write the report, and print where its page is. Raises `BadRequest`."""
    if {"-h", "--help"} & {*words}:
        config.parse_request(Request, ["--help"])  # prints the keys and leaves
    named, upload, request = parse(words)
    if request.live:
        _check_live(words)
        serve(named, _choices(request))
        return
    out = _check_output(Path(request.out))
    runs: Sequence[RunRecord] = []
    content: Mapping[str, bytes] = {}
    if named:
        runs, content = write_report(named, _choices(request), out)
        say(out / "index.html")
    else:
        _write(out, {})
    if upload is not None:
        wandb_upload.send(upload, runs, content, out)


def parse(words: Sequence[str]) -> tuple[list[str], wandb_upload.Upload | None, Request]:
    """The words that name directories, what is asked of W&B, and the keys. Raises `BadRequest`."""
    known = {field.name for field in fields(Request)}
    named = [word for word in words if word.partition("=")[0] not in known]
    request = config.parse_request(Request, [word for word in words if word not in named])
    named = [run_names.named(word) for word in named]
    if not request.out:
        raise BadRequest("needs a directory", key="out")
    if request.by == "":
        raise BadRequest("needs a key, such as rl.lr", key="by")
    named, upload = wandb_upload.upload_of([*map(_result, named)], request.wandb, request.project)
    if not named and not (upload and upload.results):
        raise BadRequest(f"no run directory given; {USAGE}")
    for word in named:
        try:
            _run_directories(_matching_directories(word))
        except NoneBegun:
            if not request.live:
                raise
    return named, upload, request


def write_report(named: Sequence[str], choices: Choices, out: Path) -> tuple[Sequence[RunRecord], Mapping[str, bytes]]:
    """Read the runs, print their tables, and write (or refresh) their report; return the runs and the files.

    It also lists jobs of sweeps that have not started, and draws searches over jobs. Nothing is written before
    everything is computed.
    """
    from evorl.analysis.terminal_tables import print_tables

    sources = read(named)
    for note in sources.notes:
        say(f"evorl: {printable(note)}", sys.stderr)
    check_choices(choices, sources.runs)
    print_tables(sources.runs, sources.pending, choices.by)
    sys.stdout.flush()
    from evorl.analysis.report import compose  # imports Matplotlib and draws for seconds, while the user reads

    content = compose(sources, choices)
    _write(out, content)
    return sources.runs, content


def _write(out: Path, content: Mapping[str, bytes]) -> None:
    """Write the files of a report, and remove those of an earlier one that are no longer part of it."""
    out.mkdir(parents=True, exist_ok=True)
    stale = set(_files_of_report(out)) - set(content)
    mark = {"report": __version__, "files": sorted(content)}
    files.write_json(out / MARK, {**mark, "files": sorted({*content, *stale})})  # of a report that is killed, too
    for name, data in content.items():
        files.replace(out / name, data)
    for name in stale:
        (out / name).unlink(missing_ok=True)
    files.write_json(out / MARK, mark)


def serve(named: Sequence[str], choices: Choices) -> None:
    """Print the address of the page and keep it up to date until Ctrl-C. Raises `BadRequest`."""
    from evorl.analysis.live import EVERY_S, follow, serving, state_of, waiting

    def state() -> list[object]:
        places = [place for word in named for place in _matching_directories(word)]
        return state_of([*_run_directories(places), *places])

    def compose() -> bytes:
        sources = read(named)
        check_choices(choices, sources.runs)
        from evorl.analysis.report import compose_page  # imports Matplotlib

        return compose_page(sources, choices)

    seen: object = None
    try:
        seen, page = state(), compose()
    except NoneBegun as error:
        page = waiting(str(error))
    with serving(page) as server:
        print(server.url, flush=True)
        while seen is None:
            time.sleep(EVERY_S)
            with suppress(NoneBegun):
                present = state()
                server.show(compose())
                seen = present
        follow(server, compose, state, seen)


def read(named: Sequence[str]) -> Sources:
    """Read what the words name as it is now: a run that is named twice counts once. Raises `BadRequest`."""
    places = [place for word in named for place in _matching_directories(word)]
    runs, notes = read_runs(_run_directories(places))
    return Sources(runs=runs, notes=notes, pending=pending_jobs(places), searches=searches(places))


def _check_live(words: Sequence[str]) -> None:
    for name in ("out", "csv", "csv_raw", "parquet", "latex", "wandb"):
        if any(word.startswith(f"{name}=") for word in words):
            raise BadRequest("is for files, and live=true writes none; give one of the two", key=name)


def _choices(request: Request) -> Choices:
    by = (request.by,) if isinstance(request.by, str) else request.by
    return Choices(
        by=by, target=request.target, csv=request.csv, csv_raw=request.csv_raw, parquet=request.parquet,
        latex=request.latex,
    )  # fmt: skip


def _run_directories(places: Sequence[Path]) -> list[Path]:
    """The runs at or below these directories. Raises `BadRequest` if there is none, `NoneBegun` if one will come."""
    try:
        return find_runs(places)
    except BadRequest:
        jobs = pending_jobs(places)
        failed = [job.reason for job in jobs if job.reason is not None]
        if len(failed) < len(jobs):
            raise NoneBegun(f"no job in {places[0]} has begun, of {len(jobs)}") from None
        if failed:
            raise BadRequest(f"no job in {places[0]} has begun; the first failed: {failed[0]}") from None
        raise


def _matching_directories(word: str) -> list[Path]:
    """The directories that a word of the command line names, or that match it as a pattern."""
    names = [word] if os.path.exists(word) else sorted(glob.glob(word, recursive=True))
    if not names:
        raise _unknown(word)
    return [Path(name) for name in names if len(names) == 1 or Path(name).is_dir()]


def _check_output(out: Path) -> Path:
    """Raise `BadRequest` unless ``out`` is new, empty or an older report."""
    check_names_directory(str(out), "a directory with index.html, pictures and tables", "out")
    if os.path.lexists(out) and not _is_report(out) and not (out.is_dir() and not any(out.iterdir())):
        raise BadRequest(f"{out} exists and is no report of ours; choose another directory", key="out")
    check_can_be_made(out, [out.absolute(), *out.absolute().parents], "out")
    return out


def _is_report(out: Path) -> bool:
    return (out / MARK).is_file() and "report" in _mark(out)


def _mark(out: Path) -> dict[str, Any]:
    try:
        mark = run_directory.read_json(out, MARK)
    except (OSError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def _files_of_report(out: Path) -> list[str]:
    """The file names that an earlier report wrote here."""
    return [name for name in _mark(out).get("files", []) if isinstance(name, str) and re.fullmatch(r"\w[\w.]*", name)]


def _result(word: str) -> str:
    """The file of the result of a reproduced table, where a word names the table and no file; else the word.

    Raises `BadRequest` if the paper has no such table, or the table no result.
    """
    if os.path.exists(word):
        return word
    if not os.path.isfile(papers.PROGRAMS / word.partition("/")[0] / "paper.py"):
        return word
    papers.table(word)
    file = papers.results(word) / f"{word.partition('/')[2]}.json"
    if not file.is_file():
        raise BadRequest(f"{word} has no result; python -m evorl.reproduce {word} makes one")
    return str(file)


def _unknown(word: str) -> BadRequest:
    key, equals, _ = word.partition("=")
    if equals and re.fullmatch(r"[\w.+~-]+", key):
        keys = [field.name for field in fields(Request)]
        return BadRequest(f"unknown key{nearest(key, keys)}; keys: {', '.join(keys)}", key=key)
    return no_such_run(word, hint=_near_table(word))


def _near_table(word: str) -> str:
    """A hint for PAPER/TABLE whose paper has a typo."""
    declared = [file.parent.name for file in papers.PROGRAMS.glob("*/paper.py")]
    if not any(one_edit(word.partition("/")[0], paper) for paper in declared):
        return ""
    return nearest(word, papers.names())
