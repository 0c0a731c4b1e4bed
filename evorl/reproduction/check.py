"""Makes runs of a result again, and says whether their numbers differ from those of the result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evorl.analysis.aggregates import Estimate
from evorl.analysis.repeated import difference, scores_of
from evorl.analysis.tables import format_number, markdown_rows
from evorl.record import provenance
from evorl.reproduction import pages, papers
from evorl.reproduction.affected import affects
from evorl.reproduction.parts import ROOT, Sweep, runs_of
from evorl.reproduction.table import Found, Repeated, Table
from evorl.util.errors import BadRequest

SAME_BITS = "the same, bit for bit"
HEADER = ("what", "runs", "verdict", "new - old at the end", "new - old in the mean")


class Verdict(NamedTuple):
    """What the new runs of a sweep show."""

    runs: int
    words: str
    differs: bool = False
    differences: tuple[Estimate, ...] = ()
    """Of both scores, with their 95 % intervals; none where all bits are the same."""


def tables() -> list[str]:
    """All tables that have a check and a result."""
    return [
        f"{paper}/{short}"
        for paper, content in papers.papers().items()
        for short in content.tables
        if papers.table(f"{paper}/{short}").repeated and pages.read(papers.results(f"{paper}/"), short)
    ]


def place(name: str) -> Path:
    """Return the folder of the new runs: one for each commit, and for each day of a checkout that differs from it."""
    here = provenance.git(ROOT) or {"commit": None, "dirty": True}
    commit = (here["commit"] or "unknown")[:7]
    dirty = f"-{datetime.now():%Y%m%d-%H%M%S}" if here["dirty"] else ""
    return ROOT / "runs" / name.partition("/")[0] / f"check-{commit}{dirty}"


def check(name: str, table: Table, runs: Path, out: Path, files: list[str] | None = None) -> dict[str, Verdict]:
    """Make the runs of a table's result again below ``runs``; return a verdict for each sweep.

    ``files``: only sweeps that a change of these could affect. Raises `BadRequest` where there is nothing to compare
    with, and SystemExit if jobs failed.
    """
    kept = pages.read(out, name.rpartition("/")[2])
    if table.repeated is None or kept is None:
        why = "has no check" if table.repeated is None else f"has no result in {out}"
        raise BadRequest(f"{name} {why}; those to check: {', '.join(tables())}")
    old = table.repeated(kept["data"])
    parts = [
        part
        for part in table.profiles[kept["profile"]].parts
        if isinstance(part, Sweep)
        and part.name in {one.sweep for one in old.values()}
        and (files is None or affects(files, part))
    ]
    finished = [part.carry_out(runs) for part in parts]
    if not all(finished):
        raise SystemExit(1)
    told = table.analyse(Found(kept["profile"], runs_of(runs, parts), {})) if parts else None
    new = table.repeated(told.data) if told else {}
    return {title: verdict(old[title], one) for title, one in new.items()}


def verdict(old: Repeated, new: Repeated) -> Verdict:
    """Compare runs with those made again: bit for bit where seeds are the same, else by their scores."""
    count, shared = len(new.curves), {*old.curves} & {*new.curves}
    if shared and all([*old.curves[seed]] == [*new.curves[seed]] for seed in shared):
        return Verdict(count, SAME_BITS)
    found = difference(*(scores_of(np.array([*one.curves.values()], np.float64)) for one in (old, new)))
    words = "differs" if found.found else "no difference shown"
    return Verdict(count, f"{words} (p = {found.p:.2g})", found.found, found.by_score)


def report(found: Mapping[str, Verdict]) -> list[str]:
    """A Markdown table of the verdicts."""
    if not found:
        return ["nothing that the changes could affect"]
    rows = [
        [title, f"{one.runs}", one.words, *(map(_cell, one.differences) if one.differences else ("0", "0"))]
        for title, one in found.items()
    ]
    return markdown_rows(HEADER, rows)


def _cell(one: Estimate) -> str:
    return f"{format_number(one.value)} [{format_number(one.low)}, {format_number(one.high)}]"
