"""PPO's sampling efficiency on Pendulum and on Atari's Pong from images: mean return over environment steps.

Each run is one command of ``evorl.run``; its curve is the mean return of the deterministic policy over 60 episodes (on
Pong 10) at every evaluation. Curves are means over seeds with their 95 % interval (Student's t) from 3 on; a threshold
counts as reached at the first evaluation at or above it, and at least the run's length where there is none. Steps per
second are those of training, of the median run. Pendulum is learned with our settings (conf/tuned) and with those of
Lamarckian as near as they come (conf/experiment/lamarckian/ppo_pendulum); Pong from small pictures with settings of
ours (ppo_gym_pong, beside it).
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter

from benchmarks.speed.common import bound
from evorl.analysis.runs import RunRecord, Series
from evorl.analysis.statistics import Band, band, common_grid
from evorl.ops.student_t import half_width
from evorl.reproduction.parts import Sweep
from evorl.reproduction.scores import median_policies, samples, score
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table

METRIC = "eval/return_mean"
FEW = 3
"""Seeds from which an interval tells something."""


class Case(NamedTuple):
    world: str
    label: str
    words: list[str]
    """Of the experiment."""
    threshold: float
    ci: tuple[str, ...]
    """Words beside the experiment's own."""


CASES = {
    "pendulum-ours": Case(
        "Pendulum", "evorl's settings", ["mdp=pendulum", "rl=ppo"], -200.0,
        ("seed=0,1,2,3,4", "budget.steps=200_000", "eval.every=10_000"),
    ),
    "pendulum-lamarckian": Case(
        "Pendulum", "Lamarckian's settings", ["+experiment=lamarckian/ppo_pendulum"], -200.0,
        ("seed=0,1,2,3,4", "budget.steps=2_000_000", "eval.every=100_000"),
    ),
    "pong": Case(
        "Pong from images", "evorl's settings", ["+experiment=lamarckian/ppo_gym_pong"], 0.0,
        ("seed=0", "budget.steps=1_000_000", "eval.every=100_000"),
    ),
}  # fmt: skip
PAPER = ("seed=0,1,2,3,4", "budget.steps=100_000_000", "eval.every=1_000_000")
SWEEPS = {
    "ci": [Sweep(name, (*case.words, *case.ci)) for name, case in CASES.items()],
    "paper": [Sweep(name, (*case.words, *PAPER)) for name, case in CASES.items()],
}


def threshold_steps(curve: Series, threshold: float) -> float | None:
    """Environment steps of the first evaluation at or above."""
    places = np.flatnonzero(curve.values >= threshold)
    return float(curve.steps[places[0]]) if places.size else None


def row(case: Case, runs: list[RunRecord]) -> list[str]:
    """Of the table."""
    curves = [run.series[METRIC] for run in runs]
    ends = [float(curve.values[-1]) for curve in curves]
    crossings = [threshold_steps(curve, case.threshold) for curve in curves]
    steps = [float(curve.steps[-1]) if crossings[n] is None else crossings[n] for n, curve in enumerate(curves)]
    sign = bound(crossings, steps)
    interval = f" ± {half_width(ends):.1f}" if len(ends) >= FEW else ""
    rates = [float(np.median(run.series["speed/steps_per_second"].values)) for run in runs]
    return [
        f"{case.world}, {case.label}", str(len(runs)), f"{median(run.steps for run in runs):,.0f}",
        f"{sum(ends) / len(ends):.1f}{interval}", f"{case.threshold:g}", f"{sign}{median(steps):,.0f}",
        f"{median(rates):,.0f}",
    ]  # fmt: skip


def bands(runs: list[RunRecord]) -> Band:
    curves = [(run.series[METRIC].steps, run.series[METRIC].values) for run in runs]
    return band(curves, common_grid([steps for steps, _ in curves]))


def draw(by_case: Mapping[str, list[RunRecord]]) -> Figure:
    worlds = list(dict.fromkeys(CASES[name].world for name in by_case))
    figure = Figure(figsize=(5 * len(worlds), 3.5), layout="constrained")
    panels = dict(zip(worlds, figure.subplots(1, len(worlds), squeeze=False)[0], strict=True))
    for name, runs in by_case.items():
        case, curve = CASES[name], bands(runs)
        axes = panels[case.world]
        axes.plot(curve.grid, curve.mean, lw=1.5, label=f"{case.label}, seeds: {len(runs)}")
        if len(runs) >= FEW:
            axes.fill_between(curve.grid, curve.mean - curve.half, curve.mean + curve.half, alpha=0.25, lw=0)
        axes.set(title=case.world, xlabel="environment steps", ylabel="mean return", xscale="log")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 50k, 2M
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18))  # below: curves are everywhere
    return figure


def case_of(run: RunRecord) -> str:
    """Its key in `CASES`."""
    return run.directory.parent.name


def analyse(results: Results) -> Analysis | None:
    judged = [run for run in results.runs if METRIC in run.series]
    by_case = {name: [run for run in judged if case_of(run) == name] for name in CASES}
    by_case = {name: runs for name, runs in by_case.items() if runs}
    if not by_case:
        return None
    policies, medians = median_policies({name.replace("-", "_"): runs for name, runs in by_case.items()})
    return Analysis(
        header=["PPO", "seeds", "steps", "return at the end", "threshold", "steps to it, median", "steps/s"],
        rows=[row(CASES[name], runs) for name, runs in by_case.items()],
        also=[medians],
        policies=policies,
        pictures=[Picture("sampling", "Return over environment steps", draw(by_case))],
        data={"runs": {name: samples(runs) for name, runs in by_case.items()}},
    )


def measured(data: Mapping[str, Any]) -> str:
    texts = []
    for name, runs in data["runs"].items():
        ends = [run["return"][-1] for run in runs]
        interval = f" ± {half_width(ends):.0f}" if len(ends) >= FEW else ""
        case, steps = CASES[name], median(run["steps"][-1] for run in runs)
        texts.append(f"{case.world}, {case.label}: {sum(ends) / len(ends):.0f}{interval} at {steps:,.0f} steps")
    return "; ".join(texts)


def policy_scores(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.replace("-", "_"): score([run["return"][-1] for run in runs])._asdict()
        for name, runs in data["runs"].items()
    }


TABLE = Table(
    title="PPO's sampling efficiency",
    of="Sampling efficiency of PPO: the programs for Pendulum and Gym Pong",
    claim="twice the sampling efficiency of RLlib, for Google football; no curves of these two are published",
    source="Bai et al. 2022, abstract",
    about=__doc__,
    profiles={
        "ci": Profile(
            "Pendulum for 200,000 and 2,000,000 steps, 5 seeds; Pong from images for 1,000,000, one seed", 0.6,
            SWEEPS["ci"],
        ),
        "paper": Profile("100,000,000 steps each; 5 seeds", 700, SWEEPS["paper"]),
    },
    analyse=analyse,
    measured=measured,
    policy_scores=policy_scores,
)  # fmt: skip
