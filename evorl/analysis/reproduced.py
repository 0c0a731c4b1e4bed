"""Results of reproduced tables: the JSON files in ``benchmarks/PAPER/results``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from evorl.util.errors import BadRequest


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """A further table of a result."""

    header: list[str]
    rows: list[list[str]]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a paper: what is claimed and what was measured. Further keys of the file are ignored."""

    title: str
    claim: str
    header: list[str]
    rows: list[list[str]]
    of: str = ""
    """The table or figure of the paper."""
    source: str = ""
    profile: str = ""
    about: str = ""
    """How it was measured."""
    also: list[Rows] = []
    gates: dict[str, str] = {}
    """Condition -> "passed", "failed", or why it was not judged."""
    notes: list[str] = []
    figures: dict[str, str] = {}
    """Name -> caption; the picture is NAME.png beside the file."""
    machine: dict[str, Any] = {}


def read_result(path: Path) -> Result:
    """Read a file. Raises `BadRequest`, which names it, if it is not the result of a reproduced table."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError) as error:
        raise BadRequest(f"{path} is no result of a reproduced table ({error})") from None


def claim_and_measured(result: Result) -> str:
    """Return the claim beside the measurement, the gates and the notes, in Markdown."""
    source = f" ({result.source})" if result.source else ""
    profile = f" ({result.profile})" if result.profile else ""
    lines = [f"**{result.of}**", ""] if result.of else []
    lines += [f"**Claim**{source}: {result.claim}", "", f"**Measured**{profile}:", ""]
    lines += _table(result.header, result.rows)
    for one in result.also:
        lines += ["", *_table(one.header, one.rows)]
    if result.gates:
        lines += ["", *_table(["gate", "verdict"], [[name, verdict] for name, verdict in result.gates.items()])]
    lines += [line for note in result.notes for line in ("", note)]
    return "\n".join(lines) + "\n"


def how_measured(result: Result) -> str:
    """Return how, where and by what command it was measured, in Markdown."""
    facts = {key: value for key, value in result.machine.items() if not isinstance(value, dict | list)}
    machine = _table(["machine", ""], [[key, f"`{value}`"] for key, value in facts.items()]) if facts else []
    return "\n".join([result.about, *([""] if result.about else []), *machine]) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in line) + " |" for line in lines]
