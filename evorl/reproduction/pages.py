"""The results of a table: TABLE.json for programs, TABLE.md for people, figures as NAME.png and NAME.svg.

The page is made from the JSON file alone, so the two never disagree.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

import evorl
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


def content(
    table: Table, found: Analysis, profile: str, changed: Sequence[str], facts: Mapping[str, Any], made_of: str | None
) -> Content:
    """The result as plain data."""
    return {
        "title": table.title,
        "of": table.of,
        "claim": table.claim,
        "source": table.source,
        "profile": profile,
        "settings": list(changed),
        "about": (table.about or "").strip(),
        "header": list(found.header),
        "rows": [list(row) for row in found.rows],
        "also": [{"header": list(one.header), "rows": [list(row) for row in one.rows]} for one in found.also],
        "gates": dict(found.gates),
        "notes": list(found.notes),
        "figures": {one.name: one.caption for one in found.pictures},
        "machine": {**facts, **found.facts},
        "made_of": made_of,
        "data": dict(found.data),
    }


def write(out: Path, name: str, told: Content, found: Analysis) -> None:
    """Write a result into a folder: figures, films and policies first, and the JSON file last."""
    from evorl.analysis.figures import render

    out.mkdir(parents=True, exist_ok=True)
    for picture in found.pictures:
        for kind, drawn in render(picture.figure).items():
            files.replace(out / f"{picture.name}.{kind}", drawn)
    for kept, place in found.files.items():
        shutil.copyfile(place, out / kept)
    for kept, run in found.policies.items():
        keep(run, out / "policies" / kept)
    files.replace(out / f"{name}.md", markdown(told).encode())
    plain = msgspec.json.encode(told, enc_hook=lambda number: number.item())  # NumPy's; NaN becomes null
    files.replace(out / f"{name}.json", msgspec.json.format(plain, indent=1) + b"\n")


def read(out: Path, name: str) -> Content | None:
    """Return a result; None if there is none."""
    try:
        return read_result(out / f"{name}.json")
    except BadRequest:
        return None


def markdown(told: Content) -> str:
    """The page of a result."""
    lines = [f"# {told['title']}", "", *markdown_rows(told["header"], told["rows"], numbers=True), ""]
    lines += [f"Claim ({told['source']}): {told['claim']}", "", told["about"]]
    for one in told["also"]:
        lines += ["", *markdown_rows(one["header"], one["rows"], numbers=True)]
    if told["gates"]:
        lines += ["", *markdown_rows(["gate", "verdict"], [*told["gates"].items()], numbers=True)]
    for note in told["notes"]:
        lines += ["", note]
    for name, caption in told["figures"].items():
        lines += ["", f"![{caption}]({name}.png)"]
    return "\n".join([*lines, "", *(f"- {name}: {_flat(value)}" for name, value in told["machine"].items()), ""])


def machine(command: str) -> dict[str, Any]:
    """Where and when a table is rebuilt; the load tells whether the machine was idle."""
    here, versions = provenance.machine(), provenance.versions()
    commit = (provenance.git(ROOT) or {}).get("commit")
    return {
        "date": datetime.now().isoformat(timespec="minutes"),
        "command": command,
        "commit": commit and commit[:7],
        "cpu": here["cpu"],
        "cores": here["cores"],
        "load": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "evorl": {"evorl": evorl.__version__, **{n: versions[n] for n in ("python", "torch", "numpy", "gymnasium")}},
    }


def of_runs(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Commits and seeds of the runs that a page is made of, which may be older than the page, and what they took."""
    if not runs:
        return {}
    commits = {(one.provenance.get("git") or {}).get("commit") or "unknown" for one in runs}
    return {
        "load at the end": round(os.getloadavg()[0], 2),
        "commits of the runs": ", ".join(sorted(one[:7] for one in commits)),
        "seeds of the runs": ", ".join(map(str, sorted({int(one.seed) for one in runs}))),
        "core hours": round(core_hours(runs), 2),
    }


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_flat(x)}" for name, x in value.items())
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
