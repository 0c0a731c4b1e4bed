"""Names of runs in every command that takes a run directory: ``latest``, and ``zoo/PAPER/NAME`` of a kept policy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import evorl
from evorl.record.provenance import FILE_NAME
from evorl.util import run_directory
from evorl.util.errors import BadRequest, nearest, one_edit

WORD = "latest"
ZOO = "zoo/"
RUNS = Path("runs")
"""Where runs lie that name no directory of their own. Jobs of sweeps lie elsewhere and have no part in this."""
TABLES = Path(evorl.__file__).resolve().parents[1] / "benchmarks"
"""Where a checkout has tables, with the policies that they keep."""


def named(name: str, key: str = "") -> str:
    """Return the directory of ``latest`` or of ``zoo/PAPER/NAME``, and any other name as it is.

    ``latest`` is the run below ``runs/`` that began last; a resume makes no run newer. A directory with such a name
    goes first. Raises `BadRequest` at ``key`` if there is none, and for an empty name.
    """
    if not name.strip("'\""):  # of a variable of a shell that is not set; as a path it is the working directory
        raise BadRequest(f"names no run; expected its directory, or {WORD}", key)
    if name.startswith(ZOO) and not Path(name).exists():
        kept = kept_directories()
        return str(kept[kept_name(name.removeprefix(ZOO), [*kept], key)])
    if name != WORD or Path(WORD).exists():
        return name
    runs = [config.parent.parent for config in RUNS.rglob(".hydra/config.yaml")]
    if not runs:
        raise BadRequest(f"there is no run below {RUNS}/ here", key)
    return str(max(runs, key=_began))


def _began(run: Path) -> tuple[str, int]:
    """The second in which a run began, and the time of its first file for those of the same second."""
    try:
        started = str(run_directory.read_json(run, FILE_NAME)["started"])
    except (OSError, ValueError, KeyError, TypeError):  # damaged: no time, so it is the oldest
        started = ""
    lock = run / ".lock"
    return started, lock.stat().st_mtime_ns if lock.exists() else 0


# ------------------------------------------------------------------ kept policies


def kept_directories() -> dict[str, Path]:
    """Return the directories of all kept policies, by their names ``PAPER/NAME``, in the order of these.

    Raises `BadRequest` where there are none.
    """
    found = sorted(TABLES.glob("*/results/policies/*"))
    if not found:
        raise BadRequest("the policies are in benchmarks/ of a checkout: clone the repository")
    return {f"{directory.parents[2].name}/{directory.name}": directory for directory in found}


def kept_name(name: str, kept: Sequence[str], key: str) -> str:
    """Return the one of the names ``PAPER/NAME`` that is meant by ``PAPER/NAME``, or by ``NAME`` where one has it.

    The parts of a name may have another order where it is that of one alone: ``pong_ppo`` is suite/ppo_pong. Raises
    `BadRequest` at ``key``.
    """
    alike = [other for other in kept if other == name or other.endswith(f"/{name}")]
    alike = alike or [other for other in kept if _parts(name) in (_parts(other), _parts(_last(other)))]
    if not alike:
        raise BadRequest(f"there is no {name!r}{_nearest(name, kept) or '; python -m evorl.zoo lists all'}", key)
    if len(alike) > 1:
        raise BadRequest(f"{name!r} is {' or '.join(alike)}", key)
    return alike[0]


def _nearest(name: str, kept: Sequence[str]) -> str:
    """``"; did you mean X?"`` for the name nearest to a wrong one, also without its paper and in another order."""
    for other in kept:
        last = _last(other)
        if any(map(one_edit, (name, name, _in_order(name)), (other, last, _in_order(last)))):
            return f"; did you mean {other}?"
    return nearest(name, kept)


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _in_order(name: str) -> str:
    return "_".join(sorted(_parts(name)))


def _parts(name: str) -> frozenset[str]:
    """The words of a name, whatever their order."""
    return frozenset(re.split("[/_]", name.lower()))
