"""Rewards that evolve, on sparse mountain car: against none, with the same evolver and the same number of steps.

Mountain car pays -1 for each of at most 200 steps until the car is on the hill, so a learner that never gets there has
nothing to learn from. A population of PPO learners (ec=sga, each trained for some steps in a lifetime, children go on
from a parent's weights) has beside it a small network over place and speed, whose weights are genes. Learners follow
its output as an *immediate* reward or as a *potential*, or there is *none*. Who survives, and all numbers here, are by
the world's own return. `evorl.run mdp=mountaincar rl=ppo ec=sga ec.lifetime=train ec.reward.kind=immediate`

The return is that of the individual named best in held-out episodes (-200: it never arrives), a mean over seeds with
its 95 % interval (Student's t). *Arrived* is the environment step at which the first individual had a return above
-200. The second table compares runs of the same seed, whose first weights and episodes are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from evorl.analysis.runs import RunRecord
from evorl.ops.student_t import half_width
from evorl.reproduction.best_so_far import best_at, best_so_far, first_at
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.parts import Sweep
from evorl.reproduction.scores import grid_scores
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Rows, Table

KINDS = ("none", "immediate", "potential")
FAILED = -200.0
POINTS = 20  # of the curves
CAPTION = "The best return so far: interquartile means over seeds with 95 % intervals"
WORDS = (
    *("mdp=mountaincar", "rl=ppo", "ec=sga", "ec.lifetime=train", "ec.slots=1", "ec.episodes=10"),
    *("rl.slots=16", "rl.horizon=64", "rl.minibatch=256", "rl.passes=4", "rl.lr=1e-3", "rl.normalize_inputs=true"),
    *("rl.net.hidden=[32,32]", "eval.every=0", "eval.episodes=50", "checkpoint.every=0", "record.tensorboard=false"),
)


def sweep(seeds: int, *size: str) -> Sweep:
    every = (f"ec.reward.kind={','.join(KINDS)}", f"seed={','.join(map(str, range(seeds)))}")
    return Sweep("reward", (*WORDS, *size, *every))


def by_kind(runs: Sequence[RunRecord]) -> dict[str, list[dict[str, Any]]]:
    """Of each finished run: its seed, return, and the evaluations by step."""
    groups: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for run in sorted(runs, key=lambda run: int(run.seed)):
        if (best := best_so_far(run, FAILED)) is not None and run.result is not None:
            own = {"seed": int(run.seed), "return": float(run.result["fitness"])}
            groups[str(run.config["ec.reward.kind"])].append({**own, **best})
    return groups


def arrived(run: Mapping[str, Any]) -> float | None:
    """The step at which the first individual arrived; None if nobody did."""
    return first_at(run, FAILED, beyond=True)


def values_text(values: Sequence[float]) -> str:
    half = half_width(values)
    return f"{np.mean(values):,.0f}" + (f" ± {half:,.0f}" if np.isfinite(half) else "")


def row(kind: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    when = [arrived(run) for run in runs]
    known = [step for step in when if step is not None]
    return [
        kind, str(len(runs)), values_text([run["return"] for run in runs]), str(len(known)),
        f"{np.median(known):,.0f}" if known else "-", values_text(known) if known else "-",
    ]  # fmt: skip


def sooner(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[list[str]]:
    """How many steps sooner the seeds arrived than the same ones without a reward that evolves."""
    without = {run["seed"]: arrived(run) for run in groups.get("none", ())}
    rows = []
    for kind in KINDS[1:]:
        pairs = [(without.get(run["seed"]), arrived(run)) for run in groups.get(kind, ())]
        gains = [a - b for a, b in pairs if a is not None and b is not None]
        if len(gains) > 1:
            wins = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
            rows.append([kind, str(len(gains)), values_text(gains), f"{wins[0]} : {wins[1]}"])
    return rows


def draw(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    drawn, (axes,) = panels(["Sparse mountain car"], "environment steps", "best return so far")
    end = min(run["steps"][-1] for runs in groups.values() for run in runs)
    grid = np.linspace(0, end, POINTS + 1)[1:]
    for number, (kind, runs) in enumerate(groups.items()):
        known = [[best_at(run, step, FAILED) for step in grid] for run in runs]
        shaded(axes, *grid_scores(grid, known), f"C{number}", f"{kind}, seeds: {len(runs)}")
    return legends(drawn)


def analyse(results: Results) -> Analysis | None:
    groups = {kind: runs for kind, runs in by_kind(results.runs).items() if runs}
    if not groups:
        return None
    return Analysis(
        header=["reward", "seeds", "return of the best", "arrived", "at step, median", "mean"],
        rows=[row(kind, runs) for kind, runs in groups.items()],
        also=[Rows(("reward", "pairs of seeds", "steps sooner than none", "sooner : later"), sooner(groups))],
        pictures=[Picture("reward", CAPTION, draw(groups))],
        data={"runs": groups},
    )


def measured(data: Mapping[str, Any]) -> str:
    cells = [row(kind, runs) for kind, runs in data["runs"].items()]
    return "; ".join(f"{kind} {earned} (arrived: {count} of {seeds} seeds)" for kind, seeds, earned, count, *_ in cells)


TABLE = Table(
    title="Rewards that evolve",
    of="Rewards learned by evolution (wrapper reward.blob of its code)",
    claim="reward networks evolve as a genome beside the policy; no number is published",
    source="the code of Lamarckian",
    about=__doc__,
    profiles={
        "tiny": Profile(
            "population 2, two generations of 1,024 steps; one seed", 0.01,
            [sweep(1, "ec.population=2", "ec.train_steps=1024", "budget.steps=8000")],
        ),
        "ci": Profile(
            "population 8, lifetimes of 10,000 steps, 400,000 in all; 20 seeds", 0.2,
            [sweep(20, "ec.population=8", "ec.train_steps=10_000", "budget.steps=400_000")],
        ),
        "paper": Profile(
            "population 30, lifetimes of 20,000 steps, 4,000,000 in all; 10 seeds", 2,
            [sweep(10, "ec.population=30", "ec.train_steps=20_000", "budget.steps=4_000_000")],
        ),
    },
    analyse=analyse,
    measured=measured,
)  # fmt: skip
