"""Final performance: eight algorithms of the AES-RL family and beside it, on MuJoCo's worlds.

Returns are those of the mean policy (TD3 and SAC: of the policy), 10 deterministic episodes at every evaluation, of
which there is one for every 5,000 environment steps that count (Swimmer's CEM: 20,000). Counted are the episodes that
an algorithm learns from, not those by which it evaluates its mean. A number is the interquartile mean over seeds with
its 95 % stratified bootstrap interval; "beside TD3" says whether the interval is above, below or overlaps TD3's in the
same world. Curves are interquartile means with the same intervals. "CEM, longer" are the runs of CEM on Swimmer at
their end. Core hours are the wall time of all seeds times their processes.

With profile=ci asynchronous searches have one slot, so each individual comes from the newest mean, as in the
implementation that the gates come from; "5 slots" is AES-RL with the slots of its code (3 seeds). A run's final return
is that of its last evaluation (ci) or the mean of its last ten (paper).

The policy of the median run of each algorithm is kept in `policies/`. It is that of the end of the run, which may be
later than the table compares, and the table of policies has the return of its last evaluation. To evaluate it again,
to the same bits on a processor with the same instructions: `python -m evorl.evaluate
run=benchmarks/aes_rl/results/policies/aes_rl_halfcheetah`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.aes_rl.family import COLOURS, FIVE_SLOTS, SMALL, TITLES, WORLDS, algorithm
from benchmarks.aes_rl.gates import HALFCHEETAH
from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.parts import CLUSTER, TWO_AT_ONCE, Sweep
from evorl.reproduction.scores import METRIC, at, core_hours, curve, median_policies, samples, score, score_text
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table
from evorl.reproduction.verdicts import compared, verdict

SEEDS = "seed=1,2,3,4,5"
PUBLISHED = [name for name in TITLES if name not in ("sac", "cem")]
GRADIENT_FREE = "CEM, longer"
STEPS = {"halfcheetah": 40_000.0, "swimmer": 20_000.0}
"""At which profile=ci compares; some runs are longer."""


def _experiments(*names: str) -> str:
    return "+experiment=" + ",".join(f"aes_rl/{name}" for name in names)


SWEEPS = {
    "ci": [
        Sweep("halfcheetah", (
            SEEDS, _experiments("td3", "sac", "cem", "p_cem_rl"), "mdp=halfcheetah", "budget.steps=40_000", *SMALL,
        ), TWO_AT_ONCE),
        Sweep("halfcheetah_1_slot", (
            SEEDS, _experiments("acem_rl", "one_plus_one_rl", "halfcheetah"), "ec.slots=1", "mdp=halfcheetah",
            "budget.steps=40_000", *SMALL,
        ), TWO_AT_ONCE),
        Sweep("cem_rl", (SEEDS, _experiments("cem_rl"), "mdp=halfcheetah", "budget.steps=50_000", *SMALL), TWO_AT_ONCE),
        Sweep("none_trained", (
            SEEDS, _experiments("halfcheetah"), "ec.slots=1", "ec.trained_share=0", "budget.steps=40_000", *SMALL,
        ), TWO_AT_ONCE),
        Sweep("five_slots", ("seed=1,2,3", _experiments("halfcheetah"), "budget.steps=40_000", *SMALL), TWO_AT_ONCE),
        Sweep("swimmer", (
            SEEDS, _experiments("td3", "sac", "cem_rl", "p_cem_rl"), "mdp=swimmer", "budget.steps=20_000", *SMALL,
        ), TWO_AT_ONCE),
        Sweep("swimmer_1_slot", (
            SEEDS, _experiments("acem_rl", "one_plus_one_rl", "swimmer"), "ec.slots=1", "mdp=swimmer",
            "budget.steps=20_000", *SMALL,
        ), TWO_AT_ONCE),
        Sweep("cem_swimmer", (
            SEEDS, _experiments("cem"), "mdp=swimmer", "budget.steps=300_000", "eval.every=20_000", *SMALL,
        ), TWO_AT_ONCE),
    ],
    "paper": [
        Sweep("published", (
            SEEDS, _experiments(*(f"as_published/{name}_{world}" for name in PUBLISHED for world in WORLDS)),
        ), CLUSTER),
        Sweep("others", (SEEDS, _experiments("sac", "cem"), "mdp=" + ",".join(WORLDS)), CLUSTER),
    ],
}  # fmt: skip
LAST = {"ci": 1, "paper": 10}
"""Evaluations that the final return is the mean of."""


Runs = dict[str, dict[str, list[RunRecord]]]
"""Runs by world and algorithm."""


def gathered(runs: Sequence[RunRecord], profile: str) -> Runs:
    by_world: Runs = {}
    for run in runs:
        name = algorithm(run)
        if profile == "ci" and name == TITLES["aes_rl"] and run.config["ec.slots"] == 5:
            name = FIVE_SLOTS
        if METRIC in run.series:
            by_world.setdefault(run.choices["mdp"].removesuffix("_v4"), {}).setdefault(name, []).append(run)
    return {world: {name: each[name] for name in COLOURS if name in each} for world, each in by_world.items()}


def end(runs: Sequence[RunRecord], world: str, profile: str) -> float:
    """The steps at which some runs are compared: those of the world, else all that were asked for."""
    budget = max(float(run.config["budget.steps"]) for run in runs)
    return min(budget, STEPS.get(world, budget)) if profile == "ci" else budget


def finals(runs: Sequence[RunRecord], step: float, profile: str) -> list[float]:
    """The final return of each seed that got there."""
    return [x for run in runs if np.isfinite(x := at(run, step, LAST[profile]))]


def cases(by_world: Runs, profile: str) -> Iterator[tuple[str, str, list[RunRecord], float]]:
    """World, name, runs and steps of each row of the table; CEM, which is cheap, also at the end of longer runs."""
    for world, each in by_world.items():
        for name, runs in each.items():
            steps = end(runs, world, profile)
            yield world, name, runs, steps
            longest = max(float(run.config["budget.steps"]) for run in runs)
            if name == "CEM" and longest > steps:
                yield world, GRADIENT_FREE, runs, longest


def rows(by_world: Runs, profile: str) -> tuple[list[list[str]], dict[str, dict[str, Any]]]:
    """Of the table, and the same as numbers by world."""
    shown, data = [], dict[str, dict[str, Any]]()
    for world, name, runs, steps in cases(by_world, profile):
        values = finals(runs, steps, profile)
        if not values:
            continue
        estimate, scores = score(values), data.setdefault(world, {})
        td3 = scores.get("TD3")
        beside = compared(estimate.low, estimate.high, td3["low"], td3["high"]) if td3 else "-"
        hours = core_hours(runs)
        scores[name] = {
            "steps": steps,
            **estimate._asdict(),
            "returns": values,
            "beside TD3": beside,
            "core hours": hours,
        }
        shown.append([
            f"{WORLDS[world]}, {name}", str(len(values)), f"{steps:,.0f}", str(estimate), f"{np.mean(values):.0f}",
            beside, f"{hours:.2f}",
        ])  # fmt: skip
    return shown, data


def verdicts(by_world: Runs) -> list[list[str]]:
    """The gates on HalfCheetah, and whether they are passed."""
    grid = sorted({step for gate in HALFCHEETAH for step in gate.steps})
    returns = {
        name: {step: np.array(finals(runs, step, "ci")) for step in grid}
        for name, runs in by_world.get("halfcheetah", {}).items()
    }
    return [[gate.what, verdict(gate, returns)] for gate in HALFCHEETAH]


def draw(by_world: Runs, profile: str) -> Figure:
    ends = {world: max(end(runs, world, profile) for runs in each.values()) for world, each in by_world.items()}
    drawn, axes = panels([WORLDS[world] for world in by_world], "environment steps that count", "return")
    for axis, (world, each) in zip(axes, by_world.items(), strict=True):
        for name, runs in each.items():
            shaded(axis, *curve(runs, ends[world]), COLOURS[name], f"{name}, seeds: {len(runs)}")
    return legends(drawn)


def analyse(results: Results) -> Analysis | None:
    by_world = gathered(results.runs, results.profile)
    if not by_world:
        return None
    shown, data = rows(by_world, results.profile)
    policies, medians = median_policies({
        f"{name}_{world}": each[title] for world, each in by_world.items() for name, title in TITLES.items()
        if title in each
    })  # fmt: skip
    return Analysis(
        header=["world, algorithm", "seeds", "steps", "return, interquartile mean", "mean", "beside TD3", "core hours"],
        rows=shown,
        gates=dict(verdicts(by_world)) if results.profile == "ci" else {},
        also=[medians],
        policies=policies,
        pictures=[Picture("performance", "Return over environment steps", draw(by_world, results.profile))],
        data={
            "table": data,
            "runs": {world: {name: samples(runs) for name, runs in each.items()} for world, each in by_world.items()},
        },
    )


def measured(data: Mapping[str, Any]) -> str:
    """Those that the claim compares."""
    shown = ("TD3", "CEM-RL", "AES-RL", FIVE_SLOTS, GRADIENT_FREE)
    return "; ".join(
        f"{WORLDS[world]}: " + ", ".join(f"{name} {score_text(each[name])}" for name in shown if name in each)
        for world, each in data["table"].items()
    )


def policy_scores(data: Mapping[str, Any]) -> dict[str, Any]:
    """A policy is of the end of its run, also where a row shows an earlier step."""
    return {
        f"{name}_{world}": score([run["return"][-1] for run in each[title]])._asdict()
        for world, each in data["runs"].items()
        for name, title in TITLES.items()
        if title in each
    }


TABLE = Table(
    title="Final performance of the AES-RL family",
    of="Final performance of the algorithms on six worlds",
    claim="AES-RL performs better than the methods before it after 1,000,000 steps; the numbers are not known to us",
    source="Lee et al. 2020, abstract",
    about=__doc__,
    profiles={
        "ci": Profile(
            "network of 64-64; HalfCheetah for 40,000 steps, Swimmer for 20,000; 5 seeds; one slot",
            4.6,
            SWEEPS["ci"],
        ),
        "paper": Profile(
            "the published settings, 1,000,000 steps and 5 seeds on six worlds; a Ray cluster", 2000, SWEEPS["paper"]
        ),
    },
    analyse=analyse,
    measured=measured,
    policy_scores=policy_scores,
)
