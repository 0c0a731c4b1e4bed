"""The papers and tables that a checkout declares: benchmarks/PAPER/paper.py and benchmarks/PAPER/TABLE.py."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from evorl.record import run_names
from evorl.reproduction.parts import ROOT
from evorl.reproduction.table import Paper, Table
from evorl.util.errors import BadRequest, nearest

PROGRAMS = run_names.TABLES


def papers() -> dict[str, Paper]:
    """Return all papers, by the name of their folder. Raises `BadRequest` where evorl is installed without them."""
    names = sorted(path.parent.name for path in PROGRAMS.glob("*/paper.py"))
    if not names:
        raise BadRequest(
            f"the tables are programs in benchmarks/ of a checkout, and {ROOT} has none: clone the repository, and "
            "run python -m evorl.reproduce there"
        )
    return {name: _module(f"{name}.paper").PAPER for name in names}


def names() -> list[str]:
    """Return the names of all tables, each as ``PAPER/TABLE``."""
    return [f"{paper}/{name}" for paper, content in papers().items() for name in content.tables]


def table(name: str) -> Table:
    """Return the table ``PAPER/TABLE``. Raises `BadRequest` with the nearest name."""
    known = names()
    if name not in known:
        alike = [other for other in known if other.endswith(f"/{name}")]
        meant = f"; did you mean {alike[0]}?" if alike else nearest(name, known)
        raise BadRequest(f"{name!r} is no table{meant or '; python -m evorl.reproduce lists them'}")
    declared: Table = _module(name.replace("/", ".")).TABLE
    return declared


def results(name: str) -> Path:
    """Return the folder of a table's committed results."""
    return PROGRAMS / name.partition("/")[0] / "results"


def _module(name: str) -> ModuleType:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return import_module(f"benchmarks.{name}")
