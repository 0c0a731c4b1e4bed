"""V-trace beside no correction, with half of each minibatch replayed.

Without correction (rl.correction=none) the learner takes the replayed rollouts as if the present policy had acted.
Returns are those of the deterministic policy: at the end, and the mean over all evaluations of the run. KL is the
divergence of the present policy from the one that acted, over the replayed half and the whole run, as it is estimated
from their ratios. A number is the interquartile mean over seeds with its 95 % stratified bootstrap interval; "beside
V-trace" says how the intervals lie.

    python benchmarks/elite_replay/correction.py profile=ci|paper [KEY=VALUE ...] [--runs DIR] [--out DIR]
        [--draw | --print]

``profile=ci`` is vector Pong for 3M steps, whose replayed rollouts are 130 gradient steps old, and CartPole for
100,000. ``profile=paper`` is Breakout and Seaquest for 12M decisions with the replay of elite.py and 3 seeds, on a Ray
cluster with hydra.launcher.ray.init.address=auto. The runs with V-trace are those of uniform replay in elite.py, and
both programs find them there. The same command goes on with runs that were
stopped. ``--draw`` shows those that have ended.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from arms import PROFILES, WORLDS, uncorrected, uniform, world_of
from figures import figure, shaded, write
from scores import METRIC, Score, at, core_hours, curve, mean, samples, scored
from sweeps import Asked, asked, runs_of
from verdicts import beside

from common import machine, of_runs, page, save  # isort: skip
from common import table as markdown  # isort: skip
from evorl.analysis.runs import RunRecord

TITLES = {"vtrace": "V-trace", "none": "no correction"}
SWEEPS = {
    name: [each(world) for world in worlds for each in (uniform, uncorrected)] for name, worlds in PROFILES.items()
}
BEHIND = 5.0
"""Points that no correction must be behind on vector Pong."""
Found = dict[str, dict[str, list[RunRecord]]]
"""Runs by world and correction."""


def gathered(runs: list[RunRecord]) -> Found:
    found: Found = {world: {} for world in WORLDS}
    for run in runs:
        if run.result is not None:
            found[world_of(run)].setdefault(run.config["rl.correction"], []).append(run)
    return {world: dict(sorted(each.items(), reverse=True)) for world, each in found.items() if each}


def scores_of(runs: list[RunRecord], every: float) -> dict[str, Score | None]:
    end = float(runs[0].config["budget.steps"])
    over = [run for run in runs if np.isfinite(at(run, end, 1, every))]
    return {
        "end": scored(over, lambda run: at(run, end, 1, every)),
        "overall": scored(over, lambda run: mean(run, METRIC, 0.0, np.inf)),
        "kl": scored(over, lambda run: mean(run, "replay/kl_uniform", 0.0, np.inf)),
    }


def rows(found: Found) -> tuple[list[list[str]], dict[str, dict[str, dict[str, Score | None]]]]:
    """Of the table, and the scores by world and correction."""
    shown, data = [], {}
    for world, each in found.items():
        _, _, _, every, digits, _ = WORLDS[world]
        data[world] = {name: scores_of(runs, every) for name, runs in each.items()}
        for name, mine in data[world].items():
            base, cells = data[world].get("vtrace", {}), []
            for what in ("end", "overall"):
                one = mine[what]
                cells += ["-" if one is None else one.told(digits), beside(one, base.get(what))]
            kl, runs = mine["kl"], each[name]
            cells += ["-" if kl is None else kl.told(2), f"{core_hours(runs):.2f}"]
            steps = f"{float(runs[0].config['budget.steps']):,.0f}"
            shown.append([f"{WORLDS[world].title}, {TITLES[name]}", f"{len(runs)}", steps, *cells])
    return shown, data


def verdict(pong: Mapping[str, Mapping[str, Score | None]]) -> str:
    """Of the rule that was fixed before the runs, for vector Pong."""
    none, vtrace = (pong.get(name, {}).get("end") for name in ("none", "vtrace"))
    if none is None or vtrace is None:
        return "not run"
    return "passed" if beside(none, vtrace) == "below" and none.iqm <= vtrace.iqm - BEHIND else "failed"


def draw(found: Found, path: Path) -> None:
    drawn, axes = figure([WORLDS[world].title for world in found], "environment steps (decisions)", "return")
    for one, (world, each) in zip(axes, found.items(), strict=True):
        for number, (name, runs) in enumerate(each.items()):
            band = curve(runs, float(runs[0].config["budget.steps"]), WORLDS[world].every)
            shaded(one, *band, f"C{number}", f"{TITLES[name]}, seeds: {len(runs)}")
    write(drawn, path)


def report(options: Asked, facts: dict[str, Any]) -> None:
    runs = runs_of(options.runs, [sweep.name for sweep in SWEEPS[options.profile]])
    found = gathered(runs)
    if not found:
        raise SystemExit(f"{options.runs} holds no run that has ended")
    facts |= {"load at the end": round(os.getloadavg()[0], 2), **of_runs(one.directory for one in runs)}
    facts["core hours"] = round(core_hours(runs), 2)
    shown, data = rows(found)
    header = ["world, correction", "seeds", "steps", "return at the end", "beside V-trace", "mean over the run"]
    lines = page("V-trace and no correction", __doc__, [*header, "beside V-trace", "KL", "core hours"], shown)
    gates = {}
    if "vector_pong" in found:
        what = f"Vector Pong: no correction ends {BEHIND:.0f} points or more below V-trace, intervals apart"
        gates[what] = verdict(data["vector_pong"])
        lines += ["", *markdown(["gate", "verdict"], [[*one] for one in gates.items()])]
    content = {
        "table": {
            world: {name: {k: x and x._asdict() for k, x in mine.items()} for name, mine in each.items()}
            for world, each in data.items()
        },
        "gates": gates,
        "runs": {world: {name: samples(runs) for name, runs in each.items()} for world, each in found.items()},
    }
    save(options.out, facts, [*lines, "", "![Return over environment steps](correction.png)"], content)
    if options.out is not None:
        draw(found, options.out / "correction.png")


def main() -> None:
    facts: dict[str, Any] = machine()
    report(asked(__doc__, SWEEPS), facts)


if __name__ == "__main__":
    main()
