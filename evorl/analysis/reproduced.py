"""Results of reproduced tables: the JSON files in ``benchmarks/PAPER/results``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import msgspec

from evorl.analysis.tables import markdown_rows
from evorl.util import files
from evorl.util.errors import BadRequest


class Content(TypedDict):
    """The JSON file of a result."""

    title: str
    of: str
    claim: str
    source: str
    profile: str
    size: str
    """The profile's in words, as it was when the result was made."""
    settings: list[str]
    """Words that changed the profile."""
    about: str
    header: list[str]
    rows: list[list[str]]
    also: list[dict[str, Any]]
    """Further tables, each with ``header`` and ``rows``."""
    gates: dict[str, str]
    notes: list[str]
    figures: dict[str, str]
    """Captions by name; each lies beside the file as NAME.png, and as NAME.svg."""
    machine: dict[str, Any]
    made_of: str | None
    """`evorl.reproduction.loop.fingerprint` of what it was made of."""
    data: dict[str, Any]


def read_result(path: Path) -> Content:
    """Read a file. Raises `BadRequest`, which names it, if it is not the result of a reproduced table."""
    try:
        return msgspec.json.decode(files.read(path), type=Content)
    except (OSError, msgspec.DecodeError) as error:
        raise BadRequest(f"{path} is no result of a reproduced table ({error})") from None


def claim_and_measured(result: Content) -> str:
    """Return the claim beside the measurement, the gates and the notes, in Markdown."""
    source = f" ({result['source']})" if result["source"] else ""
    profile = f" ({result['profile']})" if result["profile"] else ""
    lines = [f"**{result['of']}**", ""] if result["of"] else []
    lines += [f"**Claim**{source}: {result['claim']}", "", f"**Measured**{profile}:", ""]
    lines += markdown_rows(result["header"], result["rows"])
    for table in result["also"]:
        lines += ["", *markdown_rows(table["header"], table["rows"])]
    if result["gates"]:
        lines += [
            "",
            *markdown_rows(["gate", "verdict"], [*result["gates"].items()]),
        ]
    lines += [line for note in result["notes"] for line in ("", note)]
    return "\n".join(lines) + "\n"


def how_measured(result: Content) -> str:
    """Return how, where and by what command it was measured, in Markdown."""
    facts = {key: value for key, value in result["machine"].items() if not isinstance(value, dict | list)}
    machine = markdown_rows(["machine", ""], [[key, f"`{value}`"] for key, value in facts.items()]) if facts else []
    return "\n".join([result["about"], *([""] if result["about"] else []), *machine]) + "\n"
