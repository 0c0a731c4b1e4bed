"""The one loop of all tables: carry out what is missing, read it, write the result. A second call finds it done."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evorl.analysis.reproduced import Content
from evorl.cli import config
from evorl.cli.overrides import parse
from evorl.reproduction import pages, papers
from evorl.reproduction.parts import ROOT, Part, Sweep, measured_of, runs_of, settings
from evorl.reproduction.table import Results, Table
from evorl.util.errors import BadRequest

PEERS = ROOT / ".venv-peers" / "bin" / "python"


class Request(NamedTuple):
    """What a command line asks of a table."""

    name: str
    """PAPER/TABLE."""
    profile: str
    also: tuple[str, ...]
    """Words for every job."""
    runs: Path
    out: Path
    draw: bool
    """Make no runs, and write the result even if it is there."""

    @property
    def command(self) -> str:
        """That rebuilds the result: a drawing needs runs that a clone does not have."""
        places = ["runs=DIR", "out=DIR"] if settings(self.also) else ["out=DIR"] if self.elsewhere else []
        return f"python -m evorl.reproduce {' '.join([self.name, f'profile={self.profile}', *self.also, *places])}"

    @property
    def elsewhere(self) -> bool:
        """Whether the result goes to another folder than the committed one."""
        return self.out.resolve() != papers.results(self.name).resolve()


def reproduce(table: Table, request: Request) -> None:
    """Rebuild a table. Raises `BadRequest`, and SystemExit if jobs failed or nothing has a result yet."""
    short, size = request.name.rpartition("/")[2], table.profiles[request.profile]
    page = request.out / f"{short}.md"
    kept = pages.read(request.out, short)
    made_of = fingerprint(size.parts, request)
    if kept and made_of and kept["made_of"] == made_of and not request.draw:
        print(f"{request.name} is done: {page}; --draw draws it anew")
        return
    _check_size(table, request, kept)
    if not request.draw:
        if table.peers and not PEERS.exists():
            raise BadRequest(f"{request.name} runs programs of .venv-peers, which is not there: make peers")
        check_words(size.parts, request.also)
    facts = pages.machine(request.command)
    complete = request.draw or carry_out(size.parts, request)
    results = Results(
        request.profile, runs_of(request.runs, size.parts), measured_of(request.runs, size.parts), request.runs
    )
    content = table.analyse(results)
    if content is not None:
        made_of = fingerprint(size.parts, request)
        if request.draw:
            same = kept if kept and made_of and kept["made_of"] == made_of else None
            facts = pages.of_drawing(request.command, same, results.runs)
        else:
            facts |= {"load at the end": pages.load()}
        facts |= pages.of_runs(results.runs)
        result = pages.content(table, content, request.profile, settings(request.also), facts, made_of)
        if request.elsewhere:
            result = pages.elsewhere(result, papers.results(request.name), request.out)
        pages.write(request.out, short, result, content)
        print(page)
    if not complete:
        print("evorl: some jobs have not finished; the same command goes on with them", file=sys.stderr)
        raise SystemExit(1)
    if content is None:
        raise BadRequest(f"{request.runs} holds nothing of {request.name} that has ended", "runs")


def carry_out(parts: Sequence[Part], request: Request) -> bool:
    """Start or resume all parts; return whether all have finished.

    A measurement may be of the runs before it and is made once, so it waits until these have finished.
    """
    complete = True
    for part in parts:
        if complete or isinstance(part, Sweep):
            complete = part.carry_out(request.runs, request.also) and complete
    return complete


def _check_size(table: Table, request: Request, kept: Content | None) -> None:
    """Raise `BadRequest` where a smaller profile would replace the result of a larger one."""
    order = [*table.profiles]
    if kept and order.index(request.profile) < order.index(kept["profile"]):
        raise BadRequest(
            f"{request.out} has the result of profile={kept['profile']}, which a smaller one does not replace; "
            "give another folder: out=DIR", "out",
        )  # fmt: skip


def check_words(parts: Sequence[Part], also: Sequence[str]) -> None:
    """Raise `BadRequest` for a word that no job takes, before the first job starts."""
    for part in parts if also else ():
        if isinstance(part, Sweep):
            config.experiment_of_words(first_job((*part.words, *also)))


def first_job(words: Sequence[str]) -> list[str]:
    """The words of a sweep's first job, without those that say where it runs."""
    overrides = parse([word for word in words if not word.startswith(("hydra.", "hydra/"))])
    first = {
        table.get_key_element(): next(table.sweep_string_iterator())
        if table.is_sweep_override()
        else table.get_value_element_as_str()
        for table in overrides
    }
    return [f"{key}={value}" for key, value in first.items()]


def fingerprint(parts: Sequence[Part], request: Request) -> str | None:
    """A digest of what a result is made of: the words, and the end of every job; None unless all have ended."""
    digest = hashlib.sha256()
    for part in parts:
        ends = part.results(request.runs)
        if ends is None:
            return None
        words = part.words if isinstance(part, Sweep) else ()
        also = [word for word in request.also if word.startswith("seed=") or word in settings(request.also)]
        digest.update(json.dumps([part.name, *words, *also]).encode())
        for end in ends:
            digest.update(hashlib.sha256(end).digest())
    return digest.hexdigest()
