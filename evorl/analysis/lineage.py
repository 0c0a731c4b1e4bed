"""Who came from whom, laid out for a picture: members' lines, or the descent of the newest individuals.

The horizontal place of everything is environment steps, the vertical one a line of its own. An evolver that keeps
members (population based training) has a line for each: what goes on stays on its line, what takes over another's
weights stays on the line of the member that ends there. Every other evolver has the tree of the first parents of
the individuals that were told last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evorl.analysis.population import PopulationLog

GOES_ON = "goes on"
"""The role of a member's own successor (`evorl.ec.pbt`)."""
LEAVES = 50
"""Newest individuals whose descent is drawn, at least."""


@dataclass(frozen=True)
class Lifespan:
    """One individual: its row in the file, its line, and from when to when it lifespans."""

    row: int
    line: float
    began: float
    ended: float
    parent: int | None
    """The row of its first parent; None where it has none in the picture."""


@dataclass(frozen=True)
class Lineage:
    """The lifespans in a picture, in the order of their ids."""

    lifespans: Sequence[Lifespan]
    members: bool
    """Whether lines are members'."""
    lines: int

    def descent(self, row: int) -> list[Lifespan]:
        """The life of a row and those of its first parents, back to the first."""
        at = {life.row: life for life in self.lifespans}
        path = []
        now: int | None = row
        while now is not None and now in at:
            path.append(at[now])
            now = at[now].parent
        return path


def find_lineage(log: PopulationLog) -> Lineage | None:
    """The lifespans worth a picture; None where no individual has a parent that was told."""
    parents = _parents(log)
    if not any(parent is not None for parent in parents.values()):
        return None
    if any(line.role == GOES_ON for line in log.individuals):
        return _members(log, parents)
    return _descent(log, parents)


def _parents(log: PopulationLog) -> dict[int, int | None]:
    """The row of each individual's first parent, by row, in the order of ids."""
    rows = log.row_of_id
    ordered = [rows[number] for number in sorted(rows)]
    known = {row: rows.get(log.individuals[row].parents[0]) for row in ordered if log.individuals[row].parents}
    return {row: parent if (parent := known.get(row)) is not None and parent < row else None for row in ordered}


def _members(log: PopulationLog, parents: Mapping[int, int | None]) -> Lineage:
    """Each member's line. Ready members are succeeded in the order in which they were told of, so that after the N
    who began, number N + k has the line of row k, whomever it took over. Who goes on also does where rows were lost.
    """
    line: dict[int, int] = {}
    for row, parent in parents.items():
        one = log.individuals[row]
        before = parent if one.role == GOES_ON and parent is not None else one.id - log.size
        line[row] = one.id if one.id < log.size else line.get(before, 0)
    lifespans = [Lifespan(row, line[row], _began(log, row), float(log.steps[row]), parents[row]) for row in parents]
    return Lineage(lifespans, True, log.size)


def _began(log: PopulationLog, row: int) -> float:
    """Steps when it was proposed: its birth counts those that its evolver had been told of."""
    birth = log.individuals[row].birth
    return float(log.steps[min(birth, len(log.individuals)) - 1]) if birth else 0.0


def _descent(log: PopulationLog, parents: Mapping[int, int | None]) -> Lineage:
    """The tree of the newest individuals; a parent is beside the middle of its children, no two branches cross."""
    total = len(log.individuals)
    kept: dict[int, list[int]] = {}  # children, by row
    for leaf in range(total - min(total, max(log.size, LEAVES)), total):
        row: int | None = leaf
        child: int | None = None
        while row is not None:
            known = row in kept
            kept.setdefault(row, []).extend([] if child is None else [child])
            if known:
                break
            row, child = parents.get(row), row
    place = _places(kept, [row for row in kept if parents.get(row) is None])
    lifespans = [
        Lifespan(row, place[row], float(log.steps[row if parent is None else parent]), float(log.steps[row]), parent)
        for row, parent in parents.items()
        if row in kept
    ]
    return Lineage(lifespans, False, sum(not children for children in kept.values()))


def _places(children: Mapping[int, Sequence[int]], roots: Sequence[int]) -> dict[int, float]:
    """Leaves one below the other in the order of a walk, every other node in the middle of its children."""
    walk: list[int] = []
    stack = sorted(roots, reverse=True)
    while stack:
        row = stack.pop()
        walk.append(row)
        stack += sorted(children[row], reverse=True)
    leaves = [row for row in walk if not children[row]]
    place = {row: float(k) for k, row in enumerate(leaves)}
    for row in reversed(walk):
        if children[row]:
            below = [place[child] for child in children[row]]
            place[row] = (min(below) + max(below)) / 2
    return place
