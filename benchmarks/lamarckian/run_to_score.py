"""DQN on Google football's ``academy_run_to_score``, from 115 numbers: minutes until 95 % of the games have a goal.

``evorl.run +experiment=run_to_score``, one run at a time on two cores, for an hour at most. An evaluation is 60 games
with the most valuable actions, after each 30,000 environment steps; a run ends at the first one with 57 goals or more.
The clock counts all of the run, evaluations included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels
from evorl.reproduction.parts import Sweep
from evorl.reproduction.scores import median_policies, score
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table

GOALS = "eval/goals_mean"
SHARE = 0.95
NAME = "run_to_score"
WORDS = ("+experiment=run_to_score", "device=cpu", "budget.seconds=3600", f"budget.fitness={(1 + SHARE) / 2}")
"""A game's fitness is 1 with a goal and 0.5 without, as long as the opponent has none."""


def row(run: RunRecord) -> list[str]:
    """Of the table."""
    goals = run.series[GOALS]
    return [
        str(run.seed), f"{goals.values[0]:.0%}", f"{goals.values[-1]:.0%}", f"{run.steps:,.0f}",
        f"{run.seconds / 60:.1f}",
    ]  # fmt: skip


def draw(runs: list[RunRecord]) -> Figure:
    made, both = panels(["Run to score"] * 2, "environment steps", "share of 60 games with a goal", sharey=True)
    both[1].set(xlabel="minutes", ylabel="")
    for run in runs:
        curve = run.series[GOALS]
        for axes, across in zip(both, (curve.steps, curve.seconds / 60), strict=True):
            axes.plot(across, curve.values, marker=".", lw=1.2, label=f"seed {run.seed}")
    for axes in both:
        axes.axhline(SHARE, color="0.7", lw=0.8, zorder=0)
    return legends(made)


def analyse(results: Results) -> Analysis | None:
    ended = sorted((run for run in results.runs if run.result and GOALS in run.series), key=lambda run: int(run.seed))
    if not ended:
        return None
    policies, medians = median_policies({NAME: ended})
    reached = all(run.series[GOALS].values[-1] >= SHARE for run in ended)
    return Analysis(
        header=["seed", "goals at first", "at the end", "steps", "minutes"],
        rows=[*map(row, ended)],
        also=[medians],
        gates={f"{SHARE:.0%} within the hour in every seed": "passed" if reached else "failed"},
        policies=policies,
        pictures=[Picture(NAME, "Share of games with a goal over steps and minutes of training", draw(ended))],
        data={
            "ends": [float(run.series[GOALS].values[-1]) for run in ended],
            "minutes": [run.seconds / 60 for run in ended],
        },
    )


def measured(data: Mapping[str, Any]) -> str:
    pairs = zip(data["ends"], data["minutes"], strict=True)
    return "goals in " + ", ".join(f"{share:.0%} after {minutes:.0f} minutes" for share, minutes in pairs)


def policy_scores(data: Mapping[str, Any]) -> dict[str, Any]:
    return {NAME: score(data["ends"])._asdict()}


TABLE = Table(
    title="DQN on Google football's run to score",
    of="academy_run_to_score until 95 % of the games have a goal",
    claim="within the hour on two cores",
    source="evorl's own aim",
    about=__doc__,
    profiles={
        "ci": Profile("an hour at most each; one seed", 1, [Sweep(NAME, (*WORDS, "seed=0"))]),
        "night": Profile("an hour at most each; 5 seeds", 4, [Sweep(NAME, (*WORDS, "seed=0,1,2,3,4"))]),
    },
    analyse=analyse,
    measured=measured,
    policy_scores=policy_scores,
)
