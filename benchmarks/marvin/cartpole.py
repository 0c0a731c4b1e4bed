"""CartPole by the evolution strategy of Marvin's authors: mean return by generation.

``evorl.run +experiment=marvin/cartpole`` has the update of marvin/original, 20 policies and episodes of at most 1000
steps. Its network has two outputs, of which the higher is the action; the authors' has one. The return of a generation
is the mean over its 20 policies, perturbations included. A threshold counts as passed at the first generation whose
mean with the 4 before it is above. IQM is the interquartile mean over seeds with its 95 % bootstrap interval, where all
have passed. 475 is the threshold at which gymnasium calls CartPole-v1 solved (there with at most 500 steps); what the
authors call solved is not told. The fittest policy of the last generation, of the run whose last ten generations are
the best, is judged on 30 other episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.marvin.generations import (
    AGAIN,
    Curve,
    best_run,
    curve,
    evaluation_of,
    header,
    row,
    when,
    whole_generations,
)
from evorl.reproduction.figures import legends, panels
from evorl.reproduction.judging import judge
from evorl.reproduction.parts import Sweep
from evorl.reproduction.table import Analysis, Picture, Policy, Profile, Results, Table

POPULATION = 20
THRESHOLDS = (475.0, 950.0)
SOLVED = 50
"""The generation that the authors name."""


def draw(curves: Sequence[Curve]) -> Figure:
    drawn, (axes,) = panels(["CartPole"], "generation (20 episodes)", "mean return")
    for number, returns in enumerate(curves):
        axes.plot(returns, color="C0", alpha=0.8, lw=1, label=None if number else "each seed, measured here")
    axes.axvline(SOLVED, color="black", ls=":", lw=1, label="solved, published")
    return legends(drawn)


def analyse(results: Results) -> Analysis | None:
    """Of the runs with a whole generation."""
    begun = [run.directory for run in results.runs if (run.directory / "population.jsonl").exists()]
    by_place = {place: both for place in begun if len((both := curve(place, POPULATION))[0])}
    if not by_place:
        return None
    curves = [returns for returns, _ in by_place.values()]
    best = best_run({place: returns for place, (returns, _) in by_place.items()})
    fittest = max(whole_generations(best, POPULATION)[-POPULATION:], key=lambda row: row["objectives"]["fitness"])
    words = (f"individual={fittest['id']}", *AGAIN)
    judged, _ = judge(best, words, film=False)
    return Analysis(
        header=header("CartPole", THRESHOLDS),
        rows=[row("original", curves, POPULATION, THRESHOLDS)],
        notes=[
            f"That policy on {judged['episodes']} other episodes: a mean return of {judged['return_mean']:.0f} "
            f"({judged['return_min']:.0f} to {judged['return_max']:.0f}). The same again: `{evaluation_of('cartpole')}`"
        ],
        policies={"cartpole": Policy(best, words)},
        pictures=[Picture("cartpole", "Mean return over generations", draw(curves))],
        data={
            "runs": [{"returns": a.round(2).tolist(), "steps": b.astype(int).tolist()} for a, b in by_place.values()],
            "best": judged,
        },
    )


def measured(data: Mapping[str, Any]) -> str:
    """When the means were above the thresholds."""
    cells = row("", [np.array(run["returns"]) for run in data["runs"]], POPULATION, THRESHOLDS)
    texts = [f"above {x:g} at generation {when(cells, at)}" for at, x in enumerate(THRESHOLDS)]
    return f"{cells[1]} seeds: mean {', '.join(texts)}"


TABLE = Table(
    title="CartPole by Marvin's evolution strategy",
    of="CartPole by the same strategy",
    claim="a network of 4-4-1 and a population of 20 solve it at generation 50 (one run)",
    source="the notebook of walking_marvin",
    about=__doc__,
    profiles={
        "ci": Profile(
            "400,000 steps, some 30 generations; one seed", 0.01,
            [Sweep("cartpole", ("seed=0", "+experiment=marvin/cartpole", "budget.steps=400_000"))],
        ),
        "paper": Profile(
            "1,200,000 steps, at least 60 generations; 5 seeds", 0.02,
            [Sweep("cartpole", ("seed=0,1,2,3,4", "+experiment=marvin/cartpole"))],
        ),
    },
    analyse=analyse,
    measured=measured,
)  # fmt: skip
