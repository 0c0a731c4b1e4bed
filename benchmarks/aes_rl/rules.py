"""AES-RL's rules: four for the mean of the distribution times two for its variance, on HalfCheetah.

Returns are those of the mean policy, 10 deterministic episodes at every evaluation. A number is the interquartile mean
over seeds with its 95 % stratified bootstrap interval. D is 2000, and the absolute baseline -2000.

    python benchmarks/aes_rl/rules.py profile=ci|paper [KEY=VALUE ...] [--runs DIR] [--out DIR] [--draw | --print]

``profile=ci`` has a network of 64-64, one slot, 2 seeds and 20,000 steps, on 2 cores: it says whether each rule learns,
and not which is the best. ``profile=paper`` has the published settings, a million steps and 5 seeds, on a Ray cluster
with hydra.launcher.ray.init.address=auto. A run's final return is that of its last evaluation (ci) or the mean of its
last ten (paper). More seeds are added by the same command: seed=1,2,3.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from family import SMALL
from figures import figure, shaded, write
from scores import METRIC, at, core_hours, curve, samples, score
from sweeps import CLUSTER, Asked, Sweep, asked, runs_of

from common import machine, of_runs, page, save  # isort: skip
from evorl.analysis.runs import RunRecord
from evorl.ec.aes_rl import AESRL

MEAN, VARIANCE = (get_type_hints(AESRL)[f"{name}_rule"].__args__ for name in ("mean", "variance"))
RULES = (f"ec.mean_rule={','.join(MEAN)}", f"ec.variance_rule={','.join(VARIANCE)}")
SWEEPS = {
    "ci": [
        Sweep("rules", (
            "seed=1,2", "+experiment=aes_rl/halfcheetah", "ec.slots=1", *RULES, "budget.steps=20_000", *SMALL,
        )),
    ],
    "paper": [
        Sweep("rules", ("seed=1,2,3,4,5", "+experiment=aes_rl/as_published/aes_rl_halfcheetah", *RULES), CLUSTER)
    ],
}  # fmt: skip
LAST = {"ci": 1, "paper": 10}


def cells(runs: Sequence[RunRecord]) -> Iterator[tuple[str, str, list[RunRecord]]]:
    """Mean rule, variance rule and the runs that have been judged, of each pair that has some."""
    for mean in MEAN:
        for variance in VARIANCE:
            rule = {"ec.mean_rule": mean, "ec.variance_rule": variance}
            those = [run for run in runs if rule.items() <= dict(run.config).items() and METRIC in run.series]
            if those:
                yield mean, variance, those


def rows(runs: Sequence[RunRecord], profile: str) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Of the table, and the same as numbers."""
    shown, data = [], list[dict[str, Any]]()
    for mean, variance, those in cells(runs):
        steps = float(those[0].config["budget.steps"])
        values = [x for run in those if np.isfinite(x := at(run, steps, LAST[profile]))]
        if values:
            one, hours = score(values), core_hours(those)
            each = ", ".join(f"{x:.0f}" for x in values)
            shown.append([f"{mean}, {variance}", str(len(values)), f"{steps:,.0f}", str(one), each, f"{hours:.2f}"])
            rule = {"mean rule": mean, "variance rule": variance}
            data.append({**rule, "steps": steps, **one._asdict(), "returns": values, "runs": samples(those)})
    return shown, data


def draw(runs: Sequence[RunRecord], path: Path) -> None:
    titles = [f"variance rule: {variance}" for variance in VARIANCE]
    drawn, axes = figure(titles, "environment steps that count", "return", sharey=True)
    panels = dict(zip(VARIANCE, axes, strict=True))
    for mean, variance, those in cells(runs):
        band = curve(those, float(those[0].config["budget.steps"]))
        shaded(panels[variance], *band, f"C{MEAN.index(mean)}", f"{mean}, seeds: {len(those)}")
    write(drawn, path)


def report(options: Asked, facts: dict[str, Any]) -> None:
    runs = runs_of(options.runs, [sweep.name for sweep in SWEEPS[options.profile]])
    shown, data = rows(runs, options.profile)
    if not shown:
        raise SystemExit(f"{options.runs} holds no run that is complete")
    facts |= {"load at the end": round(os.getloadavg()[0], 2), "core hours": round(core_hours(runs), 2)}
    facts |= of_runs(one.directory for one in runs)
    header = ["mean rule, variance rule", "seeds", "steps", "return, interquartile mean", "each seed", "core hours"]
    lines = page("AES-RL's rules for mean and variance", __doc__, header, shown)
    save(options.out, facts, [*lines, "", "![Return over environment steps](rules.png)"], {"table": data})
    if options.out is not None:
        draw(runs, options.out / "rules.png")


def main() -> None:
    facts: dict[str, Any] = machine()
    report(asked(__doc__, SWEEPS), facts)


if __name__ == "__main__":
    main()
