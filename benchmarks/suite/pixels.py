"""Atari's Pong from pixels on two cores: environment steps and minutes until the score is above 0.

``evorl.run +experiment=pong_pixels`` (PPO) and ``+experiment=pong_pixels_vtrace`` (V-trace with half of each minibatch
replayed), on PongNoFrameskip-v4 with pictures of 60 x 60, one run at a time on both cores. A run ends after an hour, or
once an evaluation has a mean score of 10 or more. The score in training is the mean of the last 100 full games of the
policy that learns, which draws its actions. An evaluation is 5 games with drawn and 5 with the most probable actions.
The clock counts all of the run, evaluations included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels
from evorl.reproduction.parts import Sweep
from evorl.reproduction.scores import median_policies, score
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table

SCORE, EVALUATED = "train/return", "eval/return_mean"
LEARNERS = {"pong_pixels": "PPO", "pong_pixels_vtrace": "V-trace"}
"""By their experiments."""
WORDS = ("device=cpu", "budget.seconds=3600", "budget.fitness=10")


def sweeps(seeds: str) -> list[Sweep]:
    return [Sweep(name, (f"+experiment={name}", f"seed={seeds}", *WORDS)) for name in LEARNERS]


def above_zero(run: RunRecord) -> tuple[float, float] | None:
    """The first step, and its second, at which the mean of the last 100 games is above 0."""
    curve = run.series[SCORE]
    places = np.flatnonzero(curve.values > 0)
    return (float(curve.steps[places[0]]), float(curve.seconds[places[0]])) if len(places) else None


def row(learner: str, run: RunRecord) -> list[str]:
    """Of the table."""
    assert run.result is not None
    when, evaluation = above_zero(run), run.result["eval"]
    reached = [f"{when[0]:,.0f}", f"{when[1] / 60:.1f}"] if when else ["-", "-"]
    scores = [f"{evaluation[name]:+.1f}" for name in ("stochastic_return_mean", "return_mean")]
    return [learner, str(run.seed), *reached, f"{run.steps:,.0f}", f"{run.seconds / 60:.1f}", *scores]


def draw(groups: Mapping[str, Sequence[RunRecord]]) -> Figure:
    made, both = panels(["Pong from pixels"] * 2, "environment steps", "score of 21, last 100 games", sharey=True)
    both[1].set(xlabel="minutes", ylabel="")
    for name, runs in groups.items():
        for run in runs:
            curve = run.series[SCORE]
            for axes, across in zip(both, (curve.steps, curve.seconds / 60), strict=True):
                axes.plot(across, curve.values, lw=1.2, label=f"{LEARNERS[name]}, seed {run.seed}")
    for axes in both:
        axes.axhline(0, color="0.7", lw=0.8, zorder=0)
    return legends(made)


def analyse(results: Results) -> Analysis | None:
    ended = [run for run in results.runs if run.result and EVALUATED in run.series]
    groups = {name: [run for run in ended if run.directory.parent.name == name] for name in LEARNERS}
    groups = {name: sorted(runs, key=lambda run: int(run.seed)) for name, runs in groups.items() if runs}
    if not groups:
        return None
    policies, medians = median_policies(groups)
    return Analysis(
        header=[
            "learner", "seed", "above 0 after steps", "after minutes", "steps", "minutes", "score, drawn actions",
            "most probable",
        ],
        rows=[row(LEARNERS[name], run) for name, runs in groups.items() for run in runs],
        also=[medians],
        gates={"above 0 within the hour in every seed": "passed" if all(map(above_zero, ended)) else "failed"},
        policies=policies,
        pictures=[Picture("pixels", "Score over steps and minutes of training", draw(groups))],
        data={
            "ends": {name: [float(run.series[EVALUATED].values[-1]) for run in runs] for name, runs in groups.items()},
            "above_zero": {name: [above_zero(run) for run in runs] for name, runs in groups.items()},
        },
    )  # fmt: skip


def measured(data: Mapping[str, Any]) -> str:
    texts = []
    for name, crossings in data["above_zero"].items():
        minutes = ", ".join("-" if each is None else f"{each[1] / 60:.0f}" for each in crossings)
        texts.append(f"{LEARNERS[name]} above 0 after {minutes} minutes")
    return "; ".join(texts)


def policy_scores(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: score(ends)._asdict() for name, ends in data["ends"].items()}


TABLE = Table(
    title="Atari's Pong from pixels",
    of="Pong from pixels until the score is above 0",
    claim="within the hour on two cores",
    source="evorl's own aim",
    about=__doc__,
    profiles={
        "ci": Profile("an hour at most each; one seed", 2.5, sweeps("1")),
        "night": Profile("an hour at most each; 3 seeds", 8, sweeps("1,2,3")),
    },
    analyse=analyse,
    measured=measured,
    policy_scores=policy_scores,
)
