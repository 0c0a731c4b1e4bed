"""What the tests of reproducers share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evorl.reproduction import papers
from evorl.reproduction.loop import Request, reproduce


def drawn(name: str, runs: Path, out: Path) -> dict[str, Any]:
    """The result of a table of profile=ci, from the runs there are; its page and figures lie beside it."""
    reproduce(papers.table(name), Request(name, "ci", (), runs, out, draw=True))
    short = name.rpartition("/")[2]
    told: dict[str, Any] = json.loads((out / f"{short}.json").read_text())
    for figure in told["figures"]:
        assert all((out / f"{figure}.{kind}").stat().st_size > 0 for kind in ("png", "svg"))
        assert f"]({figure}.png)" in (out / f"{short}.md").read_text()
    return told
