"""How much of the variance of the fitness each varied key of a sweep explains: fANOVA (Hutter et al. 2014), of optuna.

A random forest predicts the fitness of a run from its keys. The importance of a key is the share of the forest's
variance that the key explains alone, averaged over all values of the others. The seed takes part as one more key: its
share is due to chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy

from evorl.analysis.groups import Group, format_value
from evorl.analysis.runs import is_number
from evorl.analysis.sweeps import seeks_lowest
from evorl.analysis.tables import Row, summary_metrics
from evorl.util import command
from evorl.util.numbers import format_number, short_texts

LEAST_RUNS = 8
TREES = 64
TITLE = "Importance of keys"
WORDS = (
    "Importance: the share of the variance of the fitness that a key explains alone (fANOVA, a random forest over "
    "{runs} runs); what is missing to 1 is due to keys together. The seed gets its share by chance: keys that get no "
    "more are not shown to matter. Correlation: Spearman's, of numbers. Best value: that of the {sought} mean fitness."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Importance:
    """The importance of each varied key, the highest first."""

    rows: Sequence[Row]
    runs: int
    lowest: bool = False
    """Whether the lowest fitness is the best."""

    @property
    def words(self) -> str:
        return WORDS.format(runs=self.runs, sought="lowest" if self.lowest else "highest")

    @property
    def text(self) -> list[dict[str, str]]:
        return [
            {key: "" if value is None else format_number(value) if is_number(value) else short_texts([str(value)])[0]
             for key, value in row.items()}
            for row in self.rows
        ]  # fmt: skip


def wanted(groups: Sequence[Group]) -> bool:
    """Whether the groups differ in several keys and have runs enough for a forest."""
    return len(groups[0].values) > 1 and len(_known(groups)[1]) >= LEAST_RUNS


def lacking() -> str:
    """One line if the libraries are missing; empty if they are there."""
    missing = [name for name in ("optuna", "sklearn") if find_spec(name) is None]
    if missing:
        return f"The importance of keys is left out: {missing[0]} is missing. {command.install('importance')}"
    return ""


def importance(groups: Sequence[Group]) -> Importance | None:
    """Return the importance of the keys that distinguish the groups; None where it is not `wanted`, or all runs are
    alike.
    """
    columns, fitness = _known(groups)
    if not wanted(groups) or np.ptp(fitness) == 0:
        return None
    shares, lowest = _fanova(columns, fitness), seeks_lowest(run for group in groups for run in group.runs)
    rows = [
        {
            "key": key, "importance": shares.get(key, 0.0), "correlation": _correlation(column, fitness),
            "best value": "" if key == "seed" else _best(column, fitness, lowest),
            "values": len({format_value(value) for value in column}),
        }
        for key, column in columns.items()
    ]  # fmt: skip
    return Importance(rows=sorted(rows, key=lambda row: -row["importance"]), runs=len(fitness), lowest=lowest)


def _known(groups: Sequence[Group]) -> tuple[dict[str, list[Any]], list[float]]:
    """The values of each key, of the seed too, and the fitness, of every run that has one."""
    every = [(group, run, summary_metrics(run).get("fitness")) for group in groups for run in group.runs]
    known = [(group, run, fitness) for group, run, fitness in every if fitness is not None]
    columns = {key: [group.values[key] for group, _, _ in known] for key in groups[0].values}
    if len({run.seed for _, run, _ in known}) > 1:
        columns.setdefault("seed", [run.seed for _, run, _ in known])
    return columns, [fitness for _, _, fitness in known]


def _fanova(columns: Mapping[str, Sequence[Any]], fitness: Sequence[float]) -> dict[str, float]:
    """Share of each key that has several values. Numbers count by their rank, so that each grid is even."""
    import optuna
    from optuna.distributions import CategoricalDistribution, IntDistribution
    from optuna.importance import FanovaImportanceEvaluator

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds: dict[str, Any] = {}
    coded: dict[str, list[Any]] = {}
    for key, column in columns.items():
        texts = [format_value(value) for value in column]
        if len(set(texts)) < 2:
            continue
        if all(map(is_number, column)):
            _, ranks = np.unique(column, return_inverse=True)
            kinds[key], coded[key] = IntDistribution(0, int(ranks.max())), ranks.tolist()
        else:
            kinds[key], coded[key] = CategoricalDistribution(sorted(set(texts))), texts
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={key: values[i] for key, values in coded.items()}, distributions=kinds, value=value
            )
            for i, value in enumerate(fitness)
        ]
    )
    importances = FanovaImportanceEvaluator(n_trees=TREES, seed=0).evaluate(study)
    return {key: float(share) for key, share in importances.items()}


def _correlation(column: Sequence[Any], fitness: Sequence[float]) -> float | None:
    if not all(map(is_number, column)) or len(set(column)) < 2:
        return None
    return float(scipy.stats.spearmanr(column, fitness).statistic)


def _best(column: Sequence[Any], fitness: Sequence[float], lowest: bool) -> str:
    by: dict[str, list[float]] = {}
    for value, one in zip(column, fitness, strict=True):
        by.setdefault(format_value(value), []).append(one)
    return (min if lowest else max)(by, key=lambda value: float(np.mean(by[value])))
