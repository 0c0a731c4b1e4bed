"""AES-RL's rules: four for the mean of the distribution times two for its variance, on HalfCheetah.

Returns are those of the mean policy, 10 deterministic episodes at every evaluation. A number is the interquartile mean
over seeds with its 95 % stratified bootstrap interval. D is 2000, and the absolute baseline -2000.

The runs of profile=ci say whether each rule learns, and not which is the best. A run's final return is that of its last
evaluation (ci) or the mean of its last ten (paper).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_type_hints

import numpy as np
from matplotlib.figure import Figure

from benchmarks.aes_rl.family import SMALL
from evorl.analysis.runs import RunRecord
from evorl.ec.aes_rl import AESRL
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.parts import CLUSTER, TWO_AT_ONCE, Sweep
from evorl.reproduction.scores import METRIC, at, core_hours, curve, median_policies, samples, score, score_text
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table

MEAN, VARIANCE = (get_type_hints(AESRL)[f"{name}_rule"].__args__ for name in ("mean", "variance"))
RULES = (f"ec.mean_rule={','.join(MEAN)}", f"ec.variance_rule={','.join(VARIANCE)}")
SEEDS = "seed=1,2,3,4,5"
SWEEPS = {
    "ci": [
        Sweep("rules", (
            SEEDS, "+experiment=aes_rl/halfcheetah", "ec.slots=1", *RULES, "budget.steps=20_000", *SMALL,
        ), TWO_AT_ONCE),
    ],
    "paper": [
        Sweep("rules", (SEEDS, "+experiment=aes_rl/as_published/aes_rl_halfcheetah", *RULES), CLUSTER)
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
            estimate, hours = score(values), core_hours(those)
            each = ", ".join(f"{x:.0f}" for x in values)
            shown.append(
                [f"{mean}, {variance}", str(len(values)), f"{steps:,.0f}", str(estimate), each, f"{hours:.2f}"]
            )
            rule = {"mean rule": mean, "variance rule": variance}
            data.append({**rule, "steps": steps, **estimate._asdict(), "returns": values, "runs": samples(those)})
    return shown, data


def draw(runs: Sequence[RunRecord]) -> Figure:
    titles = [f"variance rule: {variance}" for variance in VARIANCE]
    drawn, axes = panels(titles, "environment steps that count", "return", sharey=True)
    of = dict(zip(VARIANCE, axes, strict=True))
    for mean, variance, those in cells(runs):
        band = curve(those, float(those[0].config["budget.steps"]))
        shaded(of[variance], *band, f"C{MEAN.index(mean)}", f"{mean}, seeds: {len(those)}")
    return legends(drawn)


def analyse(results: Results) -> Analysis | None:
    shown, data = rows(results.runs, results.profile)
    if not shown:
        return None
    policies, medians = median_policies(
        {f"rules_{mean}_{variance}": those for mean, variance, those in cells(results.runs)}
    )
    return Analysis(
        header=["mean rule, variance rule", "seeds", "steps", "return, interquartile mean", "each seed", "core hours"],
        rows=shown,
        also=[medians],
        policies=policies,
        pictures=[Picture("rules", "Return over environment steps", draw(results.runs))],
        data={"table": data},
    )


def measured(data: Mapping[str, Any]) -> str:
    """The lowest and the highest pair."""
    pairs = sorted(data["table"], key=lambda row: row["iqm"])
    names = [f"{row['mean rule']} with {row['variance rule']} {score_text(row)}" for row in (pairs[0], pairs[-1])]
    return f"HalfCheetah, lowest {names[0]}, highest {names[1]}"


def policy_scores(data: Mapping[str, Any]) -> dict[str, Any]:
    return {f"rules_{row['mean rule']}_{row['variance rule']}": row for row in data["table"]}


TABLE = Table(
    title="AES-RL's rules for mean and variance",
    of="Ablation: four rules for the mean times two for the variance",
    claim="compared for 1,000,000 steps; the numbers are not known to us",
    source="Lee et al. 2020",
    about=__doc__,
    profiles={
        "ci": Profile("HalfCheetah for 20,000 steps, network of 64-64, one slot; 5 seeds; 2 cores", 0.83, SWEEPS["ci"]),
        "paper": Profile(
            "HalfCheetah with the published settings, 1,000,000 steps; 5 seeds; a Ray cluster", 500, SWEEPS["paper"]
        ),
    },
    analyse=analyse,
    measured=measured,
    policy_scores=policy_scores,
)
