"""Elite replay (strategies 1 and 3) beside uniform replay, with half of each minibatch replayed.

Returns are those of the deterministic policy: at the end, and the mean over all evaluations of the run, which tells who
is ahead early. KL is the divergence of the present policy from the one that acted, over the replayed rollouts, as it is
estimated from their ratios: how off-policy the replay's share of a minibatch is. It is told for the steps until
candidates (lambda) is 1, and for those after, in which elite sampling is uniform too. In the runs "both" a quarter of
each minibatch comes from each rule, so both choose for the same policy; there the KL of elite sampling is given as a
share of uniform sampling's. A number is the interquartile mean over seeds with its 95 % stratified bootstrap interval;
"beside uniform" says how the intervals lie. The dashed curves are the published ones (published.py).

What the strategies and candidates are: [docs/vtrace.md](../../../docs/vtrace.md).

The policy of each median run is kept in `policies/`. The table of policies has the return of its last evaluation,
which is that of one run. `python -m evorl.evaluate run=benchmarks/elite_replay/results/policies/NAME` evaluates it
again, to the same bits on a processor with the same instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.elite_replay.arms import (
    COLOURS,
    ELITE,
    PROFILES,
    UNIFORM,
    WORLDS,
    both,
    elite,
    ends,
    rules,
    uniform,
    world_of,
)
from benchmarks.elite_replay.published import BANDS, SCORES, STEPS
from evorl.analysis.axes import log_axis
from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.scores import (
    METRIC,
    Score,
    at,
    binned,
    core_hours,
    curve,
    mean,
    median_policies,
    samples,
    score_text,
    scored,
)
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Rows, Table
from evorl.reproduction.verdicts import beside

SWEEPS = {
    "ci": [each(world) for world in PROFILES["ci"] for each in (uniform, elite)] + [both("cartpole")],
    "paper": [each(world) for world in PROFILES["paper"] for each in (uniform, elite)],
}
NEAR = (0.8, 1.25)
"""Between which the ratio of the two rules' KL must be once both are uniform."""
Runs = dict[str, dict[tuple[str, ...], list[RunRecord]]]
"""Runs by world and rules."""


def gathered(runs: Sequence[RunRecord]) -> Runs:
    by_world: Runs = {}
    for run in runs:
        if run.result is not None:
            by_world.setdefault(world_of(run), {}).setdefault(rules(run), []).append(run)
    order = [(UNIFORM,), *((rule,) for rule in ELITE.values()), *((UNIFORM, rule) for rule in ELITE.values())]
    return {
        world: {names: by_world[world][names] for names in order if names in by_world[world]}
        for world in WORLDS
        if world in by_world
    }


def budget(run: RunRecord) -> float:
    return float(run.config["budget.steps"])


def overall(run: RunRecord, every: float) -> float:
    """The mean of its evaluations; NaN for a run that has not ended."""
    return mean(run, METRIC, 0.0, np.inf) if np.isfinite(at(run, budget(run), 1, every)) else float("nan")


def part(rule: str) -> str:
    """The part of the replay that chooses by a rule, as metrics name it."""
    return "uniform" if rule == UNIFORM else "elite"


def annealed(runs: Sequence[RunRecord]) -> float:
    """The step from which candidates was 1 in all runs."""

    def first(run: RunRecord) -> float:
        series = run.series["replay/candidates_elite"]
        steps = series.steps[series.values == 1]
        return float(steps[0]) if len(steps) else float("inf")

    return max(first(run) for run in runs)


def divergence(run: RunRecord, begin: float, end: float) -> float:
    """The KL of its replayed rollouts; of elite sampling as a share of uniform sampling's where it has both."""
    elite_kl, uniform_kl = (mean(run, f"replay/kl_{part}", begin, end) for part in ("elite", "uniform"))
    match rules(run):
        case (_, _):
            return elite_kl / uniform_kl
        case (rule,):
            return uniform_kl if rule == UNIFORM else elite_kl
    return float("nan")


def falls(run: RunRecord) -> bool:
    """Whether candidates is linear in the gradient steps, from 6 at step 0 to 1 at step ``anneal``, then 1."""
    factor, updates = (run.series[name] for name in ("replay/candidates_elite", "optimizer/updates"))
    first, anneal = (float(run.config[f"rl.replay.elite.{key}"]) for key in ("candidates", "anneal"))
    expected = np.maximum(first - (first - 1) * updates.values / anneal, 1.0)
    return bool(first == 6 and factor.values[-1] == 1 and np.allclose(factor.values, expected, atol=1e-9))


