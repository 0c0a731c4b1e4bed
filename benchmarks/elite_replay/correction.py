"""V-trace beside no correction, with half of each minibatch replayed.

Without correction (rl.correction=none) the learner takes the replayed rollouts as if the present policy had acted.
Returns are those of the deterministic policy: at the end, and the mean over all evaluations of the run. KL is the
divergence of the present policy from the one that acted, over the replayed half and the whole run, as it is estimated
from their ratios. A number is the interquartile mean over seeds with its 95 % stratified bootstrap interval; "beside
V-trace" says how the intervals lie.

The runs with V-trace are those of uniform replay in elite.py, and both tables find them there. On Seaquest, where that
replays 2 of 10 rollouts, they are runs of their own.

The policy of each median run is kept in `policies/`. The table of policies has the return of its last evaluation,
which is that of one run. `python -m evorl.evaluate run=benchmarks/elite_replay/results/policies/NAME` evaluates it
again, to the same bits on a processor with the same instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.elite_replay.arms import PROFILES, WORLDS, ends, half, uncorrected, world_of
from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.scores import (
    METRIC,
    Score,
    at,
    core_hours,
    curve,
    mean,
    median_policies,
    samples,
    score_text,
    scored,
)
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table
from evorl.reproduction.verdicts import beside

TITLES = {"vtrace": "V-trace", "none": "no correction"}
SWEEPS = {name: [each(world) for world in worlds for each in (half, uncorrected)] for name, worlds in PROFILES.items()}
BEHIND = 5.0
"""Points that no correction must be behind on vector Pong."""
Runs = dict[str, dict[str, list[RunRecord]]]
"""Runs by world and correction."""


def gathered(runs: list[RunRecord]) -> Runs:
    by_world: Runs = {world: {} for world in WORLDS}
    for run in runs:
        if run.result is not None:
            by_world[world_of(run)].setdefault(run.config["rl.correction"], []).append(run)
    return {world: dict(sorted(each.items(), reverse=True)) for world, each in by_world.items() if each}


def scores_of(runs: list[RunRecord], every: float) -> dict[str, Score | None]:
    end = float(runs[0].config["budget.steps"])
    over = [run for run in runs if np.isfinite(at(run, end, 1, every))]
    return {
        "end": scored(over, lambda run: at(run, end, 1, every)),
        "overall": scored(over, lambda run: mean(run, METRIC, 0.0, np.inf)),
        "kl": scored(over, lambda run: mean(run, "replay/kl_uniform", 0.0, np.inf)),
    }


def rows(by_world: Runs) -> tuple[list[list[str]], dict[str, dict[str, dict[str, Score | None]]]]:
    """Of the table, and the scores by world and correction."""
    shown, data = [], {}
    for world, each in by_world.items():
        known = WORLDS[world]
        data[world] = {name: scores_of(runs, known.every) for name, runs in each.items()}
        for name, estimates in data[world].items():
            base, cells = data[world].get("vtrace", {}), []
            for what in ("end", "overall"):
                estimate = estimates[what]
                cells += [score_text(estimate, known.digits), beside(estimate, base.get(what))]
            kl, runs = estimates["kl"], each[name]
            cells += [score_text(kl, 2), f"{core_hours(runs):.2f}"]
            steps = f"{float(runs[0].config['budget.steps']):,.0f}"
            shown.append([f"{known.title}, {TITLES[name]}", f"{len(runs)}", steps, *cells])
    return shown, data


def verdict(pong: Mapping[str, Mapping[str, Score | None]]) -> str:
    """Of the rule that was fixed before the runs, for vector Pong."""
    none, vtrace = (pong.get(name, {}).get("end") for name in ("none", "vtrace"))
    if none is None or vtrace is None:
        return "not run"
    return "passed" if beside(none, vtrace) == "below" and none.iqm <= vtrace.iqm - BEHIND else "failed"


def draw(by_world: Runs) -> Figure:
    drawn, axes = panels([WORLDS[world].title for world in by_world], "environment steps (decisions)", "return")
    for axis, (world, each) in zip(axes, by_world.items(), strict=True):
        for number, (name, runs) in enumerate(each.items()):
            band = curve(runs, float(runs[0].config["budget.steps"]), WORLDS[world].every)
            shaded(axis, *band, f"C{number}", f"{TITLES[name]}, seeds: {len(runs)}")
    return legends(drawn)


def analyse(results: Results) -> Analysis | None:
    by_world = gathered(results.runs)
    if not by_world:
        return None
    shown, data = rows(by_world)
    gates = {}
    if "vector_pong" in by_world:
        what = f"Vector Pong: no correction ends {BEHIND:.0f} points or more below V-trace, intervals apart"
        gates[what] = verdict(data["vector_pong"])
    header = ["world, correction", "seeds", "steps", "return at the end", "beside V-trace", "mean over the run"]
    policies, medians = median_policies({
        f"{world}_{correction}": runs for world, each in by_world.items() for correction, runs in each.items()
    })  # fmt: skip
    return Analysis(
        header=[*header, "beside V-trace", "KL", "core hours"],
        rows=shown,
        also=[medians],
        policies=policies,
        gates=gates,
        pictures=[Picture("correction", "Return over environment steps", draw(by_world))],
        data={
            "table": {
                world: {name: {k: x and x._asdict() for k, x in estimates.items()} for name, estimates in each.items()}
                for world, each in data.items()
            },
            "runs": {world: {name: samples(runs) for name, runs in each.items()} for world, each in by_world.items()},
        },
    )


def measured(data: Mapping[str, Any]) -> str:
    return ends(
        {world: {TITLES[name]: scores for name, scores in each.items()} for world, each in data["table"].items()}
    )


def policy_scores(data: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{world}_{name}": scores["end"] for world, each in data["table"].items() for name, scores in each.items()}


TABLE = Table(
    title="V-trace and no correction",
    of="V-trace and no correction with half of each batch replayed (IMPALA, table 2)",
    claim="with replay V-trace learns on five tasks of DMLab (47.1, 35.8, 34.5, 250.8, 46.9); without correction "
    "learning falls behind or fails (35.0, 21.1, 2.8, 85.0, 11.2)",
    source="Espeholt et al. 2018, table 2",
    about=__doc__,
    profiles={
        "ci": Profile(
            "vector Pong for 3M steps, whose replayed rollouts are 130 gradient steps old, the duel for 1M and "
            "CartPole for 100,000; 5 seeds", 0.4, SWEEPS["ci"],
        ),
        "paper": Profile("Breakout and Seaquest for 12M decisions; 3 seeds; a Ray cluster", 240, SWEEPS["paper"]),
    },
    analyse=analyse,
    measured=measured,
    policy_scores=policy_scores,
)  # fmt: skip
