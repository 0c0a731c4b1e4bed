"""The results of a table: TABLE.json for programs, TABLE.md for people, figures as NAME.png and NAME.svg.

The page is made from the JSON file alone, so the two never disagree.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from evorl.analysis.reproduced import Content, read_result
from evorl.analysis.runs import RunRecord
from evorl.analysis.tables import markdown_rows
from evorl.record import provenance
from evorl.reproduction.judging import keep
from evorl.reproduction.parts import ROOT
from evorl.reproduction.scores import core_hours
from evorl.reproduction.table import Analysis, Table
from evorl.util import files
from evorl.util.errors import BadRequest

VERSIONS = ("evorl", "python", "torch", "numpy", "gymnasium")
OF_THE_RUNS = ("date", "command", "commit", "cpu", "kernels", "cores", "load", "platform", "evorl", "load at the end")
"""What of `machine` a result keeps where it is drawn anew."""


def content(
    table: Table,
    analysis: Analysis,
    profile: str,
    changed: Sequence[str],
    facts: Mapping[str, Any],
    made_of: str | None,
) -> Content:
    """The result as plain data."""
    return {
        "title": table.title,
        "of": table.of,
        "claim": table.claim,
        "source": table.source,
        "profile": profile,
        "size": table.profiles[profile].size,
        "settings": list(changed),
        "about": (table.about or "").strip(),
        "header": list(analysis.header),
        "rows": [list(row) for row in analysis.rows],
        "also": [{"header": list(more.header), "rows": [list(row) for row in more.rows]} for more in analysis.also],
        "gates": {gate: _so_far(verdict, made_of) for gate, verdict in analysis.gates.items()},
        "notes": list(analysis.notes),
        "figures": {picture.name: picture.caption for picture in analysis.pictures},
        "machine": {**facts, **analysis.facts},
        "made_of": made_of,
        "data": dict(analysis.data),
    }


def _so_far(verdict: str, made_of: str | None) -> str:
    """A verdict; while runs go on or have failed, it is that of the others alone."""
    return "passed so far" if verdict == "passed" and made_of is None else verdict


def elsewhere(content: Content, committed: Path, out: Path) -> Content:
    """The result, with its own folder in the commands that name the committed policies."""
    own = out.relative_to(ROOT) if out.is_relative_to(ROOT) else out

    def placed(text: str) -> str:
        return text.replace(f"{committed.relative_to(ROOT)}/", f"{own}/")

    return {**content, "about": placed(content["about"]), "notes": [*map(placed, content["notes"])]}


def write(out: Path, name: str, content: Content, analysis: Analysis) -> None:
    """Write a result into a folder: figures, films and policies first, and the JSON file last."""
    from evorl.analysis.figures import render

    out.mkdir(parents=True, exist_ok=True)
    for picture in analysis.pictures:
        for kind, drawn in render(picture.figure).items():
            files.replace(out / f"{picture.name}.{kind}", drawn)
    for kept, place in analysis.files.items():
        files.replace(out / kept, place.read_bytes())
    for kept, policy in analysis.policies.items():
        keep(*policy, out / "policies" / kept)
    files.replace(out / f"{name}.md", markdown(content).encode())
    plain = msgspec.json.encode(content, enc_hook=lambda number: number.item())  # NumPy's; NaN becomes null
    files.replace(out / f"{name}.json", msgspec.json.format(plain, indent=1) + b"\n")


def read(out: Path, name: str) -> Content | None:
    """Return a result; None if there is none."""
    try:
        return read_result(out / f"{name}.json")
    except BadRequest:
        return None


def markdown(content: Content) -> str:
    """The page of a result."""
    lines = [f"# {content['title']}", "", f"Claim ({content['source']}): {content['claim']}", ""]
    if content["made_of"] is None:
        lines += ["**Partial:** not all of its runs have ended. The same command goes on with the others.", ""]
    lines += [*markdown_rows(content["header"], content["rows"], numbers=True), "", content["about"]]
    for table in content["also"]:
        lines += ["", *markdown_rows(table["header"], table["rows"], numbers=True)]
    if content["gates"]:
        lines += ["", *markdown_rows(["gate", "verdict"], [*content["gates"].items()], numbers=True)]
    for note in content["notes"]:
        lines += ["", note]
    for name, caption in content["figures"].items():
        lines += ["", f"![{caption}]({name}.png)"]
    return "\n".join([*lines, "", *(f"- {name}: {_flat(value)}" for name, value in content["machine"].items()), ""])


def machine(command: str) -> dict[str, Any]:
    """Where and when a table is rebuilt; the load tells whether the machine was idle."""
    here, versions = provenance.machine(), provenance.versions()
    commit = (provenance.git(ROOT) or {}).get("commit")
    return {
        "date": datetime.now().isoformat(timespec="minutes"),
        "command": command,
        "commit": commit and commit[:7],
        "cpu": here["cpu"],
        "kernels": provenance.kernels(),
        "cores": here["cores"],
        "load": load(),
        "platform": platform.platform(),
        "evorl": {name: versions[name] for name in VERSIONS},
    }


def load() -> float:
    """Of the machine, over the last minute."""
    return round(os.getloadavg()[0], 2)


def of_drawing(command: str, kept: Content | None, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """When a page was drawn anew, and where and when the runs were made: what ``kept``, their result, says of that.

    Without it, what the runs have recorded, which is no load.
    """
    facts = {name: x for name, x in kept["machine"].items() if name in OF_THE_RUNS} if kept else recorded(runs)
    return {**facts, "command": command, "drawn": datetime.now().isoformat(timespec="minutes")}


def recorded(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """When the runs began, and their processors and versions."""
    made = [run.provenance for run in runs if {"started", "machine", "versions"} <= {*run.provenance}]
    if not made:
        return {}
    begun = sorted(datetime.fromisoformat(info["started"]).astimezone() for info in made)
    ends = [time.replace(tzinfo=None).isoformat(timespec="minutes") for time in (begun[0], begun[-1])]
    return {
        "date": " to ".join(dict.fromkeys(ends)),
        **{
            name: _every(info["machine"][name] for info in made)
            for name in ("cpu", "kernels", "cores", "platform")
            if all(name in info["machine"] for info in made)
        },
        "evorl": {name: _every(info["versions"].get(name) for info in made) for name in VERSIONS},
    }


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in words: 0-4, 7."""
    runs: list[list[int]] = []
    for number in sorted({*numbers}):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def of_runs(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Commits and seeds of the runs that a page is made of, and what they took."""
    if not runs:
        return {}
    commits = {(run.provenance.get("git") or {}).get("commit") or "unknown" for run in runs}
    return {
        "commits of the runs": ", ".join(sorted(commit[:7] for commit in commits)),
        "seeds of the runs": ranges(int(run.seed) for run in runs),
        "core hours": round(core_hours(runs), 2),
    }


def _every(values: Iterable[Any]) -> Any:
    """A value that all have, or those that some have."""
    first, *others = dict.fromkeys(values)
    return ", ".join(map(str, [first, *others])) if others else first


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_flat(x)}" for name, x in value.items())
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