def numbers(scores: dict[str, Score | None]) -> dict[str, Any]:
    return {name: estimate and estimate._asdict() for name, estimate in scores.items()}


def returns(by_world: Runs) -> tuple[list[list[str]], dict[str, Any]]:
    """Rows of the table of returns, and the same as numbers."""
    shown, data = [], dict[str, Any]()
    for world, each in by_world.items():
        known = WORLDS[world]
        scores = {
            names[0]: {
                "end": scored(runs, lambda run, every=known.every: at(run, budget(run), 1, every)),
                "overall": scored(runs, lambda run, every=known.every: overall(run, every)),
            }
            for names, runs in each.items()
            if len(names) == 1
        }
        for name, estimates in scores.items():
            runs, cells = each[name,], []
            for what, estimate in estimates.items():
                cells += [score_text(estimate, known.digits), beside(estimate, scores.get(UNIFORM, estimates)[what])]
            steps = f"{budget(runs[0]):,.0f}"
            shown.append([f"{known.title}, {name}", f"{len(runs)}", steps, *cells, f"{core_hours(runs):.2f}"])
        data[world] = {name: numbers(estimates) for name, estimates in scores.items()}
    return shown, data


def sampling(by_world: Runs) -> tuple[list[list[str]], dict[str, Any], dict[str, str]]:
    """Rows of the table of what is sampled, the same as numbers, and the verdicts."""
    shown, data, gates = [], dict[str, Any](), dict[str, str]()
    for world, each in by_world.items():
        chosen = [run for names, runs in each.items() if names != (UNIFORM,) for run in runs]
        if not chosen:
            continue
        turn, title = annealed(chosen), WORLDS[world].title
        spans = {"until": (0.0, turn), "after": (turn, np.inf)}
        scores = {
            names: {name: scored(runs, lambda run, span=span: divergence(run, *span)) for name, span in spans.items()}
            for names, runs in each.items()
        }
        for names, estimates in scores.items():
            name, of = ("both, " + names[1], " of uniform") if len(names) == 2 else (names[0], "")
            cells = [f"{score_text(x, 3)}{of if x else ''}" for x in estimates.values()]
            metric = "replay/age_" + part(names[-1])
            age = scored(each[names], lambda run, metric=metric, turn=turn: mean(run, metric, 0.0, turn))
            shown.append([f"{title}, {name}", f"{len(each[names])}", *cells, score_text(age, 0)])
            data.setdefault(world, {})[name] = numbers(estimates)
        data[world]["candidates is 1 from step"] = turn
        gates |= judged(title, scores)
        gates[f"{title}: candidates falls from 6 to 1, linear in the gradient steps"] = passed(all(map(falls, chosen)))
    return shown, data, gates


def passed(so: bool) -> str:
    return "passed" if so else "failed"


def judged(title: str, scores: dict[tuple[str, ...], dict[str, Score | None]]) -> dict[str, str]:
    """The rule fixed before the runs: what is said of the KL of each strategy, and whether it is so."""
    gates = {}
    for rule in ELITE.values():
        alone, base, pair = (scores.get(names, {}) for names in ((rule,), (UNIFORM,), (UNIFORM, rule)))
        if alone and base:
            lower = beside(alone["until"], base["until"]) == "below"
            gates[f"{title}, {rule}: less KL than uniform replay until candidates is 1 (intervals apart)"] = passed(
                lower
            )
        if pair and (until := pair["until"]) and (after := pair["after"]):
            gates[f"{title}, both, {rule}: less KL than uniform sampling until candidates is 1 (interval below 1)"] = (
                passed(until.high < 1)
            )
            low, high = NEAR
            gates[f"{title}, both, {rule}: {low} to {high} of uniform sampling's KL afterwards"] = passed(
                low <= after.iqm <= high
            )
    return gates


