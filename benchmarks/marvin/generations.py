"""Learning curves of an evolution in generations, and when they pass a threshold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.common import bound
from evorl.reproduction.scores import score

Curve = NDArray[np.float64]
WINDOW = 5
"""Generations whose mean must be above a threshold."""
AGAIN = ("episodes=30", "seed=1000000")
"""How a policy is judged again: on other episodes than those of the search."""


def curve(place: Path, population: int) -> tuple[Curve, Curve]:
    """Mean return of each whole generation [G], and the environment steps until its end [G]."""
    rows = whole_generations(place, population)
    returns = np.array([row["objectives"]["fitness"] for row in rows], float).reshape(-1, population)
    return returns.mean(1), np.array([row["step"] for row in rows[population - 1 :: population]], float)


def whole_generations(place: Path, population: int) -> list[dict[str, Any]]:
    """The lines of a run's journal, without those of a generation that has not ended."""
    lines = (place / "population.jsonl").read_bytes().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return rows[: len(rows) - len(rows) % population]


def passed(returns: Curve, threshold: float) -> int | None:
    """The first generation at which the mean with those before it is above."""
    means = np.convolve(returns, np.full(WINDOW, 1 / WINDOW), "valid")
    above = np.flatnonzero(means > threshold)
    return int(above[0]) + WINDOW - 1 if above.size else None


def best_run(runs: Mapping[Path, Curve]) -> Path:
    """The run whose last ten generations are the best."""
    return max(runs, key=lambda place: runs[place][-10:].mean())


def evaluation_of(policy: str) -> str:
    """The command that judges a kept policy so."""
    return f"python -m evorl.evaluate run=benchmarks/marvin/results/policies/{policy} {' '.join(AGAIN)}"


def header(first: str, thresholds: Sequence[float]) -> list[str]:
    """Of a table of `row`."""
    each = [(f"mean above {threshold:g} at generation", "median", "IQM", "episodes") for threshold in thresholds]
    return [first, "seeds", "generations", *(cell for four in each for cell in four), "last 10"]


def when(cells: Sequence[str], at: int) -> str:
    """Of the cells of a row: when a threshold was passed on average, with its interval, and of each seed."""
    each, middle, mean, _ = cells[3 + 4 * at : 7 + 4 * at]
    return f"{middle if mean == '-' else mean} ({each})"


def row(name: str, curves: Sequence[Curve], population: int, thresholds: Sequence[float]) -> list[str]:
    """Seeds, generations, for each threshold when it is passed, and the end.

    When it is passed: of each seed, their median, their interquartile mean (where all have passed), and the episodes
    until the median.
    """
    cells = [name, str(len(curves)), ", ".join(str(len(curve)) for curve in curves)]
    for threshold in thresholds:
        arrivals = [passed(curve, threshold) for curve in curves]
        known = [len(curve) if g is None else g for curve, g in zip(curves, arrivals, strict=True)]
        each = ", ".join(f"> {len(curve)}" if g is None else str(g) for curve, g in zip(curves, arrivals, strict=True))
        middle, sign = median(known), bound(arrivals, known)
        mean = "-" if None in arrivals else str(score(known))
        cells += [each, f"{sign}{middle:g}", mean, f"{sign}{population * (middle + 1):,.0f}"]
    return [*cells, ", ".join(f"{curve[-10:].mean():.0f}" for curve in curves)]
