"""Makes the runs of a result again, and says whether their numbers differ from those of the result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evorl.analysis.aggregates import Estimate
from evorl.analysis.repeated import LEVEL, difference, scores_of
from evorl.analysis.reproduced import Content
from evorl.analysis.tables import markdown_rows
from evorl.record import provenance
from evorl.reproduction import pages, papers
from evorl.reproduction.affected import affects
from evorl.reproduction.parts import ROOT, Sweep, runs_of
from evorl.reproduction.table import Curves, Table
from evorl.util.errors import BadRequest
from evorl.util.numbers import format_number

SAME_BITS = "the same, bit for bit"
HEADER = ("what", "runs", "verdict", "new - old at the end", "new - old in the mean")


class Verdict(NamedTuple):
    """What the new runs of a sweep show."""

    runs: int
    words: str
    differs: bool = False
    p: float | None = None
    """Of the permutation test; None where there was none."""
    differences: tuple[Estimate, ...] = ()
    """Of both scores, with their 90 % intervals."""


def tables() -> list[str]:
    """All tables that have a check and a result."""
    return [
        f"{paper}/{short}"
        for paper, content in papers.papers().items()
        for short in content.tables
        if papers.table(f"{paper}/{short}").repeated and pages.read(papers.results(f"{paper}/"), short)
    ]


def place(name: str) -> Path:
    """Return the folder of a table's new runs, one for each state of the code, its config files and its packages.

    So an interrupted check goes on, and one after a change begins anew.
    """
    digest = hashlib.sha256(json.dumps(provenance.versions(), sort_keys=True).encode())
    paper = name.partition("/")[0]
    for top in ("evorl", "conf", "hydra_plugins", f"benchmarks/{paper}"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix in (".py", ".yaml"):
                digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return ROOT / "runs" / paper / f"check-{digest.hexdigest()[:8]}"


def check(
    name: str, table: Table, runs: Path, out: Path, also: Sequence[str] = (), files: Sequence[str] | None = None
) -> Iterator[tuple[str, Verdict]]:
    """Make the runs of a table's result again below ``runs``; yield a verdict for each of its sweeps.

    ``also``: words for every job, ``seed=`` for other seeds than the result's. ``files``: only sweeps that a change of
    these could affect. Raises `BadRequest` where there is nothing to compare with.
    """
    kept = pages.read(out, name.rpartition("/")[2])
    if table.repeated is None or kept is None:
        why = "has no check" if table.repeated is None else f"has no result in {out}"
        raise BadRequest(f"{name} {why}; those to check: {', '.join(tables())}")
    old = table.repeated(kept["data"])
    if others := [word.removeprefix("seed=") for word in also if word.startswith("seed=")]:
        runs = runs / f"seeds-{others[-1]}"  # jobs are numbered, so those of other seeds lie elsewhere
    sweeps = {part.name: part for part in table.profiles[kept["profile"]].parts if isinstance(part, Sweep)}
    declarations = f"benchmarks/{name.partition('/')[0]}/"
    declared = any(file.startswith(declarations) and file.endswith(".py") for file in files or ())
    for title, score in old.items():
        sweep = sweeps.get(score.sweep)
        if sweep is None:
            yield title, Verdict(0, "is no longer part of the table", differs=True)
            continue
        if files is not None and not declared and not affects(files, sweep):
            continue
        seeds = f"seed={','.join(map(str, score.curves))}"
        if not sweep.carry_out(runs, [*kept["settings"], seeds, *also]):
            yield title, Verdict(0, "failed", differs=True)
            continue
        yield title, verdict(score.curves, score.read(runs_of(runs, [sweep])), score.margin)


def verdict(old: Curves, new: Curves, margin: float) -> Verdict:
    """Compare runs with those made again: bit for bit where seeds are the same, else by their scores."""
    was, now = ({seed: np.array(curve, np.float64) for seed, curve in curves.items()} for curves in (old, new))
    shared = {*was} & {*now}
    if shared and all(np.array_equal(was[seed], now[seed], equal_nan=True) for seed in shared):
        return Verdict(len(shared), SAME_BITS)
    count = len(new)
    if not {*map(len, now.values())} <= {*map(len, was.values())}:
        return Verdict(count, "differs: other numbers of evaluations", differs=True)
    if min(count, len(old)) < 2:
        return Verdict(count, "other bits, and too few runs to tell more")
    scores = [np.concatenate([scores_of(curve[None]) for curve in curves.values()]) for curves in (was, now)]
    if not all(np.isfinite(score).all() for score in scores):
        return Verdict(count, "differs: returns that are not finite", differs=True)
    test = difference(*scores)
    if test.significant:
        words = f"differs (p = {test.p:.2g})"
    elif test.within(margin):
        words = f"equivalent (within {format_number(margin)})"
    else:
        words = f"undecided (p = {test.p:.2g})"
    return Verdict(count, words, test.significant, test.p, test.by_score)


def report(verdicts: Mapping[str, Verdict], kept: Content | None = None) -> list[str]:
    """A Markdown table of the verdicts, what chance does to so many of them, and why other bits may not be the code's.

    ``kept``: the result that was checked.
    """
    if not verdicts:
        return ["nothing that the changes could affect"]
    rows = [
        [
            title,
            f"{comparison.runs}",
            comparison.words,
            *(map(_cell, comparison.differences) if comparison.differences else ("-", "-")),
        ]
        for title, comparison in verdicts.items()
    ]
    lines = markdown_rows(HEADER, rows)
    tested = sum(comparison.p is not None for comparison in verdicts.values())
    if tested > 1:
        chance = 100 * (1 - (1 - LEVEL) ** tested)
        lines += [
            "",
            f"{tested} tests at {LEVEL:.0%}: without any difference, {chance:.0f} % of such checks say that something "
            "differs.",
        ]
    if any(comparison.runs and comparison.words != SAME_BITS for comparison in verdicts.values()) and (
        why := _other_instructions(kept)
    ):
        lines += ["", why]
    return lines


def _other_instructions(kept: Content | None) -> str | None:
    """A sentence where PyTorch's kernels use other instructions than where a result was made, or may do so since the
    processor is another one; None if not known."""
    past = kept["machine"] if kept else {}
    if (kernels := past.get("kernels")) and kernels != (here := provenance.kernels()):
        return f"PyTorch's kernels used {kernels} for the result and use {here} here, which round differently."
    if (cpu := past.get("cpu")) and cpu != (here := provenance.machine()["cpu"]):
        return f"The result was made on {cpu}, and this is {here}: PyTorch may use kernels that round differently."
    return None


def _cell(estimate: Estimate) -> str:
    return f"{format_number(estimate.value)} [{format_number(estimate.low)}, {format_number(estimate.high)}]"
