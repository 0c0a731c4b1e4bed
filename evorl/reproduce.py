"""The command that rebuilds the tables and figures of papers from a checkout.

    python -m evorl.reproduce                                            all tables: status, cost, command
    python -m evorl.reproduce PAPER/TABLE                                what a table is
    python -m evorl.reproduce PAPER/TABLE profile=NAME [KEY=VALUE ...] [runs=DIR] [out=DIR] [--draw | --print]
    python -m evorl.reproduce [PAPER/TABLE] --check [since=REV] [seed=0,1,...] [runs=DIR] [out=DIR]
    python -m evorl.reproduce --page                                     write benchmarks/README.md

NAME is a profile of the table: every table has ci, and PAPER/TABLE alone prints the others. KEY=VALUE goes to every job
of evorl.run; the last word for a key counts. The same command resumes what was stopped, and does nothing once all is
done.

runs=DIR  where the runs lie; default runs/PAPER/PROFILE of the checkout
out=DIR   where the result goes; default benchmarks/PAPER/results, unless KEY=VALUE changes what is measured
--draw    make no runs: show those there are
--print   print the commands of the sweeps and do nothing
--check   make the runs of a committed result again (of all tables that have a check, if none is named) in
          runs/PAPER/check-DIGEST, and say whether their numbers differ; exit code 1 if some do, or cannot be made
since=REV with --check: only what the changes since that commit could affect
seed=...  with --check: more or other seeds than the result's
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # start as the command evorl, which handles signals during start-up
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["reproduce", *sys.argv[1:]]))

import shlex
import signal
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import FrameType

from evorl.cli import config
from evorl.cli.overrides import TUNED
from evorl.reproduction import affected, check, overview, pages, papers
from evorl.reproduction.loop import Request, check_words, reproduce
from evorl.reproduction.parts import ROOT, Sweep, settings
from evorl.reproduction.table import Table
from evorl.util.errors import BadRequest, nearest

KEYS = ("profile", "runs", "out")
FLAGS = ("--draw", "--print", "--check", "--page", "--help")


def main(words: Sequence[str] | None = None) -> int:
    """Run ``evorl.reproduce`` with these arguments and return its exit code."""
    return config.command_line(command, words)


def command(words: Sequence[str]) -> None:
    """List tables, describe one, print its commands, or rebuild it. Raises `BadRequest`."""
    flags = {"--help" if word == "-h" else word for word in words if word.startswith("-")}
    for word in sorted(flags - {*FLAGS}):
        raise BadRequest(f"{word} is no flag{nearest(word, FLAGS)}")
    names = [word for word in words if not word.startswith("-") and "=" not in word]
    if "--help" in flags:
        print((__doc__ or "").strip())
    elif "--page" in flags:
        if len(words) > 1:
            raise BadRequest("--page stands alone: it writes benchmarks/README.md and does nothing else")
        overview.write()
        print(overview.PAGE)
    elif "--check" in flags:
        checked(names, [word for word in words if "=" in word], flags)
    elif not names:
        if words:
            raise BadRequest("name a table: PAPER/TABLE; python -m evorl.reproduce lists all")
        print(overview.listing())
    elif len(names) > 1:
        raise BadRequest(f"one table at a time: {names[0]} or {names[1]}")
    else:
        of_table(names[0], [word for word in words if "=" in word], flags)


def of_table(name: str, words: Sequence[str], flags: set[str]) -> None:
    table = papers.table(name)
    request = parsed(name, table, words, "--draw" in flags)
    if request is None:
        for flag in sorted(flags):
            raise BadRequest(f"{flag} needs one: {', '.join(table.profiles)}", "profile")
        print(overview.description(name, table))
    elif "--print" in flags:
        size = table.profiles[request.profile]
        check_words(size.parts, request.also)
        for part in size.parts:
            if isinstance(part, Sweep):
                print(shlex.join(part.command(request.runs, request.also)))
            else:
                print(f"# {part.name}: measured by benchmarks/{name}.py")
    else:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)
        try:
            reproduce(table, request)
        except SystemExit as ended:
            if isinstance(ended.code, int) and ended.code > 128:  # the sweep, which names its own words, has ended
                print("evorl: stopped; the same command goes on", file=sys.stderr)
            raise


def checked(names: Sequence[str], words: Sequence[str], flags: set[str]) -> None:
    """Check tables against their results and print verdicts. Raises `BadRequest`, and SystemExit if some differ."""
    options = dict(word.split("=", 1) for word in words)
    for key in sorted({*options} - {"runs", "out", "since", "seed"}):
        raise BadRequest("--check makes the runs of a result again: it takes runs, out, since and seed alone", key)
    for flag in sorted(flags - {"--check"}):
        raise BadRequest(f"--check and {flag} exclude each other")
    tables = {name: papers.table(name) for name in names or check.tables()}
    if not tables:
        raise BadRequest("no table with a check has a result")
    files = affected.changed(options["since"]) if "since" in options else None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    also = [f"seed={options['seed']}"] if "seed" in options else []
    places = {name: Path(options["runs"]).absolute() if "runs" in options else check.place(name) for name in tables}
    differ = False
    for name, table in tables.items():
        out = Path(options.get("out", papers.results(name)))
        verdicts = dict(check.check(name, table, places[name], out, also, files))
        kept = pages.read(out, name.rpartition("/")[2])
        print("\n".join([name, "", *check.report(verdicts, kept), ""]), flush=True)
        differ |= any(comparison.differs for comparison in verdicts.values())
    if differ:
        raise SystemExit(1)


def parsed(name: str, table: Table, words: Sequence[str], draw: bool) -> Request | None:
    """What the words ask for; None if they name no profile. Raises `BadRequest`."""
    from evorl.training.experiment import Experiment  # here: with it comes torch

    options = dict(word.split("=", 1) for word in words if word.partition("=")[0] in KEYS)
    also = tuple(word for word in words if word.partition("=")[0] not in options)
    known = {TUNED, *config.COMMAND_KEYS, *(field.name for field in fields(Experiment))}
    for key in (word.partition("=")[0] for word in also):
        if key.isalpha() and key not in known and (hint := nearest(key, KEYS)):
            raise BadRequest(f"unknown key{hint}", key)
    profile, paper = options.get("profile"), name.partition("/")[0]
    if profile is None:
        if words:
            raise BadRequest(f"choose one: {', '.join(table.profiles)}", "profile")
        return None
    if profile not in table.profiles:
        choices = ", ".join(table.profiles)
        raise BadRequest(f"{profile!r} is none of {choices}{nearest(profile, table.profiles)}", "profile")
    if settings(also) and not {"out", "runs"} <= {*options}:
        check_words(table.profiles[profile].parts, also)  # a word that no job takes needs no folder
        raise BadRequest(
            f"{' '.join(settings(also))} changes what is measured; say where runs and result go: runs=DIR out=DIR"
        )
    runs = Path(options.get("runs", ROOT / "runs" / paper / profile)).absolute()
    return Request(name, profile, also, runs, Path(options.get("out", papers.results(name))).absolute(), draw)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
