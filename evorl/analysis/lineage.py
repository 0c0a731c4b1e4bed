"""Layout of the lineage figure: one line per member, or the tree of the newest individuals.

The horizontal position is in environment steps, the vertical position is the number of a line. Population based
training has one line per member. A copy of another member's weights stays on the line of the member that it replaces.
All other evolvers have the tree of the first parents of the newest individuals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evorl.analysis.population import PopulationLog

GOES_ON = "goes on"
"""Role of an individual that continues the same member (`evorl.ec.pbt`)."""
MATCH = "match"
"""Role of games among policies that are there already (`evorl.ec.psro`), which have no place in a lineage."""
LEAVES = 50
"""Least number of newest individuals whose descent is drawn."""


@dataclass(frozen=True)
class Lifespan:
    """One individual in the figure: its row in the log, its line, and its first and last step."""

    row: int
    line: float
    began: float
    ended: float
    parent: int | None
    """Row of its first parent; None if the figure has no parent of it."""


@dataclass(frozen=True)
class Lineage:
    """The lifespans in a figure, in the order of their ids."""

    lifespans: Sequence[Lifespan]
    members: bool
    """Whether each line is a member (population based training)."""
    lines: int

    def descent(self, row: int) -> list[Lifespan]:
        """Return the lifespan of a row and those of its first parents, back to the first."""
        at = {life.row: life for life in self.lifespans}
        path = []
        current: int | None = row
        while current is not None and current in at:
            path.append(at[current])
            current = at[current].parent
        return path


def find_lineage(log: PopulationLog) -> Lineage | None:
    """The lifespans to draw; None if no individual has a parent in the log."""
    parents = _parents(log)
    if not any(parent is not None for parent in parents.values()):
        return None
    if any(line.role == GOES_ON for line in log.individuals):
        return _members(log, parents)
    return _descent(log, parents)


def _parents(log: PopulationLog) -> dict[int, int | None]:
    """Return the row of the first parent of each row, in the order of ids."""
    rows = log.row_of_id
    ordered = [rows[number] for number in sorted(rows)]
    ordered = [row for row in ordered if log.individuals[row].role != MATCH]
    known = {row: rows.get(log.individuals[row].parents[0]) for row in ordered if log.individuals[row].parents}
    return {row: parent if (parent := known.get(row)) is not None and parent < row else None for row in ordered}


def _members(log: PopulationLog, parents: Mapping[int, int | None]) -> Lineage:
    """Return one line per member.

    Ready members are succeeded in the order in which the evolver received them. After the N initial individuals,
    number N + k is on the line of row k, whichever member it copied. An individual that goes on stays on its
    parent's line even if rows of the log are lost.
    """
    line: dict[int, int] = {}
    for row, parent in parents.items():
        individual = log.individuals[row]
        before = parent if individual.role == GOES_ON and parent is not None else individual.id - log.size
        line[row] = individual.id if individual.id < log.size else line.get(before, 0)
    lifespans = [Lifespan(row, line[row], _began(log, row), float(log.steps[row]), parents[row]) for row in parents]
    return Lineage(lifespans, True, log.size)


def _began(log: PopulationLog, row: int) -> float:
    """Return the steps when it was proposed; ``birth`` counts the individuals that the evolver had received by then."""
    birth = log.individuals[row].birth
    return float(log.steps[min(birth, len(log.individuals)) - 1]) if birth else 0.0


def _descent(log: PopulationLog, parents: Mapping[int, int | None]) -> Lineage:
    """Return the tree of the newest individuals: parents are centred on their children, branches do not cross."""
    kept: dict[int, list[int]] = {}  # children, by row
    for leaf in sorted(parents)[-max(log.size, LEAVES) :]:
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
    """Place the leaves in depth-first order and every other node in the middle of its children."""
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