def draw(by_world: Runs) -> Figure:
    """Returns over steps, then the published curves: each game in a panel of its own."""
    worlds = [*(world for world in by_world if world not in SCORES), *SCORES]
    drawn, axes = panels([WORLDS[world].title for world in worlds], "environment steps (decisions)", "return")
    for axis, world in zip(axes, worlds, strict=True):
        for names, runs in by_world.get(world, {}).items():
            if len(names) == 1:
                band = curve(runs, budget(runs[0]), WORLDS[world].every)
                shaded(axis, *band, COLOURS[names[0]], f"{names[0]}, seeds: {len(runs)}")
        for name, scores in SCORES.get(world, {}).items():
            axis.plot(STEPS[world], scores, "--", color=COLOURS[name], lw=1, label=f"{name}, published")
            axis.vlines(STEPS[world][-1], *BANDS[world][name], color=COLOURS[name], lw=1)
    return legends(drawn)


def published_alone(by_world: Runs) -> str:
    """Of the caption: the games of which there are no runs of ours."""
    games = [WORLDS[world].title.partition(",")[0] for world in SCORES if world not in by_world]
    return f"; {' and '.join(games)}: the published curves alone, without runs of ours" if games else ""


def draw_sampling(by_world: Runs) -> Figure:
    """The KL of what was replayed, over steps; dotted and dash-dotted where one run has both rules."""
    drawn, axes = panels(
        [WORLDS[world].title for world in by_world], "environment steps (decisions)", "KL of the replay's part"
    )
    for axis, each in zip(axes, by_world.values(), strict=True):
        middles = []
        for names, runs in each.items():
            for name in names:
                grid, band = binned(runs, "replay/kl_" + part(name), budget(runs[0]), budget(runs[0]) / 20)
                middles.append(band[:, 0])
                if len(names) == 1:
                    shaded(axis, grid, band, COLOURS[name], f"{name}, seeds: {len(runs)}")
                else:
                    dashes = ":" if name == names[1] else "-."
                    axis.plot(
                        grid, band[:, 0], dashes, color=COLOURS[names[1]], lw=1, label=f"both ({names[1]}): {name}"
                    )
        log_axis(axis, np.concatenate(middles), axis.yaxis)
    return legends(drawn)


def policy_name(world: str, names: Sequence[str]) -> str:
    return "_".join((world, *names)).replace(", ", "_").replace(" ", "_")


def analyse(results: Results) -> Analysis | None:
    by_world = gathered(results.runs)
    if not by_world:
        return None
    shown, data = returns(by_world)
    header = ["world, replay", "seeds", "steps", "return at the end", "beside uniform", "mean over the run"]
    chosen, sampled, gates = sampling(by_world)
    policies, medians = median_policies(
        {policy_name(world, names): runs for world, each in by_world.items() for names, runs in each.items()}
    )
    return Analysis(
        header=[*header, "beside uniform", "core hours"],
        rows=shown,
        also=[
            Rows(
                ["world, replay", "seeds", "KL until candidates is 1", "KL afterwards",
                 "age until then (gradient steps)"],
                chosen,
            ),
            medians,
        ],
        policies=policies,
        gates=gates,
        pictures=[
            Picture("elite", f"Return over environment steps{published_alone(by_world)}", draw(by_world)),
            Picture("elite_kl", "KL over environment steps", draw_sampling(by_world)),
        ],
        data={
            "returns": data,
            "sampling": sampled,
            "runs": {
                world: {" and ".join(names): samples(runs) for names, runs in each.items()}
                for world, each in by_world.items()
            },
        },
    )  # fmt: skip


def measured(data: Mapping[str, Any]) -> str:
    return ends(data["returns"])


def policy_scores(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        policy_name(world, names.split(" and ")): scores["end"]
        for world, each in data["returns"].items()
        for names, scores in each.items()
    }


TABLE = Table(
    title="Elite and uniform replay",
    of="Elite and normal replay on Breakout and Seaquest (two figures)",
    claim="at 12M decisions normal replay, strategy 1 and strategy 3 have 460, 426, 456 on Breakout and 943, 1260, "
    "1386 on Seaquest; strategy 3 is ahead early (195 against 137 at 4M on Breakout)",
    source="digitised from the figures of the platform's README",
    about=__doc__,
    profiles={
        "ci": Profile(
            "vector Pong for 3M steps, the duel for 1M and CartPole for 100,000; 5 seeds", 0.7, SWEEPS["ci"]
        ),
        "paper": Profile(
            "Breakout and Seaquest with the published flags for 12M decisions; 3 seeds; a Ray cluster",
            360, SWEEPS["paper"],
        ),
    },
    analyse=analyse,
    measured=measured,
    policy_scores=policy_scores,
)  # fmt: skip
