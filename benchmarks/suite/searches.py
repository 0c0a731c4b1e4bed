"""Searches over four settings of PPO on Pendulum: which finds a good policy in the fewest environment steps.

Genes are the learning rate and the entropy coefficient (drawn by their logarithms), the discount and the clip range. A
whole training is 32,768 steps, and a search has the steps of 25 of them, episodes of evaluations included. *random* and
*optuna* (TPE) train configurations to the end. *asha* and *hyperband* train more of them, most of them for a part of
these steps. *pbt* has four members, which share the search's steps and change their settings every 4,096. All other
settings are equal.

A configuration is judged in 10 episodes. The return is that of the individual named best, in 100 held-out episodes: the
interquartile mean over the seeds with its 95 % interval. *To -200* is the median of the steps until an individual had
that fitness; a seed without one counts as longer than the search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from evorl.analysis.runs import RunRecord
from evorl.reproduction.best_so_far import best_at, best_so_far, first_at
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.parts import TWO_AT_ONCE, Sweep
from evorl.reproduction.scores import grid_scores, score, score_text
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table

TARGET = -200.0
WORST = -2000.0
"""A return before the first evaluation."""
POINTS = 16  # of the curves
CAPTION = "Fitness of the best individual so far: interquartile means over seeds with 95 % intervals"
TRAINING, TRAININGS = 32_768, 25
GENES = (
    "+ec.genes.rl={lr:{low:1e-5,high:1e-1,log:true},entropy_coef:{low:1e-5,high:1e-1,log:true},"
    "gamma:{low:0.8,high:0.999},clip:{low:0.05,high:0.5}}"
)
WORDS = (
    *("mdp=pendulum", "rl=ppo", GENES, "ec.slots=1", "ec.episodes=10", "rl.slots=8", "rl.horizon=64", "device=cpu"),
    *("rl.minibatch=256", "eval.every=0", "eval.episodes=100", "checkpoint.every=0", "record.tensorboard=false"),
)
TINY = ("ec.train_steps=1024", "budget.steps=4096", "eval.episodes=2", "ec.episodes=2")
TRAIN = ("ec.lifetime=train", f"ec.train_steps={TRAINING}")
SEARCHES = {
    "random": ("ec=random", *TRAIN, "ec.population=1"),
    "optuna": ("ec=optuna", *TRAIN, "ec.population=1"),
    "asha": ("ec=asha", *TRAIN, "ec.population=1"),
    "hyperband": ("ec=hyperband", *TRAIN),
    "pbt": ("ec=pbt", "ec.population=4", f"ec.train_steps={TRAINING // 8}"),
}


def sweeps(seeds: int, *size: str) -> list[Sweep]:
    every = f"seed={','.join(map(str, range(seeds)))}"
    return [Sweep(f"searches/{name}", (*WORDS, *words, *size, every), TWO_AT_ONCE) for name, words in SEARCHES.items()]


def by_search(runs: Sequence[RunRecord]) -> dict[str, list[dict[str, Any]]]:
    """Of each finished run: its seed, return, and the best fitness so far by step."""
    groups: dict[str, list[dict[str, Any]]] = {name: [] for name in SEARCHES}
    for run in sorted(runs, key=lambda run: int(run.seed)):
        if (best := best_so_far(run, WORST)) is not None and run.result is not None:
            own = {"seed": int(run.seed), "return": float(run.result["fitness"])}
            groups[run.directory.parent.name].append({**own, **best})
    return {name: found for name, found in groups.items() if found}


def row(name: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    when = [np.inf if (step := first_at(run, TARGET)) is None else step for run in runs]
    middle = float(np.median(when))
    return [
        name, str(len(runs)), f"{np.median([len(run['best']) for run in runs]):.0f}",
        score_text(score([run["return"] for run in runs]), 0), f"{sum(np.isfinite(when))} of {len(runs)}",
        f"{middle:,.0f}" if np.isfinite(middle) else "-",
    ]  # fmt: skip


def draw(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    drawn, (axes,) = panels(["Settings of PPO on Pendulum"], "environment steps", "best fitness so far")
    end = min(run["steps"][-1] for runs in groups.values() for run in runs)
    grid = np.linspace(0, end, POINTS + 1)[1:]
    for number, (name, runs) in enumerate(groups.items()):
        shaded(
            axes, *grid_scores(grid, [[best_at(run, step, WORST) for step in grid] for run in runs]), f"C{number}", name
        )
    axes.axhline(TARGET, color="0.7", lw=0.8, zorder=0)
    axes.set_ylim(bottom=-1300)
    return legends(drawn)


def analyse(results: Results) -> Analysis | None:
    groups = by_search(results.runs)
    if not groups:
        return None
    return Analysis(
        header=["search", "seeds", "evaluations", "return of the best", "seeds at -200", "steps to -200"],
        rows=[row(name, runs) for name, runs in groups.items()],
        pictures=[Picture("searches", CAPTION, draw(groups))],
        data={"runs": groups},
    )


def measured(data: Mapping[str, Any]) -> str:
    cells = [row(name, runs) for name, runs in data["runs"].items()]
    return "; ".join(f"{name} {earned} (-200 in {seeds} seeds)" for name, _, _, earned, seeds, *_ in cells)


TABLE = Table(
    title="Searches over settings",
    of="Settings of PPO on Pendulum, searched for",
    claim="ASHA and Hyperband need fewer steps, since they stop bad configurations early",
    source="Li et al. 2018, 2020, for longer trainings",
    about=__doc__,
    profiles={
        "tiny": Profile("trainings of 1,024 steps; one seed", 0.01, sweeps(1, *TINY)),
        "ci": Profile("25 trainings each; 5 seeds", 1, sweeps(5, f"budget.steps={TRAININGS * TRAINING}")),
    },
    analyse=analyse,
    measured=measured,
)
