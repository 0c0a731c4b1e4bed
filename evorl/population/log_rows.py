"""Individuals as lines of population.jsonl and as rows of the table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evorl.ec.core import Evaluation, objectives
from evorl.ec.space import Space
from evorl.ops.pareto import best
from evorl.population.objectives import mean
from evorl.record.terminal import TABLE_ROWS


def population_row(
    evaluation: Evaluation, space: Space, names: Sequence[str], step: int, seconds: float
) -> dict[str, Any]:
    """Return a line of population.jsonl; ``names`` are those of the objectives."""
    this = evaluation.individual
    return {
        "id": this.id, "parents": list(this.parents), "role": this.role, "birth": this.birth,
        "genes": space.values(this.genes), "cost": evaluation.cost,
        "objectives": dict(zip(names, evaluation.objectives, strict=True)),  # null unless finite
        "results": {name: mean(x) for name, x in evaluation.result.items()},
        "step": step, "seconds": round(seconds, 6),
    }  # fmt: skip


def top_rows(population: Sequence[Evaluation], space: Space, names: Sequence[str], births: int) -> list[dict[str, Any]]:
    """Return the best individuals of a population as rows of a table.

    ``names`` are those of the objectives. ``births``: what an individual's ``birth`` counts, at present.
    """
    if not population:
        return []
    return [
        {
            "individual": evaluation.individual.id, **dict(zip(names, evaluation.objectives, strict=True)),
            "role": evaluation.individual.role,
            "age": births - evaluation.individual.birth, "parents": " ".join(map(str, evaluation.individual.parents)),
            **space.values(evaluation.individual.genes),
        }
        for evaluation in (population[i] for i in best(objectives(population), TABLE_ROWS))
    ]  # fmt: skip
