"""What the hardware did: for each run, its processes with their processor time and memory, and its energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evorl.analysis.runs import RunRecord
from evorl.analysis.tables import Row

CPU, MEMORY, ENERGY = "hardware/cpu", "hardware/memory", "hardware/energy_"


def hardware_rows(runs: Sequence[RunRecord]) -> list[Row]:
    """Return a row for all processes of a run together and one for each process; none for runs without readings.

    Cores: mean over the readings. Memory: largest reading, in MiB. Energy: sum over processors and GPUs, in kJ.
    """
    rows = []
    for run in runs:
        names = [name.removeprefix(f"{CPU}_") for name in run.series if name.startswith(f"{CPU}_")]
        if CPU in run.series:
            rows.append(_row(run, "all", "") | {"energy (kJ)": _energy(run)})
            rows += [_row(run, name, f"_{name}") | {"energy (kJ)": None} for name in sorted(names, key=_order)]
    return rows


def _row(run: RunRecord, name: str, suffix: str) -> Row:
    cores, memory = run.series[f"{CPU}{suffix}"].values, run.series[f"{MEMORY}{suffix}"].values
    return {
        "run": str(run.directory), "process": name, "cores": float(np.mean(cores)),
        "largest memory (MiB)": float(np.max(memory)),
    }  # fmt: skip


def _energy(run: RunRecord) -> float | None:
    joules = [float(np.sum(curve.values)) for name, curve in run.series.items() if name.startswith(ENERGY)]
    return sum(joules) / 1e3 if joules else None


def _order(name: str) -> tuple[Any, ...]:
    """Order the driver first, then workers and learners by their numbers, then the others."""
    kind, _, number = name.partition("_")
    return ("driver", "worker", "learner", "others").index(kind), int(number or 0)
