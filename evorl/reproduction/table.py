"""The declaration of a table: what it reproduces, what it is made of at each size, and how it is read from that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evorl.analysis.runs import RunRecord
from evorl.reproduction.parts import Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cells = Sequence[Sequence[str]]


class Profile(NamedTuple):
    """One size of a table. ``paper`` is the published one, ``ci`` one for two cores."""

    size: str
    """The size in words."""
    core_hours: float
    """Estimate; a result has the hours that it took."""
    parts: Sequence[Part]


class Results(NamedTuple):
    """The runs and measurements of a profile's parts so far."""

    profile: str
    runs: list[RunRecord]
    """Of all sweeps, finished or not."""
    measured: Mapping[str, Any]
    """Answers of the measurements, by name."""
    folder: Path = Path()
    """Where sweeps and measurements have their folders, by name."""


class Picture(NamedTuple):
    name: str
    """Of its files, without the suffix."""
    caption: str
    figure: Figure


class Policy(NamedTuple):
    run: Path
    words: tuple[str, ...] = ()
    """Of ``evorl.evaluate``: which individual of a population, and the episodes if they are not the run's own."""


class Rows(NamedTuple):
    header: Sequence[str]
    rows: Cells


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The content of a reproduced table: its rows, verdicts, notes, pictures, files and policies."""

    header: Sequence[str]
    rows: Cells
    also: Sequence[Rows] = ()
    """Further tables."""
    gates: Mapping[str, str] = field(default_factory=dict)
    """Verdicts (passed, failed, not run) of what was fixed before the runs."""
    notes: Sequence[str] = ()
    """Paragraphs of Markdown."""
    pictures: Sequence[Picture] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    """Films and the like, by the name under which they are kept."""
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """What is kept below ``policies/``, by the name of the folder."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of the machine and the runs, beside those that every table has."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The numbers, and every sample."""


Curves = Mapping[int, Sequence[float]]
"""The evaluations of each run, by seed."""


class Repeated(NamedTuple):
    """What is compared where the runs of a sweep are made again."""

    sweep: str
    """Its name."""
    curves: Curves
    margin: float
    """The largest difference of scores that does not matter."""
    read: Callable[[Sequence[RunRecord]], Curves]
    """Reads the evaluations of the sweep's runs, as ``curves`` were read."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table or figure of a paper, and how it is rebuilt."""

    title: str
    of: str
    """What the paper has, in a few words."""
    claim: str
    source: str
    """Of the claim."""
    about: str | None
    """What is measured and how: the docstring of the program."""
    profiles: Mapping[str, Profile]
    """From the smallest to the largest."""
    analyse: Callable[[Results], Analysis | None]
    """None where there is nothing to show yet."""
    measured: Callable[[Mapping[str, Any]], str]
    """The main numbers with their intervals in a few words, of the ``data`` of a result."""
    repeated: Callable[[Mapping[str, Any]], Mapping[str, Repeated]] | None = None
    """What ``--check`` compares, of the ``data`` of a result, by a name for people; None where there is no check."""
    policy_scores: Callable[[Mapping[str, Any]], Mapping[str, Mapping[str, float | None]]] | None = None
    """The score (`evorl.reproduction.scores.Score`, as plain data) of the runs beside each kept policy, of the ``data``
    of a result; None where a policy is of the only run."""
    peers: bool = False
    """Whether it runs programs of the peers' environment (make peers)."""


class Unmeasured(NamedTuple):
    """A table or figure without a program."""

    of: str
    claim: str
    source: str
    why: str
    """Why there is none."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A system whose tables are rebuilt, in the order in which they are listed."""

    title: str
    source: str
    tables: tuple[str, ...]
    """Names of the programs in the paper's folder, each of which declares its ``TABLE``."""
    unmeasured: tuple[Unmeasured, ...] = ()
